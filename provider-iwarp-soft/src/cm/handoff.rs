//! Requests that move to another process of this host (`dat_cr_handoff`).
//!
//! A request is a TCP socket whose MPA Request was received, and the bytes of that Request. No
//! other state exists before the answer: also between two processes of one host, a connection
//! moves to shared memory only after it is established. So a request moves as one descriptor
//! (SCM_RIGHTS) and one frame.
//!
//! **Who listens.** Each service listens at an abstract `AF_UNIX` address (`SOCK_SEQPACKET`), whose
//! name contains the IP address and the port of the service. Abstract addresses belong to the
//! network namespace, like the port. The name of the rendezvous for shared memory
//! ([`crate::carrier::local`]) is random and known to the peer of a connection only, so that
//! listener cannot be found from a port.
//!
//! **Trust.** Both ends read the other's user from the kernel (SO_PEERCRED). The receiver closes a
//! connection of a user other than its own and root. The sender offers nothing to such a user, who
//! may have taken the name of another service, nor to its own process.
//!
//! ```text
//!   sender                                        receiver
//!   1  the request, with its socket        ──>    checks it, and holds a duplicate of the socket
//!   2                                      <──    answer: ready, or the reason of a refusal
//!   3  commit                              ──>    delivers the request
//!   4  closes its descriptors
//! ```
//!
//! **Owner.** The sender owns the request until the kernel has taken the commit, and the receiver
//! from then on. The receiver neither reads nor writes the socket before the commit.
//!
//! | Event | Result |
//! |---|---|
//! | no service, another user, a refusal, no answer within [`PATIENCE`] | the sender keeps the request as it was |
//! | the receiver dies before the commit | the sender cannot send the commit, and keeps the request |
//! | the sender dies before the commit | the receiver closes its duplicate: the last descriptor is closed, and TCP ends the requester's attempt |
//! | the receiver dies after the commit, the request unanswered | the same |
//! | the sender dies after the commit | no effect |
//!
//! A receiver without a free descriptor, or whose service has ended, refuses. After the commit, a
//! request that the consumer's EVD has no room for is refused to the requester, like any other.
//!
//! **Limits.** A message has at most [`OFFER_MAX`] bytes. A service holds at most [`PENDING_MAX`]
//! requests that are not committed, each for at most [`PATIENCE`]. More senders wait in the
//! kernel's queue of [`BACKLOG`], and further ones are refused.
//!
//! The socket of a Socket Service Point moves as well: the number of its consumer is closed, and
//! after a rejection by the other process the connection is closed, because no consumer of that
//! process has the socket.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dat_conf::limits::Resource as Limited;
use host::locks::lock;
use rnic::socket::NotInherited;
use rnic::{Resource, RnicError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType, accept_with, socket_with,
};

use super::listen::Listener;
use super::request::{RequestFrame, SoftRequest, deliver};
use crate::carrier::local::rendezvous::{Credentials, peer_credentials};
use crate::engine::io::{self, Received, Sent};
use crate::engine::{Interest, Key, Source};
use crate::half_open::{HalfOpen, Room};
use crate::socket::Socket;
use crate::startup::STARTUP_MAX;

/// The time for the other end's next message.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of requests of one service that are not committed.
const PENDING_MAX: usize = 64;
/// Maximum number of senders that wait to be accepted.
const BACKLOG: i32 = 64;
/// The pause while senders cannot be accepted for lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The first bytes of an offer. The last byte is the version.
const MAGIC: [u8; 8] = *b"dat-cr-1";
/// The longest offer: the magic and a start-up frame.
const OFFER_MAX: usize = MAGIC.len() + STARTUP_MAX;
/// The user number of a process whose user has no number in this user namespace
/// (`user_namespaces(7)`). Two such processes may be of different users.
const OVERFLOW_USER: u32 = 65534;

/// The receiver's answer to an offer.
const READY: u8 = 0;
/// The offer is not acceptable to the adapter of the receiver.
const UNFIT: u8 = 1;
/// The receiver lacks descriptors or memory.
const SCARCE: u8 = 2;
/// The sender's second message.
const COMMIT: u8 = 0;

/// The address at which a service takes requests of other processes.
fn name_of(service: SocketAddr) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(format!("dat-rs-cr-{service}").as_bytes())
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// True if a process of this user may exchange requests with this process.
fn is_trusted(other: Credentials) -> bool {
    let own = rustix::process::geteuid().as_raw();
    other.uid == 0 || (other.uid == own && own != OVERFLOW_USER)
}

