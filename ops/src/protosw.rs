//! The interface between the switch and an offload protocol.
//!
//! Listeners and connection attempts make progress in calls that never block, and have a descriptor
//! that is readable when such a call has work. An established connection makes progress on a thread
//! of the protocol. Its events are reported to its [`Watch`], which steers the kernel object that
//! the program sleeps on, so a wait of the program makes no call to the protocol.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use host::readiness::Readiness;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::local::Local;
use crate::netlink::{NetStack, RdmaPort, Route};
use crate::observe::Meter;
use crate::reason::Reason;
use crate::rules::{Role, Setting};

/// The capabilities of a protocol, which limit the sockets that the switch offers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The protocol carries connections to other hosts, in addition to those within this host.
    pub remote: bool,
    /// The protocol carries a socket only if a rule names the protocol. If this depends on the
    /// route, the protocol checks [`Terms::is_named`] instead.
    pub needs_rule: bool,
    /// The protocol carries connections within this host only if a rule names it.
    pub needs_rule_within_host: bool,
    /// Peers answer by the port mapper where they listen. The protocol is not tried without such an
    /// answer.
    pub asks_peer: bool,
}

/// Settings of the rule file and of the program for one socket.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms<'a> {
    /// Settings of the rule, for all protocols.
    pub settings: &'a [Setting],
    /// The rule names the protocol.
    pub is_named: bool,
    /// The largest number of unread bytes that the program wants the socket to hold (`SO_RCVBUF`).
    pub receive_bound: Option<usize>,
}

/// The facts known about the route to a peer, or about the address to listen at.
#[derive(Debug)]
pub struct Way<'a> {
    /// Listen or connect.
    pub role: Role,
    /// The peer's address, or the address to listen at.
    pub address: SocketAddr,
    /// The kernel's route; `None` for listeners, and for a protocol that only carries connections
    /// within this host.
    pub route: Option<&'a Route>,
    /// The network device of the route, or of the address to listen at; `None` for the unspecified
    /// address, which is on every device.
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
    /// The address at which the peer offers the service over this protocol; equal to `service` if
    /// the peer was not asked.
    pub mapped: SocketAddr,
    /// The local address of the connection. Its port is reserved in the kernel.
    pub local: SocketAddr,
    /// The first hop of the route, if the route was looked up.
    pub next_hop: Option<IpAddr>,
    /// The active RDMA ports behind the network device of the route.
    pub ports: &'a [RdmaPort],
    /// Settings of the rule and of the program for the socket.
    pub terms: Terms<'a>,
}

/// A protocol.
pub trait OffloadProtocol: fmt::Debug + Send + Sync {
    /// The name in rule files and listings.
    fn name(&self) -> &'static str;

    /// The protocol's capabilities.
    fn capabilities(&self) -> Capabilities;

    /// Checks that the protocol can use this route, in addition to the check of its capabilities.
    ///
    /// # Errors
    /// The reason why the protocol cannot.
    fn reaches(&self, way: &Way<'_>) -> Result<(), Reason>;

    /// Describes the carrier of a socket on this route, for an explanation; may be empty.
    fn explain(&self, _way: &Way<'_>) -> String {
        String::new()
    }

    /// Returns the protocol's operations.
    fn sockets(&self) -> Sockets<'_>;

    /// Waits, before the process ends, until the bytes of closed connections are delivered. Returns
    /// early if no byte was delivered for `patience`. A protocol whose bytes outlive the process
    /// needs no such wait.
    fn settle(&self, _patience: Duration) {}

    /// Prepares a fork. Objects that the protocol's threads are making, and that the child could
    /// neither use nor finish, are complete when this returns. No thread begins to make another one
    /// until the lock is released after the fork, in parent and child.
    fn before_fork(&self) -> Option<MutexGuard<'static, ()>> {
        None
    }
}

/// The operations of a protocol, by the kind of its connections.
#[derive(Debug, Clone, Copy)]
pub enum Sockets<'a> {
    /// Connections are kernel sockets.
    Kernel(&'static dyn KernelSockets),
    /// Connections are objects of the protocol.
    Streams(&'a dyn StreamSockets),
}

impl<'a> Sockets<'a> {
    /// Returns the operations of a protocol whose connections are kernel sockets.
    #[must_use]
    pub fn kernel(self) -> Option<&'static dyn KernelSockets> {
        match self {
            Self::Kernel(sockets) => Some(sockets),
            Self::Streams(_) => None,
        }
    }

    /// Returns the operations of a protocol whose connections are its own objects.
    #[must_use]
    pub fn streams(self) -> Option<&'a dyn StreamSockets> {
        match self {
            Self::Kernel(_) => None,
            Self::Streams(sockets) => Some(sockets),
        }
    }
}

