//! A region or window.

use std::sync::atomic::{AtomicBool, Ordering};

use iwarp_proto::ProtectionFault;
use rnic::{Access, QpToken, RegisterMr};

use super::mapping::Backing;
use super::{Stream, WindowBind};

/// The rights of a published entry.
const REMOTE_WRITE: u64 = 1;
const REMOTE_READ: u64 = 2;
/// The entry belongs to one queue pair.
const ONLY: u64 = 4;

/// The kind of an entry.
#[derive(Debug)]
pub(super) enum Kind {
    /// A registration (LMR).
    Region,
    /// A memory window (RMR); the peer may invalidate it while readers hold the table.
    Window { valid: AtomicBool },
}

/// A range of this process's memory under an STag.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) kind: Kind,
    /// The region to which a window is bound.
    pub(crate) region: Option<u32>,
    /// True if a window was bound to this region.
    pub(super) has_windows: bool,
    pub(super) pd: u32,
    /// The only queue pair whose peer may use the entry; `None` for all of the domain.
    only: Option<QpToken>,
    pub(super) access: Access,
    /// Address of the first byte.
    start: u64,
    len: u64,
    pub(super) backing: Backing,
    /// Tagged offset of the first byte: `start`, unless the consumer has chosen another one.
    offset: u64,
}

impl Entry {
    pub(super) fn region(pd: u32, request: &RegisterMr, backing: Backing) -> Self {
        Self {
            kind: Kind::Region,
            region: None,
            has_windows: false,
            pd,
            only: None,
            access: request.access,
            start: request.addr,
            len: request.len,
            backing,
            offset: request.iova.unwrap_or(request.addr),
        }
    }

    pub(super) fn unbound_window(pd: u32) -> Self {
        let kind = Kind::Window {
            valid: AtomicBool::new(false),
        };
        Self {
            kind,
            region: None,
            has_windows: false,
            pd,
            only: None,
            access: Access::default(),
            start: 0,
            len: 0,
            backing: Backing::Anonymous,
            offset: 0,
        }
    }

    /// Returns the words by which a peer that reads them knows this entry.
    pub(super) fn emit(&self) -> [u64; 6] {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(self.access.remote_write, REMOTE_WRITE)
            | flag(self.access.remote_read, REMOTE_READ)
            | flag(self.only.is_some(), ONLY);
        let region = u64::from(self.region.unwrap_or(0));
        [
            region << 32 | u64::from(self.pd),
            flags,
            self.only.map_or(0, |only| only.0),
            self.start,
            self.len,
            self.offset,
        ]
    }

    /// Returns the entry of these words, which a peer may have chosen.
    pub(super) fn parse([ids, flags, only, start, len, offset]: [u64; 6]) -> Self {
        let region = (ids >> 32) as u32;
        Self {
            kind: Kind::Region,
            region: (region != 0).then_some(region),
            pd: ids as u32,
            only: (flags & ONLY != 0).then_some(QpToken(only)),
            access: Access {
                remote_write: flags & REMOTE_WRITE != 0,
                remote_read: flags & REMOTE_READ != 0,
                ..Access::default()
            },
            start,
            len,
            backing: Backing::Anonymous,
            offset,
            has_windows: false,
        }
    }

    /// Returns the address of `len` bytes from tagged offset `to`, if the stream's peer has this
    /// access to them.
    pub(crate) fn check(
        &self,
        stream: Stream,
        access: iwarp_proto::Access,
        to: u64,
        len: u32,
    ) -> Result<*mut u8, ProtectionFault> {
        if !self.is_valid() {
            return Err(ProtectionFault::InvalidStag);
        }
        if !self.belongs_to(stream) {
            return Err(ProtectionFault::NotAssociated);
        }
        if !self.grants(access) {
            return Err(ProtectionFault::AccessViolation);
        }
        self.range(to, len)
    }

    /// Returns the part of this region to which a window is bound, if the region covers the part
    /// and grants the same rights.
    pub(super) fn part(&self, pd: u32, bind: &WindowBind) -> Option<Self> {
        let (has, wants) = (self.access, bind.access);
        // Remote write needs local write; remote read needs local read (verbs convention).
        let granted = (!wants.remote_write || has.local_write)
            && (!wants.remote_read || has.local_read)
            && (!wants.remote_atomic || has.local_write);
        if self.pd != pd || !granted || !self.is_region() {
            return None;
        }
        let start = self.range(bind.range.addr, bind.range.len).ok()? as u64;
        Some(Self {
            kind: Kind::Window {
                valid: AtomicBool::new(true),
            },
            region: Some(bind.region),
            has_windows: false,
            pd,
            only: bind.only,
            access: wants,
            start,
            len: u64::from(bind.range.len),
            backing: self.backing,
            offset: match (bind.zero_based, self.offset) {
                (true, _) => 0,
                (false, 0) => start,
                (false, _) => bind.range.addr,
            },
        })
    }

    /// True if the entry belongs to the stream's domain, and not to another queue pair alone.
    pub(super) fn belongs_to(&self, stream: Stream) -> bool {
        self.pd == stream.pd && self.only.is_none_or(|only| only == stream.qp)
    }

    pub(super) fn is_region(&self) -> bool {
        matches!(self.kind, Kind::Region)
    }

    pub(super) fn is_valid(&self) -> bool {
        match &self.kind {
            Kind::Region => true,
            Kind::Window { valid } => valid.load(Ordering::Acquire),
        }
    }

    pub(super) fn invalidate(&self) {
        if let Kind::Window { valid } = &self.kind {
            valid.store(false, Ordering::Release);
        }
    }

    /// True if the entry grants this access to the peer.
    pub(super) fn grants(&self, access: iwarp_proto::Access) -> bool {
        match access {
            iwarp_proto::Access::RemoteWrite => self.access.remote_write,
            iwarp_proto::Access::RemoteRead => self.access.remote_read,
            iwarp_proto::Access::RemoteAtomic => self.access.remote_atomic,
            // The window of an `rdma_read_to_rmr` grants remote write instead of local write.
            iwarp_proto::Access::ReadSink => self.access.local_write || self.access.remote_write,
        }
    }

    /// Returns the address of `len` bytes from tagged offset `to`.
    pub(super) fn range(&self, to: u64, len: u32) -> Result<*mut u8, ProtectionFault> {
        let len = u64::from(len);
        to.checked_add(len).ok_or(ProtectionFault::Wrap)?;
        let skip = to.checked_sub(self.offset).ok_or(ProtectionFault::Bounds)?;
        if skip > self.len || len > self.len - skip {
            return Err(ProtectionFault::Bounds);
        }
        Ok(std::ptr::with_exposed_provenance_mut(
            // An entry of a peer may wrap.
            self.start.wrapping_add(skip) as usize,
        ))
    }
}
