//! Pins without a locked instruction, for the threads that have a record.
//!
//! A thread announces its pins in a record of its own, by plain stores. The thread that frees an
//! object bears the cost: a barrier on all processors that run threads of the process, by
//! `membarrier(2)`, and a check of all records. If the kernel does not offer the barrier, and for
//! threads after the first [`RECORDS_MAX`], [`announce`] returns `None` and the caller counts its
//! pin in the slot instead.
//!
//! # Why no pin is missed
//!
//! A pinning thread P stores its entry, then loads the state of the object. A freeing thread F
//! stores "retired" in the state, has the kernel execute a full barrier on every other thread of
//! the process, then loads the entries ([`announced`]). The stores and loads of P keep their
//! program order, because a compiler fence separates them. So the barrier on P is before its
//! load, after its store, or both:
//!
//! * Before the load: P sees "retired" and does not pin.
//! * After the store: F sees the entry and does not free.
//!
//! The end of a pin is symmetric: P clears its entry, then loads the state. Either P sees "retired"
//! and tries to free, or F sees that the entry is clear. The store that clears is a release and the
//! load of F an acquire, so P has finished its accesses to the object when F frees it.
//!
//! A thread that the kernel does not run has executed a full barrier when it was descheduled, and
//! executes another before it continues.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, compiler_fence};

/// Maximum number of threads that announce their pins.
const RECORDS_MAX: usize = 64;
/// Maximum number of pins that one thread announces at once. DAT calls need up to three.
const ENTRIES: usize = 7;
/// The value of an entry without a pin.
const NOTHING: usize = 0;

/// The pins of one thread, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Record {
    /// Process and thread, 0 for a record that was never used.
    owner: AtomicU64,
    entries: [AtomicUsize; ENTRIES],
}

/// A pin that its thread has announced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry(&'static AtomicUsize);

static RECORDS: [Record; RECORDS_MAX] = [const { Record::with_entries(NOTHING) }; RECORDS_MAX];
/// The record of all threads that have no record of their own: it has no free entry.
static FULL: Record = Record::with_entries(usize::MAX);
/// True if the kernel offers the barrier. Written before the first pin.
static IS_OFFERED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The type has no destructor, so the thread-local needs no memory.
    static OWN: Cell<Option<&'static Record>> = const { Cell::new(None) };
}

/// Asks the kernel for the barrier. Called before the first pin.
pub(super) fn prepare() {
    IS_OFFERED.store(barrier::register(), Ordering::Relaxed);
}

/// Announces a pin of the object that `word` names. Loads of the caller that follow in program
/// order are ordered after the announcement, as the module's documentation describes.
#[inline]
pub(super) fn announce(word: usize) -> Option<Entry> {
    let record = OWN.get().unwrap_or_else(find_own);
    // Most calls pin one object.
    let entry = match &record.entries[0] {
        first if is_free(first) => first,
        _ => record.free_entry()?,
    };
    entry.store(word, Ordering::Release);
    compiler_fence(Ordering::SeqCst);
    Some(Entry(entry))
}

impl Entry {
    /// Ends the pin. May be called on any thread.
    #[inline]
    pub(super) fn withdraw(self) {
        self.0.store(NOTHING, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }
}

/// Returns the number of announced pins of `word`, counting all that began before the caller's last
/// store. If the kernel never offered the barrier, no thread announces pins, and the number is 0.
/// Returns `None` if the kernel refuses the barrier now.
pub(super) fn announced(word: usize) -> Option<u64> {
    if !IS_OFFERED.load(Ordering::Relaxed) {
        return Some(0);
    }
    compiler_fence(Ordering::SeqCst);
    if !barrier::execute() {
        // The kernel offered the barrier before, so a system call filter was installed since.
        tracing::error!("the kernel refuses membarrier(2) now: an object is not freed");
        return None;
    }
    let entries = RECORDS.iter().flat_map(|record| &record.entries);
    let pins = entries.filter(|entry| entry.load(Ordering::Acquire) == word);
    u64::try_from(pins.count()).ok()
}

/// Finds a record for the calling thread: an unused record, else one whose thread has ended.
#[cold]
fn find_own() -> &'static Record {
    let me = thread_id();
    let claim = |may_claim: fn(u64) -> bool| RECORDS.iter().find(|it| it.claim(me, may_claim));
    let record = match IS_OFFERED.load(Ordering::Relaxed) {
        true => claim(|owner| owner == 0).or_else(|| claim(has_ended)),
        false => None,
    };
    let record = record.unwrap_or(&FULL);
    OWN.set(Some(record));
    record
}