impl SoftRequest {
    /// Hands the request to the process that listens at `port`. A consumer's socket does not return
    /// to the consumer.
    pub(crate) fn hand_off(&mut self, port: u16, private_data: &[u8]) -> Result<(), RnicError> {
        let Some(socket) = &self.socket else {
            return Err(RnicError::InvalidState("the request has been answered"));
        };
        let service = self.shared.config.socket_address(port);
        let frame = self.frame.with_private_data(private_data);
        send(service, socket.as_fd(), &frame)?;
        if let Some(socket) = self.socket.take() {
            socket.keep();
        }
        Ok(())
    }
}

/// Passes a request to the process that listens at `service`. On failure that process has not taken
/// the request.
fn send(service: SocketAddr, request: BorrowedFd<'_>, frame: &[u8]) -> Result<(), RnicError> {
    let unix = NotInherited::new(socket().map_err(os_error)?);
    rustix::net::connect(&unix, &name_of(service).map_err(os_error)?).map_err(os_error)?;
    let other = peer_credentials(&unix)?;
    if !is_trusted(other) {
        return Err(RnicError::NotPermitted("the service of another user"));
    }
    if u32::try_from(other.pid) == Ok(std::process::id()) {
        return Err(RnicError::InvalidArgument("a service of this process"));
    }
    send_offer(unix.as_fd(), request, frame).map_err(os_error)?;
    match receive_answer(unix.as_fd())? {
        READY => {}
        SCARCE => return Err(RnicError::NoResources(Resource::Descriptor)),
        _ => {
            return Err(RnicError::InvalidState(
                "the service does not take the request",
            ));
        }
    }
    match io::send(unix.as_fd(), &[COMMIT]) {
        Sent::Bytes(_) => Ok(()),
        Sent::WouldBlock => Err(os_error(Errno::AGAIN)),
        Sent::Failed(error) => Err(os_error(error)),
    }
}

fn send_offer(
    unix: BorrowedFd<'_>,
    request: BorrowedFd<'_>,
    frame: &[u8],
) -> rustix::io::Result<()> {
    let descriptors = [request];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(Errno::NOBUFS);
    }
    let pieces = [IoSlice::new(&MAGIC), IoSlice::new(frame)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match rustix::net::sendmsg(unix, &pieces, &mut control, flags) {
            Err(Errno::INTR) => {}
            // A message of this kind is sent as a whole.
            result => return result.map(drop),
        }
    }
}

fn receive_answer(unix: BorrowedFd<'_>) -> Result<u8, RnicError> {
    let deadline = Instant::now() + PATIENCE;
    let mut answer = [0];
    loop {
        match io::receive(unix, &mut answer) {
            Received::Bytes(_) => return Ok(answer[0]),
            Received::Eof => return Err(os_error(Errno::CONNRESET)),
            Received::Failed(error) => return Err(os_error(error)),
            Received::WouldBlock => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(os_error(Errno::TIMEDOUT));
        }
        let timeout = Timespec::try_from(left).unwrap_or_default();
        let mut set = [PollFd::from_borrowed_fd(unix, PollFlags::IN)];
        // The next receive reports an interruption or a failure.
        let _ = poll(&mut set, Some(&timeout));
    }
}

/// The errors of the sender. A receiver that has closed no longer listens.
fn os_error(error: Errno) -> RnicError {
    match error {
        Errno::CONNREFUSED | Errno::CONNRESET | Errno::PIPE => {
            RnicError::InvalidArgument("no such service")
        }
        Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => RnicError::NoResources(Resource::Memory),
        Errno::MFILE | Errno::NFILE | Errno::TOOMANYREFS => {
            RnicError::NoResources(Resource::Descriptor)
        }
        other => RnicError::Os(other.into()),
    }
}

/// The place at which a service takes requests of other processes.
pub(crate) struct Receiver {
    listener: Arc<Listener>,
    key: Key,
    /// `None` after the end of the service.
    socket: Mutex<Option<NotInherited>>,
    pending: HalfOpen<Offer>,
}

impl Receiver {
    /// Opens the place of a service.
    pub(crate) fn open(listener: &Arc<Listener>) -> Result<Arc<Self>, RnicError> {
        let socket = NotInherited::new(socket().map_err(os_error)?);
        let name = name_of(listener.address).map_err(os_error)?;
        rustix::net::bind(&socket, &name).map_err(os_error)?;
        rustix::net::listen(&socket, BACKLOG).map_err(os_error)?;
        let engine = &listener.shared.engine;
        let receiver = Arc::new(Self {
            listener: listener.clone(),
            key: engine.new_key(),
            socket: Mutex::default(),
            pending: HalfOpen::new(),
        });
        engine.enlist(receiver.key, receiver.clone())?;
        let mut place = lock(&receiver.socket);
        let watched = engine.watch(receiver.key, socket.as_fd(), Interest::Readable);
        *place = Some(socket);
        drop(place);
        if let Err(error) = watched {
            receiver.close();
            return Err(error.into());
        }
        Ok(receiver)
    }

