//! Memory regions, windows and access rights.

use super::Rnic;
use super::qp::Sge;

/// Access rights of a region or window; the bits are those of `DAT_MEM_PRIV_FLAGS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    /// The region may be the source of RDMA Writes and Sends.
    pub local_read: bool,
    /// The region may be the sink of Receives and RDMA Reads.
    pub local_write: bool,
    /// The peer may read.
    pub remote_read: bool,
    /// The peer may write.
    pub remote_write: bool,
    /// The peer may use atomics.
    pub remote_atomic: bool,
}

/// Description of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterMr {
    /// First byte in this process.
    pub addr: u64,
    /// Length in bytes; not 0, and `addr + len` does not wrap (the client has checked both).
    pub len: u64,
    /// Access rights.
    pub access: Access,
    /// The tagged offset of the first byte, if it is not `addr`: 0 for `DAT_VA_TYPE_ZB`.
    pub iova: Option<u64>,
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
    /// Identifier that the completion returns.
    pub wr_id: u64,
    /// The region, or `None` to unbind.
    pub mr: Option<&'a R::Mr>,
    /// The part of the region; length 0 unbinds.
    pub range: Sge,
    /// Access rights, which must not exceed those of the region.
    pub access: Access,
    /// True if tagged offsets start at 0.
    pub zero_based: bool,
    /// The key of the window from now on, whose upper 24 bits are those of a result of
    /// [`Rnic::mw_key`]. `None`: the RNIC chooses a key.
    pub key: Option<u32>,
    /// True if the bind fails while the window is bound.
    pub is_first: bool,
    /// True if only the peer of this queue pair may use the window; otherwise the peer of every
    /// queue pair of the domain may.
    pub qp_only: bool,
    /// `false`: no completion on success.
    pub completion: bool,
    /// `false`: the completion wakes no waiter.
    pub signalled: bool,
    /// The bind waits for earlier RDMA Reads of this queue (`DAT_COMPLETION_BARRIER_FENCE_FLAG`).
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
