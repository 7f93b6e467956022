//! `getsockopt` and `setsockopt`.
//!
//! | Option | Here |
//! |---|---|
//! | `SO_ERROR` | the pending error, told once |
//! | `SO_TYPE`, `SO_DOMAIN`, `SO_PROTOCOL`, `SO_ACCEPTCONN` | those of a connected TCP socket |
//! | `SO_RCVTIMEO`, `SO_SNDTIMEO`, `SO_LINGER`, `SO_OOBINLINE` | in force |
//! | `TCP_INFO` | the state, all else zero: the figures are those of TCP's own machinery |
//! | `SO_ZEROCOPY`, `SO_ATTACH_FILTER`, `TCP_ULP`, `TCP_MD5SIG`, `TCP_REPAIR` | `ENOPROTOOPT`, which callers know how to meet |
//! | `SO_KEEPALIVE`, `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`, `TCP_USER_TIMEOUT` | as all others, and in force where the connection runs over TCP |
//! | all others that TCP knows | kept by the TCP socket that the program made, and answered by it |
//!
//! The last row is why each offloaded socket keeps that TCP socket: whatever the program sets is
//! checked and remembered by the kernel itself.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use libc::{
    IPPROTO_TCP, SO_ACCEPTCONN, SO_ATTACH_BPF, SO_ATTACH_FILTER, SO_DOMAIN, SO_ERROR, SO_KEEPALIVE,
    SO_LINGER, SO_OOBINLINE, SO_PROTOCOL, SO_RCVTIMEO, SO_SNDTIMEO, SO_TYPE, SO_ZEROCOPY,
    SOL_SOCKET, TCP_FASTOPEN, TCP_INFO, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_MD5SIG,
    TCP_REPAIR, TCP_ULP, TCP_USER_TIMEOUT, linger, socklen_t, timeval,
};
use ops::Watch as _;
use rustix::io::Errno;
use rustix::net::sockopt;

use crate::process::real;
use crate::socket::identity::Identity;
use crate::socket::names::Family;
use crate::socket::{Socket, inherited};

/// `TCP_ESTABLISHED` and other states, with which `struct tcp_info` begins.
pub(crate) const TCP_ESTABLISHED: u8 = 1;
const TCP_FIN_WAIT2: u8 = 5;
pub(crate) const TCP_CLOSE: u8 = 7;
pub(crate) const TCP_CLOSE_WAIT: u8 = 8;
/// The part of `struct tcp_info` that every kernel has.
const TCP_INFO_LEN: usize = 104;

/// What a socket is set to.
#[derive(Debug)]
pub(crate) struct Options {
    /// `SO_RCVTIMEO`.
    pub(crate) receive_timeout: Option<Duration>,
    /// `SO_SNDTIMEO`.
    pub(crate) send_timeout: Option<Duration>,
    /// `SO_LINGER`.
    pub(crate) linger: Option<Duration>,
    /// `SO_OOBINLINE`.
    pub(crate) urgent_inline: bool,
    /// The TCP socket that checks and remembers all other options.
    native: OwnedFd,
}

/// Options as they were before a fork, for the child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    receive_timeout: Option<Duration>,
    send_timeout: Option<Duration>,
    linger: Option<Duration>,
    urgent_inline: bool,
    native: RawFd,
}

impl Options {
    /// For the child of a fork.
    pub(crate) fn kept(&self) -> Kept {
        Kept {
            receive_timeout: self.receive_timeout,
            send_timeout: self.send_timeout,
            linger: self.linger,
            urgent_inline: self.urgent_inline,
            native: self.native.as_raw_fd(),
        }
    }

    /// In the child of a fork, where nobody else uses the parent's number.
    pub(crate) fn inherited(kept: Kept) -> Self {
        Self {
            receive_timeout: kept.receive_timeout,
            send_timeout: kept.send_timeout,
            linger: kept.linger,
            urgent_inline: kept.urgent_inline,
            // SAFETY: the number came over the fork, and what owned it in the parent is forgotten.
            native: unsafe { OwnedFd::from_raw_fd(kept.native) },
        }
    }

    /// Sets the timeouts on a descriptor that carries bytes.
    pub(crate) fn apply_timeouts(&self, fd: BorrowedFd<'_>) {
        for (of, timeout) in [
            (sockopt::Timeout::Recv, self.receive_timeout),
            (sockopt::Timeout::Send, self.send_timeout),
        ] {
            // A descriptor that does not take it waits without end, as it did before.
            let _ = sockopt::set_socket_timeout(fd, of, timeout);
        }
    }

