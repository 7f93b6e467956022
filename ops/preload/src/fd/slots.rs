//! The slots of the descriptor numbers. A call on a native socket costs two loads.
//!
//! The table grows in chunks that are never freed, so a lookup needs no lock. The first chunk is
//! part of this library, all others are mapped, so no slot needs the allocator. A slot in use has
//! its own lock, which is held for the few instructions that copy a reference. Signals are not
//! blocked meanwhile, because that would cost two system calls. So a handler that uses the same
//! descriptor must not wait for the thread that it has interrupted.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

use ops::observe::NativeRecord;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::fd::operations::{Kind, Operations, address_of};
use crate::fd::watch::Watch;
use crate::observing;

const CHUNK: usize = 1024;
/// The kernel's `nr_open` is 2^20 unless an administrator has raised it; higher numbers stay
/// native.
const CHUNKS: usize = 1024;

/// The number of times that a thread tries to lock a slot before it yields the processor.
const SPINS: u32 = 100;

/// An object behind descriptors.
pub(crate) type Entry = Arc<dyn Operations>;

/// A kernel TCP socket with several descriptors that is listed with the reason for it. The record
/// of a single descriptor is in the slot itself.
struct Listed(#[expect(dead_code, reason = "held so that it stays listed")] NativeRecord);

impl Operations for Listed {
    fn kind(&self) -> Kind {
        Kind::Listed
    }
}

/// The state of a descriptor number. The slot of a number that no call has used consists of zeros.
pub(super) struct Slot {
    /// The [`Kind`] of the entry.
    kind: AtomicU8,
    /// The set of [`Mark`](super::marks::Mark)s.
    pub(super) marks: AtomicU8,
    /// The number of the record of a TCP socket; 0 for none.
    record: AtomicU32,
    /// The serial number of an `epoll` set; 0 for any other descriptor.
    pub(super) set: AtomicU32,
    /// The serial number of the set to which a connection was added last, and not removed since; 0
    /// if it is not known.
    pub(super) watched_by: AtomicU32,
    /// The registration of a connection within the host in a set.
    pub(super) watch: Watch,
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
    const fn new() -> Self {
        Self {
            kind: AtomicU8::new(0),
            marks: AtomicU8::new(0),
            record: AtomicU32::new(0),
            set: AtomicU32::new(0),
            watched_by: AtomicU32::new(0),
            watch: Watch::new(),
            holder: AtomicUsize::new(0),
            entry: AtomicPtr::new(ptr::null_mut()),
            removed: AtomicPtr::new(ptr::null_mut()),
        }
    }

    #[inline]
    fn kind(&self) -> Kind {
        Kind::from_number(self.kind.load(Ordering::Acquire))
    }

    /// Returns true for a number without entry and marks that is no set.
    #[inline]
    fn is_unused(&self) -> bool {
        self.kind.load(Ordering::Acquire) == Kind::Native as u8
            && self.marks.load(Ordering::Acquire) == 0
            && self.set.load(Ordering::Relaxed) == 0
    }

    /// Returns true for a number with an entry.
    pub(super) fn has_kind(&self) -> bool {
        self.kind() != Kind::Native
    }

    /// Changes the kind, and returns the former kind.
    fn set_kind(&self, kind: Kind) -> Kind {
        let before = Kind::from_number(self.kind.swap(kind as u8, Ordering::AcqRel));
        count(before, kind);
        before
    }

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
        self.set_kind(Kind::Native);
        let before = self.entry.swap(ptr::null_mut(), Ordering::AcqRel);
        held.remove_node(before)
    }

    /// Stores another entry if the present entry has this address, and returns the former entry.
    fn exchange(&self, address: usize, other: impl FnOnce() -> Entry) -> Option<Entry> {
        let held = Held::of(self);
        let before = self.entry.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or to a node that no thread frees while the slot is held.
        if unsafe { before.as_ref() }.is_none_or(|node| address_of(&*node.entry) != address) {
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
        self.set_kind(kind);
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

/// The slots of the lowest numbers, which are the only ones of most programs.
static FIRST: Chunk = [const { Slot::new() }; CHUNK];

static TABLE: [AtomicPtr<Chunk>; CHUNKS] = {
    let mut table = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];
    table[0] = AtomicPtr::new((&raw const FIRST).cast_mut());
    table
};

#[inline]
pub(super) fn existing(fd: c_int) -> Option<&'static Slot> {
    let fd = usize::try_from(fd).ok()?;
    let chunk = TABLE.get(fd / CHUNK)?.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or to a chunk that is never freed.
    unsafe { chunk.as_ref() }.map(|chunk| &chunk[fd % CHUNK])
}

/// Returns the slot of a number, and maps its chunk if necessary. `None`: the number is beyond the
/// table, or the kernel lacks memory.
#[inline]
pub(super) fn slot(fd: c_int) -> Option<&'static Slot> {
    existing(fd).or_else(|| map(fd))
}

