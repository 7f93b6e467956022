//! What stands behind the base header.

use super::{Mid, WireError, u32_at, u64_at};

/// The kind of a data-path message, with its extended header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The sender's half ends.
    DisConn,
    /// The sender gives up.
    AbortConn,
    /// The rest by Sends, please.
    SendSm,
    /// Bytes written.
    RdmaWrCompl(u32),
    /// Bytes read.
    RdmaRdCompl(u32),
    /// Another mode.
    ModeChange(ModeChange),
    /// Source advertisements are taken back.
    SrcAvailCancel,
    /// Sink advertisements are taken back.
    SinkAvailCancel,
    /// Sink advertisements were dropped.
    SinkCancelAck,
    /// Wished size of receive buffers.
    ChRcvBuf(u32),
    /// Actual size of receive buffers.
    ChRcvBufAck(u32),
    /// The service at which another process takes over.
    SuspComm(u64),
    /// Traffic has stopped.
    SuspCommAck,
    /// Memory to write into.
    SinkAvail(SinkAvail),
    /// Memory to read.
    SrcAvail(SrcAvail),
    /// Bytes of the stream.
    Data,
}

/// Memory of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrcAvail {
    /// Bytes of it; those that came with the message are the first of them.
    pub len: u32,
    /// Its R_Key or STag.
    pub stag: u32,
    /// Its virtual address or tagged offset.
    pub address: u64,
}

/// Memory of the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkAvail {
    /// Bytes of it.
    pub len: u32,
    /// Its R_Key or STag.
    pub stag: u32,
    /// Its virtual address or tagged offset.
    pub address: u64,
    /// Data messages that the sink has received and not discarded.
    pub non_discards: u32,
}

/// How a half of a connection may move data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// In Sends only.
    Buffered,
    /// In Sends, and by one source advertisement at a time, which carries payload.
    Combined,
    /// In Sends and by several advertisements of both kinds.
    Pipelined,
}

/// Which half of the receiver of a ModeChange changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetHalf {
    /// Its receiving half: the source speaks.
    Receive,
    /// Its sending half: the sink speaks.
    Send,
}

/// The extended header of ModeChange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModeChange {
    /// The half that changes.
    pub half: TargetHalf,
    /// Its mode from now on.
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
    /// Its message identifier.
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

    /// Reads the extended header of a `mid` message; it is whole.
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

    /// Writes the extended header; `extended` has exactly its length and is zero.
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
