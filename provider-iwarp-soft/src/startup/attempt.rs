//! An attempt to connect.
//!
//! ```text
//!  Backoff --> TcpConnecting --> SendingRequest --> AwaitingReply --> full operation
//!    ^ ^         |                                    | |
//!    | '---------'                                    | '--> rejected, refused, no MPA
//!    |   refused: tried again                         |
//!    '------------------------------------------------'
//!        once, without the enhanced words
//! ```
//!
//! A consumer's socket starts in `SendingRequest`. A refused connect is retried for a while,
//! because consumers race the `listen` of their peers. A connection that is reset instead of
//! answered, or answered without the enhanced words of RFC 6581, is retried once without them.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use iwarp_proto::mpa::{Initiator, InitiatorConfig, Negotiated, Progress, Refusal, ReplyOutcome};
use iwarp_proto::wire::{fpdu, marker};
use iwarp_proto::{MpaError, ProtocolError, TerminateCode, TransmitFpdu};
use rnic::{ConnectParams, QpAttr, Resource, RnicError, SocketFault};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::carrier::tcp::crc::crc32c;
use crate::config::Config;
use crate::engine::io::{self, Sent, is_out_of_reach};
use crate::engine::{Engine, Interest, Key, Source, deadline_after};
use crate::lingering::LingeringSocket;
use crate::policing::Permit;
use crate::socket::Socket;
use rnic::ConnectionEvent;

use super::{STARTUP_MAX, depth, ird_max, own_socket, pieces_pause};

/// The pause between two attempts on a port without a listener.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// The time until the next check of a socket that the engine cannot watch.
const UNWATCHED_PAUSE: Duration = Duration::from_millis(20);

/// An attempt to connect.
#[derive(Debug)]
pub(crate) struct ConnectAttempt {
    key: Key,
    engine: Arc<Engine>,
    remote: SocketAddr,
    deadline: Option<Instant>,
    retry_until: Instant,
    config: InitiatorConfig,
    private_data: Vec<u8>,
    initiator: Initiator,
    request: Vec<u8>,
    phase: Phase,
    /// True if the peer has refused the last attempt.
    was_refused: bool,
    /// The number of times that an incomplete Reply was checked.
    checks: u32,
    /// `None` once the connection is established.
    permit: Option<Permit>,
}

#[derive(Debug)]
enum Phase {
    /// The pause between two attempts.
    Backoff,
    /// TCP is connecting.
    TcpConnecting(Socket),
    /// The Request is being sent.
    SendingRequest { socket: Socket, sent: usize },
    /// The Reply is not complete.
    AwaitingReply(Socket),
}

/// The outcome of a step of the attempt.
pub(crate) enum Step {
    /// Wait until the socket is ready or the time has passed.
    Wait(Option<Duration>),
    /// The attempt failed.
    Fail(ConnectionEvent),
    /// Full operation.
    Connected {
        socket: Socket,
        negotiated: Negotiated,
        private_data: Vec<u8>,
    },
}

impl ConnectAttempt {
    /// Creates an attempt that has not begun. `source` receives its events from the engine.
    pub(crate) fn new(
        engine: Arc<Engine>,
        source: Arc<dyn Source>,
        permit: Permit,
        settings: &Config,
        attr: &QpAttr,
        params: &ConnectParams<'_>,
    ) -> Result<Box<Self>, RnicError> {
        let config = InitiatorConfig {
            crc: settings.crc,
            markers: settings.markers,
            ird: depth(attr.ird),
            ird_max: ird_max(attr),
            ord: depth(attr.ord),
            pd_length_max: 512,
            enhanced: settings.enhanced,
            peer_to_peer: (settings.peer_to_peer).filter(|_| settings.enhanced),
            peer: settings.peer,
            ..InitiatorConfig::default()
        };
        let too_long = |_| RnicError::InvalidArgument("private data");
        let (initiator, frame) =
            Initiator::request(config, params.private_data).map_err(too_long)?;
        let key = engine.new_key();
        engine.enlist(key, source)?;
        Ok(Box::new(Self {
            key,
            engine,
            remote: settings.scoped(canonical(params.remote)),
            deadline: deadline_after(params.timeout),
            retry_until: Instant::now() + settings.connect_retry,
            config,
            private_data: params.private_data.to_vec(),
            initiator,
            request: frame.as_bytes().to_vec(),
            phase: Phase::Backoff,
            was_refused: false,
            checks: 0,
            permit: Some(permit),
        }))
    }

