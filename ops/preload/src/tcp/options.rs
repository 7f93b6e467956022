//! The options of a TCP socket: those that this library applies itself, and answers to `getsockopt`
//! and `setsockopt`.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use host::descriptors::OwnDescriptor;
use libc::{
    IPPROTO_TCP, SO_ATTACH_BPF, SO_ATTACH_FILTER, SO_LINGER, SO_OOBINLINE, SO_RCVTIMEO,
    SO_SNDTIMEO, SO_ZEROCOPY, SOL_SOCKET, TCP_FASTOPEN, TCP_FASTOPEN_CONNECT,
    TCP_FASTOPEN_NO_COOKIE, TCP_MD5SIG, TCP_REPAIR, TCP_ULP, linger, socklen_t, timeval,
};
use rustix::io::Errno;
use rustix::net::sockopt;

use crate::fd::OptionValue;
use crate::process::{errno, real};
use crate::tcp::inherited;
use crate::tcp::names::{self, Family};
use crate::tcp::tcp_only::TCP_INQ;

/// States of TCP in the first byte of `struct tcp_info`.
pub(crate) const TCP_ESTABLISHED: u8 = 1;
pub(crate) const TCP_FIN_WAIT2: u8 = 5;
pub(crate) const TCP_CLOSE: u8 = 7;
pub(crate) const TCP_CLOSE_WAIT: u8 = 8;
/// The length of the part of `struct tcp_info` that every kernel has, in bytes.
const TCP_INFO_LEN: usize = 104;

#[derive(Debug)]
pub(crate) struct Options {
    /// `SO_RCVTIMEO`.
    pub(crate) receive_timeout: Option<Duration>,
    /// `SO_SNDTIMEO`.
    pub(crate) send_timeout: Option<Duration>,
    /// `SO_LINGER`.
    pub(crate) linger: Option<Duration>,
    /// `SO_OOBINLINE`.
    pub(crate) is_urgent_inline: bool,
    /// The TCP socket that checks and keeps all other options.
    native: OwnDescriptor,
}

/// A copy of the options from before a fork, for the child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OptionsCopy {
    receive_timeout: Option<Duration>,
    send_timeout: Option<Duration>,
    linger: Option<Duration>,
    is_urgent_inline: bool,
    native: RawFd,
}

impl Options {
    /// Returns a copy for the child of a fork.
    pub(crate) fn copied(&self) -> OptionsCopy {
        OptionsCopy {
            receive_timeout: self.receive_timeout,
            send_timeout: self.send_timeout,
            linger: self.linger,
            is_urgent_inline: self.is_urgent_inline,
            native: self.native.as_raw_fd(),
        }
    }

    /// Makes the child's options after a fork. The child takes over the inherited descriptor.
    pub(crate) fn inherited(copied: OptionsCopy) -> Self {
        Self {
            receive_timeout: copied.receive_timeout,
            send_timeout: copied.send_timeout,
            linger: copied.linger,
            is_urgent_inline: copied.is_urgent_inline,
            // SAFETY: the number was inherited over the fork, and its owner in the parent's memory
            // is never dropped in the child.
            native: unsafe { OwnedFd::from_raw_fd(copied.native) }.into(),
        }
    }

    /// Sets the timeouts on a descriptor that carries bytes.
    pub(crate) fn apply_timeouts(&self, fd: BorrowedFd<'_>) {
        for (of, timeout) in [
            (sockopt::Timeout::Recv, self.receive_timeout),
            (sockopt::Timeout::Send, self.send_timeout),
        ] {
            // If the descriptor refuses a timeout, a call waits without limit, which is the
            // default.
            let _ = sockopt::set_socket_timeout(fd, of, timeout);
        }
    }

    /// Reads the options of the TCP socket that the program made.
    pub(crate) fn of(native: OwnedFd) -> Self {
        let fd = native.as_raw_fd();
        Self {
            receive_timeout: timeout_of(fd, SO_RCVTIMEO),
            send_timeout: timeout_of(fd, SO_SNDTIMEO),
            linger: linger_of(fd),
            is_urgent_inline: has_urgent_inline(fd),
            native: native.into(),
        }
    }

    /// Returns the options of a new socket.
    pub(crate) fn fresh(family: Family) -> Result<Self, Errno> {
        Ok(Self::of(inherited::new(family)?))
    }

    /// Returns the options of a socket that is accepted from a listening socket.
    pub(crate) fn inherited_from(listening: BorrowedFd<'_>, family: Family) -> Result<Self, Errno> {
        Ok(Self::of(inherited::socket(family, listening)?))
    }

    /// Returns the TCP socket that checks and keeps the options.
    pub(crate) fn native(&self) -> BorrowedFd<'_> {
        self.native.as_fd()
    }

    /// Sets an option after the kernel has checked it.
    ///
    /// # Safety
    /// The value is null or has the length of the option.
    pub(crate) unsafe fn set(&mut self, option: OptionValue) -> Result<(), Errno> {
        let (fd, name) = (self.native.as_raw_fd(), option.name);
        // SAFETY: the caller guarantees the value.
        errno::check(unsafe { option.native(fd) })?;
        if option.level != SOL_SOCKET {
            return Ok(());
        }
        // The value is read back, so that the kernel's checks and rounding apply here too.
        match name {
            SO_RCVTIMEO => self.receive_timeout = timeout_of(fd, name),
            SO_SNDTIMEO => self.send_timeout = timeout_of(fd, name),
            SO_LINGER => self.linger = linger_of(fd),
            SO_OOBINLINE => self.is_urgent_inline = has_urgent_inline(fd),
            _ => {}
        }
        Ok(())
    }
}

