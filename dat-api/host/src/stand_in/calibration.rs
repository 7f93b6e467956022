//! The send buffer size with which the library can control the readiness of a program's end.
//!
//! The kernel reports a Unix socket as writable as long as four times the memory of its unread
//! messages fits into its send buffer. The memory of a one-byte message depends on the kernel, so
//! the size is found by trial, once per process: with one unread byte the socket is writable, with
//! two it is not. The first byte stays unread for the life of the pair, because it turns a close
//! into a reset.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

/// The sizes to try. The first is raised to the kernel's minimum; 64 KiB is far more than the
/// memory of a one-byte message.
const SIZES: [usize; 7] = [1, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16];

/// The reason for which this machine has no descriptor whose readiness a library can control.
#[derive(Debug, thiserror::Error)]
pub enum NoStandIn {
    /// A system call failed; sandboxes may forbid Unix sockets.
    #[error("no pair of Unix sockets: {0}; the socket stays on TCP")]
    Os(#[from] io::Error),
    /// The kernel's accounting of send buffers is not the expected one.
    #[error(
        "no send buffer size makes a Unix socket full after two bytes; the socket stays on TCP"
    )]
    Accounting,
}

impl NoStandIn {
    /// Returns the error for a call that needs such a descriptor: the kernel's own, if there is
    /// one.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Os(error) => Errno::from_io_error(error).unwrap_or(Errno::NOBUFS),
            Self::Accounting => Errno::NOBUFS,
        }
    }
}

impl From<Errno> for NoStandIn {
    fn from(error: Errno) -> Self {
        Self::Os(error.into())
    }
}

/// Returns the value for `SO_SNDBUF`, which the first call determines.
pub(super) fn send_buffer() -> Result<usize, NoStandIn> {
    // 0 until it is found. Not a `OnceLock`: the child of a fork would wait for ever for a thread
    // that stores the value at that moment.
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let found = FOUND.load(Ordering::Relaxed);
    if found != 0 {
        return Ok(found);
    }
    for size in SIZES {
        if fits(size)? {
            FOUND.store(size, Ordering::Relaxed);
            return Ok(size);
        }
    }
    Err(NoStandIn::Accounting)
}

fn fits(size: usize) -> Result<bool, NoStandIn> {
    let (near, _far) = pair()?;
    sockopt::set_socket_send_buffer_size(&near, size)?;
    send(&near, &[0], SendFlags::DONTWAIT)?;
    if !writable(&near)? {
        return Ok(false);
    }
    send(&near, &[0], SendFlags::DONTWAIT)?;
    Ok(!writable(&near)?)
}

pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), NoStandIn> {
    let kind = SocketType::STREAM;
    Ok(socketpair(
        AddressFamily::UNIX,
        kind,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

fn writable(socket: &impl AsFd) -> Result<bool, NoStandIn> {
    let mut set = [PollFd::new(socket, PollFlags::OUT)];
    let now = rustix::event::Timespec::default();
    Ok(poll(&mut set, Some(&now))? == 1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_kernel_has_a_size() {
        assert!(super::send_buffer().is_ok());
    }

    #[test]
    fn a_large_buffer_is_not_full_after_two_bytes() {
        assert!(!super::fits(1 << 16).unwrap());
    }
}
