//! A region or window.

use std::sync::atomic::{AtomicBool, Ordering};

use access_layer::rnic::{Access, QpToken, RegisterMr};
use iwarp_proto::ProtectionFault;

use super::{Stream, WindowBind};

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
pub(super) struct Entry {
    pub(super) kind: Kind,
    /// The region to which a window is bound.
    pub(super) region: Option<u32>,
    pub(super) pd: u32,
    /// The only queue pair whose peer may use the entry; `None` for all of the domain.
    only: Option<QpToken>,
    pub(super) access: Access,
    /// Address of the first byte.
    start: u64,
    len: u64,
    /// Tagged offset of the first byte: `start`, or 0 where offsets count from 0.
    offset: u64,
}

impl Entry {
    pub(super) fn region(pd: u32, request: &RegisterMr) -> Self {
        Self {
            kind: Kind::Region,
            region: None,
            pd,
            only: None,
            access: request.access,
            start: request.addr,
            len: request.len,
            offset: if request.zero_based { 0 } else { request.addr },
        }
    }

    pub(super) fn unbound_window(pd: u32) -> Self {
        let kind = Kind::Window {
            valid: AtomicBool::new(false),
        };
        Self {
            kind,
            region: None,
            pd,
            only: None,
            access: Access::default(),
            start: 0,
            len: 0,
            offset: 0,
        }
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
            pd,
            only: bind.only,
            access: wants,
            start,
            len: u64::from(bind.range.len),
            offset: if bind.zero_based { 0 } else { start },
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
            (self.start + skip) as usize,
        ))
    }
}
