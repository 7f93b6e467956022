//! The events of a connection for its engine.

use crate::{AdvertId, Failure};

/// An event. Events are returned in the order in which they happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Both sides have completed the set-up; data may flow.
    Established,
    /// An urgent byte will follow, or was received.
    UrgentComing,
    /// The peer's half has ended; no more bytes follow.
    EndOfStream,
    /// The connection no longer needs this advertisement. Its memory may be deregistered as soon as
    /// the Sends that were posted from it have completed. If [`Event::Failed`] occurs without this
    /// event before it, the memory may be deregistered when the transport is gone.
    AdvertDone {
        /// The advertisement.
        id: AdvertId,
        /// The number of its bytes, from the front, that were transferred to the peer: all of them,
        /// unless it was taken back.
        taken: u32,
    },
    /// The connection no longer needs this memory of a reader, and the peer no longer writes to it.
    SinkDone {
        /// The advertisement.
        id: AdvertId,
        /// The number of bytes that the peer has written, from the front. They follow all bytes
        /// that were received before this event.
        written: u32,
    },
    /// A reader of the peer has advertised its memory. A message with data may have used the
    /// advertisement up; [`crate::Connection::sink_room`] shows that.
    SinkOffered,
    /// The peer asks for receive buffers of this size in bytes, base header included. The engine
    /// answers with [`crate::Connection::answer_buffers`], and may refuse with the present size.
    BuffersAsked(u32),
    /// The peer's receive buffers have this size from now on, which answers
    /// [`crate::Connection::ask_buffers`].
    BuffersAnswered(u32),
    /// The peer has acknowledged ChRcvBufAck with this size. If the size became smaller, smaller
    /// buffers may be posted from now on.
    BuffersKnown(u32),
    /// The engine must disconnect the transport.
    Disconnect,
    /// The connection failed. Only the first failure is reported.
    Failed(Failure),
    /// The transport ended after both halves had ended.
    Closed,
}
