//! Carriers: the transports of a connection's DDP segments.
//!
//! A connection starts on [`tcp`]. Start-up frames, Socket Service Points, lingering and the
//! detection of a dead peer always use the TCP socket. Between two ends of this implementation a
//! connection may move to a second carrier, each direction separately. The last message that a
//! direction sends over TCP is `Moved`, and the new carrier transmits all later segments. So the
//! order of operations is kept.
//!
//! | File | Contents |
//! |---|---|
//! | [`inbox`] | inbound segments, checked, placed and delivered, for every carrier |
//! | [`tcp`] | MPA over a TCP socket |
//! | [`local`] | memory that two processes of one host share |

pub(crate) mod inbox;
pub(crate) mod local;
pub(crate) mod tcp;

use std::fmt::Debug;

use iwarp_proto::{
    Access, Connection, PeerTerminate, ProtectionFault, ProtocolError, TransmitFpdu,
    TransmitPayload,
};
use rustix::io::Errno;

use crate::memory::{Bytes, MemoryAccess, MemoryTable, Stream};
use crate::work::{Outstanding, Report};

pub(crate) use inbox::{Inbox, ReceiveSource, Reception, immediate_bytes};

/// The sources of the payloads of segments, for one pass.
pub(crate) struct Payloads<'a> {
    pub(crate) table: &'a MemoryTable,
    pub(crate) stream: Stream,
    pub(crate) outstanding: &'a Outstanding,
}

/// Visits the memory of a payload, in order.
pub(crate) fn visit_payload<'m>(
    payload: TransmitPayload,
    memory: &'m MemoryAccess<'_>,
    payloads: &Payloads<'_>,
    mut visit: impl FnMut(Bytes<'m>),
) -> Result<(), ProtectionFault> {
    let stream = payloads.stream;
    match payload {
        TransmitPayload::None => {}
        TransmitPayload::WorkRequest { token, offset, len } => {
            let slot = payloads.outstanding.get(token);
            let range = (offset as usize, len as usize);
            let is_whole = slot.is_some_and(|slot| {
                slot.sgl
                    .for_each_piece(memory, stream.pd, false, range, visit)
            });
            if !is_whole {
                return Err(ProtectionFault::InvalidStag);
            }
        }
        TransmitPayload::ReadResponse { stag, to, len } => {
            visit(memory.remote(stream, Access::RemoteRead, stag, to, len)?);
        }
    }
    Ok(())
}

/// The end of a pass of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Nothing is left to send.
    Drained,
    /// The carrier accepts no more bytes at the moment.
    Blocked,
}

/// The reason why a pass of a sender cannot continue.
#[derive(Debug)]
pub(crate) enum TxFault {
    /// A local segment of this request may not be read.
    Local { token: u64 },
    /// The memory that the peer reads is no longer registered.
    Response(ProtocolError),
    /// The transport has failed.
    Transport(Errno),
}

/// The reason for the end of a connection.
#[derive(Debug)]
pub(crate) enum End {
    /// Closed in an orderly way, by either side.
    Disconnected,
    /// The socket is broken, or was closed within a frame.
    Broken,
    /// TCP has aborted the connection: no answer was received in time.
    Unanswered,
    /// A side violated the protocol, or a local receive was unusable. A Terminate message is sent
    /// if that is still possible.
    Fault(ProtocolError),
    /// The peer has sent a Terminate message.
    Terminated(Option<PeerTerminate>),
}

impl End {
    /// Returns the reason for the end of a connection whose socket failed with this error.
    pub(crate) fn of_socket(error: Errno) -> Self {
        match error {
            // The last two are errors of the route that TCP received while it waited.
            Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH => Self::Unanswered,
            _ => Self::Broken,
        }
    }
}

/// The progress of a carrier, to detect a peer that neither receives nor sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Distance {
    /// Bytes or segments that the transport has accepted.
    pub(crate) sent: u64,
    /// Segments received.
    pub(crate) received: u64,
}

/// The transport of one connection's segments. Its methods are called under the connection's lock
/// and never block.
pub(crate) trait Carrier: Debug + Send {
    /// Returns true if [`Self::submit`] may be called for a segment with a payload of this length.
    fn has_room(&mut self, payload_len: usize) -> bool;

    /// Accepts a segment and copies its payload; the caller has checked the room, and that the copy
    /// cannot fail. Once the transport has accepted the segment, `report` is in [`Self::finished`].
    fn submit(&mut self, segment: &TransmitFpdu, payload: &[Bytes<'_>], report: Report);

    /// Sends the submitted segments and the pending segments of `proto`, as far as the transport
    /// accepts them.
    fn transmit(
        &mut self,
        proto: &mut Connection,
        payloads: &Payloads<'_>,
    ) -> Result<Flow, TxFault>;

    /// Receives segments and places their payload. Returns `false` if there were none.
    fn receive(&mut self, reception: &mut Reception<'_>) -> Result<bool, End>;

    /// Records the segments that the transport has finished since the last call. Returns `false` if
    /// there were none.
    fn reap(&mut self, _proto: &mut Connection) -> Result<bool, TxFault> {
        Ok(false)
    }

    /// Reports of submitted segments that the transport has accepted; the caller empties the list.
    fn finished(&mut self) -> &mut Vec<Report>;

    /// Returns true while the transport has not accepted all submitted segments.
    fn has_unfinished(&self) -> bool;

    /// Removes the reports of submitted segments that the transport has not accepted.
    fn take_unfinished(&mut self) -> Vec<Report>;

    /// Returns true while segments wait for the transport.
    fn is_pending(&self) -> bool;

    fn distance(&self) -> Distance;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_of_tcp_is_distinguished_from_a_reset() {
        for error in [Errno::TIMEDOUT, Errno::HOSTUNREACH, Errno::NETUNREACH] {
            assert!(matches!(End::of_socket(error), End::Unanswered), "{error}");
        }
        for error in [Errno::CONNRESET, Errno::PIPE, Errno::NOBUFS] {
            assert!(matches!(End::of_socket(error), End::Broken), "{error}");
        }
    }
}