    /// Those of the TCP socket that the program made.
    pub(crate) fn of(native: OwnedFd) -> Self {
        let fd = native.as_raw_fd();
        let receive_timeout = get::<timeval>(fd, SO_RCVTIMEO).and_then(|value| timeout(&value));
        let send_timeout = get::<timeval>(fd, SO_SNDTIMEO).and_then(|value| timeout(&value));
        let linger = get::<linger>(fd, SO_LINGER).and_then(|value| lingering(&value));
        let urgent_inline = get::<c_int>(fd, SO_OOBINLINE).is_some_and(|value| value != 0);
        Self {
            receive_timeout,
            send_timeout,
            linger,
            urgent_inline,
            native,
        }
    }

    /// Those of a new socket.
    pub(crate) fn fresh(family: Family) -> Result<Self, Errno> {
        Ok(Self::of(inherited::new(family)?))
    }

    /// Those of a socket that was accepted from one that listens.
    pub(crate) fn inherited_from(listening: BorrowedFd<'_>, family: Family) -> Result<Self, Errno> {
        Ok(Self::of(inherited::socket(family, listening)?))
    }
}

impl Identity {
    /// `getsockopt`, of everything but the pending error.
    ///
    /// # Safety
    /// `value` and `len` are null or what the C call demands.
    pub(crate) unsafe fn get_option(
        &self,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        len: *mut socklen_t,
    ) -> Result<(), Errno> {
        let number = match (level, name) {
            (SOL_SOCKET, SO_TYPE) => libc::SOCK_STREAM,
            (SOL_SOCKET, SO_DOMAIN) => self.family.number(),
            (SOL_SOCKET, SO_PROTOCOL) => IPPROTO_TCP,
            (SOL_SOCKET, SO_ACCEPTCONN) => 0,
            // SAFETY: the caller answers for both pointers.
            (IPPROTO_TCP, TCP_INFO) => return unsafe { give_info(TCP_ESTABLISHED, value, len) },
            _ if is_refused(level, name) => return Err(Errno::NOPROTOOPT),
            _ => {
                let fd = self.options().native.as_raw_fd();
                // SAFETY: the caller answers for both pointers.
                let result = unsafe { real::getsockopt(fd, level, name, value, len) };
                return if result == 0 { Ok(()) } else { Err(last()) };
            }
        };
        // SAFETY: the caller answers for both pointers.
        unsafe { give_number(number, value, len) }
    }

