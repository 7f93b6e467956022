//! A listener of the kernel next to a TCP listener.
//!
//! Each process that has inherited the TCP listener has its own number of this one, as it has of
//! the TCP listener.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use host::descriptors::raise;
use ops::{KernelConnection, KernelSockets};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags};
use rustix::net::{Shutdown, SocketFlags, sockopt};

use crate::tcp::carried::{self, Carried};
use crate::tcp::kept::Kept;
use crate::tcp::names::Family;

/// The protocol of a listener of the kernel.
#[derive(Clone, Copy)]
pub(crate) struct KernelProtocol {
    pub(crate) sockets: &'static dyn KernelSockets,
    /// The name in listings.
    pub(crate) name: &'static str,
}

/// A listener of the kernel.
pub(crate) struct KernelListener {
    socket: OwnedFd,
    protocol: KernelProtocol,
    /// True once a process has shut it down: the offer is withdrawn.
    is_withdrawn: AtomicBool,
    /// The options that accepted connections inherit, and the count of changes when they were read.
    carried: Mutex<Option<(u64, Carried)>>,
}

impl KernelListener {
    pub(crate) fn new(socket: OwnedFd, protocol: KernelProtocol) -> Result<Self, Errno> {
        Ok(Self::inherited(raise(socket)?, protocol))
    }

    /// In a child, which has the descriptor from its parent.
    pub(crate) fn inherited(socket: OwnedFd, protocol: KernelProtocol) -> Self {
        Self {
            socket,
            protocol,
            is_withdrawn: AtomicBool::new(false),
            carried: Mutex::default(),
        }
    }

    pub(crate) fn protocol(&self) -> KernelProtocol {
        self.protocol
    }

    /// The next connection, set as the TCP listener `socket` is set. `None`: nobody has arrived, or
    /// the offer is withdrawn.
    pub(crate) fn accept(
        &self,
        socket: BorrowedFd<'_>,
        family: Family,
        flags: SocketFlags,
    ) -> Result<Option<(KernelConnection, Kept)>, Errno> {
        let accepted = self.protocol.sockets.accept(self.as_fd(), flags)?;
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

    /// Sets an accepted connection as the TCP listener is set.
    fn carry_over(
        &self,
        listener: BorrowedFd<'_>,
        family: Family,
        connection: BorrowedFd<'_>,
    ) -> Kept {
        let now = carried::changes();
        let mut carried = self.carried.lock().unwrap_or_else(PoisonError::into_inner);
        if carried.as_ref().is_none_or(|(at, _)| *at != now) {
            *carried = Some((now, Carried::of_listener(listener, family)));
        }
        carried
            .as_ref()
            .map(|(_, carried)| carried.apply(connection))
            .unwrap_or_default()
    }

    /// Refuses connections from now on, in whichever process. Those in its queue are still
    /// accepted.
    pub(crate) fn withdraw(&self) {
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Returns true after it was shut down, once an empty queue has shown that.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Ordering::Relaxed)
    }

    /// Keeps it over an `exec`, or not.
    pub(crate) fn keep_over_exec(&self, is_kept: bool) {
        let mut flags = FdFlags::empty();
        flags.set(FdFlags::CLOEXEC, !is_kept);
        // In a process that has closed it, nothing is to be kept.
        let _ = rustix::io::fcntl_setfd(&self.socket, flags);
    }

    /// Closes the number in a process that does not own the table.
    pub(crate) fn close_copy(&self) {
        if sockopt::socket_acceptconn(&self.socket).unwrap_or(false) {
            // SAFETY: in that process nothing else uses the number; its owner is in the memory of
            // another process.
            unsafe { libc::syscall(libc::SYS_close, self.number()) };
        }
    }

    /// The program has set another backlog.
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
