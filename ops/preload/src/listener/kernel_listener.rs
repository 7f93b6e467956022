//! A kernel listener of a protocol, next to the TCP listener.
//!
//! Each process that inherits the TCP listener also inherits the descriptor of the kernel listener.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use host::descriptors::{OwnDescriptor, raise};
use host::locks::IgnorePoison as _;
use ops::{KernelConnection, KernelService, KernelSockets};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags};
use rustix::net::{Shutdown, SocketFlags, sockopt};

use crate::tcp::carried::{self, Carried};
use crate::tcp::kept::Kept;
use crate::tcp::names::Family;

#[derive(Clone, Copy)]
pub(crate) struct KernelProtocol {
    pub(crate) sockets: &'static dyn KernelSockets,
    /// The name in listings.
    pub(crate) name: &'static str,
}

pub(crate) struct KernelListener {
    socket: OwnDescriptor,
    protocol: KernelProtocol,
    /// The service, once a connection was accepted.
    service: OnceLock<KernelService>,
    /// True once a process has shut the listener down to withdraw the offer.
    is_withdrawn: AtomicBool,
    /// The options that accepted connections inherit, and the value of `carried::changes` when the
    /// options were read.
    carried: Mutex<Option<(u64, Carried)>>,
}

impl KernelListener {
    pub(crate) fn new(socket: OwnedFd, protocol: KernelProtocol) -> Result<Self, Errno> {
        Ok(Self::inherited(raise(socket)?, protocol))
    }

    /// Makes the listener in the child of a fork, from the inherited descriptor.
    pub(crate) fn inherited(socket: OwnedFd, protocol: KernelProtocol) -> Self {
        Self {
            socket: OwnDescriptor::from(socket),
            protocol,
            service: OnceLock::new(),
            is_withdrawn: AtomicBool::new(false),
            carried: Mutex::default(),
        }
    }

    pub(crate) fn protocol(&self) -> KernelProtocol {
        self.protocol
    }

    /// Accepts a connection, and sets the options of the TCP listener `socket` on it. Returns
    /// `None` if no connection is queued.
    pub(crate) fn accept(
        &self,
        socket: BorrowedFd<'_>,
        family: Family,
        flags: SocketFlags,
    ) -> Result<Option<(KernelConnection, Kept)>, Errno> {
        let accepted = self.service().and_then(|service| {
            let sockets = self.protocol.sockets;
            sockets.accept(self.as_fd(), service, flags)
        });
        let accepted = match accepted {
            Err(_) if self.is_lost() => {
                self.is_withdrawn.store(true, Ordering::Relaxed);
                return Ok(None);
            }
            accepted => accepted?,
        };
        let Some(connection) = accepted else {
            let mut set = [PollFd::new(&self.socket, PollFlags::RDHUP)];
            if poll(&mut set, Some(&Timespec::default())) == Ok(1) {
                self.is_withdrawn.store(true, Ordering::Relaxed);
            }
            return Ok(None);
        };
        let kept = self.carry_over(socket, family, connection.socket.as_fd());
        Ok(Some((connection, kept)))
    }

    /// Returns the service, which the kernel is asked for once.
    fn service(&self) -> Result<KernelService, Errno> {
        if let Some(service) = self.service.get() {
            return Ok(*service);
        }
        let service = self.protocol.sockets.service(self.as_fd())?;
        Ok(*self.service.get_or_init(|| service))
    }

    /// Sets the options of the TCP listener on an accepted connection.
    fn carry_over(
        &self,
        listener: BorrowedFd<'_>,
        family: Family,
        connection: BorrowedFd<'_>,
    ) -> Kept {
        let now = carried::changes();
        let mut carried = self.carried.lock().ignore_poison();
        if carried.as_ref().is_none_or(|(at, _)| *at != now) {
            *carried = Some((now, Carried::of_listener(listener, family)));
        }
        carried
            .as_ref()
            .map(|(_, carried)| carried.apply(connection))
            .unwrap_or_default()
    }

    /// Refuses new connections in all processes. Queued connections can still be accepted.
    pub(crate) fn withdraw(&self) {
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Returns true if the program has closed the descriptor.
    pub(crate) fn is_lost(&self) -> bool {
        self.socket.is_lost()
    }

    /// Returns true if an accept has found that the listener was shut down and its queue is empty,
    /// or that the program has closed the descriptor.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Ordering::Relaxed)
    }

    /// Sets or clears the close-on-exec flag.
    pub(crate) fn keep_over_exec(&self, is_kept: bool) {
        let mut flags = FdFlags::empty();
        flags.set(FdFlags::CLOEXEC, !is_kept);
        // An error means that the process has closed the descriptor.
        let _ = rustix::io::fcntl_setfd(&self.socket, flags);
    }

    /// Closes the descriptor in a process that does not own the table.
    pub(crate) fn close_copy(&self) {
        if sockopt::socket_acceptconn(&self.socket).unwrap_or(false) {
            // SAFETY: in that process nothing else uses the number: the `OwnedFd` belongs to
            // another process.
            unsafe { libc::syscall(libc::SYS_close, self.number()) };
        }
    }

    pub(crate) fn set_backlog(&self, backlog: i32) {
        let _ = rustix::net::listen(&self.socket, backlog);
    }

    pub(crate) fn number(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for KernelListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
