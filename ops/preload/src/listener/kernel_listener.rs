//! A kernel listener of a protocol, next to the TCP listener.
//!
//! Each process that inherits the TCP listener also inherits the descriptor of the kernel listener.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use host::descriptors::{OwnDescriptor, raise};
use host::locks::IgnorePoison as _;
use ops::netlink::NetStack;
use ops::{KernelConnection, KernelService, KernelSockets};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{Shutdown, SocketFlags};

use crate::events::event_thread;
use crate::process::real;
use crate::switch;
use crate::tcp::carried::{self, Carried};
use crate::tcp::kept::Kept;
use crate::tcp::names::Family;

#[derive(Clone, Copy)]
pub(crate) struct KernelProtocol {
    pub(crate) sockets: &'static dyn KernelSockets,
    /// The name in listings.
    pub(crate) name: &'static str,
}

/// The time limit for sends that marks a listener which an executed program uses. It has no effect
/// on a listener.
const MARK: Duration = Duration::from_secs(1);

pub(crate) struct KernelListener {
    socket: OwnDescriptor,
    protocol: KernelProtocol,
    /// The use of the listener by the event thread, once that has begun.
    doorway: OnceLock<Arc<Doorway>>,
    /// The service, once a connection was accepted.
    service: OnceLock<KernelService>,
    /// The network stack of the listener's namespace, once a connection was accepted.
    stack: OnceLock<&'static NetStack>,
    /// True until the first use by an executed program.
    needs_mark: AtomicBool,
    /// True once a process has shut the listener down to withdraw the offer.
    is_withdrawn: AtomicBool,
    /// The options that accepted connections inherit, and the value of `carried::changes` when the
    /// options were read.
    carried: Mutex<Option<(u64, Carried)>>,
}

/// The use of a kernel listener by the event thread. The drop of the listener ends it first, so
/// that the event thread holds no descriptor when the program's `close` returns.
pub(crate) struct Doorway {
    /// The descriptor and the service; `None` once the listener is dropped.
    open: Mutex<Option<(RawFd, KernelService)>>,
    protocol: KernelProtocol,
    stack: Option<&'static NetStack>,
}

impl Doorway {
    /// Runs `work` while the listener exists. `work` must not drop the listener.
    pub(crate) fn with<R>(
        &self,
        work: impl FnOnce(BorrowedFd<'_>, KernelService) -> R,
    ) -> Option<R> {
        let open = self.open.lock().ignore_poison();
        let (socket, service) = (*open)?;
        // SAFETY: the drop of the listener waits for the lock before it closes the descriptor.
        Some(work(unsafe { BorrowedFd::borrow_raw(socket) }, service))
    }

    /// Accepts a connection, without the options of the TCP listener.
    pub(crate) fn accept(&self) -> Option<Result<Option<KernelConnection>, Errno>> {
        let sockets = self.protocol.sockets;
        let flags = SocketFlags::CLOEXEC;
        self.with(|socket, service| sockets.accept(socket, service, flags, self.stack))
    }

    /// Returns true if an executed program uses the listener.
    pub(crate) fn is_marked(&self) -> bool {
        let limit = self.with(|socket, _| sockopt::socket_timeout(socket, Timeout::Send));
        matches!(limit, Some(Ok(Some(_))))
    }

    /// Refuses new connections in all processes.
    pub(crate) fn withdraw(&self) {
        self.with(|socket, _| {
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        });
    }
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
            doorway: OnceLock::new(),
            service: OnceLock::new(),
            stack: OnceLock::new(),
            needs_mark: AtomicBool::new(false),
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
            sockets.accept(self.as_fd(), service, flags, self.stack(socket))
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

    /// Returns the network stack of the namespace in which `socket` listens.
    fn stack(&self, socket: BorrowedFd<'_>) -> Option<&'static NetStack> {
        if let Some(stack) = self.stack.get() {
            return Some(stack);
        }
        let stack = switch::stack_of(socket)?;
        Some(self.stack.get_or_init(|| stack))
    }

    /// Begins the use of the listener next to `socket` by the event thread. `None`: it has begun
    /// already.
    pub(crate) fn open_doorway(
        &self,
        socket: BorrowedFd<'_>,
    ) -> Result<Option<&Arc<Doorway>>, Errno> {
        if self.doorway.get().is_some() {
            return Ok(None);
        }
        let open = (self.number(), self.service()?);
        let doorway = Arc::new(Doorway {
            open: Mutex::new(Some(open)),
            protocol: self.protocol,
            stack: self.stack(socket),
        });
        let is_first = self.doorway.set(doorway).is_ok();
        Ok(self.doorway.get().filter(|_| is_first))
    }

    pub(crate) fn has_doorway(&self, doorway: &Arc<Doorway>) -> bool {
        self.doorway
            .get()
            .is_some_and(|it| Arc::ptr_eq(it, doorway))
    }

    /// Sets the options of the TCP listener on an accepted connection.
    pub(crate) fn carry_over(
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

    /// Records that a process has shut the listener down and its queue is empty.
    pub(crate) fn set_withdrawn(&self) {
        self.is_withdrawn.store(true, Ordering::Relaxed);
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
            unsafe { real::close(self.number()) };
        }
    }

    /// Makes a listener that was inherited over an `exec`. Its first use is recorded in the kernel,
    /// because this program shares no memory with the processes of the former one.
    pub(crate) fn adopted(self) -> Self {
        self.needs_mark.store(true, Ordering::Relaxed);
        self
    }

    /// Records that the program waits for the listener or accepts.
    pub(crate) fn on_used(&self) {
        if self.needs_mark.load(Ordering::Relaxed) {
            self.needs_mark.store(false, Ordering::Relaxed);
            let _ = sockopt::set_socket_timeout(&self.socket, Timeout::Send, Some(MARK));
        }
    }

    pub(crate) fn set_backlog(&self, backlog: i32) {
        let _ = rustix::net::listen(&self.socket, backlog);
    }

    pub(crate) fn number(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Drop for KernelListener {
    fn drop(&mut self) {
        let Some(doorway) = self.doorway.get() else {
            return;
        };
        doorway.open.lock().ignore_poison().take();
        if let Ok(thread) = event_thread() {
            thread.unwatch(&self.socket);
        }
    }
}

impl AsFd for KernelListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
