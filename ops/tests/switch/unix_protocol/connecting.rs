//! A connection whose handshake is in progress.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ops::{ConnectFailure, Local, OffloadConnecting, OffloadStream, Target};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::unix_protocol::stream::UnixStream;
use crate::unix_protocol::wire::{
    self, COMMIT, OTHER_VERSION, REFUSE, WELCOME, hello, name, socket,
};

/// The connecting end's side of the handshake.
#[derive(Debug)]
pub(super) struct UnixConnecting {
    socket: Option<OwnedFd>,
    /// A duplicate of the socket, which can be polled after the socket has moved to the stream.
    watched: OwnedFd,
    local: SocketAddr,
    peer: SocketAddr,
}

impl UnixConnecting {
    pub(super) fn begin(protocol: &str, target: &Target<'_>) -> Result<Self, ConnectFailure> {
        let socket = connect(protocol, target.mapped).map_err(|errno| match errno {
            Errno::CONNREFUSED => ConnectFailure::Refused,
            errno => ConnectFailure::Failed(errno),
        })?;
        let hello = hello(target.local);
        rustix::net::send(&socket, &hello, SendFlags::NOSIGNAL).map_err(ConnectFailure::Failed)?;
        let watched =
            rustix::io::fcntl_dupfd_cloexec(&socket, 0).map_err(ConnectFailure::Failed)?;
        Ok(Self {
            socket: Some(socket),
            watched,
            local: target.local,
            peer: target.service,
        })
    }
}

/// Connects to the service of this address, to that of all addresses of its family, or to that of
/// all.
fn connect(protocol: &str, mapped: SocketAddr) -> Result<OwnedFd, Errno> {
    let zeros = |zeros: IpAddr| SocketAddr::new(zeros, mapped.port());
    let all = zeros([0_u16; 8].into());
    let of_family = match mapped.ip().to_canonical() {
        IpAddr::V4(_) => zeros([0_u8; 4].into()).into(),
        IpAddr::V6(_) => Local {
            address: all,
            ipv6_only: true,
        },
    };
    let mut last = Errno::CONNREFUSED;
    for local in [mapped.into(), of_family, all.into()] {
        let socket = socket()?;
        match rustix::net::connect(&socket, &name(protocol, local)?) {
            Ok(()) => return Ok(socket),
            Err(errno) => last = errno,
        }
    }
    Err(last)
}

impl OffloadConnecting for UnixConnecting {
    fn step(&mut self) -> Result<Option<Box<dyn OffloadStream>>, ConnectFailure> {
        let failed = ConnectFailure::Failed;
        let socket = self.socket.as_ref().ok_or(failed(Errno::ISCONN))?;
        let mut byte = [0];
        match wire::receive(socket, &mut byte) {
            Ok(0) => return Err(failed(Errno::CONNRESET)),
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        }
        match byte[0] {
            WELCOME => {}
            REFUSE => return Err(ConnectFailure::Refused),
            OTHER_VERSION => return Err(ConnectFailure::Version),
            _ => return Err(failed(Errno::PROTO)),
        }
        rustix::net::send(socket, &[COMMIT], SendFlags::NOSIGNAL).map_err(failed)?;
        let socket = self.socket.take().ok_or(failed(Errno::ISCONN))?;
        Ok(Some(Box::new(UnixStream::new(
            socket, self.local, self.peer,
        ))))
    }
}

impl AsFd for UnixConnecting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }
}