/// The operations of a protocol whose connections are its own objects. The switch moves the bytes
/// of the program through them.
pub trait StreamSockets: fmt::Debug + Send + Sync {
    /// Binds to an address. The kernel's TCP socket is bound to it already.
    ///
    /// # Errors
    /// `EADDRINUSE` if this protocol uses the port for another socket.
    fn bind(&self, local: Local, terms: Terms<'_>) -> Result<Box<dyn OffloadBound>, Errno>;

    /// Begins to connect.
    ///
    /// # Errors
    /// Fails if the attempt fails at once.
    fn connect(&self, target: &Target<'_>) -> Result<Box<dyn OffloadConnecting>, ConnectFailure>;
}

/// The operations of a protocol whose connections are connected kernel stream sockets. The socket
/// becomes the program's descriptor, so the switch is not on the path of its bytes.
pub trait KernelSockets: fmt::Debug + Send + Sync {
    /// Checks whether a service is offered on this host, without connecting.
    ///
    /// # Errors
    /// The reason why this protocol would not carry a connection to the service.
    fn is_offered(&self, service: SocketAddr) -> Result<(), Reason>;

    /// Connects without waiting for the peer, by the settings of the rule. `stack` is that of the
    /// socket's namespace, or `None` if netlink is not permitted.
    ///
    /// # Errors
    /// The reason why this protocol does not carry the connection.
    fn connect(
        &self,
        target: &KernelTarget,
        settings: &[Setting],
        stack: Option<&NetStack>,
    ) -> Result<KernelConnection, Reason>;

    /// Listens at the address of `tcp`, the program's listening socket. The returned listener does
    /// not block. `settings` and `stack` are as for [`KernelSockets::connect`].
    ///
    /// # Errors
    /// The reason why the service is offered without this protocol.
    fn listen(
        &self,
        tcp: BorrowedFd<'_>,
        local: Local,
        backlog: u32,
        settings: &[Setting],
        stack: Option<&NetStack>,
    ) -> Result<OwnedFd, Reason>;

    /// Returns the service of a listener of this protocol.
    ///
    /// # Errors
    /// The error of `getsockname`, or `EINVAL` for another socket.
    fn service(&self, listener: BorrowedFd<'_>) -> Result<KernelService, Errno>;

    /// Accepts the next connection of a listener, whose service the caller keeps; `None` if the
    /// queue is empty. A connection of an unacceptable peer is closed and skipped. `stack` is as
    /// for [`KernelSockets::connect`].
    ///
    /// # Errors
    /// `EINVAL` for a listener that was shut down, `ECONNABORTED` after many unacceptable peers,
    /// else the error of `accept`.
    fn accept(
        &self,
        listener: BorrowedFd<'_>,
        service: KernelService,
        flags: SocketFlags,
        stack: Option<&NetStack>,
    ) -> Result<Option<KernelConnection>, Errno>;
}

/// The service of a kernel listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelService {
    /// True if the program's listener is of `AF_INET6`.
    pub is_ipv6: bool,
    /// The address at which it listens.
    pub at: Local,
    /// True if only peers of this PID namespace are accepted.
    pub is_of_pid_space: bool,
}

/// A connection that is a kernel socket.
#[derive(Debug)]
pub struct KernelConnection {
    /// The socket.
    pub socket: OwnedFd,
    /// The local address, as TCP would report it.
    pub local: SocketAddr,
    /// The peer's address.
    pub peer: SocketAddr,
}

/// The destination of a connect with a kernel socket.
#[derive(Debug, Clone, Copy)]
pub struct KernelTarget {
    /// The service as the program names it, in the form of its own family.
    pub service: SocketAddr,
    /// The address to which the program has bound its socket; unspecified if it has not.
    pub bound: SocketAddr,
    /// True for a socket of `AF_INET6`, which reports IPv4 addresses as mapped addresses.
    pub is_ipv6: bool,
    /// The flags of the program's socket, from `O_NONBLOCK` and `FD_CLOEXEC`.
    pub flags: SocketFlags,
}

/// A bound address. Dropping this object releases the address.
pub trait OffloadBound: fmt::Debug + Send {
    /// Begins to listen.
    ///
    /// # Errors
    /// Fails if the protocol cannot listen.
    fn listen(self: Box<Self>, backlog: u32) -> Result<Box<dyn OffloadListener>, Errno>;
}

/// A service. Dropping it ends the service and refuses the connections that were not accepted.
pub trait OffloadListener: AsFd + fmt::Debug + Send + Sync {
    /// The address to which peers connect.
    fn mapped(&self) -> SocketAddr;

    /// The device or interface adapter on which the service listens; empty if there is none.
    fn device(&self) -> &str {
        ""
    }

    /// Returns the next connection, if there is one. Only a connection to which the peer is
    /// committed is returned, and never one that the peer has aborted to use TCP.
    ///
    /// # Errors
    /// Fails if the service itself has failed. A connection that has failed is skipped.
    fn accept(&self) -> Result<Option<Box<dyn OffloadStream>>, Errno>;

    /// Changes the maximum number of connections that wait to be accepted, because the program has
    /// called `listen` again.
    fn set_backlog(&self, backlog: u32);

    /// Returns true while peers have begun to connect whose connections
    /// [`accept`](Self::accept) has not returned.
    fn has_connecting(&self) -> bool;

    /// Refuses new peers, which use TCP. Peers that have begun to connect are still accepted.
    fn withdraw(&self);

    /// Descriptors that must be open in this process alone: the child of a fork closes its copies.
    fn descriptors(&self) -> Vec<RawFd>;
}

/// A connection that is being established. Dropping it aborts the attempt, and the peer's program
/// never sees it.
pub trait OffloadConnecting: AsFd + fmt::Debug + Send {
    /// Makes progress, and returns the connection once it is established.
    ///
    /// # Errors
    /// Fails if the attempt has failed for good.
    fn step(&mut self) -> Result<Option<Box<dyn OffloadStream>>, ConnectFailure>;
}

/// The reasons why a connection is not established.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectFailure {
    /// The peer refused the connection.
    Refused,
    /// The peer uses another version of the protocol.
    Version,
    /// The protocol cannot be used on this host, for this reason.
    Unusable(String),
    /// This host or the network failed, or the peer aborted the attempt.
    Failed(Errno),
}

/// An established connection that never blocks. Dropping it has the effect of `close`. Methods may
/// be called from any thread.
pub trait OffloadStream: fmt::Debug + Send + Sync {
    /// The local address.
    fn local(&self) -> SocketAddr;

