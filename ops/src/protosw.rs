//! The interface between the switch and an offload protocol.
//!
//! The objects of a protocol make progress in calls, of which none blocks. Each has a descriptor to
//! sleep on, which is readable when such a call has work. An established connection may do without:
//! then the protocol makes progress on it by itself. In either case its events are reported to its
//! [`Watch`], which steers the kernel object that the program sleeps on. So a wait of the program
//! needs nothing of the protocol.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::local::Local;
use crate::netlink::{RdmaPort, Route};
use crate::reason::Reason;
use crate::rules::Setting;

/// The capabilities of a protocol. The switch uses a protocol only within them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Number by which a program of an `*_OFFLOAD` family may ask for it, as an IP protocol's.
    pub number: Option<i32>,
    /// The protocol carries IPv4 connections.
    pub ipv4: bool,
    /// The protocol carries IPv6 connections.
    pub ipv6: bool,
    /// The protocol routes by itself: the switch looks up no route for it.
    pub self_routing: bool,
    /// Only devices that can do RDMA carry it.
    pub needs_rdma: bool,
    /// The protocol carries connections within this host.
    pub loopback: bool,
    /// The protocol carries connections to other hosts.
    pub remote: bool,
    /// It carries a socket only where a rule or the program names it. A protocol that depends on
    /// the way for this has [`Terms::is_named`].
    pub needs_rule: bool,
    /// The protocol carries connections within this host only if a rule or the program names it.
    pub needs_rule_within_host: bool,
    /// Its peers say by the port mapper where they listen; without their answer it is not tried.
    pub asks_peer: bool,
}

/// Settings of the rule file and of the program for one socket.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms<'a> {
    /// Settings of the rule, for this protocol and for others.
    pub settings: &'a [Setting],
    /// A rule or the program names the protocol.
    pub is_named: bool,
}

/// The facts known about the route to a peer, or about the address to listen at.
#[derive(Debug)]
pub struct Way<'a> {
    /// The peer's address, or the own one.
    pub address: SocketAddr,
    /// The kernel's route; `None` for a protocol that finds its way itself, and for listeners.
    pub route: Option<&'a Route>,
    /// The network device of the route, or of the address to listen at; `None` where that is every
    /// device.
    pub device: Option<&'a str>,
    /// The active RDMA ports behind that network device.
    pub ports: &'a [RdmaPort],
    /// Settings of the rule and of the program for the socket.
    pub terms: Terms<'a>,
}

/// The destination of a connect.
#[derive(Debug)]
pub struct Target<'a> {
    /// The service as the program names it.
    pub service: SocketAddr,
    /// Where the peer says that it is offered over this protocol; the service itself if the peer
    /// was not asked.
    pub mapped: SocketAddr,
    /// The address that the connection is to have here. Its port is reserved in the kernel.
    pub local: SocketAddr,
    /// The first hop of the route, for a protocol that does not find its way itself.
    pub next_hop: Option<IpAddr>,
    /// The active RDMA ports behind the network device of the route.
    pub ports: &'a [RdmaPort],
    /// Settings of the rule and of the program for the socket.
    pub terms: Terms<'a>,
}

/// A protocol.
pub trait OffloadProtocol: fmt::Debug + Send + Sync {
    /// Its name, as rule files and listings have it.
    fn name(&self) -> &str;

    /// The protocol's capabilities.
    fn capabilities(&self) -> Capabilities;

    /// Checks that the protocol can use this way, beyond what its capabilities say.
    ///
    /// # Errors
    /// Why not.
    fn reaches(&self, way: &Way<'_>) -> Result<(), Reason>;

    /// Describes the carrier of a socket that goes this way, for an explanation; may be empty.
    fn explain(&self, _way: &Way<'_>) -> String {
        String::new()
    }

    /// The connections and listeners of a protocol whose connections are sockets of the kernel.
    /// Such a protocol has no use for [`OffloadProtocol::bind`] and [`OffloadProtocol::connect`].
    fn kernel_sockets(&self) -> Option<&'static dyn KernelSockets> {
        None
    }

