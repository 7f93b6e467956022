//! Shared receive queues: one queue of posted receives for many queue pairs.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use access_layer::rnic::{Resource, RnicError};

use crate::work::RecvSlot;

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) sge_max: u32,
    pub(crate) pd: u32,
    depth: usize,
    slots: Mutex<VecDeque<RecvSlot>>,
}

impl Srq {
    pub(crate) fn new(pd: u32, depth: u32, sge_max: u32) -> Self {
        Self {
            sge_max,
            pd,
            depth: depth as usize,
            slots: Mutex::default(),
        }
    }

    /// Adds a receive.
    pub(crate) fn post(&self, slot: RecvSlot) -> Result<(), RnicError> {
        let mut slots = self.lock();
        if slots.len() >= self.depth {
            return Err(RnicError::NoResources(Resource::WorkRequest));
        }
        slots.push_back(slot);
        Ok(())
    }

    /// Takes the oldest receive for an arriving message.
    pub(crate) fn take(&self) -> Option<RecvSlot> {
        self.lock().pop_front()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<RecvSlot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use access_layer::rnic::RecvWr;

    #[test]
    fn receives_come_out_in_order_and_the_depth_holds() {
        let srq = Srq::new(1, 2, 4);
        let slot = |wr_id| {
            RecvSlot::new(
                &RecvWr {
                    wr_id,
                    sgl: &[],
                    signalled: true,
                },
                0,
            )
        };
        srq.post(slot(1)).unwrap();
        srq.post(slot(2)).unwrap();
        assert!(matches!(
            srq.post(slot(3)),
            Err(RnicError::NoResources(Resource::WorkRequest))
        ));
        assert_eq!(srq.take().map(|s| s.wr_id), Some(1));
        srq.post(slot(4)).unwrap();
        assert_eq!(srq.take().map(|s| s.wr_id), Some(2));
        assert_eq!(srq.take().map(|s| s.wr_id), Some(4));
        assert!(srq.take().is_none());
    }
}
