//! An established connection.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ops::{Half, OffloadStream, Readiness, Watch};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};

/// Messages over an `AF_UNIX` socket. The switch uses none of the operations without an effect.
#[derive(Debug)]
pub(super) struct UnixStream {
    socket: OwnedFd,
    local: SocketAddr,
    peer: SocketAddr,
}

impl UnixStream {
    pub(super) fn new(socket: OwnedFd, local: SocketAddr, peer: SocketAddr) -> Self {
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
        let mut no_control = SendAncillaryBuffer::default();
        sendmsg(&self.socket, parts, &mut no_control, SendFlags::NOSIGNAL)
    }

    fn send_urgent(&self, _: u8) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    fn receive(&self, parts: &mut [IoSliceMut<'_>], _: bool) -> Result<usize, Errno> {
        let part = parts.first_mut().ok_or(Errno::INVAL)?;
        let (_, len) = recv(&self.socket, &mut part[..], RecvFlags::DONTWAIT)?;
        Ok(len)
    }

    fn receive_urgent(&self, _: bool) -> Result<u8, Errno> {
        Err(Errno::INVAL)
    }

    fn set_urgent_inline(&self, _: bool) {}

    fn set_send_bound(&self, _: usize) {}

    fn set_receive_low(&self, _: usize) {}

    fn shutdown(&self, _: Half) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    fn abort(&self) {}

    fn readiness(&self) -> Readiness {
        Readiness::default()
    }

    fn unread(&self) -> usize {
        0
    }

    fn unread_before_mark(&self) -> usize {
        0
    }

    fn unsent(&self) -> usize {
        0
    }

    fn is_at_mark(&self) -> bool {
        false
    }

    fn watch(&self, _: Arc<dyn Watch>) {}
}
