//! Options that only the kernel's TCP can keep: a socket that has one stays there.
//!
//! | Option | Why |
//! |---|---|
//! | `SO_BINDTODEVICE` | a service of one device would be offered on all, a connection leave by another |
//! | `SO_MARK` | routes and filters that follow the mark see other packets than those of this socket |
//! | `TCP_MD5SIG`, TCP-AO | nothing signs what an offload protocol says |
//!
//! A socket of `IPPROTO_MPTCP` is none of TCP's and comes to no switch. One with a foreign address
//! (`IP_TRANSPARENT`, `IP_FREEBIND`) has no route of its own, and stays on TCP for that.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{IPPROTO_TCP, SO_BINDTODEVICE, SO_MARK, SOL_SOCKET, TCP_MD5SIG, socklen_t};

use crate::real;

/// Of `linux/tcp.h`; the C library's header has neither.
const TCP_MD5SIG_EXT: c_int = 32;
const TCP_AO_ADD_KEY: c_int = 38;

/// Whether this program has given a key to a socket.
static SIGNS: AtomicBool = AtomicBool::new(false);

/// The program has set an option on a socket of the kernel's.
pub(crate) fn is_set(level: c_int, name: c_int) {
    if level == IPPROTO_TCP && matches!(name, TCP_MD5SIG | TCP_MD5SIG_EXT | TCP_AO_ADD_KEY) {
        SIGNS.store(true, Ordering::Relaxed);
    }
}

/// An option of the socket that keeps it on TCP.
pub(crate) fn option_of(socket: BorrowedFd<'_>) -> Option<&'static str> {
    // The kernel tells nobody which sockets have keys. Programs that use them speak to routers, so
    // those that use any stay on TCP with all.
    if SIGNS.load(Ordering::Relaxed) {
        return Some("TCP_MD5SIG");
    }
    // A name of 15 bytes and its end; of no device the length is zero.
    let mut device = [0_u8; 16];
    if get(socket, SO_BINDTODEVICE, &mut device).is_some_and(|len| len > 0) {
        return Some("SO_BINDTODEVICE");
    }
    let mut mark = [0; size_of::<u32>()];
    let is_marked = get(socket, SO_MARK, &mut mark).is_some() && u32::from_ne_bytes(mark) != 0;
    is_marked.then_some("SO_MARK")
}

/// Reads an option of `SOL_SOCKET`; how long it is.
fn get(socket: BorrowedFd<'_>, name: c_int, value: &mut [u8]) -> Option<usize> {
    let mut len = socklen_t::try_from(value.len()).ok()?;
    let to = value.as_mut_ptr().cast();
    // SAFETY: a value of ours, whose room is told.
    let result =
        unsafe { real::getsockopt(socket.as_raw_fd(), SOL_SOCKET, name, to, &raw mut len) };
    (result == 0).then_some(len as usize)
}
