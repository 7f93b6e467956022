//! What stands behind the program's descriptors: two loads for every socket call.
//!
//! A native socket costs these two loads and nothing else. The table grows in chunks that are never
//! given back, so looking needs no lock; a slot that is in use has a lock of its own, held for the
//! few instructions that copy a reference.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use ops_observe::Record;

use crate::listener::Listener;
use crate::sharing::relayed::Relayed;
use crate::socket::Socket;

const CHUNK: usize = 1024;
/// The kernel's `nr_open` is 2^20 unless an administrator raised it; what lies beyond stays native.
const CHUNKS: usize = 1024;

/// What a descriptor is besides what the kernel knows of it.
#[derive(Clone)]
pub(crate) enum Entry {
    /// A connection that an offload protocol carries; the kernel sees one end of a pair.
    Socket(Arc<Socket>),
    /// A connection whose bytes another part of us moves, here or in another process; the kernel
    /// sees one end of a pair that carries them.
    Relayed(Arc<Relayed>),
    /// A listening socket of the kernel, to which offloaded connections come as well.
    Listener(Arc<Listener>),
    /// A TCP socket of the kernel that is listed with the reason why; no call asks for it.
    #[expect(dead_code, reason = "held so that it stays listed")]
    Listed(Arc<Record>),
}

const NATIVE: u8 = 0;
const SOCKET: u8 = 1;
const LISTENER: u8 = 2;
const RELAYED: u8 = 3;
const LISTED: u8 = 4;

impl Entry {
    fn kind(&self) -> u8 {
        match self {
            Self::Socket(_) => SOCKET,
            Self::Listener(_) => LISTENER,
            Self::Listed(_) => LISTED,
            Self::Relayed(_) => RELAYED,
        }
    }
}

struct Slot {
    kind: AtomicU8,
    locked: AtomicBool,
    entry: UnsafeCell<Option<Entry>>,
}

// SAFETY: `entry` is touched only between taking `locked` and giving it back.
unsafe impl Sync for Slot {}

impl Slot {
    const fn empty() -> Self {
        Self {
            kind: AtomicU8::new(NATIVE),
            locked: AtomicBool::new(false),
            entry: UnsafeCell::new(None),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Option<Entry>) -> T) -> T {
        while self
            .locked
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            std::hint::spin_loop();
        }
        // SAFETY: the lock is ours until the store below; `work` is ours and does not panic.
        let result = work(unsafe { &mut *self.entry.get() });
        self.locked.store(false, Ordering::Release);
        result
    }
}

type Chunk = [Slot; CHUNK];

static TABLE: [AtomicPtr<Chunk>; CHUNKS] = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];

fn existing(fd: c_int) -> Option<&'static Slot> {
    let fd = usize::try_from(fd).ok()?;
    let chunk = TABLE.get(fd / CHUNK)?.load(Ordering::Acquire);
    // SAFETY: null, or a chunk that was leaked for good.
    unsafe { chunk.as_ref() }.map(|chunk| &chunk[fd % CHUNK])
}

fn slot(fd: c_int) -> Option<&'static Slot> {
    if let Some(slot) = existing(fd) {
        return Some(slot);
    }
    let place = TABLE.get(usize::try_from(fd).ok()? / CHUNK)?;
    let fresh = Box::into_raw(Box::new([const { Slot::empty() }; CHUNK]));
    let first = place.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
    if first.is_err() {
        // SAFETY: another thread's chunk stands there; nobody has seen ours.
        drop(unsafe { Box::from_raw(fresh) });
    }
    existing(fd)
}

static LISTENERS: AtomicUsize = AtomicUsize::new(0);

static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);

/// Whether any descriptor is an offloaded connection.
pub(crate) fn has_connections() -> bool {
    CONNECTIONS.load(Ordering::Relaxed) > 0
}

/// Whether any descriptor is a listener with something beside it.
pub(crate) fn has_listeners() -> bool {
    LISTENERS.load(Ordering::Relaxed) > 0
}

fn kind(fd: c_int) -> u8 {
    existing(fd).map_or(NATIVE, |slot| slot.kind.load(Ordering::Acquire))
}

/// Who moves the bytes of a descriptor.
pub(crate) enum Mover {
    /// The kernel.
    Kernel,
    /// A connection of this process.
    Us(Arc<Socket>),
    /// The kernel, from and to somebody of us.
    Others(Arc<Relayed>),
}