    /// The key of the attempt in the engine.
    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// Begins to connect a socket of the provider.
    pub(crate) fn begin(&mut self, settings: &Config) -> Result<(), RnicError> {
        // The engine reports a failure of the first attempt, like those of later ones, unless the
        // consumer's own process lacks a resource.
        let opened = self.open(settings);
        if let Err(error) = opened
            && let Some(short) = missing_resource(error)
        {
            return Err(RnicError::NoResources(short));
        }
        self.schedule(opened.is_err().then_some(Duration::ZERO));
        Ok(())
    }

    /// Begins on a consumer's connected socket.
    pub(crate) fn begin_on(&mut self, socket: Socket) -> Result<(), SocketFault> {
        let watched = self
            .engine
            .watch(self.key, socket.as_fd(), Interest::Nothing);
        watched.map_err(|_| SocketFault::NoResources)?;
        self.phase = Phase::SendingRequest { socket, sent: 0 };
        self.schedule(Some(Duration::ZERO));
        Ok(())
    }

    /// Opens a socket and starts TCP's connect. The engine continues when the connect is complete.
    fn open(&mut self, settings: &Config) -> Result<(), Errno> {
        let socket = connecting_socket(settings, &self.remote)?;
        let socket = Socket::own(socket);
        let watched = self
            .engine
            .watch(self.key, socket.as_fd(), Interest::Writable);
        watched.map_err(|_| Errno::NOMEM)?;
        self.phase = Phase::TcpConnecting(socket);
        self.checks = 0;
        Ok(())
    }

    /// Sets the time of the next step: the given time or the deadline of the attempt.
    pub(crate) fn schedule(&self, again: Option<Duration>) {
        let again = again.map(|after| Instant::now() + after);
        let next = match (again, self.deadline) {
            (Some(again), Some(deadline)) => Some(again.min(deadline)),
            (again, deadline) => again.or(deadline),
        };
        self.engine.set_deadline(self.key, next);
    }

    /// Takes the next step, unless the deadline of the attempt has passed.
    pub(crate) fn advance(&mut self, settings: &Config) -> Step {
        if (self.deadline).is_some_and(|deadline| Instant::now() >= deadline) {
            return Step::Fail(match self.phase {
                Phase::Backoff if self.was_refused => ConnectionEvent::NonPeerRejected,
                _ => ConnectionEvent::TimedOut,
            });
        }
        loop {
            match std::mem::replace(&mut self.phase, Phase::Backoff) {
                Phase::Backoff => match self.open(settings) {
                    Ok(()) => return Step::Wait(None),
                    Err(error) => return self.on_refused(error),
                },
                Phase::TcpConnecting(socket) => match sockopt::socket_error(&socket) {
                    Ok(Ok(())) if io::remote_address(&socket).is_some() => {
                        self.phase = Phase::SendingRequest { socket, sent: 0 };
                    }
                    Ok(Ok(())) => {
                        let armed = self.wait_for(&socket, Interest::Writable);
                        self.phase = Phase::TcpConnecting(socket);
                        return armed;
                    }
                    Ok(Err(error)) | Err(error) => {
                        self.engine.unwatch(socket.as_fd());
                        return self.on_refused(error);
                    }
                },
                Phase::SendingRequest { socket, sent } => {
                    match io::send(socket.as_fd(), &self.request[sent..]) {
                        Sent::Bytes(count) if sent + count == self.request.len() => {
                            let armed = self.wait_for(&socket, Interest::Readable);
                            self.phase = Phase::AwaitingReply(socket);
                            return armed;
                        }
                        Sent::Bytes(count) => {
                            self.phase = Phase::SendingRequest {
                                socket,
                                sent: sent + count,
                            };
                        }
                        Sent::WouldBlock => {
                            let armed = self.wait_for(&socket, Interest::Writable);
                            self.phase = Phase::SendingRequest { socket, sent };
                            return armed;
                        }
                        Sent::Failed(_) => {
                            self.engine.unwatch(socket.as_fd());
                            return Step::Fail(ConnectionEvent::NonPeerRejected);
                        }
                    }
                }
                Phase::AwaitingReply(socket) => return self.on_answer(socket),
            }
        }
    }

