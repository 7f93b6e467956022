//! The objects of an RNIC that the access layer owns; dropping one destroys it.

use std::sync::Arc;

use iwarp_proto::Stag;
use rnic::RnicError;

use crate::adapter::Shared;
use crate::cm::handoff::Receiver;
use crate::cm::listen::Listener;
use crate::cq::Cq;
use crate::memory::{Window, WindowId};
use crate::qp::Qp;
use crate::srq::Srq;

/// A protection domain: a number that regions and queue pairs share.
#[derive(Debug)]
pub struct SoftPd {
    pub(crate) id: u32,
}

/// A completion queue.
#[derive(Debug)]
pub struct SoftCq {
    pub(crate) cq: Arc<Cq>,
}

/// A shared receive queue.
#[derive(Debug)]
pub struct SoftSrq {
    pub(crate) srq: Arc<Srq>,
}

/// A queue pair.
#[derive(Debug)]
pub struct SoftQp {
    pub(crate) qp: Arc<Qp>,
}

impl Drop for SoftQp {
    fn drop(&mut self) {
        self.qp.destroy();
    }
}

/// A memory region. When its drop returns, no thread and no peer accesses the memory any more.
#[derive(Debug)]
pub struct SoftMr {
    pub(crate) shared: Arc<Shared>,
    pub(crate) stag: Stag,
}

impl Drop for SoftMr {
    fn drop(&mut self) {
        self.shared.memory.remove(self.stag);
    }
}

/// A memory window.
#[derive(Debug)]
pub struct SoftMw {
    shared: Arc<Shared>,
    id: WindowId,
}

impl SoftMw {
    pub(crate) fn new(shared: Arc<Shared>, id: WindowId) -> Self {
        Self { shared, id }
    }

    /// Reserves the STag of the next bind.
    pub(crate) fn next_window(&self) -> Result<Window, RnicError> {
        self.shared.memory.next_window(self.id)
    }

    /// Reserves an STag for binds that choose theirs.
    pub(crate) fn key(&self) -> Result<Stag, RnicError> {
        self.shared.memory.window_key(self.id)
    }

    /// Reserves the STag that the consumer has chosen for the next bind.
    pub(crate) fn chosen_window(&self, key: u32) -> Result<Window, RnicError> {
        self.shared.memory.chosen_window(self.id, key)
    }

    /// Frees the STag of a bind that could not be posted.
    pub(crate) fn cancel_bind(&self, window: Window) {
        self.shared.memory.cancel_bind(window);
    }
}

impl Drop for SoftMw {
    fn drop(&mut self) {
        self.shared.memory.remove_window(self.id);
    }
}

/// A listening service.
pub struct SoftListener {
    listener: Arc<Listener>,
    /// `None` if the kernel refuses it.
    receiver: Option<Arc<Receiver>>,
}

rnic::opaque_debug!(SoftListener {});

impl SoftListener {
    pub(crate) fn new(listener: Arc<Listener>) -> Self {
        let receiver = Receiver::open(&listener)
            .inspect_err(|error| tracing::warn!(%error, "no process can hand over a request"));
        Self {
            listener,
            receiver: receiver.ok(),
        }
    }
}

impl Drop for SoftListener {
    fn drop(&mut self) {
        // The name is free before the port is, so that the next service on the port has both.
        if let Some(receiver) = &self.receiver {
            receiver.close();
        }
        self.listener.close();
    }
}
