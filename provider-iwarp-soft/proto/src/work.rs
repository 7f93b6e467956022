//! Work requests of the consumer.

use crate::{Stag, wire::rdmap::AtomicOp};

/// A work request for [`crate::Connection::post`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRequest {
    /// The engine's name for this request. Every payload range of the request and its completion
    /// carry it; the protocol attaches no meaning to it.
    pub token: u64,
    /// The operation.
    pub kind: WorkKind,
    /// Payload bytes of the message; for a read, the number of bytes to fetch. Ignored (and
    /// reported as 8) for atomics and immediate data.
    pub len: u32,
    /// Start only after every earlier read and atomic of this stream completed (RFC 5040 section
    /// 5.5, rule 6). The fence delays all later requests too.
    pub fence: bool,
}

/// The operations of RDMAP (RFC 5040 section 5, RFC 7306 sections 5 and 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// A message into the peer's next posted receive.
    Send {
        /// Raise a solicited event at the peer.
        solicited: bool,
        /// An STag of the peer to invalidate on delivery.
        invalidate: Option<Stag>,
    },
    /// A Send with four bytes of immediate data, which only a peer of this implementation
    /// understands.
    SendImmediate {
        /// The immediate data, in host order.
        value: u32,
        /// Raise a solicited event at the peer.
        solicited: bool,
    },
    /// Bytes into memory the peer has advertised.
    Write {
        /// The peer's STag.
        stag: Stag,
        /// The tagged offset in that memory.
        to: u64,
    },
    /// Bytes out of memory the peer has advertised.
    Read {
        /// The peer's STag.
        source_stag: Stag,
        /// The tagged offset in that memory.
        source_to: u64,
        /// Our STag that receives the bytes. It is exposed to the peer, so it should be valid for
        /// this range and this read only (RFC 5042 sections 6.2.1 and 6.3.3).
        sink_stag: Stag,
        /// The tagged offset in that memory.
        sink_to: u64,
    },
    /// Eight bytes that consume a receive at the peer (RFC 7306 section 6).
    ImmediateData {
        /// The bytes in wire order.
        data: [u8; 8],
        /// Raise a solicited event at the peer.
        solicited: bool,
    },
    /// A 64-bit operation on memory of the peer (RFC 7306 section 5).
    Atomic {
        /// The operation, with its operands.
        op: AtomicOp,
        /// The peer's STag.
        stag: Stag,
        /// The tagged offset in that memory; a multiple of 8.
        to: u64,
    },
}

/// The STag and the upper 56 bits of the tagged offset of an announcement.
pub(crate) const RETRIES_STAG: u32 = 0x6452_6e72;
pub(crate) const RETRIES: u64 = 0x52_4e_52_2d_4c_49_4d;

impl WorkKind {
    /// Announces the number of times that this end would repeat a message for which the peer has no
    /// receive; `None`: no limit. The announcement is an RDMA Write of length 0, which has no
    /// effect on a peer that runs another implementation (RFC 5040 section 5.1).
    #[must_use]
    pub fn announce_retries(retries: Option<u8>) -> Self {
        Self::Write {
            stag: Stag(RETRIES_STAG),
            to: RETRIES << 8 | u64::from(retries.unwrap_or(u8::MAX)),
        }
    }

    /// True if the peer answers the request, which therefore counts against ORD.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Atomic { .. })
    }
}

/// The reason why a work request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The send queue holds as many uncompleted requests as it may.
    #[error("the send queue is full")]
    QueueFull,
    /// ORD is 0: this stream may not read (RFC 5040 section 6.2).
    #[error("the stream was set up without outbound reads")]
    NoOutboundReads,
    /// RFC 7306 operations were not enabled for this stream.
    #[error("atomics and immediate data are not enabled on this stream")]
    Unsupported,
    /// The remote address of an atomic is not a multiple of 8 (RFC 7306 section 5.1).
    #[error("the remote address of an atomic operation is not a multiple of 8")]
    Misaligned,
    /// The stream has ended.
    #[error("the stream has ended")]
    Ended,
}

/// A finished work request. Completions are in the order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's token.
    pub token: u64,
    /// Its length in bytes.
    pub len: u32,
    /// The result of the request.
    pub status: CompletionStatus,
}

/// The result of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionStatus {
    /// A Send or Write was handed to the transport; a Read or Atomic has its answer.
    Done,
    /// The stream ended before the request was carried out.
    Flushed,
}
