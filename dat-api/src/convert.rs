//! The conversion of a TCP connection by one call at each end.
//!
//! Both ends send a hello over the socket: seven bytes that identify it, a byte that is 1 if this
//! end can do RDMA, and a random number. If both ends can, the end with the greater number is the
//! passive side. That end sends one byte: 1 when its service point has the socket, 0 when it has no
//! service point. So both ends agree on the next byte of the stream if the conversion fails.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Duration;

use crate::connection::{Close, CompletionFlags, ConnectFailure, Ep, EpEvds, Evd, EvdFlags};
use crate::error::{Error, Result};
use crate::event::DtoStatus;
use crate::ia::Ia;
use crate::lmr::Privileges;
use crate::lock::lock;
use crate::node::Node;
use crate::region::Region;
use crate::sp::{Ssp, SspWaitError};

/// The greatest length of a message of [`RdmaStream`], in bytes.
pub const MESSAGE_MAX: usize = 16 << 10;

/// The number of messages that an end of an [`RdmaStream`] can receive before its program takes
/// them.
pub const WINDOW: usize = 16;

/// The first bytes of a hello.
const MAGIC: &[u8; 7] = b"dat-rs\x01";
const HELLO_LEN: usize = 16;
/// The passive side's byte before the request: its service point is ready.
const READY: u8 = 1;

/// The cookie of a send; those of receives are less.
const SENT: u64 = u64::MAX;

/// The time that an end waits for a step of the other end.
const STEP: Option<Duration> = Some(Duration::from_secs(10));

/// A TCP connection that has become an RDMA connection.
///
/// The program sends and receives messages, which arrive whole and in order. For everything else
/// the connection's objects are public: [`node`](Self::node) registers memory, and
/// [`ep`](Self::ep) posts RDMA Writes and Reads.
///
/// A message needs a receive at the other end. There are [`WINDOW`] of them, so an end must not
/// send more messages than that without an answer.
#[derive(Debug)]
pub struct RdmaStream {
    node: Node,
    ep: Ep,
    received: Evd,
    inbox: Vec<Region>,
    /// The receive that completes next. Held by the thread that waits for it.
    next: Mutex<usize>,
    outbox: Mutex<Region>,
}

/// A conversion that failed.
#[derive(Debug, thiserror::Error)]
#[error("the connection stays on TCP: {reason}")]
pub struct ConvertError {
    /// The socket, for streaming mode. `None` if the connection has failed as well.
    pub socket: Option<TcpStream>,
    /// The reason.
    pub reason: ConvertFailure,
}