    /// Takes an address; the kernel's TCP has it already.
    ///
    /// # Errors
    /// `EADDRINUSE` if this protocol has given the port to somebody else.
    fn bind(&self, local: Local, terms: Terms<'_>) -> Result<Box<dyn OffloadBound>, Errno>;

    /// Begins to connect.
    ///
    /// # Errors
    /// When that fails at once.
    fn connect(&self, target: &Target<'_>) -> Result<Box<dyn OffloadConnecting>, ConnectFailure>;

    /// The process ends: waits until what closed connections have given is safe from that, and
    /// gives up when nothing has moved for as long as `patience`. A protocol whose bytes are safe
    /// when the call returns that gives them does without.
    fn settle(&self, _patience: Duration) {}

    /// The process is about to fork. What threads of this protocol are making that the child could
    /// neither use nor finish is finished before this returns, and nothing of the kind begins until
    /// the lock is given back, behind the fork, in parent and child.
    fn before_fork(&self) -> Option<MutexGuard<'static, ()>> {
        None
    }
}

/// A protocol whose connections are connected stream sockets of the kernel. The socket of a
/// connection becomes the program's descriptor, so the switch is not on the path of its bytes.
pub trait KernelSockets: fmt::Debug + Send + Sync {
    /// Checks whether a service is offered on this host, and connects to nobody.
    ///
    /// # Errors
    /// Why a connection to the service would be left to others.
    fn is_offered(&self, service: SocketAddr) -> Result<(), Reason>;

    /// Connects, without waiting for the peer.
    ///
    /// # Errors
    /// Why the connection is left to the next protocol or to TCP.
    fn connect(&self, target: &KernelTarget) -> Result<KernelConnection, Reason>;

    /// Listens at the address of `tcp`, the program's listening socket. The listener that is
    /// returned does not block.
    ///
    /// # Errors
    /// Why the service is offered without this protocol.
    fn listen(&self, tcp: BorrowedFd<'_>, local: Local, backlog: u32) -> Result<OwnedFd, Reason>;

    /// Takes the next connection out of the queue of a listener; `None` where the queue is empty.
    /// A connection whose peer is not acceptable is closed and passed over.
    ///
    /// # Errors
    /// `EINVAL` for a listener that was shut down, else what `accept` says.
    fn accept(
        &self,
        listener: BorrowedFd<'_>,
        flags: SocketFlags,
    ) -> Result<Option<KernelConnection>, Errno>;
}

/// A connection that is a socket of the kernel.
#[derive(Debug)]
pub struct KernelConnection {
    /// The socket.
    pub socket: OwnedFd,
    /// This end's address, as TCP would have it.
    pub local: SocketAddr,
    /// The other end's.
    pub peer: SocketAddr,
}

/// The destination of a connect by a socket of the kernel.
#[derive(Debug, Clone, Copy)]
pub struct KernelTarget {
    /// The service as the program names it, in the form of its own family.
    pub service: SocketAddr,
    /// The address to which the program has bound its socket; zeros where it has not.
    pub bound: SocketAddr,
    /// The address from which the kernel would reach the service, where the route was looked up.
    pub source: Option<IpAddr>,
    /// True for a socket of `AF_INET6`, whose IPv4 addresses are shown as mapped ones.
    pub is_ipv6: bool,
    /// How the socket is made: `O_NONBLOCK` and `FD_CLOEXEC` of the program's.
    pub flags: SocketFlags,
}

/// An address that is taken. Dropping it gives it back.
pub trait OffloadBound: fmt::Debug + Send {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the protocol cannot.
    fn listen(self: Box<Self>, backlog: u32) -> Result<Box<dyn OffloadListener>, Errno>;
}

/// A service. Dropping it ends the service and refuses connections that nobody accepted.
pub trait OffloadListener: AsFd + fmt::Debug + Send + Sync {
    /// The address to which peers connect.
    fn mapped(&self) -> SocketAddr;

    /// The device or interface adapter that it listens on; empty where there is none.
    fn device(&self) -> &str {
        ""
    }

    /// The next connection, if there is one. It is one that its peer has committed itself to: who
    /// has given up, and is perhaps on its way over TCP, is never returned.
    ///
    /// # Errors
    /// When the service itself has failed. A connection that failed is passed over.
    fn accept(&self) -> Result<Option<Box<dyn OffloadStream>>, Errno>;

    /// Descriptors that must be open in this process alone: the child of a fork closes its copies.
    fn descriptors(&self) -> Vec<RawFd>;
}

/// A connection that is being established. Dropping it aborts the attempt, and the peer's program
/// never sees it.
pub trait OffloadConnecting: AsFd + fmt::Debug + Send {
    /// Takes what has arrived; the connection, once it stands.
    ///
    /// # Errors
    /// When it has failed for good.
    fn step(&mut self) -> Result<Option<Box<dyn OffloadStream>>, ConnectFailure>;
}

/// The reasons why a connection is not established.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectFailure {
    /// The peer says no.
    Refused,
    /// The peer speaks another version.
    Version,
    /// This host, the network or the peer in mid-sentence.
    Failed(Errno),
}

/// An established connection that never blocks. Dropping it closes it as `close` would. Methods are
/// called from any thread.
pub trait OffloadStream: fmt::Debug + Send + Sync {
    /// This end's address.
    fn local(&self) -> SocketAddr;

