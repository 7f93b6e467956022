//! The entries of the program's descriptors. A call on a native socket costs two loads.
//!
//! The table grows in chunks that are never freed, so a lookup needs no lock. A slot in use has its
//! own lock, which is held for the few instructions that copy a reference. Signals are not blocked
//! meanwhile, because that would cost two system calls. So a handler that uses the same descriptor
//! must not wait for the thread that it has interrupted.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

use ops::observe::NativeRecord;

use crate::listener::Listener;
use crate::observing;
use crate::socket::Socket;
use crate::socket::local::LocalSocket;
use crate::socket::relay_client::RelayClient;
use crate::socket::undecided::Undecided;

const CHUNK: usize = 1024;
/// The kernel's `nr_open` is 2^20 unless an administrator has raised it; higher numbers stay
/// native.
const CHUNKS: usize = 1024;

/// The state that this library keeps for a descriptor.
#[derive(Clone)]
pub(crate) enum Entry {
    /// A connection that an offload protocol carries; the kernel sees one end of a pair.
    Socket(Arc<Socket>),
    /// A connection whose bytes a relay moves, in this process or in another process; the kernel
    /// sees one end of a pair that carries these bytes.
    RelayClient(Arc<RelayClient>),
    /// A listening kernel socket that accepts offloaded connections as well.
    Listener(Arc<Listener>),
    /// A connection within the host, which is a kernel socket; only calls about its name and its
    /// options use the entry.
    Local(Arc<LocalSocket>),
    /// A socket that connects, by a protocol or by TCP; the kernel sees one end of a pair.
    Undecided(Arc<dyn Undecided>),
    /// A kernel TCP socket with several descriptors that is listed with the reason for it; no call
    /// uses the entry. The record of a single descriptor is in the slot itself.
    #[expect(dead_code, reason = "held so that it stays listed")]
    Listed(Arc<NativeRecord>),
}

const NATIVE: u8 = 0;
const SOCKET: u8 = 1;
const LISTENER: u8 = 2;
const RELAY_CLIENT: u8 = 3;
const LISTED: u8 = 4;
const LOCAL: u8 = 5;
const UNDECIDED: u8 = 6;

/// The number of times that a thread tries to lock a slot before it yields the processor.
const SPINS: u32 = 100;

impl Entry {
    fn kind(&self) -> u8 {
        match self {
            Self::Socket(_) => SOCKET,
            Self::Listener(_) => LISTENER,
            Self::Listed(_) => LISTED,
            Self::Local(_) => LOCAL,
            Self::RelayClient(_) => RELAY_CLIENT,
            Self::Undecided(_) => UNDECIDED,
        }
    }
}

/// The state of a descriptor. The slot of a descriptor without an entry consists of zeros.
struct Slot {
    kind: AtomicU8,
    /// The number of the record of a TCP socket; 0 for none.
    record: AtomicU32,
    /// The thread that holds the slot, to read or exchange the entry; 0 for none.
    holder: AtomicUsize,
    /// The entry is a single word, so that a signal handler always reads a complete entry.
    entry: AtomicPtr<Node>,
    /// Nodes that a signal handler removed while the thread that it had interrupted held the slot.
    /// That thread may have been about to copy a reference from them.
    removed: AtomicPtr<Node>,
}

/// An entry in the slot; a node never changes.
struct Node {
    entry: Entry,
    next: *mut Node,
}

impl Slot {
    /// Holds the slot for the thread `me`. Fails with the thread that holds it already.
    fn try_hold(&self, me: usize) -> Result<(), usize> {
        self.holder
            .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
            .map(drop)
    }

    /// Returns the nodes that handlers have removed. The caller holds the slot and uses none of
    /// these nodes.
    fn take_removed(&self) -> *mut Node {
        if self.removed.load(Ordering::Relaxed).is_null() {
            return ptr::null_mut();
        }
        self.removed.swap(ptr::null_mut(), Ordering::Acquire)
    }

    /// Takes the record out of the slot. The caller may drop it at once: that takes no lock and
    /// frees no memory.
    fn take_record(&self) -> Option<NativeRecord> {
        observing::native_record(self.record.swap(0, Ordering::AcqRel))
    }

    fn get(&self) -> Option<Entry> {
        let _held = Held::of(self);
        // SAFETY: the pointer is null, or to a node that no thread frees while the slot is held.
        let node = unsafe { self.entry.load(Ordering::Acquire).as_ref() };
        node.map(|node| node.entry.clone())
    }

