//! Ownership of a consumer's stream socket that is converted to RDMA.
//!
//! A provider takes a socket by its descriptor number and duplicates it. While the provider has it,
//! the number stays open and must not be used. If no connection is established, the number belongs
//! to the consumer again, and the socket is unchanged. If a connection is established, the provider
//! closes the number when that connection ends. So the number has exactly one owner at a time;
//! [`SocketOwnership`] names it. This crate returns either an [`OwnedFd`] or nothing.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use crate::error::SocketError;

/// The descriptor number of a socket that was passed to the provider. Dropping the value does not
/// close the number.
#[derive(Debug)]
pub(crate) struct PassedSocket {
    number: RawFd,
    inode: u64,
}

/// The owner of a socket that was passed to the provider.
#[derive(Debug, Default)]
pub(crate) enum SocketOwnership {
    /// There is no socket, or it has been returned to the consumer.
    #[default]
    None,
    /// The provider has the socket and no connection has been established yet.
    Passed(PassedSocket),
    /// A connection has been established over the socket: the provider closes it.
    TakenOver,
    /// The provider has returned the socket.
    Returned(OwnedFd),
}

impl PassedSocket {
    /// Takes a socket out of Rust's ownership. Returns the socket if it cannot be identified.
    pub(crate) fn pass(socket: OwnedFd) -> Result<Self, (OwnedFd, SocketError)> {
        match inode_of(socket.as_raw_fd()) {
            Some(inode) => Ok(Self {
                number: socket.into_raw_fd(),
                inode,
            }),
            None => Err((socket, SocketError::last())),
        }
    }

    pub(crate) fn number(&self) -> RawFd {
        self.number
    }

    /// Returns the number as an owned descriptor, after the provider has released it without a
    /// connection.
    pub(crate) fn into_owned(self) -> OwnedFd {
        // SAFETY: the number was released from an OwnedFd by `pass`; a provider that releases a
        // socket without a connection leaves the number open; and `self` is consumed.
        unsafe { OwnedFd::from_raw_fd(self.number) }
    }

    /// Returns the descriptor if the number still refers to the socket that was passed. Used when
    /// it is unknown whether a connection was established before the endpoint was freed.
    pub(crate) fn reclaim(self) -> Option<OwnedFd> {
        (inode_of(self.number) == Some(self.inode)).then(|| self.into_owned())
    }
}

impl SocketOwnership {
    /// Called when a connection was established over the socket.
    pub(crate) fn on_established(&mut self) {
        if matches!(self, Self::Passed(_)) {
            *self = Self::TakenOver;
        }
    }

    /// Called when the attempt failed, or ended before a connection was established. If the attempt
    /// was aborted, a connection may have been established at the same moment without its event
    /// being read. Then the provider closes the number, or has closed it.
    pub(crate) fn on_not_established(&mut self) {
        if let Some(passed) = self.take_passed() {
            *self = match passed.reclaim() {
                Some(socket) => Self::Returned(socket),
                None => Self::TakenOver,
            };
        }
    }

    /// Takes the socket if the provider has it. The caller becomes responsible for the number.
    pub(crate) fn take_passed(&mut self) -> Option<PassedSocket> {
        match std::mem::take(self) {
            Self::Passed(passed) => Some(passed),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes the socket if the provider has returned it.
    pub(crate) fn take_returned(&mut self) -> Option<OwnedFd> {
        match std::mem::take(self) {
            Self::Returned(socket) => Some(socket),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// Returns the inode behind a descriptor. Each socket has its own inode number, which is not reused
/// soon.
fn inode_of(number: RawFd) -> Option<u64> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the out-pointer is writable; for a bad descriptor the call returns an error.
    if unsafe { libc::fstat(number, stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so the structure is filled.
    Some(unsafe { stat.assume_init() }.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn passed() -> (PassedSocket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (PassedSocket::pass(ours.into()).unwrap(), theirs)
    }

    #[test]
    fn a_failed_attempt_returns_the_same_open_socket_once() {
        let (socket, mut peer) = passed();
        let number = socket.number();
        let mut ownership = SocketOwnership::Passed(socket);
        assert!(ownership.take_returned().is_none());
        ownership.on_not_established();
        let back = ownership.take_returned().unwrap();
        assert_eq!(back.as_raw_fd(), number);
        UnixStream::from(back).write_all(b"x").unwrap();
        let mut byte = [0];
        peer.read_exact(&mut byte).unwrap();
        assert!(ownership.take_returned().is_none());
    }

    #[test]
    fn an_established_connection_keeps_the_socket_also_after_its_end() {
        let (socket, _peer) = passed();
        let number = socket.number();
        let mut ownership = SocketOwnership::Passed(socket);
        ownership.on_established();
        ownership.on_not_established();
        assert!(matches!(ownership, SocketOwnership::TakenOver));
        assert!(ownership.take_returned().is_none());
        // SAFETY: acts as the provider, which closes the number of a socket that it has used.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }

    #[test]
    fn a_number_that_the_provider_has_closed_is_not_closed_again() {
        let (socket, _peer) = passed();
        let (other, _other_peer) = UnixStream::pair().unwrap();
        let number = socket.number();
        // Simulates a connection that was established and ended while the attempt was aborted, and
        // a thread that opened another file under the number. SAFETY: the number is open and only
        // `socket` refers to it.
        assert!(unsafe { libc::dup2(other.as_raw_fd(), number) } >= 0);
        let mut ownership = SocketOwnership::Passed(socket);
        ownership.on_not_established();
        assert!(ownership.take_returned().is_none());
        drop(ownership);
        // SAFETY: the duplicate made above has no other owner; it is closed here and nowhere else.
        let duplicate = unsafe { OwnedFd::from_raw_fd(number) };
        assert!(inode_of(duplicate.as_raw_fd()).is_some());
    }

    #[test]
    fn the_socket_is_reclaimed_only_while_its_number_refers_to_it() {
        let (socket, _peer) = passed();
        assert!(socket.reclaim().is_some());

        let (socket, _peer) = passed();
        let (other, _other_peer) = UnixStream::pair().unwrap();
        // Simulates a provider that closed the number and a thread that opened another file under
        // it. SAFETY: the number is open and only `socket` refers to it.
        assert!(unsafe { libc::dup2(other.as_raw_fd(), socket.number()) } >= 0);
        let number = socket.number();
        assert!(socket.reclaim().is_none());
        // SAFETY: the duplicate made above has no other owner.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }

    #[test]
    fn a_closed_descriptor_has_no_inode() {
        assert_eq!(inode_of(-1), None);
    }
}
