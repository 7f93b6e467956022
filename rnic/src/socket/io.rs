//! System calls on sockets of the data path.
//!
//! Receives, sends and polls go to the kernel without libc, so they do not enter a preload library
//! in the process. Only socket options and `SIOCOUTQ` use libc. Receives and sends are non-blocking
//! by flag, because `O_NONBLOCK` is shared with a consumer's descriptor and must not change there.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, ipproto, sockopt,
};

/// The result of a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// The number of bytes, at least 1.
    Bytes(usize),
    /// There is no byte yet.
    WouldBlock,
    /// The peer has closed its sending side.
    Eof,
    /// The connection is broken.
    Failed(Errno),
}

/// The result of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The number of bytes that the socket took.
    Bytes(usize),
    /// The socket takes no byte now.
    WouldBlock,
    /// The connection is broken.
    Failed(Errno),
}

/// Receives into `buffer`, which is not empty.
pub fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Received {
    receive_with(fd, buffer, RecvFlags::DONTWAIT)
}

/// Receives into several pieces, of which at least one is not empty.
pub fn receive_vectored(fd: BorrowedFd<'_>, pieces: &mut [IoSliceMut<'_>]) -> Received {
    loop {
        let mut control = RecvAncillaryBuffer::default();
        let result = rustix::net::recvmsg(fd, pieces, &mut control, RecvFlags::DONTWAIT);
        if let Some(received) = received(result.map(|message| message.bytes)) {
            return received;
        }
    }
}

/// Reads bytes without removing them from the socket.
pub fn peek(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Received {
    receive_with(fd, buffer, RecvFlags::DONTWAIT | RecvFlags::PEEK)
}

/// Peeks at the bytes of a socket that connects, and returns the error if the connect has failed.
/// `Ok(0)` is the peer's FIN.
pub fn peek_or_error(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
    debug_assert!(!buffer.is_empty());
    loop {
        match rustix::net::recv(fd, &mut *buffer, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((count, _)) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

fn receive_with(fd: BorrowedFd<'_>, buffer: &mut [u8], flags: RecvFlags) -> Received {
    debug_assert!(!buffer.is_empty());
    loop {
        let result = rustix::net::recv(fd, &mut *buffer, flags);
        if let Some(received) = received(result.map(|(count, _)| count)) {
            return received;
        }
    }
}

/// Returns `None` if the call was interrupted and must be repeated.
fn received(result: rustix::io::Result<usize>) -> Option<Received> {
    match result {
        Ok(0) => Some(Received::Eof),
        Ok(count) => Some(Received::Bytes(count)),
        Err(Errno::INTR) => None,
        Err(Errno::AGAIN) => Some(Received::WouldBlock),
        Err(error) => Some(Received::Failed(error)),
    }
}

/// Sends one piece.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> Sent {
    loop {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if let Some(sent) = sent(rustix::net::send(fd, bytes, flags)) {
            return sent;
        }
    }
}

/// Sends several pieces in one call.
pub fn send_vectored(fd: BorrowedFd<'_>, pieces: &[IoSlice<'_>]) -> Sent {
    loop {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut control = SendAncillaryBuffer::default();
        if let Some(sent) = sent(rustix::net::sendmsg(fd, pieces, &mut control, flags)) {
            return sent;
        }
    }
}

/// Returns `None` if the call was interrupted and must be repeated.
fn sent(result: rustix::io::Result<usize>) -> Option<Sent> {
    match result {
        Ok(count) => Some(Sent::Bytes(count)),
        Err(Errno::INTR) => None,
        Err(Errno::AGAIN) => Some(Sent::WouldBlock),
        Err(error) => Some(Sent::Failed(error)),
    }
}

/// The reason why bytes were not sent completely. Some of the bytes may have been sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsent {
    /// The socket did not accept all bytes before the deadline.
    Late,
    /// The socket has failed.
    Failed,
}

/// Sends all bytes of a start-up frame or a final streaming message. The socket is nearly empty, so
/// one call is nearly always enough. Without a `patience` there is no time limit.
pub fn send_whole(fd: impl AsFd, bytes: &[u8], patience: Option<Duration>) -> Result<(), Unsent> {
    let fd = fd.as_fd();
    let deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
    let mut sent = 0;
    while sent < bytes.len() {
        match send(fd, &bytes[sent..]) {
            Sent::Bytes(count) => sent += count,
            Sent::Failed(_) => return Err(Unsent::Failed),
            Sent::WouldBlock => {
                let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                if left.is_some_and(|left| left.is_zero()) {
                    return Err(Unsent::Late);
                }
                let timeout = left.map(|left| Timespec::try_from(left).unwrap_or_default());
                let mut set = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
                // The next send reports an interruption or a failure.
                let _ = poll(&mut set, timeout.as_ref());
            }
        }
    }
    Ok(())
}

/// Discards `count` bytes that were peeked at before and are therefore available.
pub fn discard(fd: BorrowedFd<'_>, mut count: usize) -> bool {
    let mut scrap = [0; 1024];
    while count > 0 {
        let room = count.min(scrap.len());
        match receive(fd, &mut scrap[..room]) {
            Received::Bytes(taken) => count -= taken,
            _ => return false,
        }
    }
    true
}

/// True if a receive or an accept would not block.
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut set = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut set, Some(&Timespec::default())).is_ok() && !set[0].revents().is_empty()
}