    /// The other end's.
    fn peer(&self) -> SocketAddr;

    /// The device or interface adapter that carries it; empty where there is none.
    fn device(&self) -> &str {
        ""
    }

    /// Takes bytes to be sent.
    ///
    /// # Errors
    /// `EAGAIN` when none can be taken now, else what `send` would say.
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno>;

    /// Takes one urgent byte, behind what has been given.
    ///
    /// # Errors
    /// `EAGAIN` when it cannot be taken now, else what `send` with `MSG_OOB` would say.
    fn send_urgent(&self, byte: u8) -> Result<(), Errno>;

    /// Gives bytes that have arrived, and with `peek` keeps them; 0 is the end. Bytes before the
    /// urgent one and bytes behind it are not given together.
    ///
    /// # Errors
    /// `EAGAIN` when there are none now, else what `recv` would say.
    fn receive(&self, parts: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno>;

    /// Gives the urgent byte, and with `peek` keeps it.
    ///
    /// # Errors
    /// `EAGAIN` when it has been announced and is not here, `EINVAL` when there is none.
    fn receive_urgent(&self, peek: bool) -> Result<u8, Errno>;

    /// Sets whether the urgent byte is received in line, at its position in the stream
    /// (`SO_OOBINLINE`), from now on. Initially it is not.
    fn set_urgent_inline(&self, inline: bool);

    /// Ends directions.
    ///
    /// # Errors
    /// The error that `shutdown` would return.
    fn shutdown(&self, half: Half) -> Result<(), Errno>;

    /// Ends the connection at once: what was given may be lost, and the peer sees a reset.
    fn abort(&self);

    /// The state that `poll` would report.
    fn readiness(&self) -> Readiness;

    /// Watches the peer as `like`, a TCP socket that carries nothing, is set to do by
    /// `SO_KEEPALIVE`, its times and `TCP_USER_TIMEOUT`. A protocol that sees at once when its peer
    /// goes has nothing to watch.
    ///
    /// # Errors
    /// When it cannot.
    fn watch_peer_like(&self, _like: BorrowedFd<'_>) -> Result<(), Errno> {
        Ok(())
    }

    /// Bytes that can be received at once.
    fn unread(&self) -> usize;

    /// The number of receivable bytes before the urgent byte's position (FIONREAD): all, if there
    /// is none or if the urgent byte belongs to the stream.
    fn unread_before_mark(&self) -> usize;

    /// Bytes that were given and that the peer has not taken.
    fn unsent(&self) -> usize;

    /// True if the next byte to receive is the one behind the urgent byte.
    fn is_at_mark(&self) -> bool;

    /// Reports events to `watch` from now on, beginning with those that have already happened.
    fn watch(&self, watch: Arc<dyn Watch>);

    /// The descriptor to sleep on, edge-triggered and for both directions, before
    /// [`OffloadStream::drive`]; `None` for a protocol that makes progress by itself.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Makes progress on the calling thread, without blocking, and reports events to the watch.
    fn drive(&self);
}

/// Receives the events of a stream, once the stream's methods report the new state. It must not
/// call the stream, whose locks may be held.
pub trait Watch: fmt::Debug + Send + Sync {
    /// Bytes, or the end, can be received.
    fn arrived(&self);

    /// Bytes can be given.
    fn room(&self);

    /// The stream was shut for writing, and all that was given before has left.
    fn all_sent(&self);

    /// An urgent byte was announced.
    fn urgent(&self);

    /// The peer sends no more.
    fn peer_ended(&self);

    /// The connection broke.
    fn broken(&self, why: Errno);

    /// Threads that the next calls wake are to stay asleep until [`release`](Self::release): they
    /// need the stream's locks, which the caller holds.
    fn hold(&self) {}

    /// The caller has released the stream's locks.
    fn release(&self) {}
}

/// Which directions end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Nothing more is read: bytes that still arrive are answered with a reset.
    Read,
    /// Nothing more is sent, behind what has been given.
    Write,
    /// Both.
    Both,
}

/// The readiness of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// Bytes, the end or an error can be read.
    pub readable: bool,
    /// Bytes can be sent, or an error be had by it.
    pub writable: bool,
    /// The peer sends nothing more.
    pub peer_ended: bool,
    /// Both directions have ended.
    pub hung_up: bool,
    /// The connection failed.
    pub failed: bool,
}
