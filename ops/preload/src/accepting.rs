//! Accepting: one queue for connections of all stacks.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use libc::{SOCK_CLOEXEC, SOCK_NONBLOCK, sockaddr, socklen_t};
use ops::OffloadStream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use stand_in::{Flags, LibraryEnd};
use tracing::info;

use crate::hooks::numbers;
use crate::listener::{Incoming, Listener};
use crate::restarting::{self, Awaited};
use crate::sharing::leaving;
use crate::sharing::passing::Passed;
use crate::sharing::relay::{self, Relay};
use crate::sharing::relayed::Relayed;
use crate::socket::Socket;
use crate::socket::identity::Identity;
use crate::socket::names::{self, Family};
use crate::socket::options::Options;
use crate::table::{self, Entry};
use crate::undisturbed::Undisturbed;
use crate::{guard, internal, listening, local, observing};

/// A connection that the program has now.
pub(crate) struct Accepted {
    /// Its descriptor.
    pub(crate) fd: c_int,
    peer: SocketAddr,
    family: Family,
}

impl Accepted {
    /// Tells the peer's address to those who ask.
    ///
    /// # Safety
    /// The pointers are null or what `accept` demands.
    pub(crate) unsafe fn tell(&self, address: *mut sockaddr, len: *mut socklen_t) {
        if !address.is_null() {
            // SAFETY: the caller answers for the pointers. A length that makes no sense leaves
            // the address untold; the connection is the program's all the same.
            let _ = unsafe { names::give(self.peer, self.family, address, len) };
        }
    }
}

/// What the program gets.
pub(crate) enum Next {
    /// An offloaded connection.
    Ours(Accepted),
    /// One of the kernel's.
    Kernels(c_int),
}

/// The next connection of a listener; `kernel` is the kernel's call, which waits if it has to.
pub(crate) fn accept(
    fd: c_int,
    mut listener: Arc<Listener>,
    flags: c_int,
    kernel: impl Fn() -> Result<c_int, Errno>,
) -> Result<Next, Errno> {
    let _inside = guard::enter();
    // SAFETY: the table names it, so it is a number from 0 up.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let begun = Instant::now();
    loop {
        if listener.has_arrivals() {
            if listener.is_turn_of_tcp() && is_ready(socket) {
                let accepted = listener
                    .accept_lock()
                    .run(|| is_ready(socket).then(&kernel));
                if let Some(accepted) = accepted {
                    return accepted.map(Next::Kernels);
                }
            }
            let taken = {
                let _undisturbed = Undisturbed::begin();
                take(socket, &listener, flags)
            };
            match taken {
                Ok(Some(accepted)) => {
                    listener.count_offloaded();
                    return Ok(Next::Ours(accepted));
                }
                // Somebody else has taken it.
                Ok(None) => {}
                // The peer is gone again, as it may be in the kernel's queue too.
                Err(Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN) => continue,
                Err(error) => return Err(error),
            }
        }
        if listener.is_withdrawn() {
            listening::withdraw(&listener);
            return kernel().map(Next::Kernels);
        }
        if listener.is_orphaned() {
            listening::take_over(fd);
            // By this thread, or by another one.
            if let Some(successor) =
                table::find_listener(fd).filter(|it| !Arc::ptr_eq(it, &listener))
            {
                listener = successor;
                continue;
            }
        }
        if fcntl_getfl(socket)?.contains(OFlags::NONBLOCK) {
            return kernel().map(Next::Kernels);
        }
        if wait(socket, &listener, begun)? {
            // Somebody else may have taken it, and then the kernel's call would wait for the next.
            let accepted = listener
                .accept_lock()
                .run(|| is_ready(socket).then(&kernel));
            if let Some(accepted) = accepted {
                return accepted.map(Next::Kernels);
            }
        }
    }
}

/// As long as `accept` waits, or until the process that listens goes. Says whether the kernel's
/// call has something to return.
fn wait(socket: BorrowedFd<'_>, listener: &Listener, begun: Instant) -> Result<bool, Errno> {
    let limit = sockopt::socket_timeout(socket, Timeout::Recv)?;
    let deadline = limit.and_then(|limit| begun.checked_add(limit));
    let mut awaited = vec![Awaited::Input(socket), Awaited::Input(listener.pending())];
    awaited.extend(listener.owner_process().map(Awaited::End));
    restarting::wait(&awaited, deadline)
}

