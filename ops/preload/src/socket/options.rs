//! `getsockopt` and `setsockopt`.
//!
//! | Option | Result |
//! |---|---|
//! | `SO_ERROR` | the pending error, returned once |
//! | `SO_TYPE`, `SO_DOMAIN`, `SO_PROTOCOL`, `SO_ACCEPTCONN` | those of a connected TCP socket |
//! | `SO_RCVTIMEO`, `SO_SNDTIMEO`, `SO_LINGER`, `SO_OOBINLINE` | applied by this library |
//! | `TCP_INFO` | the state; all other fields are zero, because they describe the machinery of TCP |
//! | `SO_ZEROCOPY`, `SO_ATTACH_FILTER`, `TCP_ULP`, `TCP_MD5SIG`, `TCP_REPAIR` | `ENOPROTOOPT`, which callers handle |
//! | `TCP_FASTOPEN`, `TCP_FASTOPEN_CONNECT` | `EINVAL` if the program sets them, as on a connection over TCP |
//! | `SO_PEERNAME` | the peer's address |
//! | `SO_PEEK_OFF` | `EOPNOTSUPP`, as in kernels whose TCP lacks it |
//! | `SO_KEEPALIVE`, `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`, `TCP_USER_TIMEOUT` | stored like all other options, and applied if the protocol runs over TCP |
//! | `SO_RCVLOWAT` | stored like all other options, and applied by this library and the protocol |
//! | `SO_SNDBUF` | stored like all other options, and bounds the bytes that the protocol queues |
//! | all other options of TCP | stored in and answered by the TCP socket that the program made |
//!
//! Each offloaded socket keeps that TCP socket, so that the kernel itself checks and stores the
//! options.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::Ordering;

use libc::{
    IPPROTO_TCP, SO_ACCEPTCONN, SO_DOMAIN, SO_ERROR, SO_KEEPALIVE, SO_OOBINLINE, SO_PROTOCOL,
    SO_RCVLOWAT, SO_SNDBUF, SO_SNDBUFFORCE, SO_TYPE, SOL_SOCKET, TCP_INFO, TCP_KEEPCNT,
    TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_USER_TIMEOUT,
};
use ops::Watch as _;
use rustix::io::Errno;
use rustix::net::sockopt;

use crate::fd::{OptionRoom, OptionValue};
use crate::process::errno;
use crate::socket::Socket;
use crate::socket::identity::Identity;
use crate::tcp::buffers;
use crate::tcp::options::{
    SO_PEERNAME, TCP_CLOSE, TCP_CLOSE_WAIT, TCP_ESTABLISHED, TCP_FIN_WAIT2, is_refused, refusal,
    write_info, write_number, write_peer_name,
};

impl Identity {
    /// Performs `getsockopt` for all options except those of [`is_of_carrier`].
    ///
    /// # Safety
    /// The pointers are null or what the C call demands.
    pub(super) unsafe fn get_option(&self, option: OptionRoom) -> Result<(), Errno> {
        let OptionRoom { value, len, .. } = option;
        let (level, name) = (option.level, option.name);
        let number = match (level, name) {
            (SOL_SOCKET, SO_TYPE) => libc::SOCK_STREAM,
            (SOL_SOCKET, SO_DOMAIN) => self.family.number(),
            (SOL_SOCKET, SO_PROTOCOL) => IPPROTO_TCP,
            (SOL_SOCKET, SO_ACCEPTCONN) => 0,
            (SOL_SOCKET, SO_PEERNAME) => {
                // SAFETY: the caller guarantees that both pointers are null or valid.
                return unsafe { write_peer_name(self.peer, self.family, value, len) };
            }
            // SAFETY: the caller guarantees that both pointers are null or valid.
            (IPPROTO_TCP, TCP_INFO) => return unsafe { write_info(TCP_ESTABLISHED, value, len) },
            _ if is_refused(level, name) => return Err(Errno::NOPROTOOPT),
            _ => {
                let fd = self.options().native().as_raw_fd();
                // SAFETY: the caller guarantees that both pointers are null or valid.
                return errno::check(unsafe { option.native(fd) }).map(drop);
            }
        };
        // SAFETY: the caller guarantees that both pointers are null or valid.
        unsafe { write_number(number, value, len) }
    }