    /// Closes the place, so that another service can have its name at once. Requests that are not
    /// committed stay with their senders.
    pub(crate) fn close(&self) {
        let engine = &self.listener.shared.engine;
        if let Some(socket) = lock(&self.socket).take() {
            engine.unwatch(socket.as_fd());
        }
        engine.delist(self.key);
    }

    fn accept_some(self: &Arc<Self>) {
        let engine = &self.listener.shared.engine;
        let again = loop {
            match self.pending.room(PENDING_MAX, PATIENCE) {
                Room::Free => {}
                Room::InsteadOf(oldest) => oldest.withdraw(),
                Room::At(at) => break Some(at),
            }
            let place = lock(&self.socket);
            let Some(socket) = &*place else { return };
            match accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(unix) => Offer::begin(self, NotInherited::new(unix)),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => {
                    let armed = engine.rearm(self.key, socket.as_fd(), Interest::Readable);
                    break armed.err().map(|_| Instant::now() + ACCEPT_PAUSE);
                }
                Err(error) => {
                    tracing::warn!(%error, "no process can hand over a request");
                    break Some(Instant::now() + ACCEPT_PAUSE);
                }
            }
        };
        engine.set_deadline(self.key, again);
    }
}

impl Source for Receiver {
    fn on_ready(self: Arc<Self>, _key: Key, _readable: bool, _writable: bool) {
        self.accept_some();
    }

    fn on_deadline(self: Arc<Self>, _key: Key) {
        self.accept_some();
    }
}

/// A process that hands over a request and has not committed.
struct Offer {
    receiver: Arc<Receiver>,
    key: Key,
    stage: Mutex<Stage>,
}

/// The progress of an [`Offer`].
enum Stage {
    /// The request was not received.
    Open(NotInherited),
    /// The request was accepted and is not committed.
    Ready(NotInherited, Socket, RequestFrame),
    /// Committed or withdrawn.
    Over,
}

impl Offer {
    fn begin(receiver: &Arc<Receiver>, unix: NotInherited) {
        match peer_credentials(&unix) {
            Ok(sender) if is_trusted(sender) => {}
            sender => {
                tracing::warn!(?sender, "a request of another user is refused");
                return;
            }
        }
        let engine = &receiver.listener.shared.engine;
        let key = engine.new_key();
        let offer = Arc::new(Self {
            receiver: receiver.clone(),
            key,
            stage: Mutex::new(Stage::Over),
        });
        if engine.enlist(key, offer.clone()).is_err() {
            return;
        }
        receiver.pending.add(key, &offer);
        engine.set_deadline(key, Some(Instant::now() + PATIENCE));
        let mut stage = lock(&offer.stage);
        *stage = match engine.watch(key, unix.as_fd(), Interest::Readable) {
            Ok(()) => Stage::Open(unix),
            Err(_) => offer.end(&unix),
        };
    }

    /// Takes the next step, if the next message was received.
    fn advance(&self) {
        let mut stage = lock(&self.stage);
        *stage = match std::mem::replace(&mut *stage, Stage::Over) {
            Stage::Open(unix) => self.receive(unix),
            Stage::Ready(unix, socket, frame) => match io::receive(unix.as_fd(), &mut [0]) {
                Received::Bytes(_) => {
                    self.end(&unix);
                    drop(stage);
                    return self.deliver(socket, frame);
                }
                Received::WouldBlock => Stage::Ready(unix, socket, frame),
                Received::Eof | Received::Failed(_) => self.end(&unix),
            },
            Stage::Over => Stage::Over,
        };
        if let Stage::Open(unix) | Stage::Ready(unix, ..) = &*stage {
            let engine = &self.receiver.listener.shared.engine;
            if engine
                .rearm(self.key, unix.as_fd(), Interest::Readable)
                .is_err()
            {
                engine.expire(self.key);
            }
        }
    }

    /// Receives and answers the offer.
    fn receive(&self, unix: NotInherited) -> Stage {
        let received = match receive_offer(unix.as_fd()) {
            Err(Errno::AGAIN | Errno::INTR) => return Stage::Open(unix),
            Err(Errno::MFILE) => Err(SCARCE),
            Err(_) => Err(UNFIT),
            Ok((socket, frame)) => self.check(socket, &frame),
        };
        let answer = received.as_ref().map_or_else(|reason| *reason, |_| READY);
        match (io::send(unix.as_fd(), &[answer]), received) {
            (Sent::Bytes(_), Ok((socket, frame))) => Stage::Ready(unix, socket, frame),
            _ => self.end(&unix),
        }
    }

