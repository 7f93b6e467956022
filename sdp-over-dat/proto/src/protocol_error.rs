//! Protocol violations by a peer.

use crate::{
    Seq,
    wire::{Mid, Mode, TargetHalf, WireError},
};

/// A violation by the peer; it ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The bytes are not a valid message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A message was received before the connection was set up.
    #[error("{0:?} was received before the connection was set up")]
    NotEstablished(Mid),
    /// A sequence number was skipped or used twice.
    #[error("message {found:?} was received, {expected:?} was due")]
    Sequence {
        /// The expected number.
        expected: Seq,
        /// The received number.
        found: Seq,
    },
    /// An acknowledgement of a message that was never sent, or one lower than the last.
    #[error("acknowledgement {found:?} is not in the range {from:?} to {to:?}")]
    Acknowledgement {
        /// The last acknowledgement.
        from: Seq,
        /// The last message sent.
        to: Seq,
        /// The received acknowledgement.
        found: Seq,
    },
    /// More messages were received than receive buffers were posted.
    #[error("a message was received, but no receive buffer was posted")]
    CreditOverrun,
    /// Data or a second DisConn after DisConn.
    #[error("{0:?} after the peer's DisConn")]
    AfterDisConn(Mid),
    /// Data while the sink may still read: the position of the data in the stream is ambiguous.
    #[error("Data while an advertisement is outstanding")]
    DataDuringSrcAvail,
    /// More advertisements than the MaxAdverts of this end.
    #[error("more advertisements than this end accepts at a time")]
    TooManyAdverts,
    /// An advertisement that the mode forbids, or whose form the mode does not permit.
    #[error("an advertisement of {len} bytes with {inline} of them inline, in {mode:?} mode")]
    SrcAvail {
        /// The mode of that half.
        mode: Mode,
        /// Bytes advertised.
        len: u32,
        /// Bytes that were received with it.
        inline: u32,
    },
    /// RdmaRdCompl for more bytes than were advertised, or for none.
    #[error("the sink reports {reported} bytes read, {outstanding} were outstanding")]
    ReadReport {
        /// Bytes reported.
        reported: u32,
        /// Bytes that could have been read.
        outstanding: u32,
    },
    /// An advertisement of the sink's memory that the mode forbids, or that is too short for a
    /// message that crosses it.
    #[error("a sink advertisement of {len} bytes in {mode:?} mode, {least} are the least")]
    SinkAvail {
        /// The mode of that half.
        mode: Mode,
        /// Bytes advertised.
        len: u32,
        /// The payload of the sink's receive buffers, in bytes.
        least: u32,
    },
    /// NonDiscards differs from the source's count by more messages than may have crossed the
    /// SinkAvail.
    #[error("NonDiscards is {found}, {expected} were sent")]
    NonDiscards {
        /// The received count.
        found: u32,
        /// The source's count.
        expected: u32,
    },
    /// Payload of a SinkAvail while the sink has advertised memory for the same half.
    #[error("SinkAvail carries payload while memory is advertised for it")]
    DataDuringSinkAvail,
    /// RdmaWrCompl for more bytes than were advertised, or for none.
    #[error("the source reports {reported} bytes written, {outstanding} were advertised")]
    WriteReport {
        /// Bytes reported.
        reported: u32,
        /// Bytes that could have been written.
        outstanding: u32,
    },
    /// A size of receive buffers with which no stream can flow.
    #[error("receive buffers of {0} bytes are too small")]
    BufferSize(u32),
    /// A change of mode that the peer may not request.
    #[error("the {half:?} half cannot change from {from:?} to {to:?} mode")]
    ModeChange {
        /// Our half.
        half: TargetHalf,
        /// Its mode.
        from: Mode,
        /// The mode that the peer requests.
        to: Mode,
    },
    /// An answer to a request that was never sent.
    #[error("{0:?} answers nothing")]
    Unexpected(Mid),
    /// AbortConn before DisConn.
    #[error("AbortConn without DisConn before it")]
    AbortBeforeDisConn,
    /// A second SuspComm, data after SuspComm, or any message after SuspCommAck.
    #[error("{0:?} during a suspension")]
    DuringSuspension(Mid),
}
