//! The entries of the program's descriptors: two loads for every socket call.
//!
//! A native socket costs these two loads and nothing else. The table grows in chunks that are never
//! freed, so a lookup needs no lock; a slot that is in use has a lock of its own, held for the few
//! instructions that copy a reference. Signals stay open meanwhile, because blocking them would be
//! two system calls: a handler that uses the same descriptor does not wait for the thread that it
//! has interrupted.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use ops_observe::Record;

use crate::listener::Listener;
use crate::socket::Socket;
use crate::socket::local::LocalSocket;
use crate::socket::relayed::Relayed;

const CHUNK: usize = 1024;
/// The kernel's `nr_open` is 2^20 unless an administrator raised it; what lies beyond stays native.
const CHUNKS: usize = 1024;

/// An entry of a descriptor: the part of it that the kernel does not know.
#[derive(Clone)]
pub(crate) enum Entry {
    /// A connection that an offload protocol carries; the kernel sees one end of a pair.
    Socket(Arc<Socket>),
    /// A connection whose bytes another part of us moves, here or in another process; the kernel
    /// sees one end of a pair that carries them.
    Relayed(Arc<Relayed>),
    /// A listening socket of the kernel, to which offloaded connections come as well.
    Listener(Arc<Listener>),
    /// A connection within the host, which is a socket of the kernel; only calls about its name and
    /// its options ask for it.
    Local(Arc<LocalSocket>),
    /// A TCP socket of the kernel that is listed with the reason why; no call asks for it.
    #[expect(dead_code, reason = "held so that it stays listed")]
    Listed(Arc<Record>),
}

const NATIVE: u8 = 0;
const SOCKET: u8 = 1;
const LISTENER: u8 = 2;
const RELAYED: u8 = 3;
const LISTED: u8 = 4;
const LOCAL: u8 = 5;

/// The number of times that a thread tries a slot that another one holds before it yields.
const LOOKS: u32 = 100;

impl Entry {
    fn kind(&self) -> u8 {
        match self {
            Self::Socket(_) => SOCKET,
            Self::Listener(_) => LISTENER,
            Self::Listed(_) => LISTED,
            Self::Local(_) => LOCAL,
            Self::Relayed(_) => RELAYED,
        }
    }
}

struct Slot {
    kind: AtomicU8,
    /// The thread that reads the entry or exchanges it; 0: none.
    holder: AtomicUsize,
    /// One word, so that a signal handler finds a whole entry whatever it has interrupted.
    entry: AtomicPtr<Node>,
    /// Nodes that a signal handler took out while the thread that it has interrupted held the
    /// slot, and may have been about to copy a reference.
    taken: AtomicPtr<Node>,
}

/// An entry in its place, which does not change there.
struct Node {
    entry: Entry,
    next: *mut Node,
}

