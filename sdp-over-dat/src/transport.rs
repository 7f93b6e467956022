//! The TCP socket below a stream that was made over one.
//!
//! Once the connection is established, the socket's descriptor belongs to the provider, which
//! closes it at the end (DAT 2.0 iWARP extensions 3.1.1.3). The number may refer to another file by
//! then. So the descriptor is duplicated for each use, if it is still the same socket before and
//! after. The first check keeps the program's locks: the close of a duplicate of another file would
//! release the locks that the process has on that file (`fcntl_lock(2)`).

use std::{
    ffi::c_int,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

use host::descriptors::Identity;
use rustix::{
    io::{Errno, fcntl_dupfd_cloexec},
    ioctl::{Getter, Opcode, ioctl},
    net::sockopt,
};

/// The request for the number of bytes that the peer's kernel has not acknowledged (`tcp(7)`,
/// SIOCOUTQ, which is TIOCOUTQ).
const SIOCOUTQ: Opcode = 0x5411;

/// The descriptor and the identity of the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transport {
    number: RawFd,
    identity: Identity,
}

impl Transport {
    /// The transport of a socket that is about to be passed to the provider.
    pub(crate) fn of(socket: &OwnedFd) -> Result<Self, Errno> {
        Ok(Self {
            number: socket.as_raw_fd(),
            identity: Identity::of(socket)?,
        })
    }

    /// The number of bytes that were passed to the kernel and that the peer's kernel has not
    /// acknowledged; 0 when the socket is closed.
    pub(crate) fn unacknowledged(&self) -> usize {
        let Some(socket) = self.open() else {
            return 0;
        };
        // SAFETY: the request writes one int and nothing else.
        let count = unsafe { ioctl(&socket, Getter::<SIOCOUTQ, c_int>::new()) };
        count.map_or(0, |count| usize::try_from(count).unwrap_or_default())
    }

    /// Copies from the TCP socket `like` the options by which the kernel detects a lost peer:
    /// keepalive, and the time for which bytes may stay unacknowledged (`tcp(7)`).
    pub(crate) fn watch_peer_like(&self, like: BorrowedFd<'_>) -> Result<(), Errno> {
        let Some(socket) = self.open() else {
            return Ok(());
        };
        sockopt::set_tcp_user_timeout(&socket, sockopt::tcp_user_timeout(like)?)?;
        sockopt::set_tcp_keepidle(&socket, sockopt::tcp_keepidle(like)?)?;
        sockopt::set_tcp_keepintvl(&socket, sockopt::tcp_keepintvl(like)?)?;
        sockopt::set_tcp_keepcnt(&socket, sockopt::tcp_keepcnt(like)?)?;
        sockopt::set_socket_keepalive(&socket, sockopt::socket_keepalive(like)?)
    }

    /// A duplicate of the socket's descriptor; `None` when the socket is closed.
    fn open(&self) -> Option<OwnedFd> {
        if Identity::of_number(self.number) != Ok(self.identity) {
            return None;
        }
        // SAFETY: the number is passed to one system call only, which returns EBADF if it is not
        // open.
        let number = unsafe { BorrowedFd::borrow_raw(self.number) };
        // The duplicate gets no lower number than the original, because the owner of the socket has
        // chosen the range.
        let socket = fcntl_dupfd_cloexec(number, self.number).ok()?;
        (Identity::of(&socket) == Ok(self.identity)).then_some(socket)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        net::{TcpListener, TcpStream},
        os::{fd::AsFd as _, unix::fs::MetadataExt as _},
        time::Duration,
    };

    use rustix::fs::{FlockOperation, fcntl_lock};

    use super::*;

    /// The close of any descriptor of a file releases the process's locks on it (`fcntl_lock(2)`).
    #[test]
    fn locks_on_a_file_that_got_the_number_are_kept() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let socket = OwnedFd::from(TcpStream::connect(listener.local_addr()?)?);
        let file = tempfile::tempfile()?;
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let inode = format!(":{} ", file.metadata()?.ino());
        let is_locked = || -> io::Result<bool> {
            let locks = std::fs::read_to_string("/proc/locks")?;
            Ok(locks.lines().any(|line| line.contains(&inode)))
        };
        assert!(is_locked()?);
        let transport = Transport {
            number: file.as_raw_fd(),
            ..Transport::of(&socket)?
        };
        assert_eq!(transport.unacknowledged(), 0);
        assert!(is_locked()?);
        Ok(())
    }

    #[test]
    fn a_transport_is_used_until_its_number_refers_to_another_file() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut stream = TcpStream::connect(listener.local_addr()?)?;
        let number = stream.as_raw_fd();
        // More than the peer's window.
        stream.set_nonblocking(true)?;
        while stream.write(&[0; 65_536]).is_ok() {}
        let socket = OwnedFd::from(stream);
        let transport = Transport::of(&socket)?;
        assert!(transport.unacknowledged() > 0);
        drop(socket);
        assert_eq!(transport.unacknowledged(), 0);
        let other = TcpStream::connect(listener.local_addr()?)?;
        let elsewhere = Transport {
            number: other.as_raw_fd(),
            ..transport
        };
        assert!(elsewhere.open().is_none(), "was {number}");
        Ok(())
    }

    #[test]
    fn keepalive_and_timeout_options_are_copied_from_another_socket() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let connect = || TcpStream::connect(listener.local_addr()?).map(OwnedFd::from);
        let (like, socket) = (connect()?, connect()?);
        let transport = Transport::of(&socket)?;
        sockopt::set_tcp_user_timeout(&like, 2_345)?;
        sockopt::set_socket_keepalive(&like, true)?;
        sockopt::set_tcp_keepidle(&like, Duration::from_secs(7))?;
        transport.watch_peer_like(like.as_fd())?;
        assert_eq!(sockopt::tcp_user_timeout(&socket)?, 2_345);
        assert!(sockopt::socket_keepalive(&socket)?);
        assert_eq!(sockopt::tcp_keepidle(&socket)?, Duration::from_secs(7));
        drop(socket);
        transport.watch_peer_like(like.as_fd())?;
        Ok(())
    }
}
