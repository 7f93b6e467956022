//! Sockets: our own, and those that a consumer has lent us.
//!
//! A consumer's socket is held by a duplicate of its descriptor. Giving it back is closing the
//! duplicate: the consumer's number was valid all the time and nothing that the two share was
//! changed, but for the options in [`SetAside`], which are put back. Once a connection was
//! established the socket never goes back: then the end closes the consumer's number as well, if it
//! still means the same socket.
//!
//! A consumer's socket is borrowed by one user at a time, under whatever number: a service point, a
//! request, an attempt to connect, or a connection.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use access_layer::rnic::SocketFault;
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};

use crate::engine::io;
use crate::forking::{Identity, InUse, NotInherited};

/// A TCP socket that we may use.
#[derive(Debug)]
pub(crate) enum Socket {
    /// Made by us.
    Own(NotInherited),
    /// Lent by the consumer.
    Consumer(ConsumerSocket),
}

/// A duplicate of a consumer's descriptor.
#[derive(Debug)]
pub(crate) struct ConsumerSocket {
    duplicate: NotInherited,
    /// The consumer's; -1 once it is closed.
    number: AtomicI32,
    identity: Identity,
    set_aside: SetAside,
    /// Whether the consumer's number is to be closed with us.
    kept: AtomicBool,
    /// True once the socket is its consumer's again.
    is_given_back: AtomicBool,
}

/// A consumer's options that are contrary to RDMA (DAT 2.0 iWARP extensions 3.1.4.3), as they were.
/// All others stay as they are.
#[derive(Debug)]
struct SetAside {
    /// Nagle's algorithm delays short messages.
    nodelay: bool,
    /// A cork does so too, even without Nagle's algorithm.
    cork: bool,
    /// With a low-water mark the socket does not tell of short messages.
    receive_low: libc::c_int,
}

impl SetAside {
    /// What does not answer is left alone; the socket works, only slower.
    fn from(socket: BorrowedFd<'_>) -> Self {
        let before = Self {
            nodelay: sockopt::tcp_nodelay(socket).unwrap_or(false),
            cork: sockopt::tcp_cork(socket).unwrap_or(false),
            receive_low: io::receive_low_water(socket),
        };
        let _ = sockopt::set_tcp_nodelay(socket, true);
        if before.cork {
            let _ = sockopt::set_tcp_cork(socket, false);
        }
        if before.receive_low > 1 {
            io::set_receive_low_water(socket, 1);
        }
        before
    }

    fn put_back(&self, socket: BorrowedFd<'_>) {
        let _ = sockopt::set_tcp_nodelay(socket, self.nodelay);
        if self.cork {
            let _ = sockopt::set_tcp_cork(socket, true);
        }
        if self.receive_low > 1 {
            io::set_receive_low_water(socket, self.receive_low);
        }
    }
}

impl Socket {
    /// One of our own.
    pub(crate) fn own(fd: OwnedFd) -> Self {
        Self::Own(NotInherited::new(fd))
    }

    /// Takes a consumer's socket, if it is a TCP stream whose local address `is_routed` has
    /// ([`Config::routes`](crate::config::Config::routes)), and which is not taken already.
    pub(crate) fn take(
        number: RawFd,
        is_routed: impl FnOnce(SocketAddr) -> bool,
    ) -> Result<Self, SocketFault> {
        let duplicate = duplicate(number)?;
        let socket_type = sockopt::socket_type(&duplicate).map_err(|_| SocketFault::NotASocket)?;
        let domain = sockopt::socket_domain(&duplicate).map_err(|_| SocketFault::NotASocket)?;
        let protocol = sockopt::socket_protocol(&duplicate).map_err(|_| SocketFault::NotASocket)?;
        let is_inet = domain == AddressFamily::INET || domain == AddressFamily::INET6;
        let is_listening = sockopt::socket_acceptconn(&duplicate).unwrap_or(false);
        let is_tcp = socket_type == SocketType::STREAM && protocol == Some(ipproto::TCP);
        if !is_inet || !is_tcp || is_listening {
            return Err(SocketFault::NotTcp);
        }
        let local = io::local_address(&duplicate).ok_or(SocketFault::NotTcp)?;
        if !is_routed(local) {
            return Err(SocketFault::NotRouted);
        }
        let identity = Identity::of(duplicate.as_fd()).ok_or(SocketFault::NotASocket)?;
        // It is not its consumer's now, so the child of a fork has it no more than our own.
        let duplicate = NotInherited::borrow(duplicate, number, identity)
            .map_err(|InUse| SocketFault::InUse)?;
        let set_aside = SetAside::from(duplicate.as_fd());
        Ok(Self::Consumer(ConsumerSocket {
            duplicate,
            number: AtomicI32::new(number),
            identity,
            set_aside,
            kept: AtomicBool::new(false),
            is_given_back: AtomicBool::new(false),
        }))
    }