    /// Makes the engine watch the socket. If it cannot, the next step is scheduled soon, because no
    /// event would trigger that step.
    fn wait_for(&self, socket: &Socket, interest: Interest) -> Step {
        let armed = self.engine.rearm(self.key, socket.as_fd(), interest);
        Step::Wait(armed.is_err().then_some(UNWATCHED_PAUSE))
    }

    /// Called when TCP did not connect.
    fn on_refused(&mut self, error: Errno) -> Step {
        self.was_refused = matches!(error, Errno::CONNREFUSED | Errno::CONNRESET);
        match error {
            _ if self.was_refused && Instant::now() < self.retry_until => {
                Step::Wait(Some(RETRY_PAUSE))
            }
            error if missing_resource(error).is_some() && Instant::now() < self.retry_until => {
                Step::Wait(Some(RETRY_PAUSE))
            }
            error if is_out_of_reach(error) => Step::Fail(ConnectionEvent::Unreachable),
            _ => Step::Fail(ConnectionEvent::NonPeerRejected),
        }
    }

    /// Handles readable bytes where the Reply is expected.
    fn on_answer(&mut self, socket: Socket) -> Step {
        let mut front = [0; STARTUP_MAX];
        let count = match io::peek_or_error(socket.as_fd(), &mut front) {
            Err(Errno::AGAIN) => {
                let armed = self.wait_for(&socket, Interest::Readable);
                self.phase = Phase::AwaitingReply(socket);
                return armed;
            }
            Ok(0) => {
                self.engine.unwatch(socket.as_fd());
                return self.on_no_reply(&socket, None);
            }
            Ok(count) => count,
            Err(error) => {
                self.engine.unwatch(socket.as_fd());
                return self.on_no_reply(&socket, Some(error));
            }
        };
        let (consumed, private_data, outcome) = match self.initiator.handle_input(&front[..count]) {
            Progress::NeedMore(_) if !io::is_hung_up(socket.as_fd()) => {
                self.phase = Phase::AwaitingReply(socket);
                let again = pieces_pause(self.checks);
                self.checks = self.checks.saturating_add(1);
                return Step::Wait(Some(again));
            }
            Progress::Frame {
                consumed,
                private_data,
                value,
            } => (consumed, private_data, value),
            _ => {
                self.linger(socket);
                return Step::Fail(ConnectionEvent::NonPeerRejected);
            }
        };
        self.engine.unwatch(socket.as_fd());
        let private_data = front[private_data].to_vec();
        if !io::discard(socket.as_fd(), consumed) {
            return Step::Fail(ConnectionEvent::NonPeerRejected);
        }
        match outcome {
            ReplyOutcome::Accepted { negotiated, .. } => {
                if let Some(permit) = self.permit.take() {
                    socket.hold(permit);
                }
                Step::Connected {
                    socket,
                    negotiated,
                    private_data,
                }
            }
            ReplyOutcome::Rejected { peer } => {
                // RFC 6581 section 9.1 requires that the consumer is informed, but DAT's event has
                // no field for IRD and ORD.
                tracing::info!(?peer, "the peer rejects, with this IRD and ORD");
                Step::Fail(ConnectionEvent::PeerRejected { private_data })
            }
            ReplyOutcome::Refused(refusal) => self.on_unusable_reply(socket, refusal),
        }
    }

