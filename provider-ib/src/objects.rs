//! The RNIC's objects whose drop is more than that of their parts.

use std::sync::Arc;

use crate::cm::Cm;
use crate::qp::Qp;

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
