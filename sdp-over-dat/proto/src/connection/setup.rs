//! Hello and HelloAck.

use std::net::{IpAddr, SocketAddr};

use super::{Connection, Peer};
use crate::{
    BUFFERS_MIN, ConnectionState, Event, Failure, ProtocolError,
    wire::{Hello, HelloAck, Version, WireError},
};

/// The parameters of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The number of receive buffers. All of them are posted before the first message can be
    /// received.
    pub buffers: u16,
    /// The size of each in bytes, base header included.
    pub buffer_size: u32,
    /// The longest message to send in bytes, base header included.
    pub send_size_max: u32,
    /// The number of advertisements, of both kinds together, that this end accepts at a time. With
    /// 1, this end does not enter pipelined mode.
    pub adverts_max: u8,
    /// Runs of at least this many bytes are written into memory that the peer has advertised, if
    /// there is any. Shorter ones are sent in Data.
    pub write_min: u32,
}

impl Config {
    /// The smallest receive buffer: the longest header and one byte.
    pub const BUFFER_SIZE_MIN: u32 = 37;

    /// The Hello of an end that has posted `bufs` receive buffers.
    pub(super) fn hello(&self, bufs: u16, local: SocketAddr, peer: IpAddr) -> Hello {
        Hello {
            bufs,
            version: Version::OURS,
            takes_invalidate: false,
            adverts_max: u16::from(self.adverts_max),
            wanted_size: self.send_size_max,
            own_size: self.buffer_size,
            port: local.port(),
            source: local.ip(),
            destination: peer,
        }
    }

    /// The parameters, raised to the protocol's minimum values.
    fn bounded(self) -> Self {
        Self {
            buffers: self.buffers.max(BUFFERS_MIN),
            buffer_size: self.buffer_size.max(Self::BUFFER_SIZE_MIN),
            send_size_max: self.send_size_max.max(Self::BUFFER_SIZE_MIN),
            adverts_max: self.adverts_max.max(1),
            write_min: self.write_min.max(1),
        }
    }
}

impl Connection {
    /// The active side: returns its connection and the Hello for the connection request. The engine
    /// posts the receive buffers before it sends the request.
    #[must_use]
    pub fn connect(config: Config, local: SocketAddr, peer: IpAddr) -> (Self, Hello) {
        let config = config.bounded();
        let hello = config.hello(config.buffers, local, peer);
        let state = ConnectionState::HelloSent;
        (Self::new(config, state, Peer::UNKNOWN), hello)
    }

    /// The passive side: returns its connection and the HelloAck for the connection reply. The
    /// engine posts the receive buffers before it sends the reply. The engine has also checked that
    /// `hello` is for this listener.
    #[must_use]
    pub fn accept(config: Config, hello: &Hello) -> (Self, HelloAck) {
        let ack = Self::introduction(config);
        let config = config.bounded();
        let state = ConnectionState::HelloAckSent;
        let peer = Peer {
            bufs: hello.bufs,
            size: hello.own_size,
            adverts_max: hello.adverts_max,
        };
        (Self::new(config, state, peer), ack)
    }

    /// The passive side's parameters, for a reply or for a refusal.
    #[must_use]
    pub fn introduction(config: Config) -> HelloAck {
        let config = config.bounded();
        HelloAck {
            bufs: config.buffers,
            version: Version::OURS,
            takes_invalidate: false,
            adverts_max: config.adverts_max,
            own_size: config.buffer_size,
        }
    }

    /// Active side: the connection reply was received, with `bytes` as its private data.
    pub fn handle_hello_ack(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        if self.state != ConnectionState::HelloSent {
            return Ok(());
        }
        match HelloAck::parse(bytes) {
            Ok(ack) => {
                self.send_credits = crate::credit::SendCredits::new(ack.bufs);
                self.peer_buffer_size = ack.own_size;
                self.peer_adverts_max = usize::from(ack.adverts_max);
                self.state.on_hello_ack();
                self.events.push_back(Event::Established);
                Ok(())
            }
            Err(error) => {
                self.fail(Failure::Protocol(ProtocolError::Wire(error)));
                Err(error)
            }
        }
    }

    /// Passive side: the transport reports that the connection is established.
    pub fn handle_established(&mut self) {
        if self.state == ConnectionState::HelloAckSent {
            self.state.on_ready();
            self.events.push_back(Event::Established);
        }
    }
}
