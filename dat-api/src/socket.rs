//! Whose socket is it? A consumer's stream socket on its way into RDMA and back.
//!
//! A provider takes a socket by its number and duplicates it. While it has it, the number stays
//! open and must not be used. If no connection comes about, the number is the consumer's again,
//! untouched. If one does, the provider closes the number when that connection ends. So the number
//! has exactly one of three owners, which [`SocketOwnership`] names; what leaves this crate is an
//! [`OwnedFd`] or nothing.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use crate::error::SocketError;

/// A socket number that is lent to a provider. Dropping it does nothing: the number stays open.
#[derive(Debug)]
pub(crate) struct LentSocket {
    number: RawFd,
    inode: u64,
}

/// Where a lent socket is.
#[derive(Debug, Default)]
pub(crate) enum SocketOwnership {
    /// There is none, or it has been handed out again.
    #[default]
    None,
    /// The provider has it and no connection has been established yet.
    Lent(LentSocket),
    /// A connection has been established over it: the provider closes it.
    TakenOver,
    /// It came back.
    Returned(OwnedFd),
}

impl LentSocket {
    /// Takes a socket out of Rust's ownership; gives it back when it cannot be identified.
    pub(crate) fn lend(socket: OwnedFd) -> Result<Self, (OwnedFd, SocketError)> {
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

    /// The number again as an owned descriptor, when the provider has let go of it without a
    /// connection.
    pub(crate) fn give_back(self) -> OwnedFd {
        // SAFETY: the number came from an OwnedFd that was dissolved by `lend`, a provider that has
        // let go of a socket without a connection leaves the number open, and `self` is consumed.
        unsafe { OwnedFd::from_raw_fd(self.number) }
    }

    /// Ends the loan when it is not known whether a connection came about before the endpoint was
    /// freed: the descriptor comes back only if the number still is the socket that was lent.
    pub(crate) fn settle(self) -> Option<OwnedFd> {
        (inode_of(self.number) == Some(self.inode)).then(|| self.give_back())
    }
}

impl SocketOwnership {
    /// A connection was established over the socket.
    pub(crate) fn on_established(&mut self) {
        if matches!(self, Self::Lent(_)) {
            *self = Self::TakenOver;
        }
    }

    /// The attempt failed, or ended before a connection was established. One that is given up may
    /// have been established in that moment, unheard; then the provider closes the number, or has.
    pub(crate) fn on_not_established(&mut self) {
        if let Some(lent) = self.take_lent() {
            *self = match lent.settle() {
                Some(socket) => Self::Returned(socket),
                None => Self::TakenOver,
            };
        }
    }

    /// The socket, if the provider has it; the caller moves it elsewhere.
    pub(crate) fn take_lent(&mut self) -> Option<LentSocket> {
        match std::mem::take(self) {
            Self::Lent(lent) => Some(lent),
            other => {
                *self = other;
                None
            }
        }
    }

    /// The socket, if it came back; once.
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

/// The inode behind a descriptor; sockets have inodes of their own that are not soon reused.
fn inode_of(number: RawFd) -> Option<u64> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the out-pointer is writable; a bad descriptor is answered with an error.
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

    fn lent() -> (LentSocket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (LentSocket::lend(ours.into()).unwrap(), theirs)
    }

    #[test]
    fn a_failed_attempt_returns_the_same_living_socket_once() {
        let (socket, mut peer) = lent();
        let number = socket.number();
        let mut ownership = SocketOwnership::Lent(socket);
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
    fn an_established_connection_keeps_the_socket_also_when_it_ends() {
        let (socket, _peer) = lent();
        let number = socket.number();
        let mut ownership = SocketOwnership::Lent(socket);
        ownership.on_established();
        ownership.on_not_established();
        assert!(matches!(ownership, SocketOwnership::TakenOver));
        assert!(ownership.take_returned().is_none());
        // SAFETY: stands for the provider, which closes the number of a spent socket.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }

    #[test]
    fn a_number_that_the_provider_has_closed_is_not_closed_again() {
        let (socket, _peer) = lent();
        let (other, _other_peer) = UnixStream::pair().unwrap();
        let number = socket.number();
        // Stands for a connection that was established in the moment in which it was given up, and
        // has ended, and for a thread that opened something else there. SAFETY: the number is open
        // and only `socket` refers to it.
        assert!(unsafe { libc::dup2(other.as_raw_fd(), number) } >= 0);
        let mut ownership = SocketOwnership::Lent(socket);
        ownership.on_not_established();
        assert!(ownership.take_returned().is_none());
        drop(ownership);
        // SAFETY: the duplicate made above has no other owner; it is closed here and nowhere else.
        let duplicate = unsafe { OwnedFd::from_raw_fd(number) };
        assert!(inode_of(duplicate.as_raw_fd()).is_some());
    }

    #[test]
    fn settling_returns_the_socket_only_while_the_number_is_still_that_socket() {
        let (socket, _peer) = lent();
        assert!(socket.settle().is_some());

        let (socket, _peer) = lent();
        let (other, _other_peer) = UnixStream::pair().unwrap();
        // Stands for a provider that closed the number and a thread that opened something else
        // there. SAFETY: the number is open and only `socket` refers to it.
        assert!(unsafe { libc::dup2(other.as_raw_fd(), socket.number()) } >= 0);
        let number = socket.number();
        assert!(socket.settle().is_none());
        // SAFETY: the duplicate made above has no other owner.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }

    #[test]
    fn what_is_not_open_cannot_be_lent() {
        assert_eq!(inode_of(-1), None);
    }
}
