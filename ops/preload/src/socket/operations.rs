//! The answers of a connection whose bytes this process moves.

use std::ffi::{c_int, c_ulong};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::io::Errno;

use crate::fd::{AddressRoom, Answer, End, Kind, Operations, OptionRoom, OptionValue};
use crate::process::{self, errno, real};
use crate::socket::Socket;
use crate::socket::identity::Identity;
use crate::socket::options::is_of_carrier;
use crate::tcp::inherited;
use crate::tcp::names::write_address;

/// `SAFETY` comments in this file call the contract of the trait *the caller's contract*.
impl Operations for Socket {
    fn kind(&self) -> Kind {
        Kind::Socket
    }

    unsafe fn name(&self, fd: BorrowedFd<'_>, end: End, room: AddressRoom) -> Answer<()> {
        // SAFETY: the caller's contract.
        unsafe { self.identity.write_name(fd, end, room) }.into()
    }

    unsafe fn get_option(&self, fd: BorrowedFd<'_>, option: OptionRoom) -> Answer<()> {
        if is_of_carrier(option) {
            // SAFETY: the caller's contract.
            return self.in_call(|| unsafe { self.get_own_option(fd, option) });
        }
        // SAFETY: the caller's contract.
        unsafe { self.identity.get_option(option) }.into()
    }

    unsafe fn set_option(&self, fd: BorrowedFd<'_>, option: OptionValue) -> Answer<()> {
        // SAFETY: the caller's contract.
        let set = unsafe { self.identity.set_option(option) };
        set.and_then(|()| self.apply_option(fd, option.level, option.name))
            .into()
    }

    unsafe fn request(&self, _fd: BorrowedFd<'_>, request: c_ulong, argument: usize) -> Answer<()> {
        // SAFETY: the caller's contract.
        self.in_call(|| unsafe { self.answer_request(request, argument) })
    }

    unsafe fn request_of_tcp(
        &self,
        _fd: BorrowedFd<'_>,
        request: c_ulong,
        argument: usize,
    ) -> Answer<c_int> {
        // SAFETY: the caller's contract.
        unsafe { self.identity.request_of_tcp(request, argument) }.into()
    }

    fn transfer(&self, _fd: BorrowedFd<'_>, work: &mut dyn FnMut()) -> Answer<()> {
        self.in_call(|| {
            work();
            Ok(())
        })
    }

    fn shut_down(&self, _fd: BorrowedFd<'_>, how: c_int) -> Answer<()> {
        self.in_call(|| self.end_directions(how))
    }

    fn connect(&self, _fd: BorrowedFd<'_>) -> Answer<()> {
        Answer::Is(match self.take_connect_result() {
            true => Ok(()),
            false => Err(Errno::ISCONN),
        })
    }

    fn disconnected(&self, _fd: BorrowedFd<'_>) -> Option<Result<OwnedFd, Errno>> {
        Some(self.identity.disconnected())
    }

    fn is_of_this_process(&self) -> bool {
        self.maker == process::id()
    }

    /// The entry is added within a call, because a handover waits for calls in progress. A handover
    /// replaces the entries of all descriptors of a connection and would miss one that is added
    /// meanwhile, whose calls would then wait for ever.
    fn duplicate(&self, insert: &mut dyn FnMut()) -> bool {
        let add = || {
            self.add_number();
            insert();
            Ok(())
        };
        matches!(self.in_call(add), Answer::Is(_))
    }

    fn on_closed(self: Arc<Self>) -> Option<Instant> {
        if self.numbers.fetch_sub(1, Ordering::AcqRel) != 1 {
            return None;
        }
        match self.observer.relay() {
            // Other processes may hold the connection. It ends when no process holds it.
            Some(relay) => {
                relay.on_owner_closed();
                None
            }
            None => self.close(),
        }
    }

    fn await_delivery(&self, until: Instant) {
        self.await_all_delivered(until);
    }
}

impl Socket {
    /// Makes a call that only the process that moves the bytes can answer. If another process has
    /// requested the connection, waits for the decision.
    fn in_call<T>(&self, call: impl FnOnce() -> Result<T, Errno>) -> Answer<T> {
        if let Some(_call) = self.begin_call() {
            return call().into();
        }
        self.await_decision();
        Answer::Again
    }
}

impl Identity {
    /// Performs `getsockname` or `getpeername`. The kernel names the peer of a Unix socket that has
    /// closed, but not that of a TCP socket.
    ///
    /// # Safety
    /// The pointers are null or what the C call demands.
    pub(super) unsafe fn write_name(
        &self,
        fd: BorrowedFd<'_>,
        end: End,
        room: AddressRoom,
    ) -> Result<(), Errno> {
        let address = match end {
            End::Local => self.local,
            End::Peer if process::has_hung_up(fd) => return Err(Errno::NOTCONN),
            End::Peer => self.peer,
        };
        // SAFETY: the caller guarantees the pointers.
        unsafe { write_address(address, self.family, room.address, room.len) }
    }

    /// Performs an `ioctl` on the TCP socket that keeps the options.
    ///
    /// # Safety
    /// `argument` is valid for the request.
    pub(super) unsafe fn request_of_tcp(
        &self,
        request: c_ulong,
        argument: usize,
    ) -> Result<c_int, Errno> {
        let tcp = self.options().native().as_raw_fd();
        // SAFETY: the caller guarantees the argument.
        errno::check(unsafe { real::ioctl(tcp, request, argument) })
    }

    /// Makes a TCP socket with the options of the connection.
    pub(super) fn disconnected(&self) -> Result<OwnedFd, Errno> {
        inherited::socket(self.family, self.options().native())
    }
}
