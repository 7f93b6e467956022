//! Sockets of the provider, and sockets that a consumer has handed over.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Mutex;

use host::locks::lock;
use rnic::SocketFault;
use rnic::socket::{ConsumerSocket, NotInherited};

use crate::policing::Permit;

/// A TCP socket that the provider may use.
#[derive(Debug)]
pub(crate) struct Socket {
    descriptor: Descriptor,
    /// The permission for the connection, or for the inbound connection before it.
    permit: Mutex<Option<Permit>>,
}

#[derive(Debug)]
enum Descriptor {
    /// A socket that the provider opened.
    Own(NotInherited),
    /// A socket that the consumer passed to the provider.
    Consumer(ConsumerSocket),
}

impl Socket {
    /// Takes a socket that the provider opened.
    pub(crate) fn own(fd: OwnedFd) -> Self {
        Self::new(Descriptor::Own(NotInherited::new(fd)))
    }

    fn new(descriptor: Descriptor) -> Self {
        let permit = Mutex::new(None);
        Self { descriptor, permit }
    }

    /// Keeps a permission until the use of the socket ends, and drops the one before it.
    pub(crate) fn hold(&self, permit: Permit) {
        *lock(&self.permit) = Some(permit);
    }

    /// Takes a consumer's socket ([`ConsumerSocket::take`]).
    pub(crate) fn take(
        number: RawFd,
        is_routed: impl FnOnce(SocketAddr) -> bool,
    ) -> Result<Self, SocketFault> {
        let socket = ConsumerSocket::take(number, is_routed)?;
        Ok(Self::new(Descriptor::Consumer(socket)))
    }

    /// Called once a connection is established. The socket is not returned to its consumer then.
    pub(crate) fn keep(&self) {
        if let Descriptor::Consumer(socket) = &self.descriptor {
            socket.keep();
        }
    }

    /// Ends the use of the socket, because the connection is over, though the provider's descriptor
    /// may stay open for a while. A consumer's socket is returned, or its number is closed. A
    /// consumer that is notified of the end may check which, and use the socket at once.
    pub(crate) fn release(&self) {
        drop(lock(&self.permit).take());
        if let Descriptor::Consumer(socket) = &self.descriptor {
            socket.release();
        }
    }

    /// True if the socket was or will be returned to its consumer.
    pub(crate) fn returns_to_consumer(&self) -> bool {
        match &self.descriptor {
            Descriptor::Own(_) => false,
            Descriptor::Consumer(socket) => socket.returns_to_consumer(),
        }
    }

    /// True if the program has closed the provider's number, which may be that of a file of the
    /// program. The data path does not check this, because the check is a system call: the
    /// provider's numbers are far from those that the kernel assigns to the program.
    pub(crate) fn is_lost(&self) -> bool {
        match &self.descriptor {
            Descriptor::Own(fd) => fd.is_lost(),
            Descriptor::Consumer(socket) => socket.is_lost(),
        }
    }

    /// True if a consumer passed the socket to the provider.
    pub(crate) fn is_consumers(&self) -> bool {
        matches!(self.descriptor, Descriptor::Consumer(_))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.descriptor {
            Descriptor::Own(fd) => fd.as_fd(),
            Descriptor::Consumer(socket) => socket.as_fd(),
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_socket_of_the_provider_is_not_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = Socket::own(client.into());
        let taken = Socket::take(own.as_raw_fd(), |_| true);
        assert_eq!(taken.unwrap_err(), SocketFault::InUse);
    }
}