impl Slot {
    const fn empty() -> Self {
        Self {
            kind: AtomicU8::new(NATIVE),
            holder: AtomicUsize::new(0),
            entry: AtomicPtr::new(ptr::null_mut()),
            taken: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The holder, where it is held.
    fn try_hold(&self, me: usize) -> Result<(), usize> {
        self.holder
            .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
            .map(drop)
    }

    /// Returns the nodes that handlers have taken out. The slot is held, and its holder uses none
    /// of them any more.
    fn taken_out(&self) -> *mut Node {
        if self.taken.load(Ordering::Relaxed).is_null() {
            return ptr::null_mut();
        }
        self.taken.swap(ptr::null_mut(), Ordering::Acquire)
    }

    /// A copy of the entry.
    fn get(&self) -> Option<Entry> {
        let _held = Held::of(self);
        // SAFETY: null, or a node that is freed by nobody while we hold the slot.
        let node = unsafe { self.entry.load(Ordering::Acquire).as_ref() };
        node.map(|node| node.entry.clone())
    }

    /// Puts an entry there, or none, and returns what was there.
    fn replace(&self, entry: Option<Entry>) -> Option<Entry> {
        let fresh = Node::make(entry);
        let held = Held::of(self);
        let before = self.entry.swap(fresh, Ordering::AcqRel);
        held.take_out(before)
    }

    /// Puts another entry there, if what is there is the right one, and returns that.
    fn exchange(
        &self,
        is_it: impl FnOnce(&Entry) -> bool,
        other: impl FnOnce() -> Entry,
    ) -> Option<Entry> {
        let held = Held::of(self);
        let before = self.entry.load(Ordering::Acquire);
        // SAFETY: as in `get`.
        if !unsafe { before.as_ref() }.is_some_and(|node| is_it(&node.entry)) {
            return None;
        }
        let other = other();
        let kind = other.kind();
        let fresh = Node::make(Some(other));
        let exchanged =
            self.entry
                .compare_exchange(before, fresh, Ordering::AcqRel, Ordering::Acquire);
        if exchanged.is_err() {
            // A handler has made the number another's meanwhile.
            // SAFETY: nobody has seen it.
            drop(unsafe { Box::from_raw(fresh) });
            return None;
        }
        count(self.kind.swap(kind, Ordering::AcqRel), kind);
        held.take_out(before)
    }
}

impl Node {
    fn make(entry: Option<Entry>) -> *mut Self {
        entry.map_or(ptr::null_mut(), |entry| {
            let next = ptr::null_mut();
            Box::into_raw(Box::new(Self { entry, next }))
        })
    }
}

/// The thread has a slot to itself, but for the handlers of signals that interrupt it: these look
/// and exchange as well, because waiting for what they have interrupted would be for ever.
struct Held<'a> {
    slot: &'a Slot,
    is_interrupted: bool,
}

impl<'a> Held<'a> {
    fn of(slot: &'a Slot) -> Self {
        let me = this_thread();
        let mut looks = 0_u32;
        loop {
            match slot.try_hold(me) {
                Ok(()) => break,
                Err(holder) if holder == me => {
                    return Self {
                        slot,
                        is_interrupted: true,
                    };
                }
                Err(_) => {}
            }
            looks += 1;
            if looks.is_multiple_of(LOOKS) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        Self {
            slot,
            is_interrupted: false,
        }
    }

    /// The entry of a node that stands in the slot no more.
    fn take_out(&self, node: *mut Node) -> Option<Entry> {
        if node.is_null() {
            return None;
        }
        if self.is_interrupted {
            // SAFETY: it was in the slot, and whoever empties `taken` waits for those whom we have
            // interrupted.
            let entry = unsafe { (*node).entry.clone() };
            let taken = &self.slot.taken;
            // No other thread comes here, and what interrupts us leaves it whole.
            let mut last = taken.load(Ordering::Relaxed);
            loop {
                // SAFETY: a node of ours until the exchange below.
                unsafe { (*node).next = last };
                match taken.compare_exchange(last, node, Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => return Some(entry),
                    Err(other) => last = other,
                }
            }
        }
        // SAFETY: nobody else finds it, and handlers that had found it have returned.
        let node = unsafe { Box::from_raw(node) };
        Some(node.entry)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.is_interrupted {
            return;
        }
        loop {
            let taken = self.slot.taken_out();
            self.slot.holder.store(0, Ordering::Release);
            // Without the slot: these may be the last references.
            free(taken);
            // What has come right before the slot was given back; who holds it now sees it too.
            let has_more = !self.slot.taken.load(Ordering::Relaxed).is_null();
            if !has_more || self.slot.try_hold(this_thread()).is_err() {
                return;
            }
        }
    }
}

/// Frees nodes that nobody finds any more.
fn free(mut node: *mut Node) {
    while !node.is_null() {
        // SAFETY: a chain that `taken_out` has given to us alone.
        let taken = unsafe { Box::from_raw(node) };
        node = taken.next;
    }
}

fn this_thread() -> usize {
    // SAFETY: it takes nothing. A thread's own is never 0.
    unsafe { libc::pthread_self() as usize }
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

/// Returns true if any descriptor is an offloaded connection.
pub(crate) fn has_connections() -> bool {
    CONNECTIONS.load(Ordering::Relaxed) > 0
}

static LOCAL_CONNECTIONS: AtomicUsize = AtomicUsize::new(0);

/// Returns true if any descriptor is a connection within the host.
pub(crate) fn has_local() -> bool {
    LOCAL_CONNECTIONS.load(Ordering::Relaxed) > 0
}

/// Returns true if any descriptor is a listener with an offload protocol next to it.
pub(crate) fn has_listeners() -> bool {
    LISTENERS.load(Ordering::Relaxed) > 0
}

fn kind(fd: c_int) -> u8 {
    existing(fd).map_or(NATIVE, |slot| slot.kind.load(Ordering::Acquire))
}

/// The mover of a descriptor's bytes.
pub(crate) enum Mover {
    /// The kernel.
    Kernel,
    /// A connection of this process.
    Us(Arc<Socket>),
    /// The kernel, between the program and the process that owns the connection.
    Others(Arc<Relayed>),
}

/// Returns the mover of a descriptor's bytes.
#[inline]
pub(crate) fn mover(fd: c_int) -> Mover {
    if !contains(fd) {
        return Mover::Kernel;
    }
    match entry(fd) {
        Some(Entry::Socket(socket)) => Mover::Us(socket),
        Some(Entry::Relayed(relayed)) => Mover::Others(relayed),
        _ => Mover::Kernel,
    }
}

/// Returns what is next to a listening socket, if there is something.
pub(crate) fn find_listener(fd: c_int) -> Option<Arc<Listener>> {
    let slot = existing(fd)?;
    if slot.kind.load(Ordering::Acquire) != LISTENER {
        return None;
    }
    match slot.get() {
        Some(Entry::Listener(listener)) => Some(listener),
        _ => None,
    }
}

/// Returns the entry of a descriptor.
pub(crate) fn entry(fd: c_int) -> Option<Entry> {
    let slot = existing(fd)?;
    if slot.kind.load(Ordering::Acquire) == NATIVE {
        return None;
    }
    slot.get()
}

/// Returns true for a descriptor without an entry. A TCP socket that is
/// listed is not plain; its bytes are the kernel's all the same, and calls that move them ask
/// [`contains`].
pub(crate) fn is_plain(fd: c_int) -> bool {
    kind(fd) == NATIVE
}

/// Returns true if a descriptor is a listener with an offload protocol next to it.
pub(crate) fn is_listener(fd: c_int) -> bool {
    kind(fd) == LISTENER
}

/// Returns true for a connection within the host.
pub(crate) fn is_local(fd: c_int) -> bool {
    kind(fd) == LOCAL
}

/// Returns true if a descriptor is an offloaded connection.
#[inline]
pub(crate) fn contains(fd: c_int) -> bool {
    matches!(kind(fd), SOCKET | RELAYED)
}

/// Makes an entry of a descriptor, and returns the former one. `Err`: the table has no slot for it.
pub(crate) fn insert(fd: c_int, entry: Entry) -> Result<Option<Entry>, Entry> {
    let Some(slot) = slot(fd) else {
        return Err(entry);
    };
    let kind = entry.kind();
    let before = slot.replace(Some(entry));
    count(slot.kind.swap(kind, Ordering::AcqRel), kind);
    Ok(before)
}

/// Exchanges the entry of a descriptor, if it is the right one.
pub(crate) fn exchange(
    fd: c_int,
    is_it: impl FnOnce(&Entry) -> bool,
    other: impl FnOnce() -> Entry,
) {
    // Dropped without the slot: it may be the last reference.
    drop(existing(fd).and_then(|slot| slot.exchange(is_it, other)));
}

/// Takes the entry of a descriptor away.
pub(crate) fn remove(fd: c_int) -> Option<Entry> {
    let slot = existing(fd)?;
    let before = slot.kind.swap(NATIVE, Ordering::AcqRel);
    if before == NATIVE {
        return None;
    }
    count(before, NATIVE);
    slot.replace(None)
}

fn count(before: u8, after: u8) {
    for (kind, change) in [(before, usize::MAX), (after, 1)] {
        match kind {
            LISTENER => LISTENERS.fetch_add(change, Ordering::Relaxed),
            SOCKET | RELAYED => CONNECTIONS.fetch_add(change, Ordering::Relaxed),
            LOCAL => LOCAL_CONNECTIONS.fetch_add(change, Ordering::Relaxed),
            _ => continue,
        };
    }
}

/// Returns all descriptors with an entry in a range, both ends included.
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
/// What handlers took out meanwhile is freed by whoever holds the slot next. A slot of the forking
/// thread itself stays held: a handler has forked, and what it has interrupted goes on in the child
/// with what it has found there.
pub(crate) fn unlock_after_fork() {
    let me = this_thread();
    for chunk in &TABLE {
        // SAFETY: null, or a chunk that was leaked for good.
        let chunk = unsafe { chunk.load(Ordering::Acquire).as_ref() };
        for slot in chunk.into_iter().flatten() {
            if slot.holder.load(Ordering::Relaxed) != me {
                slot.holder.store(0, Ordering::Release);
            }
        }
    }
}