#[cold]
fn map(fd: c_int) -> Option<&'static Slot> {
    let chunk = TABLE.get(usize::try_from(fd).ok()? / CHUNK)?;
    let size = size_of::<Chunk>();
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses an unused address for the new mapping.
    let fresh = unsafe { mmap_anonymous(ptr::null_mut(), size, rights, MapFlags::PRIVATE) }.ok()?;
    // The fields of a slot may be zero: numbers, null pointers, and the kind `Native`.
    let first = chunk.compare_exchange(
        ptr::null_mut(),
        fresh.cast(),
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    if first.is_err() {
        // SAFETY: another thread has stored its chunk first, so no thread has seen this one.
        let _ = unsafe { munmap(fresh, size) };
    }
    existing(fd)
}

static LISTENERS: AtomicUsize = AtomicUsize::new(0);

static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);

static LOCAL_CONNECTIONS: AtomicUsize = AtomicUsize::new(0);

fn count(before: Kind, after: Kind) {
    for (kind, change) in [(before, usize::MAX), (after, 1)] {
        let counter = match kind {
            Kind::Listener => &LISTENERS,
            Kind::Socket | Kind::RelayClient | Kind::Connecting => &CONNECTIONS,
            Kind::Local => &LOCAL_CONNECTIONS,
            Kind::Native | Kind::Listed => continue,
        };
        counter.fetch_add(change, Ordering::Relaxed);
    }
}

/// Returns true if any descriptor is an offloaded connection.
#[inline]
pub(crate) fn has_connections() -> bool {
    CONNECTIONS.load(Ordering::Relaxed) > 0
}

/// Returns true if any descriptor is a connection within the host.
#[inline]
pub(crate) fn has_local() -> bool {
    LOCAL_CONNECTIONS.load(Ordering::Relaxed) > 0
}

/// Returns true if any descriptor is a listener with an offload protocol next to it.
#[inline]
pub(crate) fn has_listeners() -> bool {
    LISTENERS.load(Ordering::Relaxed) > 0
}

#[inline]
pub(super) fn kind(fd: c_int) -> Kind {
    existing(fd).map_or(Kind::Native, Slot::kind)
}

/// Returns true for a number with an entry or marks, or of a set.
#[inline]
pub(crate) fn is_in_use(fd: c_int) -> bool {
    existing(fd).is_some_and(|slot| !slot.is_unused())
}

/// Returns the entry of a descriptor.
pub(crate) fn entry(fd: c_int) -> Option<Entry> {
    let slot = existing(fd)?;
    if !slot.has_kind() {
        return None;
    }
    slot.get()
}

/// Makes an entry for a descriptor, and returns the former entry. Fails with `entry` if the table
/// has no slot.
pub(super) fn replace(fd: c_int, entry: Entry) -> Result<Option<Entry>, Entry> {
    let Some(slot) = slot(fd) else {
        return Err(entry);
    };
    let kind = entry.kind();
    let before = slot.replace(Some(entry));
    slot.set_kind(kind);
    drop(slot.take_record());
    Ok(before)
}

/// Lists a TCP socket until its descriptor is closed, and returns the former entry.
pub(super) fn list(fd: c_int, record: NativeRecord) -> Option<Entry> {
    let slot = slot(fd)?;
    let former = slot.record.swap(record.into_number(), Ordering::AcqRel);
    slot.set_kind(Kind::Listed);
    drop(observing::native_record(former));
    slot.remove_entry()
}

