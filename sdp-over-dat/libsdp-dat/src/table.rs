//! The table of all sockets.
//!
//! The number of a socket is a generation and the index of a slot. A slot that is used again has
//! another generation, so that a closed, foreign or invented number is refused with `EBADF`. The
//! slot that was released first is used first: a stale number stays stale for long.
//!
//! Finding a socket takes the table's lock for reading, and a reference to the socket. A call that
//! waits does so without the lock.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};

use crate::errno::{Errno, Outcome};

/// The fewest free slots at which one is used again.
const RESERVE: usize = 64;
const GENERATION_BITS: u32 = 31;
const INDEX_MAX: usize = u32::MAX as usize;

/// Objects by their numbers.
#[derive(Debug)]
pub(crate) struct Table<T>(RwLock<Slots<T>>);

#[derive(Debug)]
struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<usize>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    object: Option<Arc<T>>,
}

/// The index and the generation in a number.
fn parts(number: i64) -> Option<(usize, u32)> {
    let number = u64::try_from(number).ok()?;
    Some((
        (number & u64::from(u32::MAX)) as usize,
        (number >> 32) as u32,
    ))
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(Slots {
            slots: Vec::new(),
            free: VecDeque::new(),
        }))
    }

    /// Adds an object and returns its number.
    pub(crate) fn insert(&self, object: T) -> Outcome<i64> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_full = table.slots.len() > INDEX_MAX;
        let reused = (table.free.len() >= RESERVE || is_full).then(|| table.free.pop_front());
        let index = match reused {
            Some(index) => index.ok_or(Errno(libc::ENFILE))?,
            None => {
                table.slots.push(Slot {
                    generation: 0,
                    object: None,
                });
                table.slots.len() - 1
            }
        };
        let slot = &mut table.slots[index];
        // Generation 0 is left out, so that small numbers, such as descriptors, name no socket.
        slot.generation = slot.generation % ((1 << GENERATION_BITS) - 1) + 1;
        slot.object = Some(Arc::new(object));
        Ok(i64::from(slot.generation) << 32 | index as i64)
    }

    /// Finds an object.
    pub(crate) fn find(&self, number: i64) -> Outcome<Arc<T>> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = parts(number).and_then(|(index, generation)| {
            let slot = table.slots.get(index)?;
            let is_live = slot.generation == generation;
            slot.object.as_ref().filter(|_| is_live).map(Arc::clone)
        });
        found.ok_or(Errno(libc::EBADF))
    }

    /// Ends a number and returns its object.
    pub(crate) fn remove(&self, number: i64) -> Outcome<Arc<T>> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let (index, generation) = parts(number).ok_or(Errno(libc::EBADF))?;
        let slot = table.slots.get_mut(index);
        let slot = slot.filter(|slot| slot.generation == generation);
        let object = slot.and_then(|slot| slot.object.take());
        let object = object.ok_or(Errno(libc::EBADF))?;
        table.free.push_back(index);
        Ok(object)
    }

    /// Ends all numbers and returns their objects.
    pub(crate) fn clear(&self) -> Vec<Arc<T>> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Slots { slots, free } = &mut *table;
        let taken = slots.iter_mut().enumerate().filter_map(|(index, slot)| {
            let object = slot.object.take()?;
            free.push_back(index);
            Some(object)
        });
        taken.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_finds_its_object_until_it_is_removed() {
        let table = Table::new();
        let first = table.insert('a').unwrap();
        let second = table.insert('b').unwrap();
        assert_eq!(
            (*table.find(first).unwrap(), *table.find(second).unwrap()),
            ('a', 'b')
        );
        assert_eq!(*table.remove(first).unwrap(), 'a');
        assert_eq!(table.remove(first), Err(Errno(libc::EBADF)));
        assert_eq!(table.find(first), Err(Errno(libc::EBADF)));
        assert_eq!(table.clear(), [Arc::new('b')]);
        assert_eq!(table.find(second), Err(Errno(libc::EBADF)));
    }

    #[test]
    fn numbers_that_are_no_sockets_are_refused() {
        let table = Table::new();
        table.insert(()).unwrap();
        for number in [
            -1,
            0,
            3,
            1 << 33,
            i64::MAX,
            i64::MIN,
            1 << 32 | 5,
            0x7fff_1234_5678,
        ] {
            assert_eq!(table.find(number), Err(Errno(libc::EBADF)), "{number:#x}");
            assert_eq!(table.remove(number), Err(Errno(libc::EBADF)), "{number:#x}");
        }
    }

    #[test]
    fn a_reused_slot_refuses_the_former_number() {
        let table = Table::new();
        let first = table.insert(0).unwrap();
        table.remove(first).unwrap();
        for _ in 0..4 * RESERVE {
            let next = table.insert(1).unwrap();
            assert_eq!(table.find(first), Err(Errno(libc::EBADF)));
            table.remove(next).unwrap();
        }
        let slots = table.0.read().unwrap().slots.len();
        assert!(
            slots <= RESERVE + 1,
            "{slots} slots for one object at a time"
        );
    }
}
