//! `accept`: one queue for the connections of TCP and of all protocols.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use host::stand_in::Flags;
use libc::{SOCK_CLOEXEC, SOCK_NONBLOCK, sockaddr, socklen_t};
use ops::KernelConnection;
use ops::observe::Counter;
use rustix::event::PollFlags;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{DupFlags, Errno};
use rustix::net::sockopt::{self, Timeout};
use tracing::info;

use crate::events::restarting::{self, Awaited};
use crate::fd::{self, Entry};
use crate::listener::kernel_listener::KernelListener;
use crate::listener::offers::{Beside, OfferedClient};
use crate::listener::passing::Passed;
use crate::listener::service::{Incoming, Service};
use crate::listener::{Listener, Turn};
use crate::local;
use crate::process::signals_blocked::SignalsBlocked;
use crate::process::{self, guard};
use crate::setup::{doorkeeper, offer};
use crate::sharing::exposing;
use crate::socket::identity::Identity;
use crate::socket::relay_client::RelayClient;
use crate::tcp::kept::Kept;
use crate::tcp::names::{self, Family};
use crate::tcp::options::Options;

pub(crate) struct Accepted {
    /// The program's descriptor.
    pub(crate) fd: c_int,
    peer: SocketAddr,
    family: Family,
}

impl Accepted {
    /// Writes the peer's address to the caller's pointers, if they are not null.
    ///
    /// # Safety
    /// The pointers are null or valid as `accept` demands.
    pub(crate) unsafe fn write_peer(&self, address: *mut sockaddr, len: *mut socklen_t) {
        if !address.is_null() {
            // SAFETY: the caller guarantees that the pointers are null or valid. With an invalid
            // length no address is written, but the connection is returned to the program all the
            // same.
            let _ = unsafe { names::write_address(self.peer, self.family, address, len) };
        }
    }
}

/// The next connection of a listener.
pub(crate) enum Next {
    /// A connection of an offload protocol.
    Offloaded(Accepted),
    /// A connection of the kernel's TCP.
    Tcp(c_int),
}

/// Returns the next connection of a listener. `kernel` calls the kernel's `accept`, which may wait.
pub(crate) fn accept(
    fd: c_int,
    mut listener: Arc<Listener>,
    flags: c_int,
    kernel: impl Fn() -> Result<c_int, Errno>,
) -> Result<Next, Errno> {
    let _inside = guard::enter();
    // SAFETY: the table has an entry for the number, so it is not negative.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    record_call(socket, &listener)?;
    let begun = Instant::now();
    let mut has_kernel_woken = false;
    loop {
        if let Some(accepted) = take_waiting(socket, &listener, flags)? {
            return Ok(Next::Offloaded(accepted));
        }
        let turn = match std::mem::take(&mut has_kernel_woken) {
            true => Turn::Tcp,
            // A client that is offered over TCP was there before all others.
            false if listener.activity().prefers_tcp() => Turn::Tcp,
            false => listener.next_turn(),
        };
        if turn == Turn::Tcp && is_ready(socket) {
            // Another thread or process may take the connection first, and the kernel's `accept`
            // would then wait for the next one.
            let accepted = {
                let _signals_blocked = SignalsBlocked::begin();
                listener
                    .common()
                    .lock()
                    .run(|| is_ready(socket).then(&kernel))
            };
            if let Some(accepted) = accepted {
                return by_tcp(socket, &listener, accepted, flags);
            }
        }
        let taken = {
            let _signals_blocked = SignalsBlocked::begin();
            take(socket, &listener, turn, flags)
        };
        match taken {
            Ok(Some(accepted)) => return Ok(Next::Offloaded(accepted)),
            // Another thread or process has taken the connection.
            Ok(None) => {}
            // The peer has closed already, as may happen to connections in the kernel's queue.
            Err(Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN) => continue,
            // Many peers were refused, and signals were blocked meanwhile. A call that may wait
            // continues; no other call may take longer.
            Err(Errno::CONNABORTED) if !is_nonblocking(socket)? => continue,
            Err(error) => return Err(error),
        }
        if listener.is_withdrawn() {
            offer::remove_withdrawn(&listener);
            match successor(fd, &listener) {
                Some(successor) => {
                    listener = successor;
                    continue;
                }
                None => return by_tcp(socket, &listener, kernel(), flags),
            }
        }
        if listener.needs_service() {
            offer::take_over(fd);
            // This thread or another thread has begun the service.
            if let Some(successor) = successor(fd, &listener) {
                listener = successor;
                continue;
            }
        }
        if is_nonblocking(socket)? {
            return by_tcp(socket, &listener, kernel(), flags);
        }
        (has_kernel_woken, listener) = wait(socket, listener, begun)?;
    }
}

