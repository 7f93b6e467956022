//! Registered memory: the STag table, and copies to and from registered memory.
//!
//! # Guarantees
//!
//! * Registration neither pins nor touches memory; it is an entry in a table. Memory that is not
//!   mapped at that time, or lacks the right that the region grants, is refused ([`mapping`]).
//!   Memory that is unmapped later, or loses a right, is the consumer's fault. The end of a mapped
//!   file may change later: copies of memory of files are made by the kernel, and may fail.
//! * An access holds the table's read lock from its check to its last byte, or pins its
//!   registrations ([`pins`]). Deregistration takes the write lock and waits for pins, so when it
//!   returns no byte is read or written any more (RFC 5042 section 6.3.3).
//! * STags cannot be computed from others, those of the same window included ([`random`]). The
//!   probability that one of `n` registrations or binds after a deregistration receives the freed
//!   STag is at most `n` / 2^32 (RFC 5042 section 6.1.1).
//! * The STag of a posted bind is reserved until the bind is carried out, and then until the next
//!   bind.
//! * This library accesses consumer memory by copies and atomic operations, and passes it to the
//!   kernel in I/O vectors. No checksum is computed over it. So a peer or a thread of the consumer
//!   that changes a buffer in flight harms only that message.
//!
//! # Lock
//!
//! An RNIC has one readers-writer lock. A drive of a connection takes the read side once for
//! everything that one receive returned, and once more around a receive into registered memory. The
//! lock is held over non-blocking system calls only.

mod copy;
mod entry;
mod mapping;
mod pins;
mod published;
mod random;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use iwarp_proto::{InvalidateFault, ProtectionFault, Stag};
use rnic::{Access, QpToken, RegisterMr, Resource, RnicError, Sge};

pub(crate) use copy::{Bytes, TAIL, write_late};
pub(crate) use entry::Entry;
use entry::Kind;
use host::locks::{IgnorePoison as _, lock};
use mapping::Mappings;
pub(crate) use mapping::is_readable;
use pins::{Pinned, Pins};
use published::PublishedTable;
#[cfg(test)]
pub(crate) use published::forge_published;
pub(crate) use published::{BUCKET_LEN, Bucket, bucket_at, find as find_published};
use random::RandomStags;

/// The number of low bits of a window's STag that a consumer may choose.
const CHOSEN_BITS: u32 = 8;

/// The highest number of regions, and of windows, of one RNIC.
pub(crate) const REGION_MAX: u32 = 1 << 20;

/// The STag table of one RNIC.
#[derive(Debug)]
pub(crate) struct MemoryTable {
    table: RwLock<Table>,
    /// Connections whose peers access registered memory directly.
    reference_holders: Mutex<Vec<Weak<dyn ReferenceHolder>>>,
    /// Connections that have ended while their peers were accessing memory.
    ended_holders: Mutex<Vec<Arc<dyn ReferenceHolder>>>,
    /// Registrations that are written while the table is not open.
    pins: Pins,
    mappings: Mappings,
}

#[derive(Debug)]
struct Table {
    /// The entries by STag. A reserved STag has an entry that grants nothing.
    entries: HashMap<u32, Entry, BuildHasherDefault<StagHasher>>,
    /// The entries that grant access, for peers that read this table.
    published: Option<PublishedTable>,
    windows: HashMap<WindowId, WindowStags>,
    windows_created: u64,
    random: RandomStags,
}

/// The name of a window. No other window of its table gets the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct WindowId(u64);

/// The STags of one window.
#[derive(Debug)]
struct WindowStags {
    pd: u32,
    /// The STag of the last bind that was carried out.
    current: Option<u32>,
    /// The STags of binds that were not carried out yet.
    reserved: Vec<u32>,
}

/// A window under the STag of one of its binds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) stag: Stag,
    id: WindowId,
}

/// The range and the rights to which a window is bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowBind {
    pub(crate) region: u32,
    pub(crate) range: Sge,
    pub(crate) access: Access,
    pub(crate) zero_based: bool,
    /// True if the bind fails while the window is bound.
    pub(crate) is_first: bool,
    /// The only queue pair whose peer may use the window.
    pub(crate) only: Option<QpToken>,
}

/// The stream whose peer requests access; STags belong to streams (RFC 5042 section 2.2.5).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) pd: u32,
    pub(crate) qp: QpToken,
    /// The rights that the queue pair denies its peer, whatever the memory grants.
    pub(crate) denied: Denied,
}

/// Rights that a queue pair denies its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Denied(u8);

