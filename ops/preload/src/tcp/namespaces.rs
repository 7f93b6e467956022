//! The network namespaces of sockets and threads.
//!
//! A TCP socket stays in the namespace in which it was made, and a thread may enter another one. A
//! socket that this library made for it there would reach the services of the wrong namespace.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::SOL_SOCKET;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::fd;
use crate::process::real;

/// From `asm-generic/socket.h`.
const SO_NETNS_COOKIE: c_int = 71;

/// True after a thread of this process has entered a namespace.
static HAS_CHANGED: AtomicBool = AtomicBool::new(false);

/// A network namespace. `None`: the kernel does not report it.
pub(crate) type Namespace = Option<u64>;

/// Records that a thread of this process enters a namespace.
pub(crate) fn record_change() {
    HAS_CHANGED.store(true, Ordering::Relaxed);
}

/// Returns the namespace of the calling thread.
pub(crate) fn of_thread() -> Namespace {
    let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
    of(&socket_with(unix, stream, SocketFlags::CLOEXEC, None).ok()?)
}

/// Returns true if a socket may be in another namespace than the calling thread, or than this
/// process was in when it recorded `home`. Makes no system call for a socket that the program made
/// with a hooked `socket`, as long as no thread of the process has entered a namespace.
pub(crate) fn is_elsewhere(socket: BorrowedFd<'_>, home: Namespace) -> bool {
    let has_changed = HAS_CHANGED.load(Ordering::Relaxed);
    if !has_changed && fd::is_made_as_tcp(socket.as_raw_fd()) {
        return false;
    }
    match (of(&socket), of_thread(), home) {
        (Some(own), Some(here), Some(home)) => own != here || own != home,
        _ => has_changed,
    }
}

fn of(socket: &impl AsRawFd) -> Namespace {
    let mut cookie = 0_u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    let (fd, to) = (socket.as_raw_fd(), (&raw mut cookie).cast());
    // SAFETY: the pointers are to local variables, and `len` is the size of the first.
    let result = unsafe { real::getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, to, &raw mut len) };
    (result == 0).then_some(cookie)
}