    /// The peer's address.
    fn peer(&self) -> SocketAddr;

    /// The device or interface adapter that carries the connection; empty if there is none.
    fn device(&self) -> &str {
        ""
    }

    /// Queues bytes to be sent, and returns their number.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room now, else the error of `send`.
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno>;

    /// Sends bytes from where they are, without a copy in this process, and waits until nothing
    /// uses their memory any more. Returns the number of bytes that the peer receives. `None`: the
    /// bytes must be copied by [`OffloadStream::send`].
    ///
    /// `decide` is called at every event, and at least every few milliseconds, with the number of
    /// bytes that were transferred so far. It may call the stream.
    ///
    /// # Errors
    /// The error of `send`, if no byte was transferred.
    fn send_in_place(
        &self,
        _bytes: &[u8],
        _decide: &mut dyn FnMut(usize) -> MemoryDecision,
    ) -> Result<Option<usize>, Errno> {
        Ok(None)
    }

    /// True if a receive that waits for up to `len` bytes, or for all of them (`wait_all`), is to
    /// be made by [`OffloadStream::receive_in_place`] now.
    fn receives_in_place(&self, _len: usize, _wait_all: bool) -> bool {
        false
    }

    /// Receives bytes into the program's memory, which the peer may write, or which the peer's
    /// memory is read into, without a copy. Waits for the first byte, or for all (`wait_all`), and
    /// until nothing uses the memory any more. Bytes that have arrived are copied. The watch is not
    /// notified of bytes that the call receives. 0 means the end of the stream.
    ///
    /// `decide` is called as for [`OffloadStream::send_in_place`], with a number that grows with
    /// the bytes received.
    ///
    /// # Errors
    /// `EAGAIN` if `decide` has ended the wait before the first byte, else the error of `recv`.
    fn receive_in_place(
        &self,
        _into: &mut [u8],
        _wait_all: bool,
        _decide: &mut dyn FnMut(usize) -> MemoryDecision,
    ) -> Result<usize, Errno> {
        Err(Errno::AGAIN)
    }

    /// The number of bytes from which on [`OffloadStream::send_in_place`] copies nothing. Takes no
    /// lock.
    fn in_place_threshold(&self) -> usize {
        usize::MAX
    }

    /// Queues an urgent byte, after all bytes that were queued before.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room now, else the error of `send` with `MSG_OOB`.
    fn send_urgent(&self, byte: u8) -> Result<(), Errno>;

