//! Registered memory: the STag table, and copying in and out of it.
//!
//! # What is promised
//!
//! * Registration neither pins nor touches memory; it is an entry in a table. Memory that is not
//!   mapped then is refused ([`mapping`]); what is unmapped later is the consumer's fault.
//! * An access holds the table's read lock from its check to its last byte. Deregistration takes
//!   the write lock, so when it returns no byte is read or written any more (RFC 5042 section
//!   6.3.3).
//! * STags are unpredictable ([`cipher`]) and an index is reused as late as possible
//!   (RFC 5042 section 6.1.1).
//! * Consumer memory is never a Rust slice that outlives a checksum: a peer or a thread of the
//!   consumer that changes a buffer in flight harms only that message.
//!
//! # Lock
//!
//! One readers-writer lock per RNIC. A drive of a connection takes the read side once, not once a
//! segment, and holds it over non-blocking system calls only.

mod cipher;
mod copy;
mod entry;
mod mapping;

use std::collections::VecDeque;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use access_layer::rnic::{Access, QpToken, RegisterMr, Resource, RnicError, Sge};
use iwarp_proto::{InvalidateFault, ProtectionFault, Stag};
use rustix::rand::{GetRandomFlags, getrandom};

use cipher::{Cipher, INDEX_BITS};
pub(crate) use copy::Bytes;
use entry::{Entry, Kind};
pub(crate) use mapping::is_mapped;

/// Regions and windows of one RNIC.
pub(crate) const REGION_MAX: u32 = 1 << 20;

/// The STag table of one RNIC.
#[derive(Debug)]
pub(crate) struct MemoryTable {
    cipher: Cipher,
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    entries: Vec<Option<Entry>>,
    /// Oldest first, so that an index rests as long as possible.
    free: VecDeque<u32>,
}

/// What a window is bound to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowBind {
    pub(crate) region: u32,
    pub(crate) range: Sge,
    pub(crate) access: Access,
    pub(crate) zero_based: bool,
    /// The one queue pair whose peer may use it.
    pub(crate) only: Option<QpToken>,
}

/// Whose peer asks: what STags belong to (RFC 5042 section 2.2.5).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) pd: u32,
    pub(crate) qp: QpToken,
}

impl MemoryTable {
    /// An empty table with keys of its own.
    pub(crate) fn new() -> Result<Self, RnicError> {
        let mut keys = [0; 64];
        fill_random(&mut keys)?;
        Ok(Self {
            cipher: Cipher::new(keys),
            table: RwLock::default(),
        })
    }

    /// Registers a region for one protection domain and returns its STag.
    pub(crate) fn register(&self, pd: u32, request: &RegisterMr) -> Result<Stag, RnicError> {
        self.insert(|stag| Entry::region(stag, pd, request))
    }

    /// Makes a window that is bound to nothing.
    pub(crate) fn create_window(&self, pd: u32) -> Result<Stag, RnicError> {
        self.insert(|stag| Entry::unbound_window(stag, pd))
    }

    fn insert(&self, make: impl FnOnce(u32) -> Entry) -> Result<Stag, RnicError> {
        let mut salt = [0; 4];
        fill_random(&mut salt)?;
        let mut table = self.write();
        let index = table
            .vacancy()
            .ok_or(RnicError::NoResources(Resource::MemoryRegion))?;
        let stag = self.cipher.stag(index, u32::from_ne_bytes(salt));
        table.entries[index as usize] = Some(make(stag));
        Ok(Stag(stag))
    }

    /// Takes a region or window away. When this returns, nobody accesses it any more.
    pub(crate) fn remove(&self, stag: Stag) {
        let mut table = self.write();
        let index = self.cipher.index(stag.0);
        if let Some(slot) = table.entries.get_mut(index as usize)
            && slot.as_ref().is_some_and(|entry| entry.names(stag.0))
        {
            *slot = None;
            table.free.push_back(index);
        }
    }

    /// Takes a window away by the identity that no bind changes.
    pub(crate) fn remove_window(&self, identity: Stag) {
        let mut table = self.write();
        let index = self.cipher.index(identity.0);
        if let Some(slot) = table.entries.get_mut(index as usize)
            && slot
                .as_ref()
                .is_some_and(|entry| matches!(entry.kind, Kind::Window { .. }))
        {
            *slot = None;
            table.free.push_back(index);
        }
    }

