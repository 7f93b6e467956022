//! The TCP socket below a stream that was made over one.
//!
//! Once the connection is established, the socket's descriptor belongs to the provider, which
//! closes it at the end (DAT 2.0 iWARP extensions 3.1.1.3). The number may refer to another file by
//! then. So a value that is read counts only if the number refers to the socket before and after.
//! To change the socket, the descriptor is duplicated between two such checks. The first check
//! keeps the program's locks: the close of a duplicate of another file would release the locks that
//! the process has on that file (`fcntl_lock(2)`).

use std::{
    ffi::c_int,
    os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd},
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
    /// acknowledged; 0 when the socket is closed. Needs no free descriptor.
    pub(crate) fn unacknowledged(&self) -> usize {
        if !self.is_open() {
            return 0;
        }
        // SAFETY: the request writes one int and nothing else.
        let count = unsafe { ioctl(self.number(), Getter::<SIOCOUTQ, c_int>::new()) };
        let count = count.ok().filter(|_| self.is_open());
        count.map_or(0, |count| usize::try_from(count).unwrap_or_default())
    }

    /// Copies from the TCP socket `like` the options by which the kernel detects a lost peer:
    /// keepalive, and the time for which bytes may stay unacknowledged (`tcp(7)`).
    pub(crate) fn watch_peer_like(&self, like: BorrowedFd<'_>) -> Result<(), Errno> {
        match self.duplicate() {
            Ok(None) => Ok(()),
            Ok(Some(socket)) => watch_peer_like(socket.as_fd(), like),
            // The options must not be lost for lack of a descriptor. They would be set on another
            // socket only if the number was closed and used again since it was checked.
            Err(_) => watch_peer_like(self.number(), like),
        }
    }

    fn is_open(&self) -> bool {
        Identity::of_number(self.number) == Ok(self.identity)
    }

    fn number(&self) -> BorrowedFd<'_> {
        // SAFETY: the number is not -1, because a socket had it. It is passed to single system
        // calls only, which return EBADF if it is not open.
        unsafe { BorrowedFd::borrow_raw(self.number) }
    }

    /// A duplicate of the socket's descriptor; `None` when the socket is closed.
    fn duplicate(&self) -> Result<Option<OwnedFd>, Errno> {
        if !self.is_open() {
            return Ok(None);
        }
        // The duplicate gets no lower number than the original, because the owner of the socket has
        // chosen the range.
        match fcntl_dupfd_cloexec(self.number(), self.number) {
            Ok(socket) => Ok((Identity::of(&socket) == Ok(self.identity)).then_some(socket)),
            Err(Errno::BADF) => Ok(None),
            // EMFILE, ENFILE, or EINVAL for a first number beyond the limit.
            Err(why) => Err(why),
        }
    }
}

fn watch_peer_like(socket: BorrowedFd<'_>, like: BorrowedFd<'_>) -> Result<(), Errno> {
    sockopt::set_tcp_user_timeout(socket, sockopt::tcp_user_timeout(like)?)?;
    sockopt::set_tcp_keepidle(socket, sockopt::tcp_keepidle(like)?)?;
    sockopt::set_tcp_keepintvl(socket, sockopt::tcp_keepintvl(like)?)?;
    sockopt::set_tcp_keepcnt(socket, sockopt::tcp_keepcnt(like)?)?;
    sockopt::set_socket_keepalive(socket, sockopt::socket_keepalive(like)?)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        net::{TcpListener, TcpStream},
        os::unix::fs::MetadataExt as _,
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
        assert!(elsewhere.duplicate()?.is_none(), "was {number}");
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

    /// In a child, because the limit applies to all threads of a process.
    #[test]
    fn a_process_without_free_descriptors_has_not_lost_its_transport() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        stream.set_nonblocking(true)?;
        while (&stream).write(&[0; 65_536]).is_ok() {}
        let socket = OwnedFd::from(stream.try_clone()?);
        let transport = Transport::of(&socket)?;
        let like = TcpStream::connect(listener.local_addr()?)?;
        sockopt::set_socket_keepalive(&like, true)?;
        // SAFETY: the child only makes system calls, and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: the pointer is to a local variable.
            unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) };
            let is_right = transport.unacknowledged() > 0
                && transport.watch_peer_like(like.as_fd()).is_ok()
                && sockopt::socket_keepalive(&stream) == Ok(true);
            // SAFETY: the call takes a number and does not return.
            unsafe { libc::_exit(c_int::from(!is_right)) };
        }
        let mut status = -1;
        // SAFETY: the process is a child of this process, and the pointer is to a local variable.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        Ok(())
    }
}
