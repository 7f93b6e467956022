//! The RNIC's objects that the access layer holds; dropping one destroys it.

use std::sync::Arc;

use crate::cm::Cm;
use crate::cm::listen::Listener;
use crate::cq::Cq;
use crate::memory::{Mr, Pd};
use crate::qp::{Mw, Qp};
use crate::srq::Srq;

/// A protection domain.
#[derive(Debug)]
pub struct IbPd {
    pub(crate) pd: Arc<Pd>,
}

/// A completion queue.
#[derive(Debug)]
pub struct IbCq {
    pub(crate) cq: Arc<Cq>,
}

/// A shared receive queue.
#[derive(Debug)]
pub struct IbSrq {
    pub(crate) srq: Arc<Srq>,
}

/// A queue pair.
#[derive(Debug)]
pub struct IbQp {
    pub(crate) cm: Arc<Cm>,
    pub(crate) qp: Arc<Qp>,
}

impl Drop for IbQp {
    fn drop(&mut self) {
        self.cm.remove_qp(&self.qp);
        self.qp.retire();
    }
}

/// A memory region. When its drop returns, the device does not access the memory any more.
#[derive(Debug)]
pub struct IbMr {
    pub(crate) mr: Mr,
}

/// A memory window.
#[derive(Debug)]
pub struct IbMw {
    pub(crate) mw: Arc<Mw>,
}

/// A listening service.
#[derive(Debug)]
pub struct IbListener {
    pub(crate) listener: Arc<Listener>,
}

impl Drop for IbListener {
    fn drop(&mut self) {
        self.listener.close();
    }
}