    /// Receives bytes; with `peek`, they stay in the stream. 0 means the end of the stream. One
    /// call does not return both bytes before the urgent byte and bytes after it.
    ///
    /// # Errors
    /// `EAGAIN` if there are no bytes to receive, else the error of `recv`.
    fn receive(&self, parts: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno>;

    /// Receives the urgent byte; with `peek`, it stays in the stream.
    ///
    /// # Errors
    /// `EAGAIN` if the byte was announced but not received yet, `EINVAL` if there is none.
    fn receive_urgent(&self, peek: bool) -> Result<u8, Errno>;

    /// Sets whether the urgent byte is received in line, at its position in the stream
    /// (`SO_OOBINLINE`), from now on. Initially it is not.
    fn set_urgent_inline(&self, inline: bool);

    /// Sets the largest number of bytes to queue (`SO_SNDBUF`). Bytes that are queued already stay
    /// queued. A protocol without a queue of its own need not do anything.
    fn set_send_bound(&self, bytes: usize);

    /// Sets the number of bytes from which on the stream is readable (`SO_RCVLOWAT`).
    fn set_receive_low(&self, bytes: usize);

    /// Ends one or both directions.
    ///
    /// # Errors
    /// The error that `shutdown` would return.
    fn shutdown(&self, half: Half) -> Result<(), Errno>;

    /// Ends the connection at once. Queued bytes may be lost, and the peer sees a reset.
    fn abort(&self);

    /// The state that `poll` would report.
    fn readiness(&self) -> Readiness;

    /// Monitors the peer with the settings of `like`, an unconnected TCP socket: `SO_KEEPALIVE`,
    /// its times, and `TCP_USER_TIMEOUT`. A protocol that detects the loss of a peer at once need
    /// not do anything.
    ///
    /// # Errors
    /// Fails if the settings cannot be applied.
    fn watch_peer_like(&self, _like: BorrowedFd<'_>) -> Result<(), Errno> {
        Ok(())
    }

    /// The number of bytes that can be received at once.
    fn unread(&self) -> usize;

    /// The number of receivable bytes before the urgent byte's position (FIONREAD): all, if there
    /// is none or if the urgent byte belongs to the stream.
    fn unread_before_mark(&self) -> usize;

    /// The number of queued bytes that the peer has not received.
    fn unsent(&self) -> usize;

    /// True if the next byte to receive is the byte after the urgent byte.
    fn is_at_mark(&self) -> bool;

    /// Reports events to `watch` from now on, beginning with the events that have already happened.
    fn watch(&self, watch: Arc<dyn Watch>);

    /// Polls until bytes can be received, `polls` times at most, on the calling thread. Returns
    /// true if they can. The watch may receive events late until [`OffloadStream::end_polling`]. A
    /// protocol whose thread need not be woken for each message returns false at once.
    fn poll_readable(&self, _polls: u32) -> bool {
        false
    }

    /// Reports the events to the watch that polls have found.
    fn show_polled(&self) {}

    /// True if the watch may receive events late, because the stream has been polled. Takes no
    /// lock.
    fn is_polled(&self) -> bool {
        false
    }

    /// Reports all events to the watch again. Called before a thread waits for the watch.
    fn end_polling(&self) {}

    /// Reports the counters that the protocol keeps to `meter`, from the next call of
    /// [`OffloadStream::watch`] on. A protocol without such counters reports nothing.
    fn measure(&self, _meter: Arc<dyn Meter>) {}
}

/// A decision about a call that uses the memory of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryDecision {
    /// The call continues.
    Continue,
    /// The memory of the bytes that were not transferred is taken back, however long the peer's
    /// answer takes.
    TakeBack,
    /// The memory of the bytes that were not transferred is taken back, and the call must return.
    /// The connection of a peer that never answers is aborted.
    Return,
}

/// Receives the events of a stream, after the stream's methods report the new state. A watch must
/// not call the stream, whose locks may be held.
pub trait Watch: fmt::Debug + Send + Sync {
    /// Bytes, or the end, can be received.
    fn arrived(&self);

    /// Bytes can be received, but fewer than [`OffloadStream::set_receive_low`] demands.
    fn arrived_few(&self);

    /// Bytes can be queued again.
    fn room(&self);

    /// The stream was shut down for writing, and all queued bytes were sent.
    fn all_sent(&self);

    /// An urgent byte was announced.
    fn urgent(&self);

    /// The peer has ended its sending direction.
    fn peer_ended(&self);

    /// The connection broke.
    fn broken(&self, why: Errno);

    /// Delays the wake-up of threads until [`release`](Self::release), because they need the
    /// stream's locks, which the caller holds.
    fn hold(&self) {}

    /// The caller has released the stream's locks.
    fn release(&self) {}
}

/// The directions to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// The receiving direction: bytes that are received afterwards are answered with a reset.
    Read,
    /// The sending direction, after all queued bytes.
    Write,
    /// Both directions.
    Both,
}