    /// The STag that the next bind of a window will give it: the same index with another key, so
    /// that the STag before it becomes invalid.
    pub(crate) fn next_window_stag(&self, current: Stag) -> Stag {
        Stag(self.cipher.rekey(current.0))
    }

    /// Carries out a bind: from now on the window is `stag` and nothing else; `None` unbinds.
    ///
    /// `false` when the region is not there, belongs to another domain, or grants less.
    pub(crate) fn bind_window(&self, pd: u32, stag: Stag, bind: Option<&WindowBind>) -> bool {
        let mut table = self.write();
        let region = match bind {
            Some(bind) => {
                let index = self.cipher.index(bind.region) as usize;
                match table.entries.get(index).and_then(Option::as_ref) {
                    Some(region) if region.names(bind.region) => region.part(pd, stag.0, bind),
                    _ => None,
                }
            }
            None => Some(Entry::unbound_window(stag.0, pd)),
        };
        let index = self.cipher.index(stag.0) as usize;
        match (region, table.entries.get_mut(index)) {
            (Some(bound), Some(Some(slot))) if slot.is_window_of(pd) => {
                *slot = bound;
                true
            }
            _ => false,
        }
    }

    /// Opens the table for accesses; deregistration waits until the result is dropped.
    pub(crate) fn access(&self) -> MemoryAccess<'_> {
        MemoryAccess {
            cipher: &self.cipher,
            table: self.table.read().unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// An index that nobody uses; new ones first while the table is small, so that they rest
    /// longer.
    fn vacancy(&mut self) -> Option<u32> {
        let len = self.entries.len() as u32;
        let fresh = len < 64 || self.free.len() < (len / 2) as usize;
        if fresh && len < REGION_MAX {
            self.entries.push(None);
            return Some(len);
        }
        self.free.pop_front()
    }
}

/// The table, open for accesses.
#[derive(Debug)]
pub(crate) struct MemoryAccess<'a> {
    cipher: &'a Cipher,
    table: RwLockReadGuard<'a, Table>,
}

impl MemoryAccess<'_> {
    fn entry(&self, stag: u32) -> Option<&Entry> {
        let index = self.cipher.index(stag) as usize;
        self.table
            .entries
            .get(index)?
            .as_ref()
            .filter(|entry| entry.names(stag))
    }

    /// A local segment of a work request; `write` for receives and the sinks of reads.
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

    /// A tagged range, checked in the order of RFC 5040 section 7.2 and RFC 5041 section 7.1.
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
        // SAFETY: as in `local`.
        Ok(unsafe { Bytes::new(start, len as usize) })
    }

    /// Whether the peer may take an STag away: windows only, because several streams share a
    /// region.
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

    /// Takes a window's STag away on delivery of a Send with Invalidate.
    pub(crate) fn invalidate(&self, stag: Stag) {
        if let Some(entry) = self.entry(stag.0) {
            entry.invalidate();
        }
    }
}

/// The table seen from one stream, as the protocol wants it.
#[derive(Debug)]
pub(crate) struct StreamMemory<'a> {
    pub(crate) access: &'a MemoryAccess<'a>,
    pub(crate) stream: Stream,
}

impl iwarp_proto::MemoryTable for StreamMemory<'_> {
    fn check(
        &self,
        access: iwarp_proto::Access,
        stag: Stag,
        to: u64,
        len: u32,
    ) -> Result<(), ProtectionFault> {
        self.access
            .remote(self.stream, access, stag, to, len)
            .map(|_| ())
    }

    fn check_invalidate(&self, stag: Stag) -> Result<(), InvalidateFault> {
        self.access.check_invalidate(self.stream, stag)
    }
}

const _: () = assert!(REGION_MAX <= 1 << INDEX_BITS);

/// Fills a short buffer with what nobody can foresee.
fn fill_random(bytes: &mut [u8]) -> Result<(), RnicError> {
    // The kernel never gives less than was asked for up to 256 bytes, nor is it interrupted
    // (getrandom(2)).
    let filled = getrandom(&mut *bytes, GetRandomFlags::empty());
    match filled {
        Ok(len) if len == bytes.len() => Ok(()),
        _ => Err(RnicError::NoResources(Resource::Memory)),
    }
}

#[cfg(test)]
mod tests;
