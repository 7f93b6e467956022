//! Handles: the table of all objects.
//!
//! A handle is a number of 64 bits: generation, index and kind. The slot with this index holds the
//! handle of its present object, so that a null, stale or foreign handle and one of another kind
//! are refused, and no memory is read at an address that a program has chosen. Slots are never
//! freed. The words that a data transfer needs are atomic: finding them takes no lock.

use std::any::Any;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use dat_abi::DatHandle;
use host::forks::HeldLock;
use host::locks::lock;

use crate::abi::Handle;
use crate::status::{Outcome, RESOURCES, Status};

/// The kind of an object; all but the last are `it_handle_type_enum_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Ep = 1,
    Evd = 2,
    Ia = 3,
    Listen = 4,
    Lmr = 5,
    Pz = 6,
    Rmr = 7,
    Srq = 9,
    /// A connection request, whose handle is an `it_cn_est_identifier_t`.
    Request = 10,
}

/// An object that a handle names.
pub(crate) trait Object: Any + Send + Sync {
    const KIND: Kind;
    /// The status of a handle that names no such object.
    const WRONG: Status;
}

/// A place for one object at a time.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The handle of the object; 0 while there is none.
    word: AtomicU64,
    ia: AtomicU64,
    dat: AtomicPtr<c_void>,
    key: AtomicU64,
    context: AtomicU64,
    has_context: AtomicBool,
    object: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

impl Slot {
    const fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            ia: AtomicU64::new(0),
            dat: AtomicPtr::new(std::ptr::null_mut()),
            key: AtomicU64::new(0),
            context: AtomicU64::new(0),
            has_context: AtomicBool::new(false),
            object: Mutex::new(None),
        }
    }

    /// The DAT object; that of an AEVD is a CNO.
    pub(crate) fn dat(&self) -> DatHandle {
        self.dat.load(Ordering::Relaxed)
    }

    pub(crate) fn set_dat(&self, dat: DatHandle) {
        self.dat.store(dat, Ordering::Relaxed);
    }

    /// A word that data transfer reads: the stream of an EVD, the context of an LMR, 1 for an EP
    /// with an SRQ, the EP on which an RMR was linked.
    pub(crate) fn key(&self) -> u64 {
        self.key.load(Ordering::Relaxed)
    }

    pub(crate) fn set_key(&self, key: u64) {
        self.key.store(key, Ordering::Relaxed);
    }

    /// The adapter of the object; an adapter's own handle.
    pub(crate) fn ia(&self) -> Handle {
        Handle(self.ia.load(Ordering::Relaxed))
    }

    pub(crate) fn context(&self) -> Option<u64> {
        let has_context = self.has_context.load(Ordering::Acquire);
        has_context.then(|| self.context.load(Ordering::Relaxed))
    }

    pub(crate) fn set_context(&self, context: u64) {
        self.context.store(context, Ordering::Relaxed);
        self.has_context.store(true, Ordering::Release);
    }

    fn object<T: Object>(&self) -> Outcome<Arc<T>> {
        let object = lock(&self.object).clone();
        object
            .and_then(|object| object.downcast().ok())
            .ok_or(T::WRONG)
    }
}

/// The number of slots of the first block; each further block has twice as many as the one before.
const FIRST: usize = 64;
const BLOCKS: usize = 20;

const KIND_BITS: u32 = 4;
const INDEX_BITS: u32 = 28;

static TABLE: [OnceLock<Box<[Slot]>>; BLOCKS] = [const { OnceLock::new() }; BLOCKS];
static FREE: HeldLock<Free> = HeldLock::new(Free {
    released: VecDeque::new(),
    used: 0,
    generation: 0,
});

host::hold_during_forks!(FREE);

/// The slots that have no object. The one that was released first is used first, so that a stale
/// handle stays stale for long.
struct Free {
    released: VecDeque<usize>,
    used: usize,
    generation: u32,
}

fn block_of(index: usize) -> (usize, usize) {
    let block = ((index / FIRST) + 1).ilog2() as usize;
    (block, index - FIRST * ((1 << block) - 1))
}

fn at(index: usize) -> Option<&'static Slot> {
    let (block, offset) = block_of(index);
    TABLE.get(block)?.get()?.get(offset)
}

fn take_free() -> Outcome<(usize, &'static Slot, u64)> {
    let mut free = FREE.lock();
    free.generation = free.generation.wrapping_add(1).max(1);
    let generation = u64::from(free.generation);
    if free.released.len() >= FIRST || free.used == FIRST * ((1 << BLOCKS) - 1) {
        let index = free.released.pop_front().ok_or(RESOURCES)?;
        return Ok((index, at(index).ok_or(RESOURCES)?, generation));
    }
    let index = free.used;
    let (block, offset) = block_of(index);
    let slots = TABLE[block].get_or_init(|| (0..FIRST << block).map(|_| Slot::new()).collect());
    free.used += 1;
    Ok((index, &slots[offset], generation))
}