    /// A connection is established: from here on the socket does not go back to its consumer.
    pub(crate) fn keep(&self) {
        if let Self::Consumer(socket) = self {
            socket.kept.store(true, Ordering::Relaxed);
        }
    }

    /// The connection is over, though our own descriptor may stay open for a while. A consumer's
    /// socket goes back, or its number is closed: a consumer that is notified of the end may check
    /// which, and use the socket at once.
    pub(crate) fn release(&self) {
        if let Self::Consumer(socket) = self {
            socket.release();
        }
    }

    /// Whether it will be given back to its consumer.
    pub(crate) fn goes_back(&self) -> bool {
        matches!(self, Self::Consumer(socket) if !socket.kept.load(Ordering::Relaxed))
    }

    /// Whether a consumer lent it.
    pub(crate) fn is_consumers(&self) -> bool {
        matches!(self, Self::Consumer(_))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(fd) => fd.as_fd(),
            Self::Consumer(socket) => socket.duplicate.as_fd(),
        }
    }
}

impl ConsumerSocket {
    /// Closes the consumer's number, or gives the socket back, once.
    fn release(&self) {
        if self.kept.load(Ordering::Relaxed) {
            self.close_number();
        } else if !self.is_given_back.swap(true, Ordering::AcqRel) {
            self.set_aside.put_back(self.duplicate.as_fd());
            self.duplicate.give_back();
        }
    }

    fn close_number(&self) {
        let number = self.number.swap(-1, Ordering::Relaxed);
        if number >= 0 && Identity::of_number(number) == Some(self.identity) {
            // SAFETY: the number still means the socket that its consumer handed over for good (DAT
            // 2.0 iWARP extensions 3.1.1.3), and the swap lets nobody else close it.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
}

impl Drop for ConsumerSocket {
    fn drop(&mut self) {
        self.release();
    }
}

/// Not below the number itself: its consumer knows why it is where it is.
fn duplicate(number: RawFd) -> Result<OwnedFd, SocketFault> {
    if number < 0 {
        return Err(SocketFault::NotASocket);
    }
    // SAFETY: the number comes from a consumer and may mean nothing; it is only given to one system
    // call, which answers EBADF then.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_dupfd_cloexec(borrowed, number.max(3)).map_err(|error| match error {
        rustix::io::Errno::MFILE | rustix::io::Errno::NFILE => SocketFault::NoResources,
        _ => SocketFault::NotASocket,
    })
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    const LOOPBACK: fn(SocketAddr) -> bool = |local| local.ip().is_loopback();

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn only_connected_tcp_sockets_of_the_interface_are_taken() {
        let (client, server) = pair();
        assert!(Socket::take(client.as_raw_fd(), LOOPBACK).is_ok());
        let elsewhere = |_| false;
        assert_eq!(
            Socket::take(server.as_raw_fd(), elsewhere).unwrap_err(),
            SocketFault::NotRouted
        );
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(
            Socket::take(listener.as_raw_fd(), LOOPBACK).unwrap_err(),
            SocketFault::NotTcp
        );
        let datagram = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(
            Socket::take(datagram.as_raw_fd(), LOOPBACK).unwrap_err(),
            SocketFault::NotTcp
        );
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(
            Socket::take(file.as_raw_fd(), LOOPBACK).unwrap_err(),
            SocketFault::NotASocket
        );
        for number in [-1, i32::MIN, 1_000_000] {
            assert_eq!(
                Socket::take(number, LOOPBACK).unwrap_err(),
                SocketFault::NotASocket
            );
        }
    }

