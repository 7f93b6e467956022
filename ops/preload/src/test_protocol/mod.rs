//! An offload protocol for tests alone, between processes of one machine.
//!
//! It proves that nothing in this library is made for SDP, and it gives the tests of socket
//! semantics a protocol without a network. Its connections are message sockets of the kernel in
//! the abstract name space; a message is a kind and its bytes, as with a real protocol, so that
//! urgent data, half closes and aborts are its own.
//!
//! | File | What |
//! |---|---|
//! | [`wire`] | the messages |
//! | [`stream`] | a connection |
//! | [`service`] | listening |
//!
//! It is there when `OPS_TEST_PROTOCOL` is set in the environment, and never otherwise.

mod service;
mod stream;
mod wire;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::internal;
use crate::protocol::{Listening, Protocol, Unobserved};

/// What it is called where sockets are listed.
const NAME: &str = "test";

/// The protocol.
pub(crate) struct TestProtocol;

impl Protocol for TestProtocol {
    fn name(&self) -> &'static str {
        NAME
    }

    fn connect(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        _deadline: Instant,
    ) -> Result<Box<dyn Unobserved>, Errno> {
        let socket = message_socket()?;
        // A message socket of one machine connects at once or not at all.
        connect(&socket, &name_of(remote.port())?)?;
        wire::send_hello(&socket, local)?;
        Ok(Box::new(stream::Fresh::new(socket)))
    }

    fn listen(&self, local: SocketAddr, pending: OwnedFd) -> Result<Box<dyn Listening>, Errno> {
        Ok(Box::new(service::Service::begin(local, pending)?))
    }
}

fn message_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    internal::raise(socket)
}

/// Where the service of a port is found.
fn name_of(port: u16) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(format!("dat-rs/test-protocol/{port}").as_bytes())
}