    /// Handles an end without a Reply. Responders without RFC 6581 answer with a reset.
    fn on_no_reply(&mut self, socket: &Socket, error: Option<Errno>) -> Step {
        match error {
            Some(error) if is_out_of_reach(error) => Step::Fail(ConnectionEvent::Unreachable),
            Some(_) if !socket.is_consumers() && self.fall_back() => {
                Step::Wait(Some(Duration::ZERO))
            }
            _ => Step::Fail(ConnectionEvent::NonPeerRejected),
        }
    }

    /// Called if the peer accepted on conditions that this end cannot meet.
    fn on_unusable_reply(&mut self, socket: Socket, refusal: Refusal) -> Step {
        let (error, crc, markers) = match refusal {
            Refusal::InsufficientIrd { crc, markers, .. } => {
                (MpaError::InsufficientIrd, crc, markers)
            }
            Refusal::NoMatchingRtr { crc, markers } => (MpaError::NoMatchingRtr, crc, markers),
            Refusal::NotEnhanced if !socket.is_consumers() && self.fall_back() => {
                return Step::Wait(Some(Duration::ZERO));
            }
            Refusal::NotEnhanced | Refusal::MarkersRequired => {
                self.linger(socket);
                return Step::Fail(ConnectionEvent::NonPeerRejected);
            }
        };
        let fault = ProtocolError::without_segment(TerminateCode::Mpa(error));
        let fpdu = TransmitFpdu::terminate(&fault);
        // The first marker of a stream is right before its first FPDU, and is all zero.
        let mut bytes = vec![0; if markers { marker::LEN } else { 0 }];
        bytes.extend_from_slice(fpdu.header());
        bytes.resize(bytes.len() + fpdu.pad(), 0);
        let value = if crc { crc32c(&bytes) } else { 0 };
        bytes.extend(fpdu::crc_field(value));
        // An error is ignored: the connection ends whether the peer receives the message or not.
        let _ = io::send(socket.as_fd(), &bytes);
        self.linger(socket);
        Step::Fail(ConnectionEvent::NonPeerRejected)
    }

    /// Ends a connection on which a Request was sent, or returns the socket to its consumer. The
    /// end is a FIN and never a reset, regardless of further input, because the kernel of a known
    /// implementation crashes if it receives a reset after its Reply.
    fn linger(&self, socket: Socket) {
        self.engine.unwatch(socket.as_fd());
        if !socket.is_consumers() {
            LingeringSocket::start_unconnected(self.engine.clone(), socket);
        }
    }

    /// Replaces the Request by one of revision 1, once. Returns false if the Request has revision 1
    /// already, or the new one cannot be built.
    fn fall_back(&mut self) -> bool {
        if !self.config.enhanced {
            return false;
        }
        self.config = InitiatorConfig {
            enhanced: false,
            peer_to_peer: None,
            ..self.config
        };
        match Initiator::request(self.config, &self.private_data) {
            Ok((initiator, frame)) => {
                self.initiator = initiator;
                self.request = frame.as_bytes().to_vec();
                true
            }
            Err(_) => false,
        }
    }
}

impl Drop for ConnectAttempt {
    /// Removes the attempt from the engine. The socket is closed, or returned to its consumer.
    fn drop(&mut self) {
        match std::mem::replace(&mut self.phase, Phase::Backoff) {
            Phase::Backoff => {}
            Phase::TcpConnecting(socket) | Phase::SendingRequest { socket, .. } => {
                self.engine.unwatch(socket.as_fd());
            }
            Phase::AwaitingReply(socket) => self.linger(socket),
        }
        self.engine.delist(self.key);
    }
}

/// Returns the resource that this process lacks.
fn missing_resource(error: Errno) -> Option<Resource> {
    match error {
        Errno::MFILE | Errno::NFILE => Some(Resource::Descriptor),
        Errno::NOMEM | Errno::NOBUFS => Some(Resource::Memory),
        // From `connect`: all ports of the local range are in use toward this service (ip(7)).
        Errno::ADDRNOTAVAIL => Some(Resource::Port),
        _ => None,
    }
}