    /// Checks that the adapter can use the socket and the Request.
    fn check(&self, socket: OwnedFd, frame: &[u8]) -> Result<(Socket, RequestFrame), u8> {
        let listener = &self.receiver.listener;
        let config = &listener.shared.config;
        let is_connected = io::is_tcp(socket.as_fd()) && io::remote_address(&socket).is_some();
        let is_routed = io::local_address(&socket).is_some_and(|local| config.routes(local));
        match RequestFrame::parse(config, frame) {
            Some(frame) if is_connected && is_routed && listener.is_open() => {
                let permit = listener.shared.police.permit(Limited::HalfOpen);
                let socket = Socket::own(socket);
                socket.hold(permit.map_err(|_| SCARCE)?);
                Ok((socket, frame))
            }
            _ => Err(UNFIT),
        }
    }

    /// Delivers the request. The requester is refused if it has disconnected, or the service has
    /// ended.
    fn deliver(&self, socket: Socket, frame: RequestFrame) {
        let listener = &self.receiver.listener;
        if listener.is_open()
            && let Some(remote) = io::remote_address(&socket)
        {
            let addresses = (listener.address, remote);
            deliver(&listener.shared, listener.token, socket, frame, addresses);
        }
    }

    /// Ends an offer whose sender is late. The kernel refuses a commit from here on. A commit that
    /// it has taken before is still received.
    fn withdraw(&self) {
        if let Stage::Open(unix) | Stage::Ready(unix, ..) = &*lock(&self.stage) {
            // This fails only if the sender has closed.
            let _ = rustix::net::shutdown(unix, Shutdown::Read);
        }
        self.advance();
    }

    /// Removes the offer from the engine and the receiver.
    fn end(&self, unix: &NotInherited) -> Stage {
        let engine = &self.receiver.listener.shared.engine;
        engine.unwatch(unix.as_fd());
        engine.delist(self.key);
        if self.receiver.pending.remove(self.key) {
            engine.expire(self.receiver.key);
        }
        Stage::Over
    }
}

impl Source for Offer {
    fn on_ready(self: Arc<Self>, _key: Key, _readable: bool, _writable: bool) {
        self.advance();
    }

    fn on_deadline(self: Arc<Self>, _key: Key) {
        self.withdraw();
    }
}

/// Receives an offer: exactly one descriptor and a frame. `MFILE` means that there was no
/// descriptor for the socket.
fn receive_offer(unix: BorrowedFd<'_>) -> rustix::io::Result<(OwnedFd, Vec<u8>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // One byte more than an offer has, so that a longer message is detected.
    let mut bytes = [0; OFFER_MAX + 1];
    let mut pieces = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = rustix::net::recvmsg(unix, &mut pieces, &mut control, flags)?;
    let mut sockets = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
            sockets.extend(descriptors);
        }
    }
    match (bytes[..message.bytes].strip_prefix(&MAGIC), sockets.pop()) {
        // The kernel has closed the descriptors for which there was no room.
        _ if message.flags.contains(ReturnFlags::CTRUNC) => Err(Errno::MFILE),
        (Some(frame), Some(socket)) if sockets.is_empty() && frame.len() <= STARTUP_MAX => {
            Ok((socket, frame.to_vec()))
        }
        _ => Err(Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use rnic::{ListenAddress, ListenToken, Rnic};

    use super::*;
    use crate::support::Node;

    #[test]
    fn a_place_ends_with_its_service_and_opens_with_the_next() {
        let node = Node::new("lo 0");
        let (listener, port) = node.listen();
        let name = name_of(node.rnic.shared.config.socket_address(port)).unwrap();
        let connect = || rustix::net::connect(socket().unwrap(), &name);
        connect().unwrap();
        drop(listener);
        assert_eq!(connect(), Err(Errno::CONNREFUSED));
        let address = ListenAddress { port };
        let again = node.rnic.listen(&address, ListenToken(8)).unwrap();
        connect().unwrap();
        drop(again);
    }

    #[test]
    fn a_name_that_is_taken_leaves_the_service_to_the_network() {
        let node = Node::new("lo 0");
        let (listener, port) = node.listen();
        drop(listener);
        let squatter = socket().unwrap();
        let name = name_of(node.rnic.shared.config.socket_address(port)).unwrap();
        rustix::net::bind(&squatter, &name).unwrap();
        let address = ListenAddress { port };
        let (_listener, _) = node.rnic.listen(&address, ListenToken(7)).unwrap();
        let client = node.side(10);
        client.connect(port, b"");
        node.recorder.request(7);
    }

    #[test]
    fn only_the_same_user_and_root_are_trusted() {
        let own = rustix::process::geteuid().as_raw();
        let of = |uid| Credentials {
            pid: 1,
            uid,
            gid: 0,
        };
        assert!(is_trusted(of(0)));
        assert_eq!(is_trusted(of(own)), own != OVERFLOW_USER);
        assert!(!is_trusted(of(own + 1)) && !is_trusted(of(OVERFLOW_USER)));
    }
}
