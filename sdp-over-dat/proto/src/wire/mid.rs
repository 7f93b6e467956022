//! The kinds of messages.

/// The message identifier, the first byte of a message.
///
/// 0x0F to 0x3F and 0x80 to 0xFC are reserved. 0x40 to 0x7F are for experiments between ends that
/// have agreed on them. All of these are refused here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mid {
    /// The parameters of the active side, in the connection request.
    Hello = 0x00,
    /// The parameters of the passive side, in the connection reply.
    HelloAck = 0x01,
    /// The sender's half of the stream ends here.
    DisConn = 0x02,
    /// A sender that has sent `DisConn` aborts the other half too.
    AbortConn = 0x03,
    /// The sink wants the rest of the advertised data in Sends, or answers a cancel.
    SendSm = 0x04,
    /// The number of bytes that the source has written into the oldest sink advertisement.
    RdmaWrCompl = 0x05,
    /// The number of bytes that the sink has read of the oldest source advertisement.
    RdmaRdCompl = 0x06,
    /// A half of the receiver changes its mode.
    ModeChange = 0x07,
    /// The source cancels its advertisements.
    SrcAvailCancel = 0x08,
    /// The sink cancels its advertisements.
    SinkAvailCancel = 0x09,
    /// The source has dropped sink advertisements.
    SinkCancelAck = 0x0A,
    /// A request for another size of receive buffers at the receiver.
    ChRcvBuf = 0x0B,
    /// The actual size of the receive buffers from now on.
    ChRcvBufAck = 0x0C,
    /// The session moves to another service.
    SuspComm = 0x0D,
    /// Traffic has stopped, in answer to `SuspComm`.
    SuspCommAck = 0x0E,
    /// Memory of the sink that the source may write into.
    SinkAvail = 0xFD,
    /// Memory of the source that the sink may read.
    SrcAvail = 0xFE,
    /// Bytes of the stream. Without payload, an update of credits.
    Data = 0xFF,
}

impl Mid {
    /// Every kind.
    pub const ALL: [Self; 18] = [
        Self::Hello,
        Self::HelloAck,
        Self::DisConn,
        Self::AbortConn,
        Self::SendSm,
        Self::RdmaWrCompl,
        Self::RdmaRdCompl,
        Self::ModeChange,
        Self::SrcAvailCancel,
        Self::SinkAvailCancel,
        Self::SinkCancelAck,
        Self::ChRcvBuf,
        Self::ChRcvBufAck,
        Self::SuspComm,
        Self::SuspCommAck,
        Self::SinkAvail,
        Self::SrcAvail,
        Self::Data,
    ];

    /// The kind with this identifier, if it is defined.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mid| *mid as u8 == byte)
    }

    /// The length of the extended header in bytes.
    #[must_use]
    pub const fn extended_len(self) -> usize {
        match self {
            Self::Hello => 76,
            Self::HelloAck => 180,
            Self::SinkAvail => 20,
            Self::SrcAvail => 16,
            Self::SuspComm => 8,
            Self::RdmaWrCompl
            | Self::RdmaRdCompl
            | Self::ModeChange
            | Self::ChRcvBuf
            | Self::ChRcvBufAck => 4,
            Self::DisConn
            | Self::AbortConn
            | Self::SendSm
            | Self::SrcAvailCancel
            | Self::SinkAvailCancel
            | Self::SinkCancelAck
            | Self::SuspCommAck
            | Self::Data => 0,
        }
    }

    /// True if bytes of a stream may follow the headers.
    #[must_use]
    pub const fn may_carry_payload(self) -> bool {
        matches!(self, Self::SinkAvail | Self::SrcAvail | Self::Data)
    }
}

#[cfg(test)]
mod tests {
    use super::Mid;

    #[test]
    fn a_byte_names_its_kind_or_none() {
        let named: Vec<u8> = (0..=255)
            .filter(|byte| Mid::from_byte(*byte).is_some())
            .collect();
        let expected: Vec<u8> = (0x00..=0x0E).chain(0xFD..=0xFF).collect();
        assert_eq!(named, expected);
        for mid in Mid::ALL {
            assert_eq!(Mid::from_byte(mid as u8), Some(mid));
        }
    }
}
