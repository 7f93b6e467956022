//! The counters of a socket.

use std::fmt;

/// The counters of a socket. All but [`Counter::Credits`] only increase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Bytes that the program sent on a connection.
    Sent = 0,
    /// Bytes that the program received.
    Received = 1,
    /// Offloaded connections that a listener's program accepted.
    AcceptedOffloaded = 2,
    /// Connections over TCP that a listener's program accepted.
    AcceptedTcp = 3,
    /// Bytes that were copied into memory of the protocol and sent in messages.
    SentCopied = 4,
    /// Bytes that messages carried straight from the program's memory.
    SentRegistered = 5,
    /// Bytes that the peer has read from the program's memory by RDMA Read.
    SentRead = 6,
    /// Bytes that were written into the peer's memory by RDMA Write.
    SentWritten = 7,
    /// Bytes that were received in messages.
    ReceivedCopied = 8,
    /// Bytes that were read from the peer's memory by RDMA Read.
    ReceivedRead = 9,
    /// Bytes that the peer has written by RDMA Write.
    ReceivedWritten = 10,
    /// Advertisements of writers' memory.
    Sources = 11,
    /// Advertisements of writers' memory of which the peer has read a byte.
    SourcesUsed = 12,
    /// Advertisements of writers' memory that were cancelled.
    SourcesCancelled = 13,
    /// Advertisements of readers' memory.
    Sinks = 14,
    /// Advertisements of readers' memory into which the peer has written.
    SinksUsed = 15,
    /// Advertisements of readers' memory that were cancelled.
    SinksCancelled = 16,
    /// The number of messages that the peer has room for now.
    Credits = 17,
    /// The times for which bytes waited because the peer had announced no receive buffers.
    StallsCredits = 18,
    /// The times for which bytes waited because too many messages were in progress.
    StallsSends = 19,
    /// The writes that found no room in the memory for bytes to be sent.
    StallsRoom = 20,
    /// The times for which bytes waited because the peer had not read advertised memory.
    StallsReader = 21,
}

impl Counter {
    /// The counters that the protocol of a connection keeps and reports to a [`Meter`].
    pub const OF_PROTOCOL: [Self; 18] = [
        Self::SentCopied,
        Self::SentRegistered,
        Self::SentRead,
        Self::SentWritten,
        Self::ReceivedCopied,
        Self::ReceivedRead,
        Self::ReceivedWritten,
        Self::Sources,
        Self::SourcesUsed,
        Self::SourcesCancelled,
        Self::Sinks,
        Self::SinksUsed,
        Self::SinksCancelled,
        Self::Credits,
        Self::StallsCredits,
        Self::StallsSends,
        Self::StallsRoom,
        Self::StallsReader,
    ];
}

/// Receives the counters that the protocol of a connection keeps.
pub trait Meter: fmt::Debug + Send + Sync {
    /// Stores the present values. The caller makes one call at a time for a connection.
    fn set(&self, values: &[(Counter, u64)]);
}