/// Returns an IPv4-mapped IPv6 address (RFC 4291 section 2.5.5.2) as an IPv4 address.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(v4) => SocketAddr::new(v4.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Opens a socket and starts its connect. The local address is the adapter's, unless only one of
/// the two addresses is on the loopback device, between which no route exists.
fn connecting_socket(settings: &Config, remote: &SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = own_socket(settings, remote)?;
    let from = settings.socket_address(0);
    let same_kind =
        from.is_ipv4() == remote.is_ipv4() && from.ip().is_loopback() == remote.ip().is_loopback();
    if same_kind {
        // The kernel chooses the port together with the destination, so that the port need not be
        // unique.
        io::bind_without_port(socket.as_fd());
        rustix::net::bind(&socket, &from).map_err(|error| match error {
            // Here the error means that the device has lost its address, and with it the route.
            Errno::ADDRNOTAVAIL => Errno::NETUNREACH,
            other => other,
        })?;
    }
    match rustix::net::connect(&socket, remote) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(Errno::ADDRNOTAVAIL) if !same_kind && lacks_source(remote) => Err(Errno::NETUNREACH),
        Err(error) => Err(error),
    }
}

/// True if this machine has no source address toward an IPv6 host. TCP's `connect` returns the same
/// error for a missing address and for a lack of ports. UDP's `connect` sends no packet, and Linux
/// returns `EAGAIN` from it for a lack of ports.
fn lacks_source(remote: &SocketAddr) -> bool {
    let probe = || {
        let socket = rustix::net::socket_with(
            AddressFamily::INET6,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        rustix::net::connect(&socket, remote)
    };
    remote.is_ipv6() && probe() == Err(Errno::ADDRNOTAVAIL)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use rnic::Rnic;

    use super::*;
    use crate::qp::Link;
    use crate::support::{Event, Node, read_exact};

    #[test]
    fn a_lack_of_local_ports_is_not_reported_as_an_unreachable_peer() {
        assert_eq!(missing_resource(Errno::ADDRNOTAVAIL), Some(Resource::Port));
        assert!(!is_out_of_reach(Errno::ADDRNOTAVAIL));
    }

    #[test]
    fn an_attempt_whose_step_panics_has_failed() {
        let node = Node::new("lo 0");
        let client = node.side(10);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut params = node.connect_params(port, &[]);
        params.timeout = None;
        node.rnic.connect(&client.qp, &params).unwrap();
        if let Link::Connecting(attempt) = &mut *client.qp.qp.lock_link() {
            let socket = match std::mem::replace(&mut attempt.phase, Phase::Backoff) {
                Phase::TcpConnecting(socket)
                | Phase::SendingRequest { socket, .. }
                | Phase::AwaitingReply(socket) => socket,
                Phase::Backoff => panic!("the listener exists"),
            };
            // More than the whole request, so that the next step panics.
            let sent = attempt.request.len() + 1;
            attempt.phase = Phase::SendingRequest { socket, sent };
            attempt.schedule(Some(Duration::ZERO));
        }
        assert_eq!(client.event(), Event::NonPeerRejected);
    }

    #[test]
    fn a_reply_in_small_pieces_is_checked_at_growing_intervals() {
        let node = Node::new("lo 0");
        let client = node.side(10);
        let mut raw = client.connect_to_raw(&[]);
        read_exact(&mut raw, 20);
        raw.write_all(b"MPA ID").unwrap();
        let checks = || match &*client.qp.qp.lock_link() {
            Link::Connecting(attempt) => attempt.checks,
            other => panic!("{other:?}"),
        };
        while checks() == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(300));
        let checks = checks();
        // Checks after 1, 2, 4 ... 64 ms, then every 64 ms; 300 checks if one per millisecond.
        assert!((2..=12).contains(&checks), "{checks}");
    }
}