    /// Stores or removes the entry, and returns the former entry.
    fn replace(&self, entry: Option<Entry>) -> Option<Entry> {
        let fresh = Node::make(entry);
        let held = Held::of(self);
        let before = self.entry.swap(fresh, Ordering::AcqRel);
        held.remove_node(before)
    }

    fn has_no_entry(&self) -> bool {
        self.entry.load(Ordering::Acquire).is_null()
    }

    /// Removes the entry, if there is one, and returns it.
    fn remove_entry(&self) -> Option<Entry> {
        if self.has_no_entry() {
            return None;
        }
        self.replace(None)
    }

    /// Removes the entry and its kind, and returns the entry. An exchange by another thread happens
    /// before or after both.
    fn remove(&self) -> Option<Entry> {
        let held = Held::of(self);
        count(self.kind.swap(NATIVE, Ordering::AcqRel), NATIVE);
        let before = self.entry.swap(ptr::null_mut(), Ordering::AcqRel);
        held.remove_node(before)
    }

    /// Stores another entry if `is_it` accepts the present entry, and returns the former entry.
    fn exchange(
        &self,
        is_it: impl FnOnce(&Entry) -> bool,
        other: impl FnOnce() -> Entry,
    ) -> Option<Entry> {
        let held = Held::of(self);
        let before = self.entry.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or to a node that no thread frees while the slot is held.
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
            // A handler has replaced the entry meanwhile.
            // SAFETY: the exchange failed, so no thread has seen this node.
            drop(unsafe { Box::from_raw(fresh) });
            return None;
        }
        count(self.kind.swap(kind, Ordering::AcqRel), kind);
        held.remove_node(before)
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

/// A guard that holds a slot for the thread. Handlers of signals that interrupt the thread read and
/// exchange the entry as well, because waiting for the interrupted thread would never end.
struct Held<'a> {
    slot: &'a Slot,
    is_interrupted: bool,
}

impl<'a> Held<'a> {
    fn of(slot: &'a Slot) -> Self {
        let me = this_thread();
        let mut spins = 0_u32;
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
            spins += 1;
            if spins.is_multiple_of(SPINS) {
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

    /// Returns the entry of a node that was removed from the slot.
    fn remove_node(&self, node: *mut Node) -> Option<Entry> {
        if node.is_null() {
            return None;
        }
        if self.is_interrupted {
            // SAFETY: the node was in the slot. Removed nodes are freed only when the interrupted
            // holder of the slot drops its guard, which happens after this handler has returned.
            let entry = unsafe { (*node).entry.clone() };
            let removed = &self.slot.removed;
            // No other thread runs this, and a handler that interrupts it leaves a complete list.
            let mut last = removed.load(Ordering::Relaxed);
            loop {
                // SAFETY: the node belongs to this handler until the exchange below.
                unsafe { (*node).next = last };
                match removed.compare_exchange(last, node, Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => return Some(entry),
                    Err(other) => last = other,
                }
            }
        }
        // SAFETY: the node is no longer in the slot, and handlers that had read it have returned.
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
            let removed = self.slot.take_removed();
            self.slot.holder.store(0, Ordering::Release);
            // The slot is released first, because these may be the last references.
            free(removed);
            // Checks for nodes that were added just before the release; a new holder frees them
            // too.
            let has_more = !self.slot.removed.load(Ordering::Relaxed).is_null();
            if !has_more || self.slot.try_hold(this_thread()).is_err() {
                return;
            }
        }
    }
}

/// Frees nodes that no thread can reach any more.
fn free(mut node: *mut Node) {
    while !node.is_null() {
        // SAFETY: the chain is from `take_removed`, so this thread alone has it.
        let removed = unsafe { Box::from_raw(node) };
        node = removed.next;
    }
}

fn this_thread() -> usize {
    // SAFETY: the call has no arguments. The id of a thread is never 0.
    unsafe { libc::pthread_self() as usize }
}

type Chunk = [Slot; CHUNK];

static TABLE: [AtomicPtr<Chunk>; CHUNKS] = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];

fn existing(fd: c_int) -> Option<&'static Slot> {
    let fd = usize::try_from(fd).ok()?;
    let chunk = TABLE.get(fd / CHUNK)?.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or to a chunk that is never freed.
    unsafe { chunk.as_ref() }.map(|chunk| &chunk[fd % CHUNK])
}

