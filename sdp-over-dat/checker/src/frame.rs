//! The fields of a frame.

use crate::Broken;

/// The length of the base header in bytes.
pub(crate) const BASE_LEN: u32 = 16;

const OOB_PRES: u8 = 0x01;
const OOB_PEND: u8 = 0x02;
const REQ_PIPE: u8 = 0x04;

/// The headers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) bufs: u32,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) pend: bool,
    pub(crate) pres: bool,
    pub(crate) pipe: bool,
    pub(crate) payload: u32,
    pub(crate) total: u32,
    pub(crate) body: Body,
}

/// The kind of a message, with the fields of its extended header. Keys, addresses and service
/// identifiers are not kept, because no rule depends on them. Lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    DisConn,
    AbortConn,
    SendSm,
    WriteDone(u32),
    ReadDone(u32),
    Mode(ModeChange),
    SourceCancel,
    SinkCancel,
    SinkCancelAck,
    Resize(u32),
    ResizeAck(u32),
    Suspend,
    SuspendAck,
    SinkAvail { len: u32, non_discards: u32 },
    SourceAvail { len: u32 },
    Data,
}

/// The mode of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Buffered,
    Combined,
    Pipelined,
}

/// The fields of ModeChange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModeChange {
    /// The role of the sender of this message in the half that changes.
    pub(crate) by: Role,
    pub(crate) mode: Mode,
}

/// The role of an end in a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Source,
    Sink,
}

impl Frame {
    /// Parses a frame of `total` bytes that starts with `head`.
    pub(crate) fn read(head: &[u8], total: usize) -> Result<Self, Broken> {
        let Some((base, rest)) = head.split_at_checked(BASE_LEN as usize) else {
            return Err(Broken::Cut);
        };
        let (mid, flags) = (base[0], base[1]);
        let stated = number(base, 4)?;
        if stated as usize != total {
            return Err(Broken::Length);
        }
        if flags & !(OOB_PRES | OOB_PEND | REQ_PIPE) != 0 {
            return Err(Broken::ReservedFlags);
        }
        let (body, extended) = Body::read(mid, rest)?;
        let header = BASE_LEN + extended;
        let frame = Self {
            bufs: u32::from(u16::from_be_bytes([base[2], base[3]])),
            seq: number(base, 8)?,
            ack: number(base, 12)?,
            pend: flags & OOB_PEND != 0,
            pres: flags & OOB_PRES != 0,
            pipe: flags & REQ_PIPE != 0,
            payload: stated.checked_sub(header).ok_or(Broken::Cut)?,
            total: stated,
            body,
        };
        frame.check_form().map(|()| frame)
    }

    fn check_form(&self) -> Result<(), Broken> {
        let can_carry = matches!(
            self.body,
            Body::Data | Body::SourceAvail { .. } | Body::SinkAvail { .. }
        );
        if self.payload > 0 && !can_carry {
            return Err(Broken::PayloadOnControl);
        }
        if self.pres && !(self.body == Body::Data && self.payload > 0) {
            return Err(Broken::UrgentWithoutByte);
        }
        if self.pipe && !matches!(self.body, Body::ReadDone(_)) {
            return Err(Broken::PipelineHint);
        }
        Ok(())
    }

    /// True for an empty Data message, which carries only credits.
    pub(crate) fn is_bare(&self) -> bool {
        self.body == Body::Data && self.payload == 0
    }
}

impl Body {
    /// Parses the extended header. Returns the length of this header as well.
    fn read(mid: u8, rest: &[u8]) -> Result<(Self, u32), Broken> {
        Ok(match mid {
            0x02 => (Self::DisConn, 0),
            0x03 => (Self::AbortConn, 0),
            0x04 => (Self::SendSm, 0),
            0x05 => (Self::WriteDone(number(rest, 0)?), 4),
            0x06 => (Self::ReadDone(number(rest, 0)?), 4),
            0x07 => (Self::Mode(ModeChange::read(number(rest, 0)?)?), 4),
            0x08 => (Self::SourceCancel, 0),
            0x09 => (Self::SinkCancel, 0),
            0x0a => (Self::SinkCancelAck, 0),
            0x0b => (Self::Resize(number(rest, 0)?), 4),
            0x0c => (Self::ResizeAck(number(rest, 0)?), 4),
            0x0d => (Self::Suspend, 8),
            0x0e => (Self::SuspendAck, 0),
            0xfd => {
                let (len, non_discards) = (number(rest, 0)?, number(rest, 16)?);
                (Self::SinkAvail { len, non_discards }, 20)
            }
            0xfe => {
                let len = number(rest, 0)?;
                (Self::SourceAvail { len }, 16)
            }
            0xff => (Self::Data, 0),
            _ => return Err(Broken::Kind),
        })
    }
}

impl ModeChange {
    /// Parses the extended header of ModeChange. Bit 31 names the half of the receiver: 0 is its
    /// receive half, of which the sender of this message is the source.
    fn read(header: u32) -> Result<Self, Broken> {
        let by = match header >> 31 {
            0 => Role::Source,
            _ => Role::Sink,
        };
        let mode = match header >> 28 & 0x07 {
            0 => Mode::Buffered,
            1 => Mode::Combined,
            2 => Mode::Pipelined,
            _ => return Err(Broken::ModeForm),
        };
        if header & 0x0fff_ffff != 0 {
            return Err(Broken::ModeForm);
        }
        Ok(Self { by, mode })
    }
}

/// True if `ack`, the MSeqAck of a message, covers the message with the number `seq`. The numbers
/// wrap, so a message counts as covered if it is at most half of their range older.
pub(crate) const fn covers(ack: u32, seq: u32) -> bool {
    ack.wrapping_sub(seq) < 1 << 31
}

/// The big-endian number at an offset.
fn number(bytes: &[u8], at: usize) -> Result<u32, Broken> {
    match bytes.get(at..at + 4) {
        Some(&[a, b, c, d]) => Ok(u32::from_be_bytes([a, b, c, d])),
        _ => Err(Broken::Cut),
    }
}