/// Who moves the bytes of a descriptor.
#[inline]
pub(crate) fn mover(fd: c_int) -> Mover {
    if is_plain(fd) {
        return Mover::Kernel;
    }
    match entry(fd) {
        Some(Entry::Socket(socket)) => Mover::Us(socket),
        Some(Entry::Relayed(relayed)) => Mover::Others(relayed),
        _ => Mover::Kernel,
    }
}

/// What is added to a listening socket, if there is something.
pub(crate) fn find_listener(fd: c_int) -> Option<Arc<Listener>> {
    let slot = existing(fd)?;
    if slot.kind.load(Ordering::Acquire) != LISTENER {
        return None;
    }
    match slot.with(|entry| entry.clone()) {
        Some(Entry::Listener(listener)) => Some(listener),
        _ => None,
    }
}

/// Whatever stands behind a descriptor.
pub(crate) fn entry(fd: c_int) -> Option<Entry> {
    let slot = existing(fd)?;
    if slot.kind.load(Ordering::Acquire) == NATIVE {
        return None;
    }
    slot.with(|entry| entry.clone())
}

/// Whether nothing stands behind a descriptor but what the kernel knows.
pub(crate) fn is_plain(fd: c_int) -> bool {
    kind(fd) == NATIVE
}

/// Whether a descriptor is an offloaded connection.
pub(crate) fn contains(fd: c_int) -> bool {
    matches!(kind(fd), SOCKET | RELAYED)
}

/// Puts something behind a descriptor, and returns what stood there. `Err`: there is no place.
pub(crate) fn insert(fd: c_int, entry: Entry) -> Result<Option<Entry>, Entry> {
    let Some(slot) = slot(fd) else {
        return Err(entry);
    };
    let kind = entry.kind();
    let before = slot.with(|place| place.replace(entry));
    count(slot.kind.swap(kind, Ordering::AcqRel), kind);
    Ok(before)
}

/// Puts something else behind a descriptor, if what stands there is the right thing.
pub(crate) fn exchange(
    fd: c_int,
    is_it: impl FnOnce(&Entry) -> bool,
    other: impl FnOnce() -> Entry,
) {
    let Some(slot) = existing(fd) else {
        return;
    };
    let before = slot.with(|place| {
        if !place.as_ref().is_some_and(is_it) {
            return None;
        }
        let other = other();
        count(slot.kind.swap(other.kind(), Ordering::AcqRel), other.kind());
        place.replace(other)
    });
    // Dropped without the lock: it may be the last reference.
    drop(before);
}

/// Takes what stands behind a descriptor away.
pub(crate) fn remove(fd: c_int) -> Option<Entry> {
    let slot = existing(fd)?;
    let before = slot.kind.swap(NATIVE, Ordering::AcqRel);
    if before == NATIVE {
        return None;
    }
    count(before, NATIVE);
    slot.with(Option::take)
}

fn count(before: u8, after: u8) {
    for (kind, change) in [(before, usize::MAX), (after, 1)] {
        match kind {
            LISTENER => LISTENERS.fetch_add(change, Ordering::Relaxed),
            SOCKET | RELAYED => CONNECTIONS.fetch_add(change, Ordering::Relaxed),
            _ => continue,
        };
    }
}

/// All descriptors in a range, both ends included, behind which something stands.
pub(crate) fn within(first: usize, last: usize) -> impl Iterator<Item = c_int> {
    let last = last.min(CHUNK * CHUNKS - 1);
    let chunks = first / CHUNK..=last / CHUNK;
    chunks
        .filter(|chunk| !TABLE[*chunk].load(Ordering::Acquire).is_null())
        .flat_map(move |chunk| (chunk * CHUNK).max(first)..=(chunk * CHUNK + CHUNK - 1).min(last))
        .filter_map(|fd| c_int::try_from(fd).ok())
        .filter(|fd| kind(*fd) != NATIVE)
}

/// In the child of a `fork`: locks that other threads of the parent held are nobody's any more.
///
/// What a lock guards is one word that is written whole, so whichever value the child has is good.
pub(crate) fn unlock_after_fork() {
    for chunk in &TABLE {
        // SAFETY: null, or a chunk that was leaked for good.
        let chunk = unsafe { chunk.load(Ordering::Acquire).as_ref() };
        for slot in chunk.into_iter().flatten() {
            slot.locked.store(false, Ordering::Release);
        }
    }
}
