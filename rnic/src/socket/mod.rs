//! Sockets that a consumer passes to an RNIC (DAT 2.0 iWARP extensions 3.1), for every provider.
//!
//! An RNIC holds a consumer's socket by a duplicate of its descriptor. To return the socket, it
//! closes the duplicate: the consumer's number has stayed valid, and no shared state was changed
//! except for the options in [`OriginalOptions`], which are restored. A socket on which a
//! connection was established is never returned. The end of the connection then closes the
//! consumer's number as well, if that still refers to the same socket.
//!
//! A consumer's socket has one user at a time, under all its numbers: a service point, a request,
//! an attempt to connect, or a connection.
//!
//! * `inherited`: the sockets of a library in this process, which the child of a `fork` closes.
//! * [`io`]: system calls on sockets.

mod inherited;
pub mod io;
#[cfg(test)]
mod testing;

pub use inherited::{InUse, NotInherited, has_unacknowledged, prepare};

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};

use host::descriptors::Identity;
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};

use crate::SocketFault;

/// A consumer's socket, held by a duplicate of its descriptor.
#[derive(Debug)]
pub struct ConsumerSocket {
    duplicate: NotInherited,
    /// The consumer's number.
    number: RawFd,
    identity: Identity,
    original_options: OriginalOptions,
    ownership: AtomicOwnership,
}

/// The owner of a consumer's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Ownership {
    /// The provider borrows the socket. No connection was established on it.
    Borrowed,
    /// The provider owns the socket, because a connection was established on it.
    Kept,
    /// The consumer owns the socket again.
    Returned,
    /// The consumer's number is closed, or about to be closed by the thread that has released the
    /// socket.
    Closed,
}

impl Ownership {
    const ALL: [Self; 4] = [Self::Borrowed, Self::Kept, Self::Returned, Self::Closed];

    fn on_established(self) -> Self {
        match self {
            Self::Borrowed => Self::Kept,
            Self::Kept | Self::Returned | Self::Closed => self,
        }
    }

    fn on_release(self) -> Self {
        match self {
            Self::Borrowed => Self::Returned,
            Self::Kept => Self::Closed,
            Self::Returned | Self::Closed => self,
        }
    }
}

/// An [`Ownership`] that several threads change.
#[derive(Debug)]
struct AtomicOwnership(AtomicU8);

impl AtomicOwnership {
    fn new() -> Self {
        Self(AtomicU8::new(Ownership::Borrowed as u8))
    }

    fn get(&self) -> Ownership {
        let stored = self.0.load(Ordering::Acquire);
        // Only `change` stores a value, so the default is never used.
        let owned = Ownership::ALL.into_iter().find(|it| *it as u8 == stored);
        owned.unwrap_or(Ownership::Closed)
    }

    /// Makes a transition. Returns the ownership before it, which only one thread receives for each
    /// change.
    fn change(&self, on_event: fn(Ownership) -> Ownership) -> Ownership {
        loop {
            let before = self.get();
            let after = on_event(before);
            let exchanged = self.0.compare_exchange(
                before as u8,
                after as u8,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if exchanged.is_ok() {
                return before;
            }
        }
    }
}

/// The original values of a consumer's options that are contrary to RDMA (DAT 2.0 iWARP extensions
/// 3.1.4.3). All other options are unchanged.
#[derive(Debug)]
struct OriginalOptions {
    /// Nagle's algorithm delays short messages.
    nodelay: bool,
    /// A cork delays short messages too, even without Nagle's algorithm.
    cork: bool,
    /// With a low-water mark the socket is not reported readable for short messages.
    receive_low: libc::c_int,
}

impl OriginalOptions {
    /// Sets the options and keeps their old values. An option that cannot be read is not changed;
    /// the socket works, only slower.
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

    fn restore(&self, socket: BorrowedFd<'_>) {
        let _ = sockopt::set_tcp_nodelay(socket, self.nodelay);
        if self.cork {
            let _ = sockopt::set_tcp_cork(socket, true);
        }
        if self.receive_low > 1 {
            io::set_receive_low_water(socket, self.receive_low);
        }
    }
}

impl ConsumerSocket {
    /// Takes a consumer's socket, if it is a TCP stream whose local address satisfies `is_routed`
    /// ([`net_device::routes`](crate::net_device::routes)), and which is not taken already.
    pub fn take(
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
        let identity = Identity::of(&duplicate).map_err(|_| SocketFault::NotASocket)?;
        // The consumer does not own the socket now, so the child of a fork must not keep it, as for
        // sockets of the provider.
        let duplicate = NotInherited::borrow(duplicate, number, identity)
            .map_err(|InUse| SocketFault::InUse)?;
        let original_options = OriginalOptions::from(duplicate.as_fd());
        Ok(Self {
            duplicate,
            number,
            identity,
            original_options,
            ownership: AtomicOwnership::new(),
        })
    }

    /// Called once a connection is established. The socket is not returned to its consumer then.
    pub fn keep(&self) {
        self.ownership.change(Ownership::on_established);
    }

    /// Ends the use of the socket, because the connection or the attempt is over, though this
    /// duplicate may stay open for a while: closes the consumer's number, or returns the socket,
    /// once. A consumer that is notified of the end may use the socket at once.
    pub fn release(&self) {
        match self.ownership.change(Ownership::on_release) {
            Ownership::Borrowed => {
                self.original_options.restore(self.duplicate.as_fd());
                self.duplicate.end_borrowing();
            }
            Ownership::Kept => self.close_number(),
            Ownership::Returned | Ownership::Closed => {}
        }
    }

    /// True if the socket was or will be returned to its consumer.
    pub fn returns_to_consumer(&self) -> bool {
        match self.ownership.get() {
            Ownership::Borrowed | Ownership::Returned => true,
            Ownership::Kept | Ownership::Closed => false,
        }
    }