/// True if the peer has closed its sending side, or the connection has ended, regardless of unread
/// bytes.
pub fn is_hung_up(fd: BorrowedFd<'_>) -> bool {
    let mut set = [PollFd::from_borrowed_fd(fd, PollFlags::RDHUP)];
    let hung_up = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    poll(&mut set, Some(&Timespec::default())).is_ok() && set[0].revents().intersects(hung_up)
}

/// True if TCP could not reach the peer's host.
pub fn is_out_of_reach(error: Errno) -> bool {
    matches!(
        error,
        Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::HOSTDOWN | Errno::NETDOWN | Errno::TIMEDOUT
    )
}

/// True if the socket is a TCP socket.
pub fn is_tcp(fd: BorrowedFd<'_>) -> bool {
    sockopt::socket_protocol(fd) == Ok(Some(ipproto::TCP))
}

/// The number of bytes that the peer has not acknowledged, sent or not (`tcp(7)`, SIOCOUTQ); 0 if
/// the kernel does not report it.
pub fn unacknowledged(fd: BorrowedFd<'_>) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: the request writes one int, and the pointer is to an int of this frame.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    if done == 0 {
        usize::try_from(count).unwrap_or_default()
    } else {
        0
    }
}

/// Shuts down the sending side of this end.
pub fn finish(fd: BorrowedFd<'_>) {
    // This fails only if the connection has ended already.
    let _ = rustix::net::shutdown(fd, Shutdown::Write);
}

/// The local address of a connected or bound socket.
pub fn local_address(fd: impl AsFd) -> Option<SocketAddr> {
    rustix::net::getsockname(fd).ok()?.try_into().ok()
}

/// The peer's address of a connected socket.
pub fn remote_address(fd: impl AsFd) -> Option<SocketAddr> {
    rustix::net::getpeername(fd).ok()??.try_into().ok()
}

/// The largest segment that the connection sends now (RFC 5044 section 4.1: EMSS).
pub fn segment_size(fd: BorrowedFd<'_>) -> usize {
    // If the kernel does not report it: the segment size that every path carries (RFC 9293 section
    // 3.7.1).
    socket2::SockRef::from(&fd)
        .tcp_mss()
        .map_or(536, |mss| mss as usize)
}

/// Lets `bind` choose an address without a port, so that `connect` can choose the port by the
/// destination (Linux, `ip(7)`).
pub fn bind_without_port(fd: BorrowedFd<'_>) {
    let on: libc::c_int = 1;
    // SAFETY: the value is an int of this frame and its length is given. If the kernel refuses,
    // only the choice of ports is smaller.
    unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}

/// The number of unread bytes at which the kernel reports the socket readable (`SO_RCVLOWAT`); 1 if
/// the kernel does not return the number.
pub fn receive_low_water(fd: BorrowedFd<'_>) -> libc::c_int {
    let mut value: libc::c_int = 1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: value and length are variables of this frame and agree; a failure does not change the
    // value.
    unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw mut value).cast(),
            &raw mut len,
        );
    }
    value
}

/// Sets the number of unread bytes at which the kernel reports the socket readable.
pub fn set_receive_low_water(fd: BorrowedFd<'_>, value: libc::c_int) {
    // SAFETY: the value is an int of this frame and its length is given. Linux takes any value.
    unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}