impl Denied {
    const READ: u8 = 1;
    const WRITE: u8 = 2;
    const ATOMIC: u8 = 4;

    /// Returns the rights that `granted` does not contain.
    pub(crate) fn without(granted: rnic::Access) -> Self {
        let bit = |is_granted, bit| if is_granted { 0 } else { bit };
        Self(
            bit(granted.remote_read, Self::READ)
                | bit(granted.remote_write, Self::WRITE)
                | bit(granted.remote_atomic, Self::ATOMIC),
        )
    }

    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// True if the peer may not copy directly.
    pub(crate) const fn denies_copies(self) -> bool {
        self.0 & (Self::READ | Self::WRITE) != 0
    }

    fn denies(self, access: iwarp_proto::Access) -> bool {
        let bit = match access {
            iwarp_proto::Access::RemoteRead => Self::READ,
            iwarp_proto::Access::RemoteWrite => Self::WRITE,
            iwarp_proto::Access::RemoteAtomic => Self::ATOMIC,
            _ => 0,
        };
        self.0 & bit != 0
    }
}

/// An object whose peer reads and writes registered memory directly.
pub(crate) trait ReferenceHolder: std::fmt::Debug + Send + Sync {
    /// Returns when the peer accesses memory of this registration no more, and cannot begin to.
    fn revoke(&self, stag: Stag);

    /// Returns true while the peer may be accessing memory.
    fn is_in_use(&self) -> bool;
}

impl MemoryTable {
    /// Creates an empty table.
    pub(crate) fn new() -> Result<Self, RnicError> {
        Ok(Self {
            table: RwLock::new(Table {
                entries: HashMap::default(),
                published: PublishedTable::new().ok(),
                windows: HashMap::new(),
                windows_created: 0,
                random: RandomStags::new(),
            }),
            reference_holders: Mutex::default(),
            ended_holders: Mutex::default(),
            pins: Pins::default(),
            mappings: Mappings::open()?,
        })
    }

    /// Registers a region for one protection domain and returns its STag.
    pub(crate) fn register(&self, pd: u32, request: &RegisterMr) -> Result<Stag, RnicError> {
        let access = request.access;
        let write = access.local_write || access.remote_write || access.remote_atomic;
        let backing = self.mappings.check(request.addr, request.len, write)?;
        let mut table = self.write();
        if table.entries.len() >= REGION_MAX as usize {
            return Err(RnicError::NoResources(Resource::MemoryRegion));
        }
        table.insert(Entry::region(pd, request, backing))
    }

    /// Removes a region, and ends the bindings of windows to it. No access to it is in progress
    /// when this returns, by this process or by a peer that reads it by reference.
    pub(crate) fn remove(&self, stag: Stag) {
        self.end_region(stag, None);
    }

    /// Registers other memory under the STag of a region, or the same memory with other rights. No
    /// access to the former memory is in progress when this returns. After a failure the region is
    /// as before.
    pub(crate) fn replace(
        &self,
        stag: Stag,
        pd: u32,
        request: &RegisterMr,
    ) -> Result<(), RnicError> {
        let access = request.access;
        let write = access.local_write || access.remote_write || access.remote_atomic;
        let backing = self.mappings.check(request.addr, request.len, write)?;
        // Meanwhile the STag stays reserved, and grants nothing.
        self.end_region(stag, Some(Entry::unbound_window(pd)));
        let region = Entry::region(pd, request, backing);
        self.write().put(stag.0, region);
        Ok(())
    }

    /// Removes a region, and stores `placeholder` in its place.
    fn end_region(&self, stag: Stag, placeholder: Option<Entry>) {
        let mut table = self.write();
        let removed = table.take(stag.0);
        if let Some(placeholder) = placeholder {
            table.put(stag.0, placeholder);
        }
        let bound: Vec<u32> = match removed.is_some_and(|region| region.has_windows) {
            true => table.end_windows_of(stag.0),
            false => Vec::new(),
        };
        drop(table);
        self.end_references(stag);
        for window in bound {
            self.end_references(Stag(window));
        }
    }

    /// Ends the references through an STag that is no longer in the table, and waits for pins.
    /// References and pins are made with the table open, so all of them exist.
    fn end_references(&self, stag: Stag) {
        self.pins.await_unpinned(stag);
        for reference_holder in self.reference_holders() {
            reference_holder.revoke(stag);
        }
    }

    /// Called after a peer has invalidated a window by a Send with Invalidate, and before the Send
    /// completes. No access through the window is in progress when this returns.
    pub(crate) fn end_invalidated(&self, stag: Stag) {
        // An access that has resolved the STag before may still be in progress, or add a reference.
        self.write().unpublish(stag.0);
        self.end_references(stag);
    }