fn slot(fd: c_int) -> Option<&'static Slot> {
    if let Some(slot) = existing(fd) {
        return Some(slot);
    }
    let chunk = TABLE.get(usize::try_from(fd).ok()? / CHUNK)?;
    // Made in place, because the stack of a thread may be smaller than a chunk.
    let fresh = Box::<Chunk>::new_zeroed();
    // SAFETY: the fields of a slot may be zero: numbers, null pointers, and the kind `NATIVE`.
    let fresh = Box::into_raw(unsafe { fresh.assume_init() });
    let first = chunk.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
    if first.is_err() {
        // SAFETY: another thread has stored its chunk first, so no thread has seen ours.
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

/// The party that moves a descriptor's bytes.
pub(crate) enum Mover {
    Kernel,
    /// This library, for a connection of this process.
    Own(Arc<Socket>),
    /// The kernel, between the program and the process that owns the connection.
    RelayClient(Arc<RelayClient>),
}

/// Returns the mover of a descriptor's bytes, once its connection is decided.
#[inline]
pub(crate) fn mover(fd: c_int) -> Mover {
    if !contains(fd) {
        return Mover::Kernel;
    }
    settle(fd);
    match entry(fd) {
        Some(Entry::Socket(socket)) => Mover::Own(socket),
        Some(Entry::RelayClient(client)) => Mover::RelayClient(client),
        _ => Mover::Kernel,
    }
}

/// Returns the protocols next to a listening socket, if there are any.
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

pub(crate) fn entry(fd: c_int) -> Option<Entry> {
    let slot = existing(fd)?;
    if slot.kind.load(Ordering::Acquire) == NATIVE {
        return None;
    }
    slot.get()
}

/// Returns true for a descriptor without an entry. A listed TCP socket has an entry, though the
/// kernel moves its bytes; calls that move bytes use [`contains`] instead.
pub(crate) fn is_plain(fd: c_int) -> bool {
    kind(fd) == NATIVE
}

/// Returns true for a descriptor of a kernel object that the program made, without another object
/// next to it.
pub(crate) fn is_with_kernel(fd: c_int) -> bool {
    matches!(kind(fd), NATIVE | LISTED)
}

/// Returns true if a descriptor is a listener with an offload protocol next to it.
pub(crate) fn is_listener(fd: c_int) -> bool {
    kind(fd) == LISTENER
}

/// Returns true for a descriptor whose events depend on kernel objects other than its own, or whose
/// kernel object is not final, so that a change to its registrations takes more than the kernel's
/// call.
#[inline]
pub(crate) fn needs_library(fd: c_int) -> bool {
    matches!(kind(fd), LISTENER | UNDECIDED)
}

/// Returns the attempt of a socket that connects without blocking.
#[inline]
pub(crate) fn undecided(fd: c_int) -> Option<Arc<dyn Undecided>> {
    if kind(fd) != UNDECIDED {
        return None;
    }
    match entry(fd) {
        Some(Entry::Undecided(undecided)) => Some(undecided),
        _ => None,
    }
}

/// Waits until a socket that connects without blocking has its final kernel object and entry. Calls
/// that would pass the present object on to other descriptors or processes wait here first.
#[inline]
pub(crate) fn settle(fd: c_int) {
    if let Some(undecided) = undecided(fd) {
        undecided.settle();
    }
}

/// Returns true for a connection within the host.
pub(crate) fn is_local(fd: c_int) -> bool {
    kind(fd) == LOCAL
}

/// Returns true if a descriptor is an offloaded connection.
#[inline]
pub(crate) fn contains(fd: c_int) -> bool {
    matches!(kind(fd), SOCKET | RELAY_CLIENT | UNDECIDED)
}

/// Returns true for a descriptor that is an offloaded connection or one within the host.
#[inline]
pub(crate) fn is_connection(fd: c_int) -> bool {
    matches!(kind(fd), SOCKET | RELAY_CLIENT | UNDECIDED | LOCAL)
}

/// Makes an entry for a descriptor, and returns the former entry. Fails with `entry` if the table
/// has no slot.
pub(crate) fn insert(fd: c_int, entry: Entry) -> Result<Option<Entry>, Entry> {
    let Some(slot) = slot(fd) else {
        return Err(entry);
    };
    let kind = entry.kind();
    let before = slot.replace(Some(entry));
    count(slot.kind.swap(kind, Ordering::AcqRel), kind);
    drop(slot.take_record());
    Ok(before)
}

/// Lists a TCP socket until its descriptor is closed, and returns the former entry. Allocates
/// memory only if the descriptor is the first of its chunk of the table.
pub(crate) fn list(fd: c_int, record: NativeRecord) -> Option<Entry> {
    let slot = slot(fd)?;
    let former = slot.record.swap(record.into_number(), Ordering::AcqRel);
    let before = slot.kind.swap(LISTED, Ordering::AcqRel);
    drop(observing::native_record(former));
    count(before, LISTED);
    slot.remove_entry()
}

/// Returns true for a TCP socket that is listed.
pub(crate) fn is_listed(fd: c_int) -> bool {
    kind(fd) == LISTED
}

/// Removes a TCP socket from the list if it has a single descriptor. Takes no lock and frees no
/// memory, so signals need not be blocked.
pub(crate) fn unlist(fd: c_int) -> bool {
    let Some(slot) = existing(fd) else {
        return false;
    };
    if slot.kind.load(Ordering::Acquire) != LISTED || !slot.has_no_entry() {
        return false;
    }
    let kind = &slot.kind;
    let is_native = kind.compare_exchange(LISTED, NATIVE, Ordering::AcqRel, Ordering::Acquire);
    if is_native.is_ok() {
        drop(slot.take_record());
    }
    is_native.is_ok()
}

/// Makes an entry of the record of a TCP socket, so that a duplicate of its descriptor can have the
/// same entry.
pub(crate) fn share_record(fd: c_int) {
    if let Some(slot) = existing(fd)
        && slot.kind.load(Ordering::Acquire) == LISTED
        && let Some(record) = slot.take_record()
    {
        drop(slot.replace(Some(Entry::Listed(Arc::new(record)))));
    }
}

/// Exchanges the entry of a descriptor, if `is_it` accepts it.
pub(crate) fn exchange(
    fd: c_int,
    is_it: impl FnOnce(&Entry) -> bool,
    other: impl FnOnce() -> Entry,
) {
    // The former entry is dropped after the slot is released, because it may be the last reference.
    drop(existing(fd).and_then(|slot| slot.exchange(is_it, other)));
}

/// Removes the entry of a descriptor and returns it.
pub(crate) fn remove(fd: c_int) -> Option<Entry> {
    let slot = existing(fd)?;
    if slot.kind.load(Ordering::Acquire) == NATIVE {
        return None;
    }
    let entry = slot.remove();
    drop(slot.take_record());
    entry
}

/// Makes a number that of a native descriptor in a process with a copy of the table. The entry is
/// not freed: the copied allocator may be locked.
pub(crate) fn forget_copied(fd: c_int) {
    if let Some(slot) = existing(fd) {
        slot.kind.store(NATIVE, Ordering::Release);
    }
}

/// Removes the entry of a connection and returns it. The descriptor stays that of a connection, of
/// which [`has_ended`] returns true, until the program closes it.
pub(crate) fn end_connection(fd: c_int) -> Option<Entry> {
    existing(fd).and_then(Slot::remove_entry)
}

/// Returns true for a connection that the end of the process has closed.
pub(crate) fn has_ended(fd: c_int) -> bool {
    // The kind is read last, because another thread may close the descriptor.
    existing(fd).is_some_and(Slot::has_no_entry) && contains(fd)
}

fn count(before: u8, after: u8) {
    for (kind, change) in [(before, usize::MAX), (after, 1)] {
        match kind {
            LISTENER => LISTENERS.fetch_add(change, Ordering::Relaxed),
            SOCKET | RELAY_CLIENT | UNDECIDED => CONNECTIONS.fetch_add(change, Ordering::Relaxed),
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

/// Releases, in the child of a `fork`, the slots that other threads of the parent held.
///
/// Each lock guards a single word that is written atomically, so the child always has a valid
/// value. The next holder of a slot frees the nodes that handlers removed meanwhile. Slots that the
/// forking thread itself holds stay held: a handler has forked, and the code that it interrupted
/// continues in the child with the node that it has read.
pub(crate) fn unlock_after_fork() {
    let me = this_thread();
    for chunk in &TABLE {
        // SAFETY: the pointer is null, or to a chunk that is never freed.
        let chunk = unsafe { chunk.load(Ordering::Acquire).as_ref() };
        for slot in chunk.into_iter().flatten() {
            if slot.holder.load(Ordering::Relaxed) != me {
                slot.holder.store(0, Ordering::Release);
            }
        }
    }
}
