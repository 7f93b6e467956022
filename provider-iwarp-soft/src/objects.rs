//! What the access layer holds of an RNIC's objects; dropping one destroys it.

use std::sync::{Arc, Mutex, PoisonError};

use iwarp_proto::Stag;

use crate::cm::listen::Listener;
use crate::cq::Cq;
use crate::memory::Window;
use crate::qp::Qp;
use crate::rnic::Shared;
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

/// A memory region. When its drop returns, nobody accesses the memory any more.
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
    /// Under the STag that the last posted bind gives it.
    last: Mutex<Window>,
}

impl SoftMw {
    pub(crate) fn new(shared: Arc<Shared>, first: Window) -> Self {
        Self {
            shared,
            last: Mutex::new(first),
        }
    }

    /// As the next bind will make it.
    pub(crate) fn next_window(&self) -> Window {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = self.shared.memory.next_window(*last);
        *last
    }
}

impl Drop for SoftMw {
    fn drop(&mut self) {
        let last = self.last.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.shared.memory.remove_window(*last);
    }
}

/// A listening service.
pub struct SoftListener {
    pub(crate) listener: Arc<Listener>,
}

impl std::fmt::Debug for SoftListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SoftListener").finish_non_exhaustive()
    }
}

impl Drop for SoftListener {
    fn drop(&mut self) {
        self.listener.close();
    }
}
