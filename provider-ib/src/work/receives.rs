//! The receives of a shared receive queue.
//!
//! Receives complete in any order, so each has a slot instead of an index in a ring.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

use host::locks::lock;
use rnic::{Resource, RnicError};

use super::{Posted, SHARED_QUEUES, Ticket};

/// The posted receives of one queue, for the completion queues.
#[derive(Debug)]
pub(crate) struct Receives {
    number: u32,
    slots: Mutex<Slots>,
}

/// The consumer's identifiers of the posted receives.
#[derive(Debug, Default)]
struct Slots {
    wr_ids: Vec<Option<u64>>,
    free: Vec<u32>,
}

/// The number of the next queue. A number is used again after 2^30 queues.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl Default for Receives {
    fn default() -> Self {
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed) % SHARED_QUEUES,
            slots: Mutex::default(),
        }
    }
}

impl Receives {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Takes the receive in a slot, which a message has completed; `None` if the slot is empty.
    pub(crate) fn take(&self, slot: u32) -> Option<Posted> {
        let wr_id = self.lock().empty(slot)?;
        Some(Posted::receive(wr_id, 0, true))
    }

    /// Records a receive and posts it with its ticket, unless `depth` receives are posted already.
    /// If `post` fails, the record is removed.
    pub(crate) fn post(
        &self,
        wr_id: u64,
        depth: u32,
        post: impl FnOnce(Ticket) -> Result<(), RnicError>,
    ) -> Result<(), RnicError> {
        let mut slots = self.lock();
        let slot = slots.take_slot(wr_id, depth)?;
        post(Ticket::of_shared(self.number, slot)).inspect_err(|_| {
            slots.empty(slot);
        })
    }

    /// The number of receives that no message has completed.
    pub(crate) fn left(&self) -> u32 {
        let slots = self.lock();
        (slots.wr_ids.len() - slots.free.len()) as u32
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        lock(&self.slots)
    }
}

impl Slots {
    /// Takes a slot for a receive, as long as fewer than `depth` are in use.
    fn take_slot(&mut self, wr_id: u64, depth: u32) -> Result<u32, RnicError> {
        let used = self.wr_ids.len() - self.free.len();
        if used >= depth as usize {
            return Err(RnicError::NoResources(Resource::WorkRequest));
        }
        if let Some(slot) = self.free.pop() {
            self.wr_ids[slot as usize] = Some(wr_id);
            return Ok(slot);
        }
        let full = |_| RnicError::NoResources(Resource::Memory);
        self.wr_ids.try_reserve(1).map_err(full)?;
        // Reserves room for every slot that may become free, so that `take` never allocates.
        self.free.try_reserve(self.wr_ids.len() + 1).map_err(full)?;
        self.wr_ids.push(Some(wr_id));
        Ok((self.wr_ids.len() - 1) as u32)
    }

    /// Takes the content of a slot, which becomes free.
    fn empty(&mut self, slot: u32) -> Option<u64> {
        let wr_id = self.wr_ids.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(wr_id)
    }
}

#[cfg(test)]
impl Receives {
    /// Records a receive of a queue without a device and returns its ticket.
    pub(crate) fn record(&self, wr_id: u64) -> Ticket {
        let slot = self.lock().take_slot(wr_id, u32::MAX).unwrap();
        Ticket::of_shared(self.number, slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_and_bounded() {
        let mut slots = Slots::default();
        assert_eq!(slots.take_slot(10, 2).unwrap(), 0);
        assert_eq!(slots.take_slot(11, 2).unwrap(), 1);
        let full = slots.take_slot(12, 2);
        assert!(matches!(
            full,
            Err(RnicError::NoResources(Resource::WorkRequest))
        ));
        assert_eq!(slots.empty(0), Some(10));
        assert_eq!(slots.empty(0), None, "a second time");
        assert_eq!(slots.empty(2), None, "never");
        assert_eq!(slots.take_slot(13, 2).unwrap(), 0);
        assert_eq!(slots.wr_ids, [Some(13), Some(11)]);
    }
}
