//! The state of a connection's move from TCP to the local carrier.
//!
//! ```text
//!  responder   TCP ── offers ──> OFFERED ── the peer's memory is mapped ──> LOCAL
//!  initiator   TCP ── is offered, asks ──> REQUESTED ── the peer agrees ──> LOCAL
//!  either      any of them ── not possible, or the peer refuses ──────────> STAYED
//! ```
//!
//! In `LOCAL` each direction moves separately: the initiator's first, and the responder's after it.
//! Until a direction has moved it uses TCP as before, so nothing waits for the move and nothing
//! fails without it.
//!
//! The queue pair takes the steps that need its adapter (`qp/moving.rs`), and [`super::carriers`]
//! uses the carriers.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use iwarp_proto::{CarrierMessage, Role};
use rnic::WhyTcp;

use super::Conn;
use crate::carrier::local::link::LocalCarrier;
use crate::carrier::local::pull::Witness;
use crate::carrier::local::rendezvous::{Refusal, UnixConn};
use crate::carrier::local::ring::{Consumer, Producer};
use crate::carrier::local::segment::{Direction, SharedSegment};
use crate::carrier::{Carrier, End, ReceiveSource};
use crate::memory::{MemoryTable, Stream};

/// The number of segments that a connection has received before it offers to move. For fewer
/// segments the memory is not worthwhile.
pub(crate) const OFFER_AFTER: u64 = 16;

/// The calls of a connection to its queue pair.
pub(crate) trait Owner: ReceiveSource + Send + Sync {
    fn table(&self) -> &MemoryTable;
    fn stream(&self) -> Stream;

    /// Moves the connection to the memory that the peer has sent for the offer `token`.
    fn adopt(
        &self,
        token: u64,
        ring_len: usize,
        memory: OwnedFd,
        unix: UnixConn,
    ) -> Result<(), Refusal>;
}

/// The state of the move.
#[derive(Debug)]
pub(crate) enum Move {
    /// The move has not begun.
    Tcp,
    /// This end has offered to move.
    Offered { token: u64 },
    /// This end has asked the peer to map the shared memory.
    Requested(Request),
    /// The local carrier is in use or ready.
    Local {
        carrier: Box<LocalCarrier>,
        /// True if the epoll set has reported an event of the socket. Once the peer has moved, the
        /// socket is read only after such an event.
        is_ready: bool,
    },
    /// The connection stays on TCP.
    Stayed(WhyTcp),
}

/// The shared memory that the peer was asked to map.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) conn: UnixConn,
    pub(crate) segment: Arc<SharedSegment>,
    /// The word by which the peer recognises this process.
    pub(crate) witness: Witness,
}

impl Request {
    fn into_carrier(self) -> LocalCarrier {
        let producer = Producer::new(self.segment.half(Direction::FromCreator));
        let consumer = Consumer::new(self.segment.half(Direction::FromAdopter));
        LocalCarrier::new(producer, consumer, self.conn, self.witness)
    }
}

impl Move {
    fn local(carrier: LocalCarrier) -> Self {
        Self::Local {
            carrier: Box::new(carrier),
            is_ready: false,
        }
    }

    /// Called when the offer is queued.
    pub(crate) fn on_offered(&mut self, token: u64) {
        if let Self::Tcp = self {
            *self = Self::Offered { token };
        }
    }

    /// Called when this end has asked the peer, which has offered, to map the shared memory.
    pub(crate) fn on_requested(&mut self, request: Request) {
        if let Self::Tcp = self {
            *self = Self::Requested(request);
        }
    }

    /// Called when the peer has mapped the memory of the request.
    pub(crate) fn on_agreed(&mut self) {
        *self = match std::mem::replace(self, Self::Tcp) {
            Self::Requested(request) => Self::local(request.into_carrier()),
            other => other,
        };
    }

    /// Called when this end, which has offered, has mapped the memory of the peer.
    pub(crate) fn on_adopted(&mut self, carrier: LocalCarrier) {
        if let Self::Offered { .. } = self {
            *self = Self::local(carrier);
        }
    }

    fn on_stay(&mut self, why: WhyTcp) {
        if let Self::Tcp | Self::Offered { .. } | Self::Requested(_) = self {
            *self = Self::Stayed(why);
        }
    }
}