    /// True if the program has closed the number of the duplicate, which may be that of a file of
    /// the program. The data path does not check this, because the check is a system call: the
    /// provider's numbers are far from those that the kernel assigns to the program.
    pub fn is_lost(&self) -> bool {
        self.duplicate.is_lost()
    }

    /// Closes the consumer's number. The caller has changed the ownership to `Closed`.
    fn close_number(&self) {
        if Identity::of_number(self.number) == Ok(self.identity) {
            // SAFETY: the number still refers to the socket that its consumer handed over for good
            // (DAT 2.0 iWARP extensions 3.1.1.3), and only the thread that has made the transition
            // to `Closed` closes it.
            drop(unsafe { OwnedFd::from_raw_fd(self.number) });
        }
    }
}

impl AsFd for ConsumerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.duplicate.as_fd()
    }
}

impl Drop for ConsumerSocket {
    fn drop(&mut self) {
        self.release();
    }
}

/// Duplicates a descriptor. The duplicate is not below the number itself, because the consumer may
/// have chosen the number for a reason.
fn duplicate(number: RawFd) -> Result<OwnedFd, SocketFault> {
    if number < 0 {
        return Err(SocketFault::NotASocket);
    }
    // SAFETY: the number comes from a consumer and may be invalid; it is only passed to one system
    // call, which then fails with EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_dupfd_cloexec(borrowed, number.max(3)).map_err(|error| match error {
        rustix::io::Errno::MFILE | rustix::io::Errno::NFILE => SocketFault::NoResources,
        _ => SocketFault::NotASocket,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;

    use super::*;

    const LOOPBACK: fn(SocketAddr) -> bool = |local| local.ip().is_loopback();

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn each_event_changes_the_ownership_as_its_table_requires() {
        use Ownership::{Borrowed, Closed, Kept, Returned};
        let table = [
            (Borrowed, Kept, Returned),
            (Kept, Kept, Closed),
            (Returned, Returned, Returned),
            (Closed, Closed, Closed),
        ];
        assert_eq!(table.map(|row| row.0), Ownership::ALL);
        for (before, established, released) in table {
            for (on_event, after) in [
                (Ownership::on_established as fn(_) -> _, established),
                (Ownership::on_release, released),
            ] {
                let ownership = AtomicOwnership(AtomicU8::new(before as u8));
                assert_eq!(ownership.change(on_event), before);
                assert_eq!(ownership.get(), after, "from {before:?}");
            }
        }
    }

    #[test]
    fn a_returned_socket_stays_with_its_consumer() {
        let (client, mut server) = pair();
        let socket = ConsumerSocket::take(client.as_raw_fd(), LOOPBACK).unwrap();
        socket.release();
        socket.keep();
        drop(socket);
        (&client).write_all(b"x").unwrap();
        server.read_exact(&mut [0; 1]).unwrap();
    }

    #[test]
    fn only_connected_tcp_sockets_of_the_interface_are_taken() {
        let (client, server) = pair();
        assert!(ConsumerSocket::take(client.as_raw_fd(), LOOPBACK).is_ok());
        let elsewhere = ConsumerSocket::take(server.as_raw_fd(), |_| false);
        assert_eq!(elsewhere.unwrap_err(), SocketFault::NotRouted);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let datagram = UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        for (number, fault) in [
            (listener.as_raw_fd(), SocketFault::NotTcp),
            (datagram.as_raw_fd(), SocketFault::NotTcp),
            (file.as_raw_fd(), SocketFault::NotASocket),
            (-1, SocketFault::NotASocket),
            (i32::MIN, SocketFault::NotASocket),
            (1_000_000, SocketFault::NotASocket),
        ] {
            let taken = ConsumerSocket::take(number, LOOPBACK);
            assert_eq!(taken.unwrap_err(), fault, "{number}");
        }
    }

    #[test]
    fn a_socket_is_taken_once_at_a_time_under_any_number() {
        let (client, mut server) = pair();
        let second = client.try_clone().unwrap();
        let take = |stream: &TcpStream| ConsumerSocket::take(stream.as_raw_fd(), LOOPBACK);
        let socket = take(&client).unwrap();
        for stream in [&client, &second] {
            assert_eq!(take(stream).unwrap_err(), SocketFault::InUse);
        }
        assert!(
            client.nodelay().unwrap(),
            "the options of the first user are kept"
        );
        let ours = ConsumerSocket::take(socket.as_fd().as_raw_fd(), LOOPBACK);
        assert_eq!(ours.unwrap_err(), SocketFault::InUse);
        drop(socket);
        let first = take(&second).unwrap();
        // Another thread may still hold the duplicate when the consumer is notified.
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
    fn a_child_keeps_returned_sockets_and_not_those_in_use() {
        prepare();
        let (client, _server) = pair();
        let number = client.as_raw_fd();
        // SAFETY: the call takes numbers.
        let is_open = || unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
        let child_has_it = || super::testing::is_so_in_child(is_open);
        assert!(child_has_it());
        let socket = ConsumerSocket::take(number, LOOPBACK).unwrap();
        assert!(!child_has_it(), "taken");
        drop(socket);
        assert!(child_has_it(), "returned");
    }

    #[test]
    fn a_kept_socket_is_closed_under_both_numbers_unless_its_number_was_reused() {
        let (client, mut server) = pair();
        let number = std::os::fd::IntoRawFd::into_raw_fd(client);
        let socket = ConsumerSocket::take(number, LOOPBACK).unwrap();
        socket.keep();
        drop(socket);
        assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);

        let (client, mut server) = pair();
        let socket = ConsumerSocket::take(client.as_raw_fd(), LOOPBACK).unwrap();
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
