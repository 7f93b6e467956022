//! The fields of a frame.

use crate::Broken;

/// The headers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) bufs: u32,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) pend: bool,
    pub(crate) pres: bool,
    pub(crate) payload: u32,
    pub(crate) total: u32,
    pub(crate) body: Body,
}

/// The kind of a message, with the fields of its extended header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    DisConn,
    AbortConn,
    SendSm,
    WriteDone,
    ReadDone(u32),
    Mode(u8),
    SourceCancel,
    SinkCancel,
    SinkCancelAck,
    Resize,
    ResizeAck,
    Suspend,
    SuspendAck,
    SinkAvail,
    SourceAvail { advertised: u32 },
    Data,
}

/// The parameters in the set-up message of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HelloParams {
    pub(crate) bufs: u32,
    pub(crate) adverts: u32,
    pub(crate) size: u32,
}

impl Frame {
    /// Parses a frame of `total` bytes that starts with `head`.
    pub(crate) fn read(head: &[u8], total: usize) -> Result<Self, Broken> {
        let [
            mid,
            flags,
            b0,
            b1,
            l0,
            l1,
            l2,
            l3,
            s0,
            s1,
            s2,
            s3,
            a0,
            a1,
            a2,
            a3,
            rest @ ..,
        ] = head
        else {
            return Err(Broken::Cut);
        };
        let stated = u32::from_be_bytes([*l0, *l1, *l2, *l3]);
        if stated as usize != total {
            return Err(Broken::Length);
        }
        if flags & !0x07 != 0 {
            return Err(Broken::ReservedFlags);
        }
        let (body, extended) = Body::read(*mid, rest)?;
        let payload = stated.checked_sub(16 + extended).ok_or(Broken::Cut)?;
        let may_carry = matches!(
            body,
            Body::Data | Body::SourceAvail { .. } | Body::SinkAvail
        );
        if payload > 0 && !may_carry {
            return Err(Broken::PayloadOnControl);
        }
        let pres = flags & 0x01 != 0;
        if pres && !(body == Body::Data && payload > 0) {
            return Err(Broken::UrgentWithoutByte);
        }
        if flags & 0x04 != 0 && !matches!(body, Body::ReadDone(_)) {
            return Err(Broken::PipelineHint);
        }
        Ok(Self {
            bufs: u32::from(u16::from_be_bytes([*b0, *b1])),
            seq: u32::from_be_bytes([*s0, *s1, *s2, *s3]),
            ack: u32::from_be_bytes([*a0, *a1, *a2, *a3]),
            pend: flags & 0x02 != 0,
            pres,
            payload,
            total: stated,
            body,
        })
    }

    /// True for an empty Data message, which carries only credits.
    pub(crate) fn is_bare(&self) -> bool {
        self.body == Body::Data && self.payload == 0
    }
}

impl Body {
    fn read(mid: u8, rest: &[u8]) -> Result<(Self, u32), Broken> {
        let number = || match rest {
            [a, b, c, d, ..] => Ok(u32::from_be_bytes([*a, *b, *c, *d])),
            _ => Err(Broken::Cut),
        };
        Ok(match mid {
            0x02 => (Self::DisConn, 0),
            0x03 => (Self::AbortConn, 0),
            0x04 => (Self::SendSm, 0),
            0x05 => (Self::WriteDone, 4),
            0x06 => (Self::ReadDone(number()?), 4),
            0x07 => match rest {
                [mode, 0, 0, 0, ..] if mode & 0x0f == 0 => (Self::Mode(*mode), 4),
                _ => return Err(Broken::ModeForm),
            },
            0x08 => (Self::SourceCancel, 0),
            0x09 => (Self::SinkCancel, 0),
            0x0a => (Self::SinkCancelAck, 0),
            0x0b => (Self::Resize, 4),
            0x0c => (Self::ResizeAck, 4),
            0x0d => (Self::Suspend, 8),
            0x0e => (Self::SuspendAck, 0),
            0xfd => (Self::SinkAvail, 20),
            0xfe => {
                let advertised = number()?;
                (Self::SourceAvail { advertised }, 16)
            }
            0xff => (Self::Data, 0),
            _ => return Err(Broken::Kind),
        })
    }
}

impl HelloParams {
    /// Parses a Hello (`active`) or HelloAck; trailing zeros may be missing.
    pub(crate) fn read(bytes: &[u8], active: bool) -> Result<Self, Broken> {
        let (mid, whole, used) = if active { (0, 92, 64) } else { (1, 196, 24) };
        let mut full = bytes.to_vec();
        full.resize(bytes.len().max(whole), 0);
        let zero = |range: std::ops::Range<usize>| full[range].iter().all(|byte| *byte == 0);
        let stated = u32::from_be_bytes([full[4], full[5], full[6], full[7]]) as usize;
        if full[0] != mid || stated != whole || bytes.len() < used {
            return Err(Broken::Hello);
        }
        if !zero(8..16) || !zero(18..19) || !zero(whole..full.len()) {
            return Err(Broken::Hello);
        }
        let size_at = if active { 24 } else { 20 };
        let size = [0, 1, 2, 3].map(|index| full[size_at + index]);
        let hello_params = Self {
            bufs: u32::from(u16::from_be_bytes([full[2], full[3]])),
            adverts: u32::from(full[19]),
            size: u32::from_be_bytes(size),
        };
        let version = full[16] >> 4;
        let family_fits = !active || matches!(full[17] >> 4, 4 | 6);
        let tail_is_zero = if active { zero(68..92) } else { zero(24..196) };
        let is_good =
            hello_params.bufs >= 3 && hello_params.adverts > 0 && matches!(version, 1 | 2);
        if is_good && family_fits && tail_is_zero {
            Ok(hello_params)
        } else {
            Err(Broken::Hello)
        }
    }
}
