//! What a stack's sockets are made of.

use std::{io, time::Duration};

use dat_api::ProviderAttr;
use sdp_proto::{self as proto, BUFFERS_MIN};

/// Sizes and limits of the sockets of a [`crate::Stack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Receive buffers of a socket at most; the protocol needs 3, and two or three stay in reserve.
    pub receive_buffers: u16,
    /// Bytes of each, headers counted.
    pub buffer_size: u32,
    /// Bytes that may be written and not sent, at most.
    pub send_ring: usize,
    /// How much of both a socket has at first.
    pub start: Start,
    /// Sends under way at most.
    pub sends_max: usize,
    /// Memory for bytes of the peer's that nobody waits for; two halves.
    pub staging: usize,
    /// Blocking writes from this length on are sent from where they are instead of copied first.
    pub lend_threshold: usize,
    /// Blocking writes from this length on are advertised, and read by the peer.
    pub zcopy_threshold: usize,
    /// How long an attempt to connect may take.
    pub connect_timeout: Duration,
    /// How long a peer may stay silent before it is given up, when a closed socket still has bytes
    /// for it, or when it holds memory of a call whose time has run out.
    pub close_timeout: Duration,
    /// Connection requests that wait for an accept.
    pub backlog: u32,
}

/// The memory with which a socket begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// All that it may have.
    Full,
    /// Some 128 KiB. It grows as the socket is used: an adapter pins the memory of a socket, which
    /// many a socket never needs.
    Small,
}

/// Bytes of the receive buffers of a small start.
const FIRST_RECEIVE: usize = 96 * 1024;

/// Bytes of the send ring of a small start.
const FIRST_SEND: usize = 32 * 1024;

/// Receive buffers of a small start at least: with fewer, one message of bytes would be under way.
const FIRST_BUFFERS_MIN: u16 = 5;

impl Default for Config {
    fn default() -> Self {
        Self {
            receive_buffers: 16,
            buffer_size: 64 * 1024 + 16,
            send_ring: 512 * 1024,
            start: Start::Full,
            sends_max: 32,
            staging: 512 * 1024,
            lend_threshold: usize::MAX,
            zcopy_threshold: 256 * 1024,
            connect_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(60),
            backlog: 128,
        }
    }
}

/// Named attribute of a provider whose work is done by the processor.
const DATA_PATH: &str = "DAT_RS_DATA_PATH";

impl Config {
    /// What suits a provider.
    ///
    /// An adapter reads memory by itself and has to pin it first, so sockets begin with little of
    /// it. Where the processor does the adapter's work, registering costs next to nothing, and for
    /// an RDMA Read the provider copies as often as for a Send, with more messages: only a very
    /// long write is worth them.
    #[must_use]
    pub fn suited_to(provider: &ProviderAttr) -> Self {
        match provider.specific(DATA_PATH) {
            Some("processor") => Self {
                lend_threshold: 128 * 1024,
                zcopy_threshold: 8 * 1024 * 1024,
                ..Self::default()
            },
            _ => Self {
                receive_buffers: 32,
                buffer_size: 16 * 1024 + 16,
                start: Start::Small,
                ..Self::default()
            },
        }
    }

    /// Receive buffers of a socket at first.
    pub(crate) fn first_receive_buffers(&self) -> u16 {
        match self.start {
            Start::Full => self.receive_buffers,
            Start::Small => {
                let fitting = FIRST_RECEIVE / self.buffer_size as usize;
                let fitting = u16::try_from(fitting).unwrap_or(u16::MAX);
                self.receive_buffers.min(fitting.max(FIRST_BUFFERS_MIN))
            }
        }
    }

    /// Bytes of the send ring of a socket at first.
    pub(crate) fn first_send_ring(&self) -> usize {
        match self.start {
            Start::Full => self.send_ring,
            Start::Small => self.send_ring.min(FIRST_SEND),
        }
    }

    /// Refuses sizes with which nothing can be carried.
    pub(crate) fn check(&self) -> io::Result<()> {
        let rules = [
            (
                self.receive_buffers >= BUFFERS_MIN,
                "fewer than 3 receive buffers",
            ),
            (
                self.buffer_size >= proto::Config::BUFFER_SIZE_MIN,
                "receive buffers of less than 37 bytes",
            ),
            (self.send_ring > 0, "no room for bytes to be sent"),
            (self.sends_max > 0, "no Send may be under way"),
            (self.staging > 1, "a staging memory of less than two bytes"),
            (self.backlog > 0, "no connection request may wait"),
        ];
        match rules.into_iter().find(|(is_kept, _)| !is_kept) {
            Some((_, fault)) => Err(io::Error::new(io::ErrorKind::InvalidInput, fault)),
            None => Ok(()),
        }
    }
}
