//! An established connection.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ops::{Half, OffloadStream, Readiness};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

/// Bytes over an `AF_UNIX` socket.
#[derive(Debug)]
pub(crate) struct UnixStream {
    socket: OwnedFd,
    local: SocketAddr,
    peer: SocketAddr,
}

impl UnixStream {
    pub(crate) fn new(socket: OwnedFd, local: SocketAddr, peer: SocketAddr) -> Self {
        Self {
            socket,
            local,
            peer,
        }
    }
}

impl OffloadStream for UnixStream {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let mut nothing = SendAncillaryBuffer::default();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&self.socket, parts, &mut nothing, flags)
    }

    fn receive(&self, parts: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        let mut nothing = RecvAncillaryBuffer::default();
        let received =
            rustix::net::recvmsg(&self.socket, parts, &mut nothing, RecvFlags::DONTWAIT)?;
        Ok(received.bytes)
    }

    fn shutdown(&self, half: Half) -> Result<(), Errno> {
        let half = match half {
            Half::Read => Shutdown::Read,
            Half::Write => Shutdown::Write,
            Half::Both => Shutdown::Both,
        };
        rustix::net::shutdown(&self.socket, half)
    }

    fn readiness(&self) -> Readiness {
        let all = PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP;
        let mut polled = [PollFd::new(&self.socket, all)];
        let now = Timespec::default();
        if rustix::event::poll(&mut polled, Some(&now)).is_err() {
            return Readiness::default();
        }
        let found = polled[0].revents();
        Readiness {
            readable: found.contains(PollFlags::IN),
            writable: found.contains(PollFlags::OUT),
            peer_ended: found.contains(PollFlags::RDHUP),
            hung_up: found.contains(PollFlags::HUP),
            failed: found.contains(PollFlags::ERR),
        }
    }
}

impl AsFd for UnixStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