/// Records the call, and the wait of a blocking call.
fn record_call(socket: BorrowedFd<'_>, listener: &Listener) -> Result<(), Errno> {
    listener.on_accept();
    if !listener.activity().is_awaited() && !is_nonblocking(socket)? {
        listener.on_awaited();
    }
    Ok(())
}

/// Returns a connection of the kernel's TCP, or the offloaded client that was offered by it.
fn by_tcp(
    socket: BorrowedFd<'_>,
    listener: &Listener,
    accepted: Result<c_int, Errno>,
    flags: c_int,
) -> Result<Next, Errno> {
    let fd = accepted?;
    // SAFETY: the kernel has just returned the number, so it is open.
    let tcp = unsafe { BorrowedFd::borrow_raw(fd) };
    let Some(offered) = doorkeeper::claim(listener, tcp) else {
        listener.count(Counter::AcceptedTcp);
        return Ok(Next::Tcp(fd));
    };
    // SAFETY: the program has not received the number yet.
    let shown = unsafe { OwnedFd::from_raw_fd(fd) };
    let accepted = claimed(socket, listener, offered, shown, flags)?;
    Ok(Next::Offloaded(accepted))
}

/// Returns the client that is offered over TCP while the kernel's queue has no room for it.
fn take_waiting(
    socket: BorrowedFd<'_>,
    listener: &Listener,
    flags: c_int,
) -> Result<Option<Accepted>, Errno> {
    if !listener.activity().is_offering_any() {
        return Ok(None);
    }
    let shown = rustix::io::fcntl_dupfd_cloexec(socket, 0)?;
    let offered = doorkeeper::claim_waiting(listener);
    let accepted = offered.map(|it| claimed(socket, listener, it, shown, flags));
    accepted.transpose()
}

/// Passes a client that was offered over TCP to the program, in place of the descriptor `shown`.
fn claimed(
    socket: BorrowedFd<'_>,
    listener: &Listener,
    OfferedClient { of, client, .. }: OfferedClient,
    mut shown: OwnedFd,
    flags: c_int,
) -> Result<Accepted, Errno> {
    if flags & SOCK_NONBLOCK != 0 {
        fcntl_setfl(&client.socket, OFlags::RDWR | OFlags::NONBLOCK)?;
    }
    let mut close_on_exec = DupFlags::empty();
    close_on_exec.set(DupFlags::CLOEXEC, flags & SOCK_CLOEXEC != 0);
    rustix::io::dup3(&client.socket, &mut shown, close_on_exec)?;
    let client = KernelConnection {
        socket: shown,
        ..client
    };
    match of {
        Beside::Kernel => {
            let kernel = listener.kernel().ok_or(Errno::CONNABORTED)?;
            let kept = kernel.carry_over(socket, listener.family(), client.socket.as_fd());
            Ok(pass(listener, kernel, client, kept))
        }
        Beside::Service => {
            let options = Options::inherited_from(socket, listener.family())?;
            options.apply_timeouts(client.socket.as_fd());
            listener.count(Counter::AcceptedOffloaded);
            Ok(pass_carried(listener, client, options))
        }
    }
}

/// Passes a connection of a service to the program, whose pair carries its bytes.
fn pass_carried(listener: &Listener, connection: KernelConnection, options: Options) -> Accepted {
    let KernelConnection {
        socket,
        local,
        peer,
    } = connection;
    let family = listener.family();
    let identity = Identity::new(family, local, peer, options);
    let client = RelayClient::carrying(Arc::new(identity), None);
    let fd = socket.into_raw_fd();
    fd::store(fd, Arc::new(client) as Entry);
    exposing::expose_new(fd);
    let protocol = listener.service().map_or("", Service::protocol);
    info!(%peer, protocol, "an offloaded connection is accepted");
    Accepted { fd, peer, family }
}

/// Passes a connection of a kernel listener to the program.
fn pass(
    listener: &Listener,
    kernel: &KernelListener,
    connection: KernelConnection,
    kept: Kept,
) -> Accepted {
    let (peer, protocol, family) = (connection.peer, kernel.protocol().name, listener.family());
    info!(%peer, protocol, "an offloaded connection is accepted");
    listener.count(Counter::AcceptedOffloaded);
    let fd = local::accepted(connection, family, protocol, kept);
    Accepted { fd, peer, family }
}

fn is_nonblocking(socket: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(fcntl_getfl(socket)?.contains(OFlags::NONBLOCK))
}

/// Returns the listener that has replaced `before` in the table.
fn successor(fd: c_int, before: &Arc<Listener>) -> Option<Arc<Listener>> {
    Listener::of(fd).filter(|it| !Arc::ptr_eq(it, before))
}