    #[test]
    fn a_socket_given_back_is_as_it_was() {
        let (mut client, mut server) = pair();
        server.write_all(b"unread").unwrap();
        let socket = Socket::take(client.as_raw_fd(), LOOPBACK).unwrap();
        assert!(client.nodelay().unwrap());
        drop(socket);
        assert!(!client.nodelay().unwrap());
        let mut bytes = [0; 6];
        client.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"unread");
    }

    #[test]
    fn a_socket_is_taken_once_at_a_time_under_any_number() {
        let (client, mut server) = pair();
        let second = client.try_clone().unwrap();
        let take = |stream: &TcpStream| Socket::take(stream.as_raw_fd(), LOOPBACK);
        let socket = take(&client).unwrap();
        for stream in [&client, &second] {
            assert_eq!(take(stream).unwrap_err(), SocketFault::InUse);
        }
        assert!(client.nodelay().unwrap(), "the first user's options stay");
        let ours = Socket::take(socket.as_raw_fd(), LOOPBACK);
        assert_eq!(ours.unwrap_err(), SocketFault::InUse);
        drop(socket);
        let first = take(&second).unwrap();
        // Another thread may still have our descriptor when the consumer is notified.
        first.release();
        let second_user = take(&client).unwrap();
        drop(first);
        assert_eq!(take(&second).unwrap_err(), SocketFault::InUse);
        assert!(client.nodelay().unwrap());
        second_user.keep();
        drop(second);
        let _ = std::os::fd::IntoRawFd::into_raw_fd(client);
        drop(second_user);
        assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn a_socket_of_our_own_is_not_taken() {
        let (client, _server) = pair();
        let own = Socket::own(client.into());
        let taken = Socket::take(own.as_raw_fd(), LOOPBACK);
        assert_eq!(taken.unwrap_err(), SocketFault::InUse);
    }

    #[test]
    fn a_child_has_no_copy_of_a_socket_that_is_taken_and_one_of_a_socket_given_back() {
        crate::forking::prepare();
        let (client, _server) = pair();
        let number = client.as_raw_fd();
        let child_has_it = || {
            // SAFETY: the child calls the kernel only.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: numbers; it does not return.
                unsafe { libc::_exit(i32::from(libc::fcntl(number, libc::F_GETFD) >= 0)) };
            }
            let mut status = 0;
            // SAFETY: our own child, and a place for its status.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            libc::WEXITSTATUS(status) == 1
        };
        assert!(child_has_it());
        let socket = Socket::take(number, LOOPBACK).unwrap();
        assert!(!child_has_it(), "taken");
        drop(socket);
        assert!(child_has_it(), "given back");
    }

    #[test]
    fn a_kept_socket_is_closed_under_both_numbers_unless_its_number_was_reused() {
        let (client, mut server) = pair();
        let number = std::os::fd::IntoRawFd::into_raw_fd(client);
        let socket = Socket::take(number, LOOPBACK).unwrap();
        socket.keep();
        drop(socket);
        assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);

        let (client, mut server) = pair();
        let socket = Socket::take(client.as_raw_fd(), LOOPBACK).unwrap();
        socket.keep();
        let number = client.as_raw_fd();
        drop(client);
        let (other, mut other_peer) = pair();
        let reused = [other.as_raw_fd(), other_peer.as_raw_fd()].contains(&number);
        drop(socket);
        assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);
        if reused {
            (&other).write_all(b"x").unwrap();
            other_peer.read_exact(&mut [0; 1]).unwrap();
        }
    }
}