#[inline]
fn is_free(entry: &AtomicUsize) -> bool {
    // Acquire: the thread that withdrew the last pin has finished its accesses before the entry is
    // reused.
    entry.load(Ordering::Acquire) == NOTHING
}

impl Record {
    const fn with_entries(word: usize) -> Self {
        let mut entries = [const { AtomicUsize::new(NOTHING) }; ENTRIES];
        let mut index = 0;
        while index < ENTRIES {
            entries[index] = AtomicUsize::new(word);
            index += 1;
        }
        Self {
            owner: AtomicU64::new(0),
            entries,
        }
    }

    #[cold]
    fn free_entry(&self) -> Option<&AtomicUsize> {
        self.entries.iter().find(|entry| is_free(entry))
    }

    /// Makes the thread `me` the owner, if `may_claim` permits that for the current owner.
    fn claim(&self, me: u64, may_claim: fn(u64) -> bool) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        may_claim(owner)
            && self
                .owner
                .compare_exchange(owner, me, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }
}

/// Returns the identity of the calling thread: process in the upper half, thread in the lower.
fn thread_id() -> u64 {
    // SAFETY: the call has no arguments and never fails.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    u64::from(std::process::id()) << 32 | u64::from(thread as u32)
}

/// Returns true if this thread of this process has ended. A thread of another process is the thread
/// that forked this process, and may run here under another number.
fn has_ended(owner: u64) -> bool {
    let (process, thread) = ((owner >> 32) as u32, owner as u32);
    if process != std::process::id() {
        return false;
    }
    // SAFETY: signal 0 is not sent; the kernel only checks whether the thread exists.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) };
    sent < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

#[cfg(not(miri))]
mod barrier {
    //! `membarrier(2)`.

    /// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and its registration.
    const EXECUTE: libc::c_int = 1 << 3;
    const REGISTER: libc::c_int = 1 << 4;

    /// Returns true if [`execute`] is available to this process from now on.
    pub(super) fn register() -> bool {
        call(REGISTER) && call(EXECUTE)
    }

    /// Makes every other thread of the process execute a full barrier between two instructions, or
    /// have executed one since the call began. Returns false if the kernel refuses.
    pub(super) fn execute() -> bool {
        call(EXECUTE) || register()
    }

    fn call(command: libc::c_int) -> bool {
        // SAFETY: the call takes numbers and changes no memory.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}

#[cfg(miri)]
mod barrier {
    //! Miri does not support the call.

    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn execute() -> bool {
        false
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Makes the calling thread count its pins from now on, as a thread without a record does.
    pub(in super::super) fn go_without_record() {
        OWN.set(Some(&FULL));
    }

    /// Returns true if the calling thread announces its pins.
    pub(in super::super) fn has_record() -> bool {
        announce(usize::MAX - 1).map(Entry::withdraw).is_some()
    }

    #[test]
    fn a_thread_announces_as_many_pins_as_its_record_has_entries() {
        prepare();
        if !IS_OFFERED.load(Ordering::Relaxed) {
            return;
        }
        let word = 0x1234_5678;
        let entries: Vec<_> = (0..ENTRIES).map(|_| announce(word).unwrap()).collect();
        assert_eq!(announced(word), Some(ENTRIES as u64));
        assert!(announce(word).is_none());
        std::thread::spawn(move || entries.into_iter().for_each(Entry::withdraw))
            .join()
            .unwrap();
        assert_eq!(announced(word), Some(0));
    }

    #[test]
    fn a_record_is_reused_by_another_thread_when_its_own_has_ended() {
        let me = thread_id();
        assert!(!has_ended(me));
        assert!(!has_ended(u64::MAX), "the owner is in another process");
        let ended = std::thread::spawn(thread_id).join().unwrap();
        // The kernel removes a joined thread slightly later.
        while !has_ended(ended) {
            std::thread::yield_now();
        }
        let record = Record::with_entries(NOTHING);
        assert!(record.claim(ended, |owner| owner == 0));
        assert!(!record.claim(me, |owner| owner == 0));
        assert!(record.claim(me, has_ended) && !record.claim(ended, has_ended));
    }
}