    /// Registers a reference holder until it is dropped.
    pub(crate) fn add_reference_holder(&self, reference_holder: &Arc<dyn ReferenceHolder>) {
        let mut reference_holders = lock(&self.reference_holders);
        reference_holders.retain(|it| it.strong_count() > 0);
        reference_holders.push(Arc::downgrade(reference_holder));
    }

    /// Keeps a reference holder whose connection has ended until its peer accesses no memory.
    pub(crate) fn keep_reference_holder(&self, reference_holder: Arc<dyn ReferenceHolder>) {
        let mut ended = lock(&self.ended_holders);
        ended.retain(|it| it.is_in_use());
        if reference_holder.is_in_use() {
            ended.push(reference_holder);
        }
    }

    fn reference_holders(&self) -> Vec<Arc<dyn ReferenceHolder>> {
        let mut ended = lock(&self.ended_holders);
        ended.retain(|it| it.is_in_use());
        let open = lock(&self.reference_holders);
        let open = open.iter().filter_map(Weak::upgrade);
        open.chain(ended.iter().cloned()).collect()
    }

    /// Creates a window that is not bound and has no STag.
    pub(crate) fn create_window(&self, pd: u32) -> Result<WindowId, RnicError> {
        let mut table = self.write();
        if table.windows.len() >= REGION_MAX as usize {
            return Err(RnicError::NoResources(Resource::MemoryRegion));
        }
        let id = WindowId(table.windows_created);
        table.windows_created += 1;
        let stags = WindowStags {
            pd,
            current: None,
            reserved: Vec::new(),
        };
        table.windows.insert(id, stags);
        Ok(id)
    }

    /// Removes a window, bound or not, with the STags that are reserved for its binds. No peer
    /// reads through the window when this returns.
    pub(crate) fn remove_window(&self, id: WindowId) {
        let mut table = self.write();
        let Some(stags) = table.windows.remove(&id) else {
            return;
        };
        for stag in stags.reserved.iter().chain(&stags.current) {
            table.take(*stag);
        }
        drop(table);
        if let Some(stag) = stags.current {
            self.end_references(Stag(stag));
        }
    }

    /// Reserves the STag for the next bind of a window. A peer that has the STag of an earlier bind
    /// cannot compute this one.
    pub(crate) fn next_window(&self, id: WindowId) -> Result<Window, RnicError> {
        let mut table = self.write();
        let pd = match table.windows.get(&id) {
            Some(stags) => stags.pd,
            None => return Err(RnicError::NoResources(Resource::MemoryRegion)),
        };
        let stag = table.insert(Entry::unbound_window(pd))?;
        if let Some(stags) = table.windows.get_mut(&id) {
            stags.reserved.push(stag.0);
        }
        Ok(Window { stag, id })
    }

    /// Reserves an STag for a window whose binds choose the last eight bits of theirs.
    pub(crate) fn window_key(&self, id: WindowId) -> Result<Stag, RnicError> {
        self.next_window(id).map(|window| window.stag)
    }

    /// Reserves an STag that the consumer has chosen for the next bind of a window. The window must
    /// have a reserved STag with the same upper bits, or must have been bound to one.
    pub(crate) fn chosen_window(&self, id: WindowId, key: u32) -> Result<Window, RnicError> {
        const UNKNOWN: RnicError = RnicError::InvalidArgument("the key is not one of the window");
        let mut table = self.write();
        let Table {
            entries, windows, ..
        } = &mut *table;
        let owner = windows.get_mut(&id).ok_or(UNKNOWN)?;
        let mut own = owner.reserved.iter().chain(&owner.current);
        if !own.any(|stag| (stag ^ key) >> CHOSEN_BITS == 0) {
            return Err(UNKNOWN);
        }
        if !owner.reserved.contains(&key) {
            if entries.contains_key(&key) {
                return Err(UNKNOWN);
            }
            entries.insert(key, Entry::unbound_window(owner.pd));
            owner.reserved.push(key);
        }
        Ok(Window {
            stag: Stag(key),
            id,
        })
    }

    /// Ends the binding of a window of this stream's domain. No access through the window is in
    /// progress when this returns. Returns `false` if `stag` is not the key of a bound window.
    pub(crate) fn invalidate_local(&self, stream: Stream, stag: Stag) -> bool {
        let memory = self.access();
        let is_bound = memory.check_invalidate(stream, stag).is_ok();
        if is_bound {
            memory.invalidate(stag);
        }
        drop(memory);
        if is_bound {
            self.end_invalidated(stag);
        }
        is_bound
    }