/// Returns true for options of the packets of the kernel's TCP, and for those whose effect this
/// library does not imitate. They are refused as by kernels without them, so that programs use
/// other means.
pub(crate) fn is_refused(level: c_int, name: c_int) -> bool {
    match level {
        SOL_SOCKET => matches!(name, SO_ZEROCOPY | SO_ATTACH_FILTER | SO_ATTACH_BPF),
        IPPROTO_TCP => matches!(name, TCP_ULP | TCP_MD5SIG | TCP_REPAIR | TCP_INQ),
        _ => false,
    }
}

/// Returns the error of setting an option that no connection of an offload protocol has, or that
/// can be set only before a connection is made.
pub(crate) fn refusal(level: c_int, name: c_int) -> Option<Errno> {
    match (level, name) {
        _ if is_refused(level, name) => Some(Errno::NOPROTOOPT),
        (IPPROTO_TCP, TCP_FASTOPEN | TCP_FASTOPEN_CONNECT | TCP_FASTOPEN_NO_COOKIE) => {
            Some(Errno::INVAL)
        }
        _ => None,
    }
}

/// Reads a `SOL_SOCKET` option that consists of plain integers.
fn get<T>(fd: c_int, name: c_int) -> Option<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as socklen_t;
    // SAFETY: the buffer has room for a value of this size.
    let result = unsafe {
        real::getsockopt(
            fd,
            SOL_SOCKET,
            name,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    // SAFETY: the callers' types are plain integers, for which zeroes are a valid value.
    (result == 0).then(|| unsafe { value.assume_init() })
}

/// Sets an integer option of a kernel socket.
pub(crate) fn set_number(fd: c_int, level: c_int, name: c_int, value: c_int) -> Result<(), Errno> {
    let len = size_of::<c_int>() as socklen_t;
    // SAFETY: the pointer is to an integer of this size.
    let result = unsafe { real::setsockopt(fd, level, name, (&raw const value).cast(), len) };
    errno::check(result).map(drop)
}

fn timeout_of(fd: c_int, name: c_int) -> Option<Duration> {
    let value = get::<timeval>(fd, name)?;
    let seconds = u64::try_from(value.tv_sec).ok()?;
    let micros = u32::try_from(value.tv_usec).ok()?;
    let timeout = Duration::new(seconds, micros.saturating_mul(1000));
    (!timeout.is_zero()).then_some(timeout)
}

fn linger_of(fd: c_int) -> Option<Duration> {
    let value = get::<linger>(fd, SO_LINGER)?;
    let seconds = u64::try_from(value.l_linger).unwrap_or(0);
    (value.l_onoff != 0).then_some(Duration::from_secs(seconds))
}

fn has_urgent_inline(fd: c_int) -> bool {
    get::<c_int>(fd, SO_OOBINLINE).is_some_and(|value| value != 0)
}

/// Answers `getsockopt` with a number.
///
/// # Safety
/// `value` and `len` are null or what the C call demands.
pub(crate) unsafe fn write_number(
    number: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Result<(), Errno> {
    // SAFETY: the caller guarantees that both pointers are null or valid.
    unsafe { put(&number.to_ne_bytes(), value, len) }
}

/// Answers `TCP_INFO` with this state.
///
/// # Safety
/// `value` and `len` are null or what the C call demands.
pub(crate) unsafe fn write_info(
    state: u8,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Result<(), Errno> {
    let mut info = [0; TCP_INFO_LEN];
    info[0] = state;
    // SAFETY: the caller guarantees that both pointers are null or valid.
    unsafe { put(&info, value, len) }
}

/// `SO_PEERNAME`, from `asm-generic/socket.h`.
pub(crate) const SO_PEERNAME: c_int = 28;

/// Writes the value of [`SO_PEERNAME`]. A program may read only the first bytes of the value.
///
/// # Safety
/// `value` and `len` are null or what the C call demands.
pub(crate) unsafe fn write_peer_name(
    peer: SocketAddr,
    family: Family,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Result<(), Errno> {
    let (bytes, whole) = names::raw(family.shown(peer));
    // SAFETY: the caller guarantees that the pointer is null or valid.
    let room = unsafe { len.as_ref() }.map_or(0, |len| *len as usize);
    if room > whole {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller guarantees both pointers.
    unsafe { put(&bytes[..whole], value, len) }
}

/// Copies a value out as `getsockopt` does: truncated to the caller's room; `len` gets the copied
/// length.
///
/// # Safety
/// `value` and `len` are null or what the C call demands.
pub(crate) unsafe fn put(
    bytes: &[u8],
    value: *mut c_void,
    len: *mut socklen_t,
) -> Result<(), Errno> {
    if value.is_null() || len.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: `len` is not null, and the caller guarantees that it is valid then.
    let room = unsafe { *len };
    if room.cast_signed() < 0 {
        return Err(Errno::INVAL);
    }
    let count = bytes.len().min(room as usize);
    // SAFETY: the caller guarantees room for `room` bytes, and `count` exceeds neither `room` nor
    // the length of `bytes`.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), count);
        *len = count as socklen_t;
    }
    Ok(())
}
