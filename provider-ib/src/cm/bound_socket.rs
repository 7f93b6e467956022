//! Connections of the device that begin on a consumer's socket (DAT 2.0 iWARP extensions).
//!
//! No verb converts a socket. Both ends therefore agree on that socket to connect their devices,
//! and the device carries the data:
//!
//! ```text
//! connecting end                  socket    device                   accepting end
//!   Request: token A, adapter       ──────▶              armed: the request is delivered
//!                                   ◀──────              Reply: token B, adapter and port
//!   connect: private data B                  ──────▶     is it B? the device accepts
//!   is it A? established                     ◀──────     accept: private data A; established
//! ```
//!
//! The frames are in [`super::frames`]. Each token is 128 random bits that only the two ends of the
//! socket know, so each end proves to the other that it holds the other end of the socket. The
//! accepting end listens at a port of its own for this one connection (`listen`).
//!
//! Ownership is the software provider's: [`ConsumerSocket`] is its only record here, and this
//! module and `armed` and `request` only pass it on. The socket is borrowed until the connection is
//! established, and kept from then on. An attempt that ends in any other way returns the socket
//! before its event is reported, at the position after the last frame: the consumers stream again.
//!
//! * A peer that does not know these frames reads 20 bytes that begin with `MPA ID Req Frame` and
//!   the revision 0xd1, a contact of 36 bytes, and the private data. An implementation of MPA
//!   refuses the revision: a service point of the software provider reports its socket down, and
//!   the frame stays unread. Conversely, this provider reports an MPA Request, or a Request of an
//!   adapter that cannot be connected with this one, as a socket that is down, and does not read
//!   it: a service point of another adapter on the same socket can serve it.
//! * Until the connection is established, each byte on the socket after the frames means that the
//!   peer has given up: its consumer streams again. The attempt ends at once.
//! * The peer's end of the socket ends when its connection ends, which the device reports too. If
//!   the device does not do so within [`PEER_END`], the peer has died, and the connection breaks.
//!   The socket has no other use then, and is closed when the connection ends.
//! * An accepting end whose peer's device does not connect within twice `mpa_timeout_ms` fails.
//!
//! System calls on the data path: none. A connection costs the two frames and a listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use iwarp_proto::wire::mpa::StartupFrame;
use rnic::socket::ConsumerSocket;
use rnic::socket::io::{self, Received, Sent};

use super::frames::{self, Answer, Contact, Front, LEN_MAX, Token};
use super::id::Key;
use super::machine::Refusal;
use crate::shared::Shared;

/// The time in which the device reports the end of a connection after the peer's end of the socket
/// has ended.
pub(super) const PEER_END: Duration = Duration::from_secs(5);

/// A consumer's socket that belongs to a connection, or to the attempt to establish it.
pub(super) struct BoundSocket {
    shared: Arc<Shared>,
    socket: Arc<ConsumerSocket>,
    /// The addresses of the socket; `None` if it is not connected.
    addresses: Option<(SocketAddr, SocketAddr)>,
    /// The token that the peer's device must present to this end.
    token: Token,
    /// The frame of this end, and the number of its bytes that the connecting end has sent.
    frame: StartupFrame,
    sent: usize,
}

rnic::opaque_debug!(BoundSocket {});

/// The result of a step of the connecting end.
#[derive(Debug)]
pub(super) enum Progress {
    /// The Request is not sent, or the Reply is not complete.
    Waiting,
    /// The peer accepted, and its device listens.
    Accepted {
        contact: Contact,
        private_data: Vec<u8>,
    },
    /// No connection is made.
    Refused {
        refusal: Refusal,
        private_data: Vec<u8>,
    },
}

impl Progress {
    fn refused(refusal: Refusal) -> Self {
        Self::Refused {
            refusal,
            private_data: Vec::new(),
        }
    }
}

impl BoundSocket {
    /// Binds a socket, which the engine watches under `key` from now on.
    pub(super) fn new(
        shared: &Arc<Shared>,
        socket: Arc<ConsumerSocket>,
        key: Key,
        token: Token,
        frame: StartupFrame,
    ) -> std::io::Result<Self> {
        shared.engine.watch_socket(&socket, key.0)?;
        let addresses = io::local_address(&*socket).zip(io::remote_address(&*socket));
        Ok(Self {
            shared: shared.clone(),
            socket,
            addresses,
            token,
            frame,
            sent: 0,
        })
    }

    /// The local and the remote address.
    pub(super) fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.addresses
    }

    /// True if the private data of the connection manager shows that the device of the peer belongs
    /// to the other end of this socket.
    pub(super) fn is_proven_by(&self, private_data: &[u8]) -> bool {
        self.token.is_in(private_data)
    }

    /// Sends the rest of the Request, and evaluates the Reply.
    pub(super) fn advance(&mut self) -> Progress {
        while self.sent < self.frame.as_bytes().len() {
            match io::send(self.fd(), &self.frame.as_bytes()[self.sent..]) {
                Sent::Bytes(count) => self.sent += count,
                // The engine watches for room, too.
                Sent::WouldBlock => return Progress::Waiting,
                Sent::Failed(_) => return Progress::refused(Refusal::Service),
            }
        }
        let mut front = [0; LEN_MAX];
        let count = match io::peek(self.fd(), &mut front) {
            Received::Bytes(count) => count,
            Received::WouldBlock => return Progress::Waiting,
            Received::Failed(error) if io::is_out_of_reach(error) => {
                return Progress::refused(Refusal::Unreachable);
            }
            Received::Eof | Received::Failed(_) => return Progress::refused(Refusal::Service),
        };
        match frames::parse_reply(&front[..count]) {
            Front::Incomplete if !self.has_ended() => Progress::Waiting,
            Front::Incomplete | Front::Other => Progress::refused(Refusal::Service),
            Front::Frame {
                value,
                private_data,
                len,
            } => self.on_reply(value, front[private_data].to_vec(), len),
        }
    }

    fn on_reply(&self, answer: Answer, private_data: Vec<u8>, len: usize) -> Progress {
        let device = &self.shared.device;
        if !io::discard(self.fd(), len) {
            return Progress::refused(Refusal::Service);
        }
        match answer {
            Answer::Accepted(contact) if contact.fits(device.address, device.transport) => {
                Progress::Accepted {
                    contact,
                    private_data,
                }
            }
            Answer::Accepted(_) => Progress::refused(Refusal::Service),
            Answer::Rejected => Progress::Refused {
                refusal: Refusal::Consumer,
                private_data,
            },
        }
    }

    /// True if there are bytes to read. After the frames they are the streaming consumer's.
    pub(super) fn has_bytes(&self) -> bool {
        matches!(io::peek(self.fd(), &mut [0]), Received::Bytes(_))
    }

    /// True if the peer's end of the socket has ended.
    pub(super) fn has_ended(&self) -> bool {
        io::is_hung_up(self.fd())
    }

    /// Called when the connection is established: the socket is not returned any more.
    pub(super) fn keep(&self) {
        self.socket.keep();
    }

    fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&*self.socket)
    }
}

impl Drop for BoundSocket {
    /// Returns the socket to its consumer, or closes it.
    fn drop(&mut self) {
        self.shared.engine.unwatch_socket(&*self.socket);
        self.socket.release();
    }
}