    /// Frees the STag of a bind that was not posted.
    pub(crate) fn cancel_bind(&self, window: Window) {
        let mut table = self.write();
        let owner = table.windows.get_mut(&window.id);
        if owner.is_some_and(|stags| stags.take_reserved(window.stag)) {
            table.entries.remove(&window.stag.0);
        }
    }

    /// Carries out a bind: from now on the window has this STag and no other; `None` unbinds. No
    /// peer reads through an earlier STag of the window when this returns.
    ///
    /// Returns `false` if the region does not exist, belongs to another domain, or grants less, and
    /// if the window was removed.
    pub(crate) fn bind_window(&self, pd: u32, window: Window, bind: Option<&WindowBind>) -> bool {
        let mut table = self.write();
        let Table {
            entries, windows, ..
        } = &mut *table;
        let owner = windows.get_mut(&window.id).filter(|it| it.pd == pd);
        let Some(owner) = owner else {
            return false;
        };
        let bound = match bind {
            Some(bind) => entries
                .get(&bind.region)
                .and_then(|region| region.part(pd, bind)),
            None => Some(Entry::unbound_window(pd)),
        };
        let is_bound = |stag: u32| entries.get(&stag).is_some_and(Entry::is_valid);
        if bind.is_some_and(|bind| bind.is_first) && owner.current.is_some_and(is_bound) {
            return false;
        }
        let Some(bound) = bound.filter(|_| owner.take_reserved(window.stag)) else {
            return false;
        };
        if let Some(region) = bind.and_then(|bind| entries.get_mut(&bind.region)) {
            region.has_windows = true;
        }
        let former = owner.current.replace(window.stag.0);
        if let Some(former) = former {
            table.take(former);
        }
        table.put(window.stag.0, bound);
        drop(table);
        if let Some(former) = former {
            self.end_references(Stag(former));
        }
        true
    }

    /// Opens the table for accesses; deregistration waits until the result is dropped.
    pub(crate) fn access(&self) -> MemoryAccess<'_> {
        MemoryAccess {
            table: self.table.read().ignore_poison(),
        }
    }

    /// Keeps registrations of the open table in use until the result is dropped, although the table
    /// is closed before. Their deregistration waits, and nothing else does.
    pub(crate) fn pin(
        &self,
        _open: &MemoryAccess<'_>,
        stags: impl IntoIterator<Item = Stag>,
    ) -> Pinned<'_> {
        self.pins.pin(stags)
    }

    /// The address of the table that peers read; 0 if there is none.
    pub(crate) fn published_at(&self) -> u64 {
        let table = self.table.read().ignore_poison();
        table.published.as_ref().map_or(0, PublishedTable::addr)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().ignore_poison()
    }
}

impl Table {
    /// Stores an entry under an unused STag.
    fn insert(&mut self, entry: Entry) -> Result<Stag, RnicError> {
        let entries = &self.entries;
        let stag = self.random.draw(|stag| entries.contains_key(&stag))?;
        self.put(stag, entry);
        Ok(Stag(stag))
    }

    fn put(&mut self, stag: u32, entry: Entry) {
        if let Some(published) = &mut self.published
            && entry.is_valid()
        {
            published.put(stag, &entry);
        }
        self.entries.insert(stag, entry);
    }

    fn take(&mut self, stag: u32) -> Option<Entry> {
        self.unpublish(stag);
        self.entries.remove(&stag)
    }

    fn unpublish(&mut self, stag: u32) {
        if let Some(published) = &mut self.published {
            published.remove(stag);
        }
    }
}

impl Table {
    /// Ends the bindings of all windows to a region, and returns their STags.
    fn end_windows_of(&mut self, region: u32) -> Vec<u32> {
        let bound = self.entries.iter().filter(|(_, entry)| {
            let is_part = entry.region == Some(region);
            is_part && entry.is_valid()
        });
        let bound: Vec<u32> = bound
            .map(|(stag, entry)| {
                entry.invalidate();
                *stag
            })
            .collect();
        for window in &bound {
            self.unpublish(*window);
        }
        bound
    }
}

impl WindowStags {
    /// Ends the reservation for a bind. Returns true if `stag` was reserved.
    fn take_reserved(&mut self, stag: Stag) -> bool {
        let at = self.reserved.iter().position(|it| *it == stag.0);
        at.map(|at| self.reserved.swap_remove(at)).is_some()
    }
}