/// Waits as long as `accept` does, or until the listening process ends. Returns true if the kernel
/// has a connection.
fn wait(
    socket: BorrowedFd<'_>,
    listener: Arc<Listener>,
    begun: Instant,
) -> Result<(bool, Arc<Listener>), Errno> {
    let limit = sockopt::socket_timeout(socket, Timeout::Recv)?;
    let deadline = limit.and_then(|limit| begun.checked_add(limit));
    // SAFETY: the wait keeps the listener, and uses no descriptor after it has lost the listener.
    let of = unsafe { &*Arc::as_ptr(&listener) };
    let mut awaited = vec![Awaited::Input(socket)];
    awaited.extend(of.awaited().map(Awaited::Input));
    awaited.extend(of.listening_process().map(Awaited::End));
    restarting::wait(listener, &awaited, deadline)
}

/// Returns true if the kernel's `accept` does not wait.
fn is_ready(socket: BorrowedFd<'_>) -> bool {
    process::shown_events(socket, PollFlags::IN) != Ok(PollFlags::empty())
}

/// Accepts a queued offloaded connection. `None`: no such connection is queued.
///
/// # Errors
/// `ENOMEM` when the reserve of memory is low, also if no connection is queued.
fn take(
    socket: BorrowedFd<'_>,
    listener: &Listener,
    turn: Turn,
    flags: c_int,
) -> Result<Option<Accepted>, Errno> {
    if host::reserve::is_low() {
        // As the kernel reports a lack of memory. The connection stays queued.
        return Err(Errno::NOMEM);
    }
    let sources = [take_from_kernel, take_from_service];
    let (first, second) = if turn == Turn::Service {
        (1, 0)
    } else {
        (0, 1)
    };
    match sources[first](socket, listener, flags)? {
        None => sources[second](socket, listener, flags),
        taken => Ok(taken),
    }
}

fn take_from_kernel(
    socket: BorrowedFd<'_>,
    listener: &Listener,
    flags: c_int,
) -> Result<Option<Accepted>, Errno> {
    let Some(kernel) = listener.kernel().filter(|it| !it.is_withdrawn()) else {
        return Ok(None);
    };
    let family = listener.family();
    let accepted = kernel.accept(socket, family, local::accept_flags(flags))?;
    Ok(accepted.map(|(connection, kept)| pass(listener, kernel, connection, kept)))
}

fn take_from_service(
    socket: BorrowedFd<'_>,
    listener: &Listener,
    flags: c_int,
) -> Result<Option<Accepted>, Errno> {
    let Some(service) = listener.service().filter(|it| it.has_arrivals()) else {
        return Ok(None);
    };
    let family = listener.family();
    let options = Options::inherited_from(socket, family)?;
    let shown = Flags {
        nonblocking: flags & SOCK_NONBLOCK != 0,
        close_on_exec: flags & SOCK_CLOEXEC != 0,
    };
    let (program, entry, peer) = match service.accept(options, shown)? {
        None => return Ok(None),
        Some(Incoming::Own(stream, room)) => {
            let peer = stream.peer();
            let (program, socket) = room.establish(family, service.protocol(), stream)?;
            socket.add_number();
            // A connection that another process accepts is counted by the process that passes it.
            listener.count(Counter::AcceptedOffloaded);
            (program, socket as Entry, peer)
        }
        Some(Incoming::Passed(passed, options)) => {
            let peer = passed.peer;
            let (program, client) = receive(family, passed, shown, options)?;
            (program, Arc::new(client) as Entry, peer)
        }
    };
    let fd = program.as_raw_fd();
    fd::store(fd, entry);
    exposing::expose_new(fd);
    let protocol = service.protocol();
    info!(%peer, protocol, "an offloaded connection is accepted");
    Ok(Some(Accepted {
        fd: program.into_raw_fd(),
        peer,
        family,
    }))
}

/// Returns a connection that the listening process has passed to this one.
fn receive(
    family: Family,
    passed: Passed,
    shown: Flags,
    options: Options,
) -> Result<(OwnedFd, RelayClient), Errno> {
    if shown.nonblocking {
        fcntl_setfl(&passed.program, OFlags::RDWR | OFlags::NONBLOCK)?;
    }
    if !shown.close_on_exec {
        rustix::io::fcntl_setfd(&passed.program, rustix::io::FdFlags::empty())?;
    }
    options.apply_timeouts(passed.program.as_fd());
    let identity = Identity::new(family, passed.local, passed.peer, options);
    let client = RelayClient::carrying(Arc::new(identity), None);
    Ok((passed.program, client))
}
