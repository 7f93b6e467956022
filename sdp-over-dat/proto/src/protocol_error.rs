//! What a peer can do wrong.

use crate::{
    Seq,
    wire::{Mid, Mode, TargetHalf, WireError},
};

/// A violation by the peer; it ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The bytes are no message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A message before the connection was set up.
    #[error("{0:?} came before the connection was set up")]
    NotEstablished(Mid),
    /// A number was left out or used twice.
    #[error("message {found:?} came where {expected:?} was due")]
    Sequence {
        /// The number that was due.
        expected: Seq,
        /// The number that came.
        found: Seq,
    },
    /// An acknowledgement of what was never sent, or one that goes back.
    #[error("acknowledgement {found:?} lies outside {from:?} to {to:?}")]
    Acknowledgement {
        /// The last acknowledgement.
        from: Seq,
        /// The last message sent.
        to: Seq,
        /// What came.
        found: Seq,
    },
    /// More messages than receive buffers.
    #[error("a message came and no receive buffer was posted")]
    CreditOverrun,
    /// Data or a second DisConn behind DisConn.
    #[error("{0:?} behind the peer's DisConn")]
    AfterDisConn(Mid),
    /// Data while the sink may still read: its place in the stream is not known.
    #[error("Data while an advertisement is outstanding")]
    DataDuringSrcAvail,
    /// More advertisements than Hello allowed.
    #[error("an advertisement on top of one that is outstanding")]
    TooManyAdverts,
    /// An advertisement that the mode forbids, or not of the form that it asks for.
    #[error("an advertisement of {len} bytes with {inline} of them inline, in {mode:?} mode")]
    SrcAvail {
        /// The mode of that half.
        mode: Mode,
        /// Bytes advertised.
        len: u32,
        /// Bytes that came with it.
        inline: u32,
    },
    /// RdmaRdCompl for more than was advertised, or for nothing.
    #[error("the sink reports {reported} bytes read, {outstanding} were outstanding")]
    ReadReport {
        /// Bytes reported.
        reported: u32,
        /// Bytes that could have been read.
        outstanding: u32,
    },
    /// A change of mode that nobody may ask for.
    #[error("the {half:?} half cannot change from {from:?} to {to:?} mode")]
    ModeChange {
        /// Our half.
        half: TargetHalf,
        /// Its mode.
        from: Mode,
        /// What the peer wants.
        to: Mode,
    },
    /// An answer to something that was never said.
    #[error("{0:?} answers nothing")]
    Unexpected(Mid),
    /// AbortConn before DisConn.
    #[error("AbortConn without DisConn before it")]
    AbortBeforeDisConn,
    /// A mechanism that is not spoken here and cannot be refused by a message.
    #[error("{0:?} asks for what is not spoken here")]
    NotSpoken(Mid),
}
