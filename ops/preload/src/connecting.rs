//! Connecting: an offload protocol first, within its bound, and TCP where it cannot.
//!
//! Until a protocol has connected, the program's descriptor is the TCP socket that the program
//! made, untouched. So falling back is nothing but calling the kernel's `connect`.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use ops_rules::Role;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{DupFlags, Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_getfd};
use stand_in::{Flags, LibraryEnd, Signals};

use crate::decision::{self, Decision};
use crate::hooks::numbers;
use crate::protocol::Unobserved;
use crate::registrations::Registrations;
use crate::sharing::relay;
use crate::socket::Socket;
use crate::socket::names::{self, Family};
use crate::socket::observer::Observer;
use crate::socket::options::Options;
use crate::table::Entry;
use crate::{guard, internal, observing};

/// Whose answer the program gets.
pub(crate) enum Outcome {
    /// The kernel's, and why, if it was a question.
    Kernel(Option<String>),
    /// This one.
    Offloaded(Result<(), Errno>),
}

/// The program connects a socket.
pub(crate) fn connect(fd: c_int, remote: SocketAddr) -> Outcome {
    let _inside = guard::enter();
    let Some(decision) = decision::decide(Role::Connect, remote) else {
        return Outcome::Kernel(None);
    };
    if fd < 0 {
        return Outcome::Kernel(None);
    }
    // SAFETY: a number from 0 up; the kernel says EBADF when it names nothing.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let Some((family, local)) = fresh_tcp(socket, remote) else {
        return Outcome::Kernel(None);
    };
    match offload(socket, fd, family, local, remote, &decision) {
        Ok(()) => Outcome::Offloaded(Ok(())),
        Err(error) if decision.tcp => Outcome::Kernel(Some(reason_of(error))),
        Err(error) => Outcome::Offloaded(Err(error)),
    }
}

/// Why a connection is left to TCP, as the switch says it.
fn reason_of(error: Errno) -> String {
    match error {
        Errno::CONNREFUSED => "the peer refused".to_owned(),
        error => format!("failed: {error}"),
    }
}

/// Family and address of a TCP socket that is not connected; it is bound if it was not.
fn fresh_tcp(socket: BorrowedFd<'_>, remote: SocketAddr) -> Option<(Family, SocketAddr)> {
    let (family, mut local) = names::local_of(socket)?;
    if rustix::net::getpeername(socket).is_ok() || names::is_connecting(socket) {
        return None;
    }
    if local.port() == 0 {
        // The port is reserved with the kernel, so that no TCP socket gets the same.
        rustix::net::bind(socket, &local).ok()?;
        local = names::local_of(socket)?.1;
    }
    if local.ip().is_unspecified() {
        local.set_ip(names::source_toward(remote)?);
    }
    Some((family, local))
}

fn offload(
    socket: BorrowedFd<'_>,
    fd: c_int,
    family: Family,
    local: SocketAddr,
    remote: SocketAddr,
    decision: &Decision,
) -> Result<(), Errno> {
    // Made before the peer hears of us: its program would see a connection that ends at once.
    let place = Place::prepare(socket)?;
    let deadline = Instant::now() + decision.within;
    let mut last = Errno::NETUNREACH;
    for protocol in decision.protocols {
        match protocol.connect(local, remote, deadline) {
            Ok(stream) => {
                let name = protocol.name();
                let names = (family, local, remote);
                return place.take_over(fd, names, name, stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// What stands behind the program's number when a connection has come about.
struct Place {
    native: OwnedFd,
    flags: Flags,
    program: OwnedFd,
    end: LibraryEnd,
}

impl Place {
    fn prepare(socket: BorrowedFd<'_>) -> Result<Self, Errno> {
        let native = internal::raise(fcntl_dupfd_cloexec(socket, 0)?)?;
        let flags = Flags {
            nonblocking: fcntl_getfl(socket)?.contains(OFlags::NONBLOCK),
            close_on_exec: fcntl_getfd(socket)?.contains(FdFlags::CLOEXEC),
        };
        let (program, end) = stand_in::established(flags).map_err(|_| Errno::NOBUFS)?;
        let end = end.moved(internal::raise).map_err(|_| Errno::MFILE)?;
        Ok(Self {
            native,
            flags,
            program,
            end,
        })
    }

    /// Puts the connection behind the program's number.
    fn take_over(
        self,
        fd: c_int,
        (family, local, remote): (Family, SocketAddr, SocketAddr),
        protocol: &str,
        stream: Box<dyn Unobserved>,
    ) -> Result<(), Errno> {
        let observer = Arc::new(Observer::new(self.end, Signals::new()));
        let stream = stream.observed_by(observer.clone())?;
        let stream = observing::connection(stream, protocol, local, remote);
        let options = Options::of(self.native);
        let connection = Socket::new(stream, observer, family, local, remote, options);
        connection.named();
        let connection = Arc::new(connection);
        relay::watch(&connection)?;
        // Sets that watch the number watch the TCP socket behind it. They are told before it
        // changes, because the TCP socket lives on and could not be taken out of them any more.
        let registrations = Registrations::of(fd);
        registrations.withdraw();
        replace(&self.program, fd, self.flags)?;
        registrations.renew();
        numbers::place(fd, Entry::Socket(connection));
        Ok(())
    }
}

/// Puts `with` behind a number of the program.
pub(crate) fn replace(with: &OwnedFd, fd: c_int, flags: Flags) -> Result<(), Errno> {
    let mut dup = DupFlags::empty();
    dup.set(DupFlags::CLOEXEC, flags.close_on_exec);
    // SAFETY: the number is the program's; nothing here owns it, and `forget` below keeps it so.
    let mut target = std::mem::ManuallyDrop::new(unsafe {
        <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd)
    });
    rustix::io::dup3(with, &mut target, dup)
}
