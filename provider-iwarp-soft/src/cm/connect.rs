//! The connecting end: an attempt of a queue pair, and the connection that results.

use std::os::fd::{AsFd, RawFd};
use std::sync::Arc;

use dat_conf::limits::Resource as Limited;
use host::threads::catch_panic;
use iwarp_proto::mpa::Negotiated;
use iwarp_proto::wire::fpdu;
use iwarp_proto::{Config, Role};
use rnic::{ConnectParams, RnicError, SocketFault};

use crate::conn::Conn;
use crate::engine::{Key, Source, io};
use crate::progress::conn_socket::ConnSocket;
use crate::qp::{Effects, Link, Qp};
use crate::socket::Socket;
use crate::startup::attempt::{ConnectAttempt, Step};
use rnic::ConnectionEvent;

impl Qp {
    /// Starts connecting over TCP.
    pub(crate) fn connect(self: &Arc<Self>, params: &ConnectParams<'_>) -> Result<(), RnicError> {
        if params.private_data.len() > self.shared.config.private_data_max as usize {
            return Err(RnicError::InvalidArgument("private data"));
        }
        if params.remote.ip().is_unspecified() || params.remote.port() == 0 {
            return Err(RnicError::BadAddress("no service has this address"));
        }
        let mut link = self.lock_link();
        if !matches!(*link, Link::Idle) {
            return Err(RnicError::InvalidState("the queue pair is not idle"));
        }
        let mut attempt = self.new_attempt(params)?;
        attempt.begin(&self.shared.config)?;
        *link = Link::Connecting(attempt);
        Ok(())
    }

    /// Starts connecting over a consumer's socket.
    pub(crate) fn connect_socket(
        self: &Arc<Self>,
        number: RawFd,
        params: &ConnectParams<'_>,
    ) -> Result<(), SocketFault> {
        let mut link = self.lock_link();
        if !matches!(*link, Link::Idle) {
            return Err(SocketFault::QpNotIdle);
        }
        let socket = Socket::take(number, |local| self.shared.config.routes(local))?;
        let mut attempt = self
            .new_attempt(params)
            .map_err(|_| SocketFault::NoResources)?;
        attempt.begin_on(socket)?;
        *link = Link::Connecting(attempt);
        Ok(())
    }

    fn new_attempt(
        self: &Arc<Self>,
        params: &ConnectParams<'_>,
    ) -> Result<Box<ConnectAttempt>, RnicError> {
        let source = Arc::new(AttemptSource { qp: self.clone() });
        let engine = self.shared.engine.clone();
        let permit = self.shared.police.permit(Limited::Connections)?;
        let settings = &self.shared.config;
        ConnectAttempt::new(engine, source, permit, settings, &self.attr, params)
    }

    /// Called on the engine's thread when the socket is ready or the deadline has passed.
    fn on_attempt(self: &Arc<Self>, key: Key) {
        let mut done = None;
        catch_panic(|| done = Some(self.advance_attempt(key)));
        let effects = done.unwrap_or_else(|| self.fail_attempt(key));
        self.after(&effects);
    }

    fn advance_attempt(self: &Arc<Self>, key: Key) -> Effects {
        let mut effects = Effects::default();
        let mut link = self.lock_link();
        let Link::Connecting(attempt) = &mut *link else {
            return effects;
        };
        if attempt.key() != key {
            return effects;
        }
        match attempt.advance(&self.shared.config) {
            Step::Wait(again) => attempt.schedule(again),
            Step::Fail(event) => self.abandon(&mut link, event, &mut effects),
            Step::Connected {
                socket,
                negotiated,
                private_data,
            } => {
                self.on_reply(&mut link, socket, &negotiated, private_data, &mut effects);
            }
        }
        effects
    }

    /// Fails an attempt whose step panicked: its phase is lost, and no event would trigger the next
    /// step.
    fn fail_attempt(&self, key: Key) -> Effects {
        let mut effects = Effects::default();
        let mut link = self.lock_link();
        match &mut *link {
            Link::Connecting(attempt) if attempt.key() == key => {
                self.abandon(&mut link, ConnectionEvent::NonPeerRejected, &mut effects);
                effects
            }
            Link::Up(conn) => {
                let socket = conn.socket.clone();
                drop(link);
                self.fail(&socket)
            }
            _ => effects,
        }
    }

    /// Begins full operation, after an accepting Reply was received.
    fn on_reply(
        self: &Arc<Self>,
        link: &mut Link,
        socket: Socket,
        negotiated: &Negotiated,
        private_data: Vec<u8>,
        effects: &mut Effects,
    ) {
        match self.new_conn(socket, Role::Initiator, negotiated) {
            Some(conn) => {
                // The attempt is dropped first: its key is removed before the socket's key is
                // added.
                *link = Link::Idle;
                self.on_connected(link, conn, Some(private_data), None);
                self.drive_new(link, effects);
            }
            None => self.abandon(link, ConnectionEvent::NonPeerRejected, effects),
        }
    }

    /// Creates a connection over a socket whose start-up is complete, and adds it to the engine.
    pub(super) fn new_conn(
        self: &Arc<Self>,
        socket: Socket,
        role: Role,
        negotiated: &Negotiated,
    ) -> Option<Box<Conn>> {
        let shared = &self.shared;
        let socket = ConnSocket::new(self.clone(), shared.progress.clone(), socket);
        let emss = io::segment_size(socket.as_fd());
        let mulpdu = fpdu::mulpdu(emss, negotiated.markers_tx).min(shared.config.ulpdu_max());
        // A work request becomes at most two protocol requests per segment and one that asks for an
        // acknowledgement; one more announces retries.
        let queue_len = self
            .attr
            .send_wr_max
            .saturating_mul(self.attr.send_sge_max.max(1))
            .saturating_mul(2 + u32::from(self.attr.acknowledged))
            .saturating_add(1);
        let config = Config::new(role, negotiated, mulpdu, queue_len as usize);
        let mut conn = Conn::new(socket, config, negotiated, &shared.config)?;
        conn.acknowledged = self.attr.acknowledged;
        if shared.config.long_fpdus {
            let own_ulpdu_max = shared.config.own_ulpdu_max(negotiated);
            conn.proto.offer(iwarp_proto::OwnOffer {
                ulpdu_max: own_ulpdu_max,
                carriers: shared.config.local,
            });
        }
        let waits = shared.config.receive_wait.is_some() && !negotiated.markers_rx;
        conn.proto.wait_for_receives(waits);
        match conn.socket.open() {
            Ok(place) => conn.place = place,
            Err(error) => {
                tracing::warn!(%error, "the engine cannot add the connection");
                conn.socket.close(&mut conn.place);
                return None;
            }
        }
        Some(conn)
    }
}

/// Passes the engine's events to the attempt of a queue pair.
struct AttemptSource {
    qp: Arc<Qp>,
}

impl Source for AttemptSource {
    fn on_ready(self: Arc<Self>, key: Key, _readable: bool, _writable: bool) {
        self.qp.on_attempt(key);
    }

    fn on_deadline(self: Arc<Self>, key: Key) {
        self.qp.on_attempt(key);
    }
}