impl Conn {
    /// Returns true if the local carrier should be offered to the peer now.
    pub(crate) fn should_offer(&self) -> bool {
        matches!(self.moving, Move::Tcp)
            && self.proto.config().role == Role::Responder
            && self.tcp.distance().received >= OFFER_AFTER
            && self.proto.has_agreed_carriers()
            && !self.has_sent_fin()
    }

    /// Returns true if the move has a next step.
    pub(crate) fn wants_to_move(&self) -> bool {
        self.inbox.has_messages()
            || self.should_offer()
            || matches!(self.moving, Move::Requested(_))
    }

    /// Starts to use the local carrier, which is ready.
    pub(crate) fn on_local(&mut self) {
        if self.place.is_polled()
            && let Some(local) = self.local()
        {
            local.start_polling();
        }
        if self.proto.config().role == Role::Initiator {
            self.move_tx();
        }
    }

    /// Sends `Moved` over TCP; the local carrier sends all later segments of this direction.
    fn move_tx(&mut self) {
        if !self.has_sent_fin() {
            // This fails only if the stream has ended.
            let _ = self.proto.queue_carrier(CarrierMessage::Moved);
        }
    }

    /// Called when the peer sends its segments by the local carrier from now on, and may access
    /// memory directly.
    pub(crate) fn on_rx_moved(&mut self, own: Stream, table: &MemoryTable) -> Result<(), End> {
        let Some(local) = self.local() else {
            return Err(End::Broken);
        };
        local.announce(table.published_at(), own);
        self.socket.on_moved(&mut self.place);
        if let Move::Local { carrier, .. } = &self.moving
            && self.proto.has_tx_moved()
        {
            self.socket.watch_by(carrier.watch());
        }
        if self.proto.config().role == Role::Responder {
            self.move_tx();
        }
        Ok(())
    }

    /// Keeps the connection on TCP.
    pub(crate) fn stay(&mut self, why: WhyTcp) {
        tracing::debug!(remote = %self.remote, ?why, "the connection stays on TCP");
        if let Move::Requested(request) = &self.moving {
            self.socket.unwatch(request.conn.as_fd());
        }
        self.moving.on_stay(why);
    }

    /// Ends the use of shared memory: the connection is over.
    pub(crate) fn close_local(&mut self, table: &MemoryTable) {
        match &mut self.moving {
            Move::Local { carrier, .. } => {
                self.socket.unwatch(carrier.descriptor());
                carrier.close();
                table.keep_reference_holder(carrier.reference_holder());
            }
            Move::Requested(request) => self.socket.unwatch(request.conn.as_fd()),
            Move::Tcp | Move::Offered { .. } | Move::Stayed(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::carrier::local::segment::RING_LEN_MIN;

    fn request() -> Request {
        let (segment, _memory) = SharedSegment::create(RING_LEN_MIN).unwrap();
        Request {
            conn: UnixConn::new(UnixStream::pair().unwrap().0.into()),
            segment: Arc::new(segment),
            witness: Witness::new().unwrap(),
        }
    }

    fn carrier() -> LocalCarrier {
        request().into_carrier()
    }

    #[test]
    fn every_event_at_every_stage() {
        let stage = |moving: &Move| match moving {
            Move::Tcp => 0,
            Move::Offered { .. } => 1,
            Move::Requested(_) => 2,
            Move::Local { .. } => 3,
            Move::Stayed(_) => 4,
        };
        type Event = fn(&mut Move);
        let events: [(Event, [usize; 5]); 5] = [
            (|it| it.on_offered(7), [1, 1, 2, 3, 4]),
            (|it| it.on_requested(request()), [2, 1, 2, 3, 4]),
            (Move::on_agreed, [0, 1, 3, 3, 4]),
            (|it| it.on_adopted(carrier()), [0, 3, 2, 3, 4]),
            (|it| it.on_stay(WhyTcp::Refused), [4, 4, 4, 3, 4]),
        ];
        for (number, (event, after)) in events.into_iter().enumerate() {
            let stages = [
                Move::Tcp,
                Move::Offered { token: 7 },
                Move::Requested(request()),
                Move::local(carrier()),
                Move::Stayed(WhyTcp::Off),
            ];
            for (before, (mut moving, after)) in stages.into_iter().zip(after).enumerate() {
                event(&mut moving);
                assert_eq!(stage(&moving), after, "event {number} at {before}");
            }
        }
    }
}
