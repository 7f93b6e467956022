//! Properties that an endpoint inherits from a consumer's socket (DAT 2.0 iWARP extensions 3.1.4).

use std::net::SocketAddr;
use std::os::fd::RawFd;

use dat_abi::{DatComm, DatSockAddr};

use crate::addr;

/// Communicator and addresses of a connected socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inherited {
    pub(crate) comm: DatComm,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

/// Reads the communicator and the addresses of `socket` from the kernel. Returns `None` unless it
/// is a connected internet socket. That is no error here: the RNIC checks the socket when it is
/// asked to take it, and returns the error.
pub(crate) fn from_socket(socket: RawFd) -> Option<Inherited> {
    let comm = DatComm {
        domain: option(socket, libc::SO_DOMAIN)?,
        r#type: option(socket, libc::SO_TYPE)?,
        protocol: option(socket, libc::SO_PROTOCOL)?,
    };
    let local = address(socket, libc::getsockname)?;
    let remote = address(socket, libc::getpeername)?;
    Some(Inherited {
        comm,
        local,
        remote,
    })
}

fn option(socket: RawFd, name: libc::c_int) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of_u32::<libc::c_int>();
    // SAFETY: value and length are in this frame and agree; any descriptor number may be queried.
    let result = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    (result == 0).then_some(value)
}

type NameCall =
    unsafe extern "C" fn(libc::c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int;

fn address(socket: RawFd, call: NameCall) -> Option<SocketAddr> {
    // SAFETY: a sockaddr_storage is integers, for which all zero bytes are a value.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = size_of_u32::<libc::sockaddr_storage>();
    // SAFETY: storage and length are in this frame and agree; any descriptor number may be queried.
    let result = unsafe { call(socket, (&raw mut storage).cast(), &raw mut len) };
    if result != 0 {
        return None;
    }
    // SAFETY: a sockaddr_storage is large enough for an address of any family.
    unsafe { addr::read((&raw const storage).cast::<DatSockAddr>()) }.ok()
}

fn size_of_u32<T>() -> libc::socklen_t {
    // Both types used here have less than 200 bytes.
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_connected_socket_returns_its_communicator_and_both_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let inherited = from_socket(stream.as_raw_fd()).unwrap();
        let comm = inherited.comm;
        assert_eq!(
            (comm.domain, comm.r#type),
            (libc::AF_INET, libc::SOCK_STREAM)
        );
        assert_eq!(comm.protocol, libc::IPPROTO_TCP);
        assert_eq!(inherited.local, stream.local_addr().unwrap());
        assert_eq!(inherited.remote, listener.local_addr().unwrap());
    }

    #[test]
    fn other_descriptors_return_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(from_socket(listener.as_raw_fd()), None, "not connected");
        assert_eq!(from_socket(-1), None, "no descriptor");
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(from_socket(file.as_raw_fd()), None, "no socket");
    }
}
