//! Regions, windows and rights.

use super::Rnic;
use super::qp::Sge;

/// Rights on a region or window; the bits are those of `DAT_MEM_PRIV_FLAGS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    /// RDMA Write source, Send source.
    pub local_read: bool,
    /// Receive, RDMA Read sink.
    pub local_write: bool,
    /// The peer may read.
    pub remote_read: bool,
    /// The peer may write.
    pub remote_write: bool,
    /// The peer may use atomics.
    pub remote_atomic: bool,
}

/// What to register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterMr {
    /// First byte in this process.
    pub addr: u64,
    /// Bytes; not 0, and `addr + len` does not wrap (the access layer has checked both).
    pub len: u64,
    /// Rights.
    pub access: Access,
    /// Tagged offsets count from 0 instead of from `addr` (`DAT_VA_TYPE_ZB`).
    pub zero_based: bool,
}

/// The keys of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MrKeys {
    /// For local segments: the `DAT_LMR_CONTEXT`.
    pub lkey: u32,
    /// For the peer, in host order: the `DAT_RMR_CONTEXT`, which is the STag.
    pub rkey: u32,
}

/// A memory window bind.
pub struct BindMw<'a, R: Rnic> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The region, or `None` to unbind.
    pub mr: Option<&'a R::Mr>,
    /// The part of it; length 0 unbinds.
    pub range: Sge,
    /// Rights, not more than the region has.
    pub access: Access,
    /// Tagged offsets count from 0.
    pub zero_based: bool,
    /// Only the peer of this queue pair may use it; otherwise every queue pair of the domain.
    pub qp_only: bool,
    /// `false`: no completion on success.
    pub completion: bool,
    /// `false`: the completion wakes nobody.
    pub signalled: bool,
    /// Wait for earlier RDMA Reads of this queue (`DAT_COMPLETION_BARRIER_FENCE_FLAG`).
    pub fence: bool,
}

impl<R: Rnic> std::fmt::Debug for BindMw<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BindMw")
            .field("wr_id", &self.wr_id)
            .field("range", &self.range)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}