/// The reason why a connection was not converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertFailure {
    /// A call of DAT failed at this end.
    #[error(transparent)]
    Call(#[from] Error),
    /// The socket failed.
    #[error("socket: {0}")]
    Socket(#[from] io::Error),
    /// The other end cannot do RDMA, or its program does not convert the connection.
    #[error("{0}")]
    Peer(&'static str),
    /// The other end sent no request for RDMA.
    #[error(transparent)]
    NoRequest(SspWaitError),
    /// No RDMA connection was established.
    #[error(transparent)]
    Connect(ConnectFailure),
}

/// Converts a connected TCP socket into an RDMA connection, on the adapter that has the socket's
/// local address. The program at the other end calls this function at the same time, so both have
/// to agree on it in their own protocol. All bytes that were sent before must have been read.
///
/// # Errors
/// The error contains the socket, unless the connection has failed too. Both ends get an error, so
/// both can continue over TCP.
///
/// ```no_run
/// # fn serve(_: std::net::TcpStream) {}
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let socket = std::net::TcpStream::connect("192.0.2.1:4000")?;
/// match dat_api::convert(socket) {
///     Ok(stream) => stream.send(b"hello over RDMA")?,
///     Err(failed) => serve(failed.socket.ok_or(failed.reason)?),
/// }
/// # Ok(())
/// # }
/// ```
pub fn convert(socket: TcpStream) -> Result<RdmaStream, ConvertError> {
    let address = socket.local_addr().map(|address| address.ip());
    let node = address.map_err(ConvertFailure::from).and_then(|address| {
        let ia = Ia::open_at(address)?;
        Ok(Node::builder().timeout(None).on(ia)?)
    });
    convert_by(node, socket)
}

/// Converts a connected TCP socket as [`convert()`] does, on the adapter of a node.
pub fn convert_on(node: &Node, socket: TcpStream) -> Result<RdmaStream, ConvertError> {
    convert_by(Ok(node.clone()), socket)
}

fn convert_by(
    node: Result<Node, ConvertFailure>,
    mut socket: TcpStream,
) -> Result<RdmaStream, ConvertError> {
    let stream = node.and_then(|node| Ok(RdmaStream::prepare(node)?));
    let agreed = agree(&mut socket, stream.is_ok());
    match (stream, agreed) {
        (Ok(stream), Ok(Side::Passive)) => stream.serve(socket),
        (Ok(stream), Ok(Side::Active)) => stream.request(socket),
        (Err(reason), _) | (_, Err(reason)) => Err(failed(Some(socket), reason)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Passive,
    Active,
}

fn failed(socket: Option<TcpStream>, reason: impl Into<ConvertFailure>) -> ConvertError {
    let reason = reason.into();
    ConvertError { socket, reason }
}

/// Exchanges hellos, and returns this end's side.
fn agree(socket: &mut TcpStream, is_able: bool) -> Result<Side, ConvertFailure> {
    let own = RandomState::new().build_hasher().finish();
    let mut hello = [0; HELLO_LEN];
    hello[..7].copy_from_slice(MAGIC);
    hello[7] = u8::from(is_able);
    hello[8..].copy_from_slice(&own.to_be_bytes());
    socket.write_all(&hello)?;
    let theirs = within(socket, |socket| {
        let mut theirs = [0; HELLO_LEN];
        socket.read_exact(&mut theirs).map(|()| theirs)
    })?;
    side(own, &theirs).map_err(ConvertFailure::Peer)
}

/// Returns the side of the end that has sent `own`, after the hello of the other end.
fn side(own: u64, theirs: &[u8; HELLO_LEN]) -> Result<Side, &'static str> {
    let ([magic @ .., is_able], number) = theirs.split_at(8) else {
        return Err("the hello is short");
    };
    if magic != MAGIC {
        return Err("the other end does not convert the connection");
    }
    if *is_able != 1 {
        return Err("the other end cannot do RDMA");
    }
    match own.to_be_bytes().as_slice().cmp(number) {
        std::cmp::Ordering::Greater => Ok(Side::Passive),
        std::cmp::Ordering::Less => Ok(Side::Active),
        std::cmp::Ordering::Equal => Err("both ends have chosen the same number; convert again"),
    }
}

/// Reads with a time limit, and restores the socket's own limit.
fn within<T>(
    socket: &mut TcpStream,
    read: impl FnOnce(&mut TcpStream) -> io::Result<T>,
) -> io::Result<T> {
    let before = socket.read_timeout()?;
    socket.set_read_timeout(STEP)?;
    let result = read(socket);
    socket.set_read_timeout(before)?;
    result
}

impl RdmaStream {
    /// Creates the endpoint and posts its receives, which must precede the conversion.
    fn prepare(node: Node) -> Result<Self> {
        let received = Evd::create(&node.ia, 2 * WINDOW as u32, EvdFlags::DTO)?;
        let evds = EpEvds {
            recv: &received,
            ..node.evds()
        };
        let ep = Ep::create(&node.pz, evds, None)?;
        let create = |_| Region::create(&node.pz, MESSAGE_MAX, Privileges::LOCAL);
        let inbox: Vec<Region> = (0..WINDOW).map(create).collect::<Result<_>>()?;
        let stream = Self {
            outbox: Mutex::new(Region::create(&node.pz, MESSAGE_MAX, Privileges::LOCAL)?),
            next: Mutex::new(0),
            node,
            ep,
            received,
            inbox,
        };
        (0..WINDOW).try_for_each(|slot| stream.post(slot))?;
        Ok(stream)
    }

    fn serve(self, mut socket: TcpStream) -> Result<Self, ConvertError> {
        let ssp = match Ssp::create(socket, &self.ep, &self.node.requests, &[READY]) {
            Ok(ssp) => ssp,
            Err(refused) => {
                socket = refused.socket.into();
                let told = socket.write_all(&[0]).err().map(ConvertFailure::from);
                return Err(failed(Some(socket), told.unwrap_or(refused.error.into())));
            }
        };
        let request = match ssp.wait_request(STEP) {
            Ok(request) => request,
            Err(error) => {
                let socket = ssp.free().ok().flatten().map(TcpStream::from);
                return Err(failed(socket, ConvertFailure::NoRequest(error)));
            }
        };
        if let Err(refused) = request.accept(None, b"") {
            let socket = refused.request.reject(b"").ok().flatten();
            return Err(failed(socket.map(TcpStream::from), refused.error));
        }
        match self.ep.wait_established(STEP) {
            Ok(_) => Ok(self),
            Err(error) => Err(not_connected(error)),
        }
    }

    fn request(self, mut socket: TcpStream) -> Result<Self, ConvertError> {
        let answer = within(&mut socket, |socket| {
            let mut answer = [0];
            socket.read_exact(&mut answer).map(|()| answer[0])
        });
        match answer {
            Ok(READY) => {}
            Ok(_) => {
                let reason = ConvertFailure::Peer("the other end cannot convert its socket");
                return Err(failed(Some(socket), reason));
            }
            Err(error) => return Err(failed(Some(socket), error)),
        }
        match self.ep.connect_socket(socket, STEP, b"") {
            Ok(_) => Ok(self),
            Err(error) => Err(not_connected(error)),
        }
    }

    fn post(&self, slot: usize) -> Result<()> {
        let memory = self.inbox[slot].segment(0, MESSAGE_MAX)?;
        self.ep.post_recv(&[memory], slot as u64)
    }

    /// The adapter, the protection zone and the dispatchers of the connection.
    #[must_use]
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// The endpoint. Its receives belong to the stream, and have the cookies below [`WINDOW`].
    #[must_use]
    pub const fn ep(&self) -> &Ep {
        &self.ep
    }

    /// Sends a message, and waits until the provider has sent it.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] for more than [`MESSAGE_MAX`] bytes, [`Error::Failed`] after the end
    /// of the connection.
    pub fn send(&self, message: &[u8]) -> Result<()> {
        let outbox = lock(&self.outbox);
        outbox.write(0, message)?;
        let memory = match message.len() {
            0 => vec![],
            len => vec![outbox.segment(0, len)?],
        };
        self.ep.post_send(&memory, SENT, CompletionFlags::DEFAULT)?;
        self.node.done(self.ep.id(), SENT).map(drop)
    }

    /// Waits for the next message. Returns `None` after the end of the connection.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if there is none within `timeout` (`None`: no limit).
    pub fn receive(&self, timeout: Option<Duration>) -> Result<Option<Vec<u8>>> {
        let mut next = lock(&self.next);
        let slot = *next;
        let done = self
            .received
            .wait_completion(self.ep.id(), slot as u64, timeout)?;
        match done.status {
            status if status.is_success() => {}
            DtoStatus::Flushed => return Ok(None),
            status => return Err(Error::Failed(status)),
        }
        let message = self.inbox[slot].to_vec(0, done.transferred as usize)?;
        self.post(slot)?;
        *next = (slot + 1) % WINDOW;
        Ok(Some(message))
    }

    /// Ends the connection after everything that was sent, and waits for the end.
    pub fn close(self) -> Result<()> {
        self.ep.disconnect(Close::Graceful)?;
        self.ep.wait_disconnected(STEP).map(drop)
    }
}

fn not_connected(error: crate::ConnectError) -> ConvertError {
    let socket = error.socket.map(TcpStream::from);
    failed(socket, ConvertFailure::Connect(error.reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(magic: &[u8; 7], is_able: u8, number: u64) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..7].copy_from_slice(magic);
        bytes[7] = is_able;
        bytes[8..].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    #[test]
    fn the_greater_number_is_the_passive_side() {
        assert_eq!(side(0x0100, &hello(MAGIC, 1, 0x00FF)), Ok(Side::Passive));
        assert_eq!(side(0x00FF, &hello(MAGIC, 1, 0x0100)), Ok(Side::Active));
        assert!(side(7, &hello(MAGIC, 1, 7)).is_err());
    }

    #[test]
    fn an_end_that_cannot_or_does_not_convert_is_named() {
        let error = side(1, &hello(MAGIC, 0, 2)).unwrap_err();
        assert!(error.contains("cannot do RDMA"), "{error}");
        let error = side(1, &hello(b"GET / H", 1, 2)).unwrap_err();
        assert!(error.contains("does not convert"), "{error}");
    }
}