    /// `setsockopt`.
    ///
    /// # Safety
    /// `value` is null or points to `len` bytes.
    pub(crate) unsafe fn set_option(
        &self,
        level: c_int,
        name: c_int,
        value: *const c_void,
        len: socklen_t,
    ) -> Result<(), Errno> {
        if is_refused(level, name) {
            return Err(Errno::NOPROTOOPT);
        }
        let mut options = self.options();
        let fd = options.native.as_raw_fd();
        // SAFETY: the caller answers for the value.
        if unsafe { real::setsockopt(fd, level, name, value, len) } != 0 {
            return Err(last());
        }
        if level != SOL_SOCKET {
            return Ok(());
        }
        // What the kernel has taken is asked back, so that its checks and roundings are ours.
        match name {
            SO_RCVTIMEO => {
                options.receive_timeout =
                    get::<timeval>(fd, name).and_then(|value| timeout(&value));
            }
            SO_SNDTIMEO => {
                options.send_timeout = get::<timeval>(fd, name).and_then(|value| timeout(&value));
            }
            SO_LINGER => {
                options.linger = get::<linger>(fd, name).and_then(|value| lingering(&value));
            }
            SO_OOBINLINE => {
                options.urgent_inline = get::<c_int>(fd, name).is_some_and(|value| value != 0);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Socket {
    /// The program has set an option, which the connection follows if it is about the peer.
    pub(crate) fn has_option_set(&self, level: c_int, name: c_int) -> Result<(), Errno> {
        if (level, name) == (SOL_SOCKET, SO_OOBINLINE) {
            self.reads_urgent_as_set();
        }
        if is_about_peer(level, name) {
            self.stream.watch_peer_like(self.options().native.as_fd())?;
        }
        Ok(())
    }

    fn reads_urgent_as_set(&self) {
        let inline = self.options().urgent_inline;
        self.stream.set_urgent_inline(inline);
        if inline && self.stream.readiness().readable {
            // The urgent byte has come before, and counts from now on.
            self.observer.arrived();
        }
    }

    /// The connection follows what was set before it was made.
    pub(super) fn behaves_as_set(&self) -> Result<(), Errno> {
        if self.options().urgent_inline {
            self.reads_urgent_as_set();
        }
        let options = self.options();
        let native = options.native.as_fd();
        if sockopt::socket_keepalive(native)? || sockopt::tcp_user_timeout(native)? > 0 {
            self.stream.watch_peer_like(native)?;
        }
        Ok(())
    }
}

/// Options by which TCP finds out that a peer has vanished.
fn is_about_peer(level: c_int, name: c_int) -> bool {
    match level {
        SOL_SOCKET => name == SO_KEEPALIVE,
        IPPROTO_TCP => matches!(
            name,
            TCP_USER_TIMEOUT | TCP_KEEPIDLE | TCP_KEEPINTVL | TCP_KEEPCNT
        ),
        _ => false,
    }
}

/// Options that mean something to bytes on their way through the kernel's TCP, which ours are not.
pub(crate) fn is_refused(level: c_int, name: c_int) -> bool {
    match level {
        SOL_SOCKET => matches!(name, SO_ZEROCOPY | SO_ATTACH_FILTER | SO_ATTACH_BPF),
        IPPROTO_TCP => matches!(name, TCP_ULP | TCP_MD5SIG | TCP_REPAIR | TCP_FASTOPEN),
        _ => false,
    }
}

pub(crate) fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// A `SOL_SOCKET` option of plain integers.
fn get<T>(fd: c_int, name: c_int) -> Option<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as socklen_t;
    // SAFETY: room for the value, whose size is told.
    let result = unsafe {
        real::getsockopt(
            fd,
            SOL_SOCKET,
            name,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    // SAFETY: the callers' types are plain integers, for which zeroes are a value as well.
    (result == 0).then(|| unsafe { value.assume_init() })
}

/// Sets an option that is a number on a socket of the kernel's.
pub(crate) fn set_number(fd: c_int, level: c_int, name: c_int, value: c_int) -> Result<(), Errno> {
    let len = size_of::<c_int>() as socklen_t;
    // SAFETY: a number of ours, whose size is told.
    let result = unsafe { real::setsockopt(fd, level, name, (&raw const value).cast(), len) };
    if result == 0 { Ok(()) } else { Err(last()) }
}

fn timeout(value: &timeval) -> Option<Duration> {
    let seconds = u64::try_from(value.tv_sec).ok()?;
    let micros = u32::try_from(value.tv_usec).ok()?;
    let timeout = Duration::new(seconds, micros.saturating_mul(1000));
    (!timeout.is_zero()).then_some(timeout)
}

fn lingering(value: &linger) -> Option<Duration> {
    let seconds = u64::try_from(value.l_linger).unwrap_or(0);
    (value.l_onoff != 0).then_some(Duration::from_secs(seconds))
}

/// Answers `getsockopt` with a number.
///
/// # Safety
/// `value` and `len` are null or what the C call demands.
pub(crate) unsafe fn give_number(
    number: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Result<(), Errno> {
    // SAFETY: the caller answers for both pointers.
    unsafe { put(&number.to_ne_bytes(), value, len) }
}

/// Answers `TCP_INFO`.
pub(crate) unsafe fn give_info(
    state: u8,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Result<(), Errno> {
    let mut info = [0; TCP_INFO_LEN];
    info[0] = state;
    // SAFETY: the caller answers for both pointers.
    unsafe { put(&info, value, len) }
}

/// Whether an option is told of by whoever carries the connection.
pub(crate) fn is_of_carrier(level: c_int, name: c_int) -> bool {
    matches!(
        (level, name),
        (SOL_SOCKET, SO_ERROR) | (IPPROTO_TCP, TCP_INFO)
    )
}

impl Socket {
    /// Answers an option that [`is_of_carrier`].
    ///
    /// # Safety
    /// `value` and `len` are null or what the C call demands.
    pub(crate) unsafe fn get_option(
        &self,
        fd: BorrowedFd<'_>,
        name: c_int,
        value: *mut c_void,
        len: *mut socklen_t,
    ) -> Result<(), Errno> {
        if name == SO_ERROR {
            let error = self.take_error(fd);
            // SAFETY: the caller answers for both pointers.
            return unsafe { give_number(error, value, len) };
        }
        let observer = self.observer();
        let state = match (observer.has_shut_down(), observer.shows_end_of_peer()) {
            _ if observer.is_broken() => TCP_CLOSE,
            (false, false) => TCP_ESTABLISHED,
            (true, false) => TCP_FIN_WAIT2,
            (false, true) => TCP_CLOSE_WAIT,
            (true, true) => TCP_CLOSE,
        };
        // SAFETY: the caller answers for both pointers.
        unsafe { give_info(state, value, len) }
    }
}

/// Copies a value out as `getsockopt` does: cut to the caller's room, which becomes what was cut.
pub(crate) unsafe fn put(
    bytes: &[u8],
    value: *mut c_void,
    len: *mut socklen_t,
) -> Result<(), Errno> {
    if value.is_null() || len.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller answers for `len`.
    let room = unsafe { *len };
    if room.cast_signed() < 0 {
        return Err(Errno::INVAL);
    }
    let count = bytes.len().min(room as usize);
    // SAFETY: the caller has room for `room` bytes; `count` is not more and not beyond `bytes`.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), count);
        *len = count as socklen_t;
    }
    Ok(())
}