/// Makes a handle for an object of the adapter `ia`; an adapter itself passes null.
pub(crate) fn insert<T: Object>(
    ia: Handle,
    dat: DatHandle,
    key: u64,
    object: T,
) -> Outcome<Handle> {
    let (index, slot, generation) = take_free()?;
    let word =
        generation << (INDEX_BITS + KIND_BITS) | (index as u64) << KIND_BITS | T::KIND as u64;
    let owner = if ia.is_null() { word } else { ia.0 };
    slot.ia.store(owner, Ordering::Relaxed);
    slot.set_dat(dat);
    slot.set_key(key);
    slot.has_context.store(false, Ordering::Relaxed);
    *lock(&slot.object) = Some(Arc::new(object));
    slot.word.store(word, Ordering::Release);
    Ok(Handle(word))
}

/// The slot of any live object, and its kind.
pub(crate) fn any(handle: Handle) -> Option<(&'static Slot, u8)> {
    let index = (handle.0 >> KIND_BITS) as usize & ((1 << INDEX_BITS) - 1);
    let slot = at(index)?;
    let is_live = !handle.is_null() && slot.word.load(Ordering::Acquire) == handle.0;
    is_live.then_some((slot, (handle.0 & 0xF) as u8))
}

/// The slot of a live object of a kind.
pub(crate) fn of_kind(handle: Handle, kind: Kind) -> Option<&'static Slot> {
    let (slot, found) = any(handle)?;
    (found == kind as u8).then_some(slot)
}

/// The slot of an object.
pub(crate) fn slot<T: Object>(handle: Handle) -> Outcome<&'static Slot> {
    of_kind(handle, T::KIND).ok_or(T::WRONG)
}

/// The slot and the object.
pub(crate) fn find<T: Object>(handle: Handle) -> Outcome<(&'static Slot, Arc<T>)> {
    let slot = slot::<T>(handle)?;
    Ok((slot, slot.object()?))
}

/// Ends a handle. Returns false if another thread has done so.
pub(crate) fn remove(handle: Handle) -> bool {
    let Some((slot, _)) = any(handle) else {
        return false;
    };
    let ended = slot
        .word
        .compare_exchange(handle.0, 0, Ordering::AcqRel, Ordering::Relaxed);
    if ended.is_err() {
        return false;
    }
    drop(lock(&slot.object).take());
    let index = (handle.0 >> KIND_BITS) as usize & ((1 << INDEX_BITS) - 1);
    FREE.lock().released.push_back(index);
    true
}

/// The live objects of an adapter, the adapter included.
pub(crate) fn of_adapter(ia: Handle) -> Vec<Handle> {
    let used = FREE.lock().used;
    (0..used)
        .filter_map(at)
        .filter(|slot| slot.ia() == ia)
        .map(|slot| Handle(slot.word.load(Ordering::Acquire)))
        .filter(|handle| !handle.is_null())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{INVALID_EP, INVALID_PZ};

    struct Ep;
    impl Object for Ep {
        const KIND: Kind = Kind::Ep;
        const WRONG: Status = INVALID_EP;
    }

    struct Pz(u32);
    impl Object for Pz {
        const KIND: Kind = Kind::Pz;
        const WRONG: Status = INVALID_PZ;
    }

    #[test]
    fn a_thread_that_makes_handles_does_not_stop_the_child_of_a_fork() {
        use std::sync::atomic::AtomicBool;

        let cycle = || insert(Handle(7), std::ptr::dangling_mut(), 5, Pz(1)).is_ok_and(remove);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert!(cycle());
                }
            });
            let statuses = (0..200).map(|_| {
                // SAFETY: the child makes one handle, or a signal ends it, and runs no destructor.
                unsafe {
                    let child = libc::fork();
                    if child == 0 {
                        libc::alarm(60);
                        libc::_exit(i32::from(!cycle()));
                    }
                    let mut status = 1;
                    libc::waitpid(child, &raw mut status, 0);
                    status
                }
            });
            let failed = statuses.filter(|status| *status != 0).count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(failed, 0);
        });
    }

    #[test]
    fn a_handle_finds_its_object_until_it_is_removed() {
        let dat = std::ptr::dangling_mut();
        let handle = insert(Handle(7), dat, 5, Pz(42)).unwrap();
        let (slot, pz) = find::<Pz>(handle).unwrap();
        assert_eq!((slot.key(), pz.0, slot.ia()), (5, 42, Handle(7)));
        assert_eq!(find::<Ep>(handle).err(), Some(INVALID_EP));
        assert!(remove(handle));
        assert!(!remove(handle));
        assert_eq!(find::<Pz>(handle).map(|_| ()).err(), Some(INVALID_PZ));
    }

    #[test]
    fn numbers_that_are_no_handles_are_refused() {
        for word in [
            0,
            1,
            6,
            0x16,
            u64::MAX,
            u64::MAX - 9,
            1 << 63,
            0x7fff_1234_5678,
        ] {
            assert!(any(Handle(word)).is_none(), "{word:#x}");
        }
    }

    #[test]
    fn a_reused_slot_refuses_the_former_handle() {
        let first = insert(Handle(8), std::ptr::null_mut(), 0, Pz(0)).unwrap();
        assert!(remove(first));
        for _ in 0..4 * FIRST {
            let next = insert(Handle(8), std::ptr::null_mut(), 0, Pz(1)).unwrap();
            assert!(any(first).is_none());
            assert!(remove(next));
        }
    }

    #[test]
    fn indexes_fill_the_blocks_without_gaps() {
        let mut expected = (0, 0);
        for index in 0..FIRST * 15 {
            assert_eq!(block_of(index), expected);
            expected.1 += 1;
            if expected.1 == FIRST << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
    }
}
