//! Registered memory: the STag table, and copying in and out of it.
//!
//! # What is promised
//!
//! * Registration neither pins nor touches memory; it is an entry in a table. Memory that is not
//!   mapped then is refused ([`mapping`]); what is unmapped later is the consumer's fault.
//! * An access holds the table's read lock from its check to its last byte. Deregistration takes
//!   the write lock, so when it returns no byte is read or written any more (RFC 5042 section
//!   6.3.3).
//! * STags cannot be computed from others, those of the same window included ([`cipher`]), and one
//!   is reused as late as possible (RFC 5042 section 6.1.1).
//! * Consumer memory is never a Rust slice that outlives a checksum: a peer or a thread of the
//!   consumer that changes a buffer in flight harms only that message.
//!
//! # Lock
//!
//! One readers-writer lock per RNIC. A drive of a connection takes the read side once for all that
//! one receive has brought, and once more around a receive into registered memory; it is held over
//! non-blocking system calls only.

mod cipher;
mod copy;
mod entry;
mod mapping;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
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
    /// By STag: an access finds its entry without the cipher.
    entries: HashMap<u32, Entry, BuildHasherDefault<StagHasher>>,
    /// The last STag of every index.
    slots: Vec<Slot>,
    /// Oldest first, so that an index rests as long as possible.
    free: VecDeque<u32>,
}

/// One index.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The STag of its entry, or what follows gets the next one.
    last: u32,
    /// How many entries it has had before this one.
    generation: u32,
    in_use: bool,
}

/// A window under one of its STags.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) stag: Stag,
    /// Tells it from the windows that have its index before and after it.
    generation: u32,
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
    /// An empty table with a key of its own.
    pub(crate) fn new() -> Result<Self, RnicError> {
        let mut key = [0; 8];
        fill_random(&mut key)?;
        let (words, _) = key.as_chunks::<2>();
        Ok(Self {
            cipher: Cipher::new(std::array::from_fn(|i| u16::from_ne_bytes(words[i]))),
            table: RwLock::default(),
        })
    }

    /// Registers a region for one protection domain and returns its STag.
    pub(crate) fn register(&self, pd: u32, request: &RegisterMr) -> Result<Stag, RnicError> {
        Ok(self.insert(Entry::region(pd, request))?.0)
    }

    /// Makes a window that is bound to nothing.
    pub(crate) fn create_window(&self, pd: u32) -> Result<Window, RnicError> {
        let (stag, generation) = self.insert(Entry::unbound_window(pd))?;
        Ok(Window { stag, generation })
    }

    /// Its STag, and the generation of its index.
    fn insert(&self, entry: Entry) -> Result<(Stag, u32), RnicError> {
        let mut table = self.write();
        let index = table
            .vacancy(&self.cipher)
            .ok_or(RnicError::NoResources(Resource::MemoryRegion))?;
        let slot = &mut table.slots[index as usize];
        slot.last = self.cipher.next(slot.last);
        slot.in_use = true;
        let (stag, generation) = (slot.last, slot.generation);
        table.entries.insert(stag, entry);
        Ok((Stag(stag), generation))
    }

    /// Takes a region away. When this returns, nobody accesses it any more.
    pub(crate) fn remove(&self, stag: Stag) {
        let mut table = self.write();
        if table.entries.remove(&stag.0).is_some() {
            table.vacate(self.cipher.index(stag.0), stag.0);
        }
    }

    /// Takes a window away, whatever it is bound to, under the last STag that was drawn for it.
    pub(crate) fn remove_window(&self, window: Window) {
        let last = window.stag;
        let mut table = self.write();
        let index = self.cipher.index(last.0);
        if let Some(stag) = table.stag_of(index, window.generation)
            && table.entries.get(&stag).is_some_and(|e| !e.is_region())
        {
            table.entries.remove(&stag);
            table.vacate(index, last.0);
        }
    }

    /// A window under the STag that its next bind will give it, so that the one before it becomes
    /// invalid. Who had that one cannot tell the new one.
    pub(crate) fn next_window(&self, current: Window) -> Window {
        Window {
            stag: Stag(self.cipher.next(current.stag.0)),
            ..current
        }
    }

    /// Carries out a bind: from now on the window has this STag and no other; `None` unbinds.
    ///
    /// `false` when the region is not there, belongs to another domain, or grants less, and when
    /// the window is gone, whatever has its index now.
    pub(crate) fn bind_window(&self, pd: u32, window: Window, bind: Option<&WindowBind>) -> bool {
        let stag = window.stag;
        let mut table = self.write();
        let bound = match bind {
            Some(bind) => {
                let region = table.entries.get(&bind.region);
                region.and_then(|region| region.part(pd, bind))
            }
            None => Some(Entry::unbound_window(pd)),
        };
        let index = self.cipher.index(stag.0);
        let (Some(bound), Some(former)) = (bound, table.stag_of(index, window.generation)) else {
            return false;
        };
        if !table
            .entries
            .get(&former)
            .is_some_and(|e| e.is_window_of(pd))
        {
            return false;
        }
        table.entries.remove(&former);
        table.entries.insert(stag.0, bound);
        table.slots[index as usize].last = stag.0;
        true
    }

    /// Opens the table for accesses; deregistration waits until the result is dropped.
    pub(crate) fn access(&self) -> MemoryAccess<'_> {
        MemoryAccess {
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
    fn vacancy(&mut self, cipher: &Cipher) -> Option<u32> {
        let len = self.slots.len() as u32;
        let fresh = len < 64 || self.free.len() < (len / 2) as usize;
        if fresh && len < REGION_MAX {
            let last = cipher.stag(len, 0);
            self.slots.push(Slot {
                last,
                generation: 0,
                in_use: false,
            });
            return Some(len);
        }
        self.free.pop_front()
    }

    /// Lets an index rest, and remembers where its STags go on.
    fn vacate(&mut self, index: u32, last: u32) {
        if let Some(slot) = self.slots.get_mut(index as usize) {
            *slot = Slot {
                last,
                generation: slot.generation.wrapping_add(1),
                in_use: false,
            };
            self.free.push_back(index);
        }
    }

    /// The STag of the entry that has this index, if it is still the one of this generation.
    fn stag_of(&self, index: u32, generation: u32) -> Option<u32> {
        let slot = self.slots.get(index as usize)?;
        (slot.in_use && slot.generation == generation).then_some(slot.last)
    }
}

/// STags are spread by the cipher already, and no peer chooses those in the table: one
/// multiplication, because the map takes its bits from both ends of the hash.
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