    /// Performs `setsockopt`.
    ///
    /// # Safety
    /// The value is null or has the length of the option.
    pub(super) unsafe fn set_option(&self, option: OptionValue) -> Result<(), Errno> {
        let (level, name) = (option.level, option.name);
        if let Some(error) = refusal(level, name) {
            return Err(error);
        }
        if (level, name) == (SOL_SOCKET, libc::SO_PEEK_OFF) {
            // The error of kernels whose TCP has no such option. The option would have no effect.
            return Err(Errno::OPNOTSUPP);
        }
        // SAFETY: the caller guarantees the value.
        unsafe { self.options().set(option) }
    }
}

impl Socket {
    /// Applies an option that the program has set, if it concerns the connection.
    pub(super) fn apply_option(
        &self,
        fd: BorrowedFd<'_>,
        level: c_int,
        name: c_int,
    ) -> Result<(), Errno> {
        if (level, name) == (SOL_SOCKET, SO_OOBINLINE) {
            self.apply_urgent_inline();
        }
        if level == SOL_SOCKET && matches!(name, SO_SNDBUF | SO_SNDBUFFORCE) {
            self.apply_send_bound();
        }
        if (level, name) == (SOL_SOCKET, SO_RCVLOWAT) {
            self.apply_receive_low(fd);
        }
        if is_about_peer(level, name) {
            self.stream.watch_peer_like(self.options().native())?;
        }
        Ok(())
    }

    fn apply_urgent_inline(&self) {
        let inline = self.options().is_urgent_inline;
        self.stream.set_urgent_inline(inline);
        if inline && self.stream.readiness().readable {
            // An urgent byte that arrived before is part of the stream from now on.
            self.observer.arrived();
        }
    }

    fn apply_receive_low(&self, fd: BorrowedFd<'_>) {
        let low = buffers::receive_low(self.options().native());
        self.receive_low.store(low, Ordering::Relaxed);
        self.stream.set_receive_low(low);
        if !self.stream.readiness().readable {
            self.observer.clear_announcement(fd);
            self.show_all();
        }
    }

    fn apply_send_bound(&self) {
        if let Some(bytes) = buffers::send_bound(self.options().native()) {
            self.stream.set_send_bound(bytes);
        }
    }

    /// Applies the options that the program set before the connection was made.
    pub(super) fn apply_initial_options(&self) -> Result<(), Errno> {
        if self.options().is_urgent_inline {
            self.apply_urgent_inline();
        }
        self.apply_send_bound();
        let options = self.options();
        let native = options.native();
        if sockopt::socket_keepalive(native)? || sockopt::tcp_user_timeout(native)? > 0 {
            self.stream.watch_peer_like(native)?;
        }
        Ok(())
    }
}

/// Returns true for options that control how TCP detects that a peer has vanished.
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

/// Returns true for an option that only the process that owns the connection can answer.
pub(super) fn is_of_carrier(option: OptionRoom) -> bool {
    option.is(SOL_SOCKET, SO_ERROR) || option.is(IPPROTO_TCP, TCP_INFO)
}

impl Socket {
    /// Performs `getsockopt` for an option of [`is_of_carrier`].
    ///
    /// # Safety
    /// The pointers are null or what the C call demands.
    pub(super) unsafe fn get_own_option(
        &self,
        fd: BorrowedFd<'_>,
        option: OptionRoom,
    ) -> Result<(), Errno> {
        let OptionRoom { value, len, .. } = option;
        if option.name == SO_ERROR {
            let error = self.take_error(fd);
            // SAFETY: the caller guarantees that both pointers are null or valid.
            return unsafe { write_number(error, value, len) };
        }
        let state = self.observer.state();
        let state = match (state.has_shut_down(), state.has_peer_ended()) {
            _ if state.is_broken() => TCP_CLOSE,
            (false, false) => TCP_ESTABLISHED,
            (true, false) => TCP_FIN_WAIT2,
            (false, true) => TCP_CLOSE_WAIT,
            (true, true) => TCP_CLOSE,
        };
        // SAFETY: the caller guarantees that both pointers are null or valid.
        unsafe { write_info(state, value, len) }
    }
}
