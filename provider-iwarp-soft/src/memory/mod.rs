//! Registered memory: the STag table, and copies to and from registered memory.
//!
//! # Guarantees
//!
//! * Registration neither pins nor touches memory; it is an entry in a table. Memory that is not
//!   mapped at that time is refused ([`mapping`]); memory that is unmapped later is the consumer's
//!   fault.
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
mod random;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use access_layer::rnic::{Access, QpToken, RegisterMr, Resource, RnicError, Sge};
use iwarp_proto::{InvalidateFault, ProtectionFault, Stag};

pub(crate) use copy::{Bytes, TAIL, write_late};
use entry::{Entry, Kind};
use host::locks::{IgnorePoison as _, lock};
pub(crate) use mapping::is_mapped;
use pins::{Pinned, Pins};
use random::RandomStags;

/// The highest number of regions, and of windows, of one RNIC.
pub(crate) const REGION_MAX: u32 = 1 << 20;

/// The STag table of one RNIC.
#[derive(Debug)]
pub(crate) struct MemoryTable {
    table: RwLock<Table>,
    /// Connections whose peers read registered memory by reference.
    reference_holders: Mutex<Vec<Weak<dyn ReferenceHolder>>>,
    /// Registrations that are written while the table is not open.
    pins: Pins,
}

#[derive(Debug)]
struct Table {
    /// The entries by STag. A reserved STag has an entry that grants nothing.
    entries: HashMap<u32, Entry, BuildHasherDefault<StagHasher>>,
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
    /// The only queue pair whose peer may use the window.
    pub(crate) only: Option<QpToken>,
}

/// The stream whose peer requests access; STags belong to streams (RFC 5042 section 2.2.5).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) pd: u32,
    pub(crate) qp: QpToken,
}

/// An object whose peer reads registered memory directly.
pub(crate) trait ReferenceHolder: std::fmt::Debug + Send + Sync {
    /// Returns when no peer reads memory of this registration any more, and none can begin to.
    fn revoke(&self, stag: Stag);
}

impl MemoryTable {
    /// Creates an empty table.
    pub(crate) fn new() -> Self {
        Self {
            table: RwLock::new(Table {
                entries: HashMap::default(),
                windows: HashMap::new(),
                windows_created: 0,
                random: RandomStags::new(),
            }),
            reference_holders: Mutex::default(),
            pins: Pins::default(),
        }
    }

    /// Registers a region for one protection domain and returns its STag.
    pub(crate) fn register(&self, pd: u32, request: &RegisterMr) -> Result<Stag, RnicError> {
        let mut table = self.write();
        if table.entries.len() >= REGION_MAX as usize {
            return Err(RnicError::NoResources(Resource::MemoryRegion));
        }
        table.insert(Entry::region(pd, request))
    }

    /// Removes a region. No access to it is in progress when this returns, by this process or by a
    /// peer that reads it by reference.
    pub(crate) fn remove(&self, stag: Stag) {
        self.write().entries.remove(&stag.0);
        self.end_references(stag);
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
        drop(self.write());
        self.end_references(stag);
    }

    /// Registers a reference holder until it is dropped.
    pub(crate) fn add_reference_holder(&self, reference_holder: &Arc<dyn ReferenceHolder>) {
        let mut reference_holders = lock(&self.reference_holders);
        reference_holders.retain(|it| it.strong_count() > 0);
        reference_holders.push(Arc::downgrade(reference_holder));
    }

    fn reference_holders(&self) -> Vec<Arc<dyn ReferenceHolder>> {
        lock(&self.reference_holders)
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
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
            table.entries.remove(stag);
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
        let Some(bound) = bound.filter(|_| owner.take_reserved(window.stag)) else {
            return false;
        };
        let former = owner.current.replace(window.stag.0);
        if let Some(former) = former {
            entries.remove(&former);
        }
        entries.insert(window.stag.0, bound);
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
    pub(crate) fn pin(&self, _open: &MemoryAccess<'_>, stags: Vec<Stag>) -> Pinned<'_> {
        self.pins.pin(stags)
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
        self.entries.insert(stag, entry);
        Ok(Stag(stag))
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
        Some(unsafe { Bytes::new(start, sge.len as usize) })
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
        if !entry.is_valid() {
            return Err(ProtectionFault::InvalidStag);
        }
        if !entry.belongs_to(stream) {
            return Err(ProtectionFault::NotAssociated);
        }
        if !entry.grants(access) {
            return Err(ProtectionFault::AccessViolation);
        }
        let start = entry.range(to, len)?;
        // SAFETY: the range lies within a registration, see `local`.
        Ok(unsafe { Bytes::new(start, len as usize) })
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
        self.access.remote(self.stream, access, stag, to, len)
    }

    fn check_invalidate(&self, stag: Stag) -> Result<(), InvalidateFault> {
        self.access.check_invalidate(self.stream, stag)
    }
}

#[cfg(test)]
mod tests;
