//! Carriers: how the DDP segments of a connection get to the peer.
//!
//! A connection starts on [`tcp`]. Start-up frames, Socket Service Points, lingering and the death
//! of a peer are matters of the TCP socket and stay there. Between two ends of this implementation
//! a connection may move to a second carrier, each direction by itself: the last message that a
//! direction sends over TCP is `Moved`, and the segments that follow it come by the new carrier. So
//! the order of operations is kept.
//!
//! | File | What |
//! |---|---|
//! | [`inbox`] | inbound segments, judged, placed and delivered, for every carrier |
//! | [`tcp`] | MPA over a TCP socket |
//! | [`local`] | memory that two processes of one host share |
//! | `pipe` | memory within one process, with delays and faults: the tests' own |
//!
//! To the rest of the provider the second carrier is a [`SecondCarrier`]; [`Agreement::carrier`]
//! decides which one it is.

pub(crate) mod inbox;
pub(crate) mod local;
#[cfg(test)]
mod pipe;
pub(crate) mod tcp;

use std::fmt::Debug;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use access_layer::rnic::Flow as Way;
use iwarp_proto::{
    Access, Connection, PeerTerminate, ProtectionFault, ProtocolError, TransmitFpdu,
    TransmitPayload,
};
use rustix::io::Errno;

use crate::memory::{Bytes, Lender, MemoryAccess, MemoryTable, Stream};
use crate::progress::conn_socket::MayHaveWork;
use crate::work::{Outstanding, Report};

use local::bell::Drained;
use local::link::LocalCarrier;
use local::pull::Witness;
use local::rendezvous::UnixConn;
use local::ring::{Consumer, Producer};

pub(crate) use inbox::{Inbox, ReceiveSource, Reception, immediate_bytes};

/// Where the payloads of segments come from, for one pass.
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

/// How a pass of a sender ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Nothing is left to send.
    Drained,
    /// The carrier takes no more for the moment.
    Blocked,
}

/// Why a pass of a sender cannot continue.
#[derive(Debug)]
pub(crate) enum TxFault {
    /// A local segment of this request may not be read.
    Local { token: u64 },
    /// The memory that the peer reads has gone.
    Response(ProtocolError),
    /// The transport has failed.
    Transport(Errno),
}

/// Why receiving ended for good.
#[derive(Debug)]
pub(crate) enum RxEnd {
    /// The peer has closed between two segments.
    Closed,
    /// The peer has closed within a segment, or broken the rules of the carrier.
    Broken,
    /// The transport has failed.
    Transport(Errno),
    /// The peer violated the protocol, or a local receive was unusable.
    Fault(ProtocolError),
    /// The peer has sent a Terminate message.
    Terminated(Option<PeerTerminate>),
}

/// How far a carrier has come, to notice a peer that neither takes nor sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Distance {
    /// Bytes or segments that the transport has taken.
    pub(crate) sent: u64,
    /// Segments received.
    pub(crate) received: u64,
}

/// The transport of one connection's segments. Its calls are made under the connection's lock and
/// never block.
pub(crate) trait Carrier: Debug + Send {
    /// Returns true if [`Self::submit`] may be called for a segment with so much payload.
    fn has_room(&mut self, payload_len: usize) -> bool;

    /// Takes a segment whose payload is here and copied by this call; there is room for it.
    /// `report` is in [`Self::finished`] once the transport has taken it.
    fn submit(&mut self, segment: &TransmitFpdu, payload: &[Bytes<'_>], report: Report);

    /// Sends what was submitted and what `proto` has to transmit, as far as the transport takes it.
    fn transmit(
        &mut self,
        proto: &mut Connection,
        payloads: &Payloads<'_>,
    ) -> Result<Flow, TxFault>;

    /// Receives segments and places their payload. `false`: there were none.
    fn receive(&mut self, reception: &mut Reception<'_>) -> Result<bool, RxEnd>;

    /// Takes note of what the transport has finished since the last call. `false`: nothing.
    fn reap(&mut self, _proto: &mut Connection) -> Result<bool, TxFault> {
        Ok(false)
    }

    /// Reports of submitted segments that the transport has taken; the caller empties the list.
    fn finished(&mut self) -> &mut Vec<Report>;

    /// Returns true while the transport has not taken all that was submitted.
    fn has_unfinished(&self) -> bool;

    /// Removes the reports of submitted segments that the transport has not taken.
    fn take_unfinished(&mut self) -> Vec<Report>;

    /// Returns true while segments wait for the transport.
    fn is_pending(&self) -> bool;

    fn distance(&self) -> Distance;
}

/// The carrier that a connection moves to. The calls are made as those of [`Carrier`] are.
///
/// All segments that the peer transmitted before its TCP stream ended can be received as soon as
/// the end of the stream is received, because the connection receives for the last time then.
pub(crate) trait SecondCarrier: Carrier {
    /// Returns the longest segment to transmit. Called when the transmitting direction moves.
    fn segment_max(&mut self) -> usize;

    /// The descriptor that becomes readable when the peer rings.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Receives the bytes that the peer has rung.
    fn answer_bell(&mut self) -> Drained;

    /// Every poll drives the connection from now on, so the peer need not ring.
    fn start_polling(&mut self);

    /// Has the peer ring from now on, for segments to receive and, while segments wait for the
    /// transport, for room. `true`: there is work already.
    fn arm(&mut self) -> Result<bool, RxEnd>;

    /// Transmits the last message of the stream, if there is room.
    fn transmit_last(&mut self, segment: &TransmitFpdu);

    /// Ends all use of the consumer's memory by the peer.
    fn close(&mut self);

    /// Returns the payload that was copied, and the payload that was read by reference.
    fn traffic(&self) -> (Way, Way);

    /// The view for polling threads that do not hold the connection.
    fn watch(&self) -> Arc<dyn MayHaveWork>;

    /// Updates the view of [`Self::watch`] at the end of a pass. `is_busy`: the connection has work
    /// that the carrier does not know of.
    fn update_watch(&self, is_busy: bool);

    /// The object that deregistration asks before it returns, if the peer reads registered memory.
    fn lender(&self) -> Option<Arc<dyn Lender>>;
}

/// The parts that both ends of a connection have agreed on, for the carrier that it moves to.
#[derive(Debug)]
pub(crate) struct Agreement {
    /// The two ends of the TCP connection.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "recognised by the tests' carrier")
    )]
    pub(crate) ends: (SocketAddr, SocketAddr),
    pub(crate) producer: Producer,
    pub(crate) consumer: Consumer,
    /// The connection of the two processes: bells in both directions.
    pub(crate) unix: UnixConn,
    /// The word by which the peer recognises this process.
    pub(crate) witness: Witness,
}

impl Agreement {
    /// Builds the carrier.
    pub(crate) fn carrier(self) -> Box<dyn SecondCarrier> {
        #[cfg(test)]
        if let Some(end) = pipe::end_of(self.ends) {
            return Box::new(pipe::PipeCarrier::new(end, self.unix));
        }
        Box::new(LocalCarrier::of(self))
    }
}
