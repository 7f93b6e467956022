//! The answers of a connection within the host.

use std::ffi::{c_int, c_ulong};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libc::{
    SO_ERROR, SO_KEEPALIVE, SO_LINGER, SO_OOBINLINE, SO_PRIORITY, SO_RCVTIMEO, SO_SNDTIMEO,
    SOL_SOCKET,
};
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::fd::{AddressRoom, Answer, End, Kind, Operations, OptionRoom, OptionValue};
use crate::local::{addresses, ends, options};
use crate::process::{errno, real};
use crate::socket::local::LocalSocket;
use crate::socket::requests;
use crate::tcp::inherited::{self, Value};
use crate::tcp::{names, tcp_only};

/// The options that the kernel keeps for a local connection. The sizes of its buffers are not those
/// of a TCP socket.
const OF_LOCAL: [c_int; 6] = [
    SO_KEEPALIVE,
    SO_LINGER,
    SO_OOBINLINE,
    SO_PRIORITY,
    SO_RCVTIMEO,
    SO_SNDTIMEO,
];

/// `SAFETY` comments in this file call the contract of the trait *the caller's contract*.
impl Operations for LocalSocket {
    fn kind(&self) -> Kind {
        Kind::Local
    }

    unsafe fn name(&self, fd: BorrowedFd<'_>, end: End, room: AddressRoom) -> Answer<()> {
        let Some((family, of)) = addresses(fd.as_raw_fd()) else {
            return Answer::Native;
        };
        let address = match end {
            End::Local => of.local,
            End::Peer if ends::is_over(self, fd) => return Answer::Is(Err(Errno::NOTCONN)),
            End::Peer => of.peer,
        };
        // SAFETY: the caller's contract.
        unsafe { names::write_address(address, family, room.address, room.len) }.into()
    }

    unsafe fn get_option(&self, fd: BorrowedFd<'_>, option: OptionRoom) -> Answer<()> {
        if !options::is_of_kind(option.level, option.name) {
            // SAFETY: the caller's contract.
            let answer = unsafe { option.native(fd.as_raw_fd()) };
            match errno::check(answer).map(drop) {
                Err(Errno::OPNOTSUPP) => {}
                answer => {
                    if answer.is_ok() && (option.level, option.name) == (SOL_SOCKET, SO_ERROR) {
                        // SAFETY: the kernel has written to the pointers.
                        unsafe { take_error(self, fd, option) };
                    }
                    return answer.into();
                }
            }
        }
        // SAFETY: the caller's contract.
        let answer = unsafe { options::get(fd.as_raw_fd(), option) };
        answer.map_or(Answer::Native, Answer::Is)
    }

    unsafe fn set_option(&self, fd: BorrowedFd<'_>, option: OptionValue) -> Answer<()> {
        if !options::is_of_kind(option.level, option.name) {
            // SAFETY: the caller's contract.
            let set = unsafe { option.native(fd.as_raw_fd()) };
            let set = errno::check(set).map(drop);
            if set.is_ok() {
                tcp_only::on_option_set(option.level, option.name);
            }
            if set != Err(Errno::OPNOTSUPP) {
                return set.into();
            }
        }
        // SAFETY: the caller's contract.
        let set = unsafe { options::set(fd.as_raw_fd(), option) };
        set.map_or(Answer::Native, Answer::Is)
    }

    unsafe fn request(&self, fd: BorrowedFd<'_>, request: c_ulong, argument: usize) -> Answer<()> {
        // SAFETY: the caller's contract.
        let answer = unsafe { real::ioctl(fd.as_raw_fd(), request, argument) };
        match errno::check(answer).map(drop) {
            Err(why) if request == requests::NOT_SENT && why != Errno::FAULT => {
                // All written bytes have been delivered to the peer's socket.
                let to = argument as *mut c_int;
                // SAFETY: by the caller's contract the argument is null or points to an integer.
                if let Some(to) = unsafe { to.as_mut() } {
                    *to = 0;
                }
                Answer::Is(Ok(()))
            }
            answer => Answer::Is(answer),
        }
    }

    unsafe fn request_of_tcp(
        &self,
        fd: BorrowedFd<'_>,
        request: c_ulong,
        argument: usize,
    ) -> Answer<c_int> {
        // SAFETY: the caller's contract.
        let answer = unsafe { options::request(fd.as_raw_fd(), request, argument) };
        Answer::Is(answer.ok_or(Errno::NOTTY).and_then(errno::check))
    }

    fn shut_down(&self, fd: BorrowedFd<'_>, how: c_int) -> Answer<()> {
        let is_valid = matches!(how, libc::SHUT_RD | libc::SHUT_WR | libc::SHUT_RDWR);
        if is_valid && ends::is_over(self, fd) {
            return Answer::Is(Err(Errno::NOTCONN));
        }
        // SAFETY: the call takes no pointers.
        let ended = errno::check(unsafe { real::shutdown(fd.as_raw_fd(), how) }).map(drop);
        if ended.is_ok() {
            ends::on_shut_down(self, fd, how);
        }
        ended.into()
    }

    fn connect(&self, _fd: BorrowedFd<'_>) -> Answer<()> {
        match self.take_connect_result() {
            true => Answer::Is(Ok(())),
            false => Answer::Native,
        }
    }

    /// Other descriptors of the connection, here and in other processes, have ended too.
    fn disconnected(&self, fd: BorrowedFd<'_>) -> Option<Result<OwnedFd, Errno>> {
        let (family, _) = addresses(fd.as_raw_fd())?;
        let tcp = inherited::new(family).inspect(|tcp| {
            self.kept().apply(tcp.as_fd());
            for name in OF_LOCAL {
                if let Some(value) = Value::of(fd.as_raw_fd(), SOL_SOCKET, name) {
                    value.set(tcp.as_raw_fd(), SOL_SOCKET, name);
                }
            }
        });
        let _ = rustix::net::shutdown(fd, Shutdown::Both);
        Some(tcp)
    }
}

/// Completes the value of `SO_ERROR`.
///
/// # Safety
/// The kernel has written to the pointers.
unsafe fn take_error(socket: &LocalSocket, fd: BorrowedFd<'_>, option: OptionRoom) {
    // SAFETY: the caller guarantees the pointer.
    let len = unsafe { option.len.read_unaligned() };
    if (len as usize) < size_of::<c_int>() {
        return;
    }
    let value = option.value.cast::<c_int>();
    // SAFETY: there is room for the number, and both accesses permit any alignment.
    unsafe { value.write_unaligned(ends::take_error(socket, fd, value.read_unaligned())) };
}