/// Whether the kernel's call returns at once.
fn is_ready(socket: BorrowedFd<'_>) -> bool {
    let mut set = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    !matches!(poll(&mut set, Some(&Timespec::default())), Ok(0))
}

/// What a connection takes of the descriptors of this process. Made before it is taken out of the
/// queue: one for which there are none left stays there, as in the kernel's.
pub(crate) struct Room {
    options: Options,
    program: OwnedFd,
    end: LibraryEnd,
}

impl Room {
    /// For a connection of this program.
    pub(crate) fn of(options: Options, shown: Flags) -> Result<Self, Errno> {
        let (program, end) = stand_in::established(shown).map_err(|why| why.errno())?;
        Ok(Self {
            options,
            program,
            end: end.moved(internal::raise)?,
        })
    }

    /// For one of those that others accept.
    pub(crate) fn for_others(family: Family) -> Result<Self, Errno> {
        let shown = Flags {
            nonblocking: false,
            close_on_exec: true,
        };
        Self::of(Options::fresh(family)?, shown)
    }
}

/// `None`: there was none any more.
fn take(
    socket: BorrowedFd<'_>,
    listener: &Listener,
    flags: c_int,
) -> Result<Option<Accepted>, Errno> {
    let family = listener.family();
    if let Ok(accepted) = listener.accept_in_kernel(socket, local::accept_flags(flags)) {
        let taken = accepted?.map(|(connection, kept)| {
            let peer = connection.peer;
            info!(%peer, protocol = listener.protocol(), "an offloaded connection is accepted");
            let fd = local::accepted(connection, listener.protocol(), kept);
            Accepted { fd, peer, family }
        });
        return Ok(taken);
    }
    let options = Options::inherited_from(socket, family)?;
    let shown = Flags {
        nonblocking: flags & SOCK_NONBLOCK != 0,
        close_on_exec: flags & SOCK_CLOEXEC != 0,
    };
    let (program, entry, peer) = match listener.accept(options, shown)? {
        None => return Ok(None),
        Some(Incoming::Own(stream, room)) => {
            let peer = stream.peer();
            let (program, socket) = establish(family, listener.protocol(), stream, room)?;
            socket.named();
            (program, Entry::Socket(socket), peer)
        }
        Some(Incoming::Passed(passed, options)) => {
            let peer = passed.peer;
            let (program, relayed) = receive(family, passed, shown, options)?;
            (program, Entry::Relayed(Arc::new(relayed)), peer)
        }
    };
    let fd = program.as_raw_fd();
    numbers::place(fd, entry);
    leaving::expose_standard(fd);
    info!(%peer, protocol = listener.protocol(), "an offloaded connection is accepted");
    Ok(Some(Accepted {
        fd: program.into_raw_fd(),
        peer,
        family,
    }))
}

/// A pair for a connection that has arrived here.
fn establish(
    family: Family,
    protocol: &str,
    stream: Box<dyn OffloadStream>,
    room: Room,
) -> Result<(OwnedFd, Arc<Socket>), Errno> {
    let stream = observing::connection(stream, protocol);
    let socket = Arc::new(Socket::new(stream, room.end, family, room.options)?);
    relay::watch(&socket)?;
    Ok((room.program, socket))
}

/// A connection that has arrived here, for whoever accepts it: its pair carries bytes.
pub(crate) fn carried(
    family: Family,
    protocol: &str,
    stream: Box<dyn OffloadStream>,
    room: Room,
) -> Result<Passed, Errno> {
    let _inside = guard::enter();
    let (local, peer) = (stream.local(), stream.peer());
    let (program, socket) = establish(family, protocol, stream, room)?;
    Relay::carry_for_others(&socket, &program)?;
    Ok(Passed {
        program,
        local,
        peer,
    })
}

/// A connection that has arrived elsewhere.
fn receive(
    family: Family,
    passed: Passed,
    shown: Flags,
    options: Options,
) -> Result<(OwnedFd, Relayed), Errno> {
    if shown.nonblocking {
        fcntl_setfl(&passed.program, OFlags::RDWR | OFlags::NONBLOCK)?;
    }
    if !shown.close_on_exec {
        rustix::io::fcntl_setfd(&passed.program, rustix::io::FdFlags::empty())?;
    }
    options.apply_timeouts(passed.program.as_fd());
    let identity = Identity::new(family, passed.local, passed.peer, options);
    let relayed = Relayed::carrying(Arc::new(identity), None);
    Ok((passed.program, relayed))
}