/// Removes a TCP socket from the list if it has a single descriptor. Takes no lock and frees no
/// memory, so signals need not be blocked.
pub(super) fn unlist(fd: c_int) -> bool {
    let Some(slot) = existing(fd) else {
        return false;
    };
    if slot.kind() != Kind::Listed || !slot.has_no_entry() {
        return false;
    }
    let (listed, native) = (Kind::Listed as u8, Kind::Native as u8);
    let kind = &slot.kind;
    let is_native = kind.compare_exchange(listed, native, Ordering::AcqRel, Ordering::Acquire);
    if is_native.is_ok() {
        drop(slot.take_record());
    }
    is_native.is_ok()
}

/// Makes an entry of the record of a TCP socket, so that a duplicate of its descriptor can have the
/// same entry.
pub(super) fn share_record(fd: c_int) {
    if let Some(slot) = existing(fd)
        && slot.kind() == Kind::Listed
        && let Some(record) = slot.take_record()
    {
        drop(slot.replace(Some(Arc::new(Listed(record)))));
    }
}

/// Exchanges the entry of a descriptor if it is `before`.
pub(crate) fn exchange<T: ?Sized>(fd: c_int, before: &T, other: impl FnOnce() -> Entry) {
    // The former entry is dropped after the slot is released, because it may be the last reference.
    drop(existing(fd).and_then(|slot| slot.exchange(address_of(before), other)));
}

/// Calls `work` if the entry of a descriptor is `object`, which stays its entry meanwhile.
pub(crate) fn while_held<T: ?Sized, R>(
    fd: c_int,
    object: &T,
    work: impl FnOnce() -> R,
) -> Option<R> {
    let slot = existing(fd)?;
    let _held = Held::of(slot);
    // SAFETY: the pointer is null, or to a node that no thread frees while the slot is held.
    let node = unsafe { slot.entry.load(Ordering::Acquire).as_ref() };
    let is_it = node.is_some_and(|node| address_of(&*node.entry) == address_of(object));
    is_it.then(work)
}

/// Removes the entry of a descriptor and returns it.
pub(crate) fn remove(fd: c_int) -> Option<Entry> {
    let slot = existing(fd)?;
    if !slot.has_kind() {
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
        slot.kind.store(Kind::Native as u8, Ordering::Release);
    }
}

/// Removes the entry of a connection and returns it. The descriptor stays that of a connection, of
/// which [`has_ended`](super::has_ended) returns true, until the program closes it.
pub(crate) fn end_connection(fd: c_int) -> Option<Entry> {
    existing(fd).and_then(Slot::remove_entry)
}

/// Returns true for a descriptor without the object of an entry.
pub(super) fn has_no_entry(fd: c_int) -> bool {
    existing(fd).is_some_and(Slot::has_no_entry)
}

/// Returns the numbers of a range whose slots were used, both ends included.
pub(super) fn slots(first: usize, last: usize) -> impl Iterator<Item = (c_int, &'static Slot)> {
    let last = last.min(CHUNK * CHUNKS - 1);
    let chunks = first / CHUNK..=last / CHUNK;
    chunks
        .filter(|chunk| !TABLE[*chunk].load(Ordering::Acquire).is_null())
        .flat_map(move |chunk| (chunk * CHUNK).max(first)..=(chunk * CHUNK + CHUNK - 1).min(last))
        .filter_map(|fd| c_int::try_from(fd).ok())
        .filter_map(|fd| Some((fd, existing(fd)?)))
        .filter(|(_, slot)| !slot.is_unused())
}

/// Returns all descriptors with an entry.
pub(crate) fn all() -> impl Iterator<Item = c_int> {
    slots(0, usize::MAX)
        .filter(|(_, slot)| slot.has_kind())
        .map(|(fd, _)| fd)
}

/// Returns all connections within the host.
pub(super) fn local() -> impl Iterator<Item = c_int> {
    slots(0, usize::MAX)
        .filter(|(_, slot)| slot.kind() == Kind::Local)
        .map(|(fd, _)| fd)
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