/// STags are random, and no peer chooses those in the table. One multiplication is enough; the map
/// needs it because the map uses bits from both ends of the hash.
#[derive(Debug, Default)]
struct StagHasher(u64);

impl Hasher for StagHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(self.0 as u32 ^ u32::from(*byte));
        }
    }

    fn write_u32(&mut self, stag: u32) {
        // 2^64 divided by the golden ratio.
        self.0 = u64::from(stag).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// The table, open for accesses.
#[derive(Debug)]
pub(crate) struct MemoryAccess<'a> {
    table: RwLockReadGuard<'a, Table>,
}

impl MemoryAccess<'_> {
    fn entry(&self, stag: u32) -> Option<&Entry> {
        self.table.entries.get(&stag)
    }

    /// Resolves a local segment of a work request; `write` for receives and the sinks of reads.
    pub(crate) fn local(&self, pd: u32, sge: &Sge, write: bool) -> Option<Bytes<'_>> {
        if sge.len == 0 {
            return Some(Bytes::EMPTY);
        }
        let entry = self.entry(sge.lkey)?;
        let right = if write {
            entry.access.local_write
        } else {
            entry.access.local_read
        };
        if entry.pd != pd || !right || !entry.is_region() {
            return None;
        }
        let start = entry.range(sge.addr, sge.len).ok()?;
        // SAFETY: the range lies within a registration that cannot go away while `self` holds the
        // read lock, and a consumer keeps registered memory mapped (DAT 2.0 section 6.6).
        Some(unsafe { Bytes::new(start, sge.len as usize, entry.backing) })
    }

    /// Resolves a tagged range, checked in the order of RFC 5040 section 7.2 and RFC 5041 section
    /// 7.1.
    pub(crate) fn remote(
        &self,
        stream: Stream,
        access: iwarp_proto::Access,
        stag: Stag,
        to: u64,
        len: u32,
    ) -> Result<Bytes<'_>, ProtectionFault> {
        let entry = self.entry(stag.0).ok_or(ProtectionFault::InvalidStag)?;
        let start = entry.check(stream, access, to, len)?;
        // SAFETY: the range lies within a registration, see `local`.
        Ok(unsafe { Bytes::new(start, len as usize, entry.backing) })
    }

    /// Checks whether the peer may invalidate an STag: only those of windows, because several
    /// streams share a region.
    pub(crate) fn check_invalidate(
        &self,
        stream: Stream,
        stag: Stag,
    ) -> Result<(), InvalidateFault> {
        let entry = self.entry(stag.0).ok_or(InvalidateFault::InvalidStag)?;
        if !entry.is_valid() {
            return Err(InvalidateFault::InvalidStag);
        }
        if !entry.belongs_to(stream) {
            return Err(InvalidateFault::NotAssociated);
        }
        match entry.kind {
            Kind::Window { .. } => Ok(()),
            Kind::Region => Err(InvalidateFault::NotInvalidatable),
        }
    }

    /// Returns the registrations that an STag gives access to: itself, and the region of a window.
    pub(crate) fn registrations(&self, stag: Stag) -> Vec<Stag> {
        let region = self.entry(stag.0).and_then(|entry| entry.region);
        std::iter::once(stag).chain(region.map(Stag)).collect()
    }

    /// Invalidates a window's STag on delivery of a Send with Invalidate.
    /// [`MemoryTable::end_invalidated`] must be called when the table is no longer open.
    pub(crate) fn invalidate(&self, stag: Stag) {
        if let Some(entry) = self.entry(stag.0) {
            entry.invalidate();
        }
    }
}

/// The table for one stream, in the form that the protocol uses.
#[derive(Debug)]
pub(crate) struct StreamMemory<'a> {
    pub(crate) access: &'a MemoryAccess<'a>,
    pub(crate) stream: Stream,
}

impl<'a> iwarp_proto::MemoryTable for StreamMemory<'a> {
    type Place = Bytes<'a>;

    fn resolve(
        &self,
        access: iwarp_proto::Access,
        stag: Stag,
        to: u64,
        len: u32,
    ) -> Result<Bytes<'a>, ProtectionFault> {
        if self.stream.denied.denies(access) {
            return Err(ProtectionFault::AccessViolation);
        }
        self.access.remote(self.stream, access, stag, to, len)
    }

    fn check_invalidate(&self, stag: Stag) -> Result<(), InvalidateFault> {
        self.access.check_invalidate(self.stream, stag)
    }
}

#[cfg(test)]
mod tests;
