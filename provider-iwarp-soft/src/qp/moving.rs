//! The steps of a connection's move to the local carrier that need the adapter: its settings, its
//! rendezvous and its memory table. [`Move`] is the state of the move.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rnic::{Traffic, WhyTcp};

use iwarp_proto::{CarrierMessage, Role};

use crate::carrier::End;
use crate::carrier::local::VERSION;
use crate::carrier::local::link::{LocalCarrier, RING_LEN_ADOPTED};
use crate::carrier::local::pull::Witness;
use crate::carrier::local::rendezvous::{
    self, Answer, Hello, Name, Refusal, UnixConn, receive_answer, send_answer, send_hello,
};
use crate::carrier::local::ring::{Consumer, Producer};
use crate::carrier::local::segment::{Direction, RING_LEN, SharedSegment};
use crate::conn::{Conn, Move, OFFER_AFTER, Owner, Request};
use crate::memory::{Denied, MemoryTable, Stream};

use super::{Effects, Link, Qp, lock};

impl Qp {
    /// Takes the next steps of the move.
    pub(super) fn move_on(&self, conn: &mut Conn) -> Result<(), End> {
        for message in conn.inbox.take_messages() {
            match message {
                CarrierMessage::Offer { name, token } => self.on_offer(conn, &name, token),
                CarrierMessage::Moved => conn.on_rx_moved(self.stream(), &self.shared.memory)?,
            }
        }
        self.on_answer(conn);
        if conn.should_offer() {
            self.offer(conn);
        }
        if conn.proto.has_transmit() {
            self.transmit(conn)?;
        }
        Ok(())
    }

    /// Called by the responder: offers the peer the address of this adapter's rendezvous.
    fn offer(&self, conn: &mut Conn) {
        let config = &self.shared.config;
        if !config.local {
            return conn.stay(WhyTcp::Off);
        }
        if !is_local(conn.remote) && config.local_dir.is_none() {
            return conn.stay(WhyTcp::OtherHost);
        }
        match self.shared.offer_listener.announce(self.me.clone()) {
            Ok((name, token)) => {
                conn.moving.on_offered(token);
                let offer = CarrierMessage::Offer { name, token };
                // This fails only if the stream has ended.
                let _ = conn.proto.queue_carrier(offer);
            }
            Err(error) => {
                tracing::debug!(%error, "no socket for offers of local peers");
                conn.stay(WhyTcp::NoResources);
            }
        }
    }

    /// Called by the initiator: asks the peer, after its offer, to map memory of this process.
    fn on_offer(&self, conn: &mut Conn, name: &Name, token: u64) {
        let config = &self.shared.config;
        if conn.proto.config().role != Role::Initiator || !matches!(conn.moving, Move::Tcp) {
            return;
        }
        if !config.local {
            return conn.stay(WhyTcp::Off);
        }
        if conn.has_sent_fin() {
            return conn.stay(WhyTcp::Refused);
        }
        let dialed = match (rendezvous::dial(name), &config.local_dir) {
            (Err(_), Some(dir)) => rendezvous::dial_in(dir, name),
            (dialed, _) => dialed,
        };
        let Ok(unix) = dialed else {
            return conn.stay(WhyTcp::OtherHost);
        };
        match request_move(unix, token) {
            Ok(request) if conn.socket.watch_bell(request.conn.as_fd()).is_ok() => {
                conn.moving.on_requested(request);
            }
            _ => conn.stay(WhyTcp::NoResources),
        }
    }

    /// Called by the initiator: checks for an answer of the peer.
    fn on_answer(&self, conn: &mut Conn) {
        let Move::Requested(request) = &conn.moving else {
            return;
        };
        match receive_answer(&request.conn) {
            Ok(None) => {}
            Ok(Some(Answer::Yes)) => {
                conn.moving.on_agreed();
                self.move_to_local(conn);
            }
            Ok(Some(Answer::No(refusal))) => {
                tracing::debug!(?refusal, "the peer refuses shared memory");
                conn.stay(WhyTcp::Refused);
            }
            Err(_) => conn.stay(WhyTcp::Refused),
        }
    }

    /// Returns the payload bytes of the queue pair's connections, by carrier.
    pub(crate) fn traffic(&self) -> Traffic {
        let link = self.lock_link();
        let mut traffic = *lock(&self.ended_traffic);
        if let Link::Up(conn) = &*link {
            traffic += self.traffic_of(conn);
        }
        drop(link);
        // A thread that posted while the lock was taken relies on the holder of the lock.
        self.catch_up();
        traffic
    }

