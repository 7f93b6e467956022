//! The extended headers, which follow the base header.

use super::{Mid, WireError, u32_at, u64_at};

/// The kind of a data-path message, with its extended header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The sender ends its half.
    DisConn,
    /// The sender aborts.
    AbortConn,
    /// The sink asks for the rest in Sends.
    SendSm,
    /// The number of bytes written.
    RdmaWrCompl(u32),
    /// The number of bytes read.
    RdmaRdCompl(u32),
    /// A half changes its mode.
    ModeChange(ModeChange),
    /// The source cancels its advertisements.
    SrcAvailCancel,
    /// The sink cancels its advertisements.
    SinkAvailCancel,
    /// The source has dropped sink advertisements.
    SinkCancelAck,
    /// The requested size of receive buffers.
    ChRcvBuf(u32),
    /// The actual size of receive buffers.
    ChRcvBufAck(u32),
    /// The service at which another process takes over the connection.
    SuspComm(u64),
    /// Traffic has stopped.
    SuspCommAck,
    /// Memory that the peer may write.
    SinkAvail(SinkAvail),
    /// Memory that the peer may read.
    SrcAvail(SrcAvail),
    /// Bytes of the stream.
    Data,
}

/// An advertisement of the source's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrcAvail {
    /// Length in bytes, including those that are sent with the message, which are the first.
    pub len: u32,
    /// The R_Key or STag of the memory.
    pub stag: u32,
    /// The virtual address or tagged offset of the memory.
    pub address: u64,
}

/// An advertisement of the sink's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkAvail {
    /// Length in bytes.
    pub len: u32,
    /// The R_Key or STag of the memory.
    pub stag: u32,
    /// The virtual address or tagged offset of the memory.
    pub address: u64,
    /// The number of Data messages that the sink has received and not discarded.
    pub non_discards: u32,
}

/// The ways in which a half of a connection may move data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// In Sends only.
    Buffered,
    /// In Sends, and by one source advertisement at a time, which carries payload.
    Combined,
    /// In Sends and by several advertisements of both kinds.
    Pipelined,
}

/// The half of a ModeChange's receiver that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetHalf {
    /// The receiving half; the sender of the message is its source.
    Receive,
    /// The sending half; the sender of the message is its sink.
    Send,
}

/// The extended header of ModeChange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModeChange {
    /// The half that changes.
    pub half: TargetHalf,
    /// The new mode of that half.
    pub mode: Mode,
}

impl ModeChange {
    fn parse(byte: u8) -> Result<Self, WireError> {
        let mode = match byte >> 4 & 0x07 {
            0 => Mode::Buffered,
            1 => Mode::Combined,
            2 => Mode::Pipelined,
            _ => return Err(WireError::ModeChange(byte)),
        };
        let half = if byte & 0x80 == 0 {
            TargetHalf::Receive
        } else {
            TargetHalf::Send
        };
        Ok(Self { half, mode })
    }

    const fn byte(self) -> u8 {
        let half = match self.half {
            TargetHalf::Receive => 0x00,
            TargetHalf::Send => 0x80,
        };
        let mode = match self.mode {
            Mode::Buffered => 0x00,
            Mode::Combined => 0x10,
            Mode::Pipelined => 0x20,
        };
        half | mode
    }
}

impl Body {
    /// The message identifier.
    #[must_use]
    pub const fn mid(&self) -> Mid {
        match self {
            Self::DisConn => Mid::DisConn,
            Self::AbortConn => Mid::AbortConn,
            Self::SendSm => Mid::SendSm,
            Self::RdmaWrCompl(_) => Mid::RdmaWrCompl,
            Self::RdmaRdCompl(_) => Mid::RdmaRdCompl,
            Self::ModeChange(_) => Mid::ModeChange,
            Self::SrcAvailCancel => Mid::SrcAvailCancel,
            Self::SinkAvailCancel => Mid::SinkAvailCancel,
            Self::SinkCancelAck => Mid::SinkCancelAck,
            Self::ChRcvBuf(_) => Mid::ChRcvBuf,
            Self::ChRcvBufAck(_) => Mid::ChRcvBufAck,
            Self::SuspComm(_) => Mid::SuspComm,
            Self::SuspCommAck => Mid::SuspCommAck,
            Self::SinkAvail(_) => Mid::SinkAvail,
            Self::SrcAvail(_) => Mid::SrcAvail,
            Self::Data => Mid::Data,
        }
    }

    /// Parses the extended header of a `mid` message. The caller guarantees its length.
    pub(super) fn parse(mid: Mid, extended: &[u8]) -> Result<Self, WireError> {
        let word = || u32_at(extended, 0);
        Ok(match mid {
            Mid::Hello | Mid::HelloAck => return Err(WireError::Misplaced(mid)),
            Mid::DisConn => Self::DisConn,
            Mid::AbortConn => Self::AbortConn,
            Mid::SendSm => Self::SendSm,
            Mid::RdmaWrCompl => Self::RdmaWrCompl(word()),
            Mid::RdmaRdCompl => Self::RdmaRdCompl(word()),
            Mid::ModeChange => Self::ModeChange(ModeChange::parse(extended[0])?),
            Mid::SrcAvailCancel => Self::SrcAvailCancel,
            Mid::SinkAvailCancel => Self::SinkAvailCancel,
            Mid::SinkCancelAck => Self::SinkCancelAck,
            Mid::ChRcvBuf => Self::ChRcvBuf(word()),
            Mid::ChRcvBufAck => Self::ChRcvBufAck(word()),
            Mid::SuspComm => Self::SuspComm(u64_at(extended, 0)),
            Mid::SuspCommAck => Self::SuspCommAck,
            Mid::SinkAvail => Self::SinkAvail(SinkAvail {
                len: word(),
                stag: u32_at(extended, 4),
                address: u64_at(extended, 8),
                non_discards: u32_at(extended, 16),
            }),
            Mid::SrcAvail => Self::SrcAvail(SrcAvail {
                len: word(),
                stag: u32_at(extended, 4),
                address: u64_at(extended, 8),
            }),
            Mid::Data => Self::Data,
        })
    }

    /// Writes the extended header. `extended` has exactly its length and is zeroed.
    pub(super) fn emit(&self, extended: &mut [u8]) {
        match *self {
            Self::RdmaWrCompl(word)
            | Self::RdmaRdCompl(word)
            | Self::ChRcvBuf(word)
            | Self::ChRcvBufAck(word) => extended.copy_from_slice(&word.to_be_bytes()),
            Self::ModeChange(change) => extended[0] = change.byte(),
            Self::SuspComm(service) => extended.copy_from_slice(&service.to_be_bytes()),
            Self::SinkAvail(sink) => {
                emit_memory(extended, sink.len, sink.stag, sink.address);
                extended[16..].copy_from_slice(&sink.non_discards.to_be_bytes());
            }
            Self::SrcAvail(source) => {
                emit_memory(extended, source.len, source.stag, source.address);
            }
            Self::DisConn
            | Self::AbortConn
            | Self::SendSm
            | Self::SrcAvailCancel
            | Self::SinkAvailCancel
            | Self::SinkCancelAck
            | Self::SuspCommAck
            | Self::Data => (),
        }
    }
}

fn emit_memory(extended: &mut [u8], len: u32, stag: u32, address: u64) {
    extended[..4].copy_from_slice(&len.to_be_bytes());
    extended[4..8].copy_from_slice(&stag.to_be_bytes());
    extended[8..16].copy_from_slice(&address.to_be_bytes());
}
