//! Queue pairs and work requests.

use std::time::Duration;

/// Identifies a queue pair to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QpToken(pub u64);

/// Attributes for the creation of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpAttr {
    /// Maximum number of receives posted at once.
    pub recv_wr_max: u32,
    /// Maximum number of requests posted at once.
    pub send_wr_max: u32,
    /// Maximum number of segments of one receive.
    pub recv_sge_max: u32,
    /// Maximum number of segments of one request.
    pub send_sge_max: u32,
    /// Maximum number of concurrent inbound RDMA Reads (IRD).
    pub ird: u32,
    /// Maximum number of concurrent outbound RDMA Reads (ORD).
    pub ord: u32,
    /// True if the consumer set IRD and ORD itself, so connection start-up must not lower them
    /// silently.
    pub read_depth_is_consumers: bool,
    /// True if a Send or Write completes once the peer has executed it, as InfiniBand demands.
    /// False: once a transport that loses nothing has taken it. An RNIC that has no choice ignores
    /// it.
    pub acknowledged: bool,
}

/// The limits of the time for which messages wait for receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveWaits {
    /// The number of times that a message of this end is repeated for a peer without a receive;
    /// `None`: no limit.
    pub retries: Option<u8>,
    /// The pause before each repetition that this end asks of its peer.
    pub pause: Duration,
}

/// A local segment; the layout is that of `DAT_LMR_TRIPLET`, so a consumer's list is used in place.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sge {
    /// First byte: an address, or an offset for zero-based regions.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Key of the region.
    pub lkey: u32,
}

/// A range of the peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemoteRange {
    /// First byte (the tagged offset).
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// The peer's key (the STag).
    pub rkey: u32,
}

/// Operation of a send-queue work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOp {
    /// Send, in all its forms.
    Send {
        /// True if the message causes a solicited event.
        solicited: bool,
        /// STag of the peer to invalidate.
        invalidate: Option<u32>,
    },
    /// Send with immediate data. An RNIC whose transport is iWARP sends it to peers of its own
    /// implementation only.
    SendImmediate {
        /// The immediate data.
        value: u32,
        /// True if the message causes a solicited event.
        solicited: bool,
    },
    /// RDMA Write of the local segments to the peer's range.
    Write(RemoteRange),
    /// RDMA Write, then Immediate Data.
    WriteImmediate {
        /// Target of the write.
        to: RemoteRange,
        /// The immediate data.
        value: u32,
        /// True if the message with the immediate data causes a solicited event.
        solicited: bool,
    },
    /// RDMA Read of the peer's range into the local segments.
    Read(RemoteRange),
    /// RDMA Read whose local range is given by the rkey of a window or region (`read_to_rmr`).
    ReadToWindow {
        /// Local sink.
        local: RemoteRange,
        /// Peer's source.
        remote: RemoteRange,
    },
    /// Atomic fetch and add on the peer's eight bytes.
    FetchAdd(RemoteRange, u64),
    /// Atomic compare and swap on the peer's eight bytes.
    CompareSwap {
        /// The peer's eight bytes.
        remote: RemoteRange,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Ends the binding of the memory window with this key. Nothing is sent.
    LocalInvalidate(u32),
}

/// A send-queue work request. The segment list is read before the call returns.
#[derive(Debug, Clone, Copy)]
pub struct SendWr<'a> {
    /// Identifier that the completion returns.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// Local segments.
    pub sgl: &'a [Sge],
    /// `false`: no completion on success (`DAT_COMPLETION_SUPPRESS_FLAG`).
    pub completion: bool,
    /// `false`: the completion wakes no waiter (`DAT_COMPLETION_UNSIGNALLED_FLAG`).
    pub signalled: bool,
    /// The operation waits for earlier RDMA Reads of this queue
    /// (`DAT_COMPLETION_BARRIER_FENCE_FLAG`).
    pub fence: bool,
    /// The sender copies the payload, if the RNIC has a choice (`DAT_RS_COMPLETION_INLINE_FLAG`).
    pub inline: bool,
}

/// A receive work request. The segment list is read before the call returns.
#[derive(Debug, Clone, Copy)]
pub struct RecvWr<'a> {
    /// Identifier that the completion returns.
    pub wr_id: u64,
    /// Memory for the message.
    pub sgl: &'a [Sge],
    /// `false`: the completion wakes no waiter.
    pub signalled: bool,
}
