//! Sockets of several users.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt as nix_options};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, acceptfrom_with, bind, connect, getpeername,
    getsockname, listen, socket_with, sockopt,
};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;

/// A socket option that changes the addresses of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketOption {
    /// No option.
    None,
    /// `IPV6_V6ONLY`.
    Ipv6Only,
    /// `IP_FREEBIND`.
    FreeBind,
    /// `IP_TRANSPARENT`, which needs a capability.
    Transparent,
    /// `SO_REUSEPORT`.
    ReusePort,
    /// `SO_BINDTODEVICE` with the loopback device.
    Loopback,
    /// `SO_BINDTODEVICE` with the other device.
    Device,
}

impl SocketOption {
    /// All options.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Ipv6Only,
        Self::FreeBind,
        Self::Transparent,
        Self::ReusePort,
        Self::Loopback,
        Self::Device,
    ];

    fn set(self, socket: &OwnedFd) -> Result<(), nix::errno::Errno> {
        match self {
            Self::None => Ok(()),
            Self::Ipv6Only => setsockopt(socket, nix_options::Ipv6V6Only, &true),
            Self::FreeBind => setsockopt(socket, nix_options::IpFreebind, &true),
            Self::Transparent => setsockopt(socket, nix_options::IpTransparent, &true),
            Self::ReusePort => setsockopt(socket, nix_options::ReusePort, &true),
            Self::Loopback => setsockopt(socket, nix_options::BindToDevice, &"lo".into()),
            Self::Device => setsockopt(socket, nix_options::BindToDevice, &"d0".into()),
        }
    }
}

/// Runs `work` as the user `user`, on this thread alone.
pub(super) fn as_user<T>(user: u32, work: impl FnOnce() -> T) -> T {
    let [root, other] = [0, user].map(Uid::from_raw);
    set_thread_res_uid(root, other, root).expect("root becomes any user");
    let result = work();
    set_thread_res_uid(root, root, root).expect("the saved user is root");
    result
}

/// Makes a TCP socket that does not block; `None` if the option is not permitted.
pub(super) fn tcp(is_ipv6: bool, option: SocketOption) -> Option<OwnedFd> {
    let family = if is_ipv6 {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None).expect("a socket");
    // The dual form is the kernel's default, which an administrator may change.
    if is_ipv6 {
        sockopt::set_ipv6_v6only(&socket, false).expect("a new socket");
    }
    option.set(&socket).ok().map(|()| socket)
}

/// Makes a TCP listener; `None` if the kernel refuses it.
pub(super) fn tcp_listener(address: SocketAddr, option: SocketOption) -> Option<OwnedFd> {
    let socket = tcp(address.is_ipv6(), option)?;
    bind(&socket, &address).ok()?;
    listen(&socket, 8).ok()?;
    Some(socket)
}

/// Connects, and waits for the end of the attempt at most for `patience`. Returns true if the
/// connection is established.
pub(super) fn connect_tcp(socket: &OwnedFd, to: SocketAddr, patience: Duration) -> bool {
    // A close that resets leaves no `TIME_WAIT`, which would refuse the addresses later.
    sockopt::set_socket_linger(socket, Some(Duration::ZERO)).expect("a socket");
    match connect(socket, &to) {
        Ok(()) => return true,
        Err(Errno::INPROGRESS) => {}
        Err(_) => return false,
    }
    let timeout = Timespec::try_from(patience).ok();
    let mut set = [PollFd::new(socket, PollFlags::OUT)];
    poll(&mut set, timeout.as_ref()) == Ok(1) && sockopt::socket_error(socket) == Ok(Ok(()))
}

/// Accepts a connection, and returns it with the address that the call reports.
pub(super) fn accept_tcp(listener: &OwnedFd) -> Option<(OwnedFd, SocketAddr)> {
    let (socket, peer) = acceptfrom_with(listener, SocketFlags::CLOEXEC).ok()?;
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).ok()?;
    Some((socket, SocketAddr::try_from(peer?).ok()?))
}

/// Returns the socket's own address.
pub(super) fn own_name(socket: impl AsFd) -> Option<SocketAddr> {
    SocketAddr::try_from(getsockname(socket).ok()?).ok()
}

/// Returns the address of the peer.
pub(super) fn peer_name(socket: impl AsFd) -> Option<SocketAddr> {
    SocketAddr::try_from(getpeername(socket).ok()??).ok()
}