    /// Returns the payload bytes of one connection, by carrier.
    pub(super) fn traffic_of(&self, conn: &Conn) -> Traffic {
        conn.traffic(|| self.why_tcp(conn))
    }

    /// Returns the reason why a connection is on TCP.
    fn why_tcp(&self, conn: &Conn) -> WhyTcp {
        let proto = &conn.proto;
        match &conn.moving {
            _ if !self.shared.config.local => WhyTcp::Off,
            Move::Stayed(why) => *why,
            Move::Offered { .. } | Move::Requested(_) => WhyTcp::NotAnswered,
            _ if !proto.has_received() => WhyTcp::LittleTraffic,
            _ if proto.agreed_ulpdu().is_none() => WhyTcp::OtherImplementation,
            _ if !proto.has_agreed_carriers() => WhyTcp::PeerOff,
            _ if proto.config().role == Role::Responder => WhyTcp::LittleTraffic,
            // The responder makes the offer once it has received enough.
            _ if conn.tcp.sent().segments < OFFER_AFTER => WhyTcp::LittleTraffic,
            _ if !is_local(conn.remote) => WhyTcp::OtherHost,
            _ => WhyTcp::NotOffered,
        }
    }

    /// Starts to use the local carrier, on which both ends have agreed.
    fn move_to_local(&self, conn: &mut Conn) {
        tracing::info!(qp = self.token.0, remote = %conn.remote, "the connection moves off TCP");
        if let Some(local) = conn.local() {
            let reference_holder = local.reference_holder();
            self.shared.memory.add_reference_holder(&reference_holder);
            if self.attr.acknowledged {
                local.await_handling();
            }
        }
        conn.on_local();
    }
}

impl Owner for Qp {
    fn table(&self) -> &MemoryTable {
        &self.shared.memory
    }

    fn stream(&self) -> Stream {
        Stream {
            pd: self.pd,
            qp: self.token,
            denied: Denied::from_bits(self.denied.load(Ordering::Relaxed)),
        }
    }

    fn adopt(
        &self,
        token: u64,
        ring_len: usize,
        memory: OwnedFd,
        unix: UnixConn,
    ) -> Result<(), Refusal> {
        if ring_len < RING_LEN_ADOPTED {
            return Err(Refusal::Memory);
        }
        let segment = SharedSegment::adopt(memory, ring_len).map_err(|_| Refusal::Memory)?;
        let segment = Arc::new(segment);
        let mut link = self.lock_link();
        let is_offered =
            |conn: &Conn| matches!(conn.moving, Move::Offered { token: own } if own == token);
        let conn = match &mut *link {
            Link::Up(conn) if is_offered(conn) => conn,
            _ => return Err(Refusal::Token),
        };
        let mut producer = Producer::new(segment.half(Direction::FromAdopter));
        let witness = Witness::new().map_err(|_| Refusal::Memory)?;
        producer.set_known_word(witness.known_word());
        let consumer = Consumer::new(segment.half(Direction::FromCreator));
        let carrier = LocalCarrier::new(producer, consumer, unix, witness);
        conn.socket
            .watch_bell(carrier.descriptor())
            .map_err(|_| Refusal::Memory)?;
        if send_answer(carrier.descriptor(), Answer::Yes) {
            conn.moving.on_adopted(carrier);
            self.move_to_local(conn);
        } else {
            conn.socket.unwatch(carrier.descriptor());
            conn.stay(WhyTcp::Refused);
        }
        let mut effects = Effects::default();
        if let Err(end) = self.step(conn, true, &mut effects) {
            self.finish(&mut link, end, &mut effects);
        }
        drop(link);
        self.after(&effects);
        Ok(())
    }
}

/// Creates the shared memory and sends it to the peer.
fn request_move(conn: UnixConn, token: u64) -> std::io::Result<Request> {
    let witness = Witness::new()?;
    let (segment, memory) = SharedSegment::create(RING_LEN)?;
    let segment = Arc::new(segment);
    Producer::new(segment.half(Direction::FromCreator)).set_known_word(witness.known_word());
    let hello = Hello {
        version: VERSION,
        ring_len: RING_LEN as u32,
        token,
    };
    send_hello(&conn, &hello, memory.as_fd())?;
    Ok(Request {
        conn,
        segment,
        witness,
    })
}

/// Returns true if this host has the address. The check binds a socket to the address, which keeps
/// its scope, because the kernel refuses to bind a link-local address without one.
fn is_local(mut address: SocketAddr) -> bool {
    address.set_port(0);
    address.ip().is_loopback() || UdpSocket::bind(address).is_ok()
}
