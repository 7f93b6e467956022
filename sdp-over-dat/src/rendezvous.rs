//! Connections to peers that were met elsewhere: the two ends have exchanged Hello, an address of
//! an adapter and a token on a connection of their own (a kernel TCP connection, for example), and
//! meet again at a public service point of that adapter.
//!
//! ```text
//!   active end                                  passive end
//!   Hello                         ─ elsewhere ─>  Rendezvous::expect
//!                                <─ elsewhere ─   address, connection qualifier, token
//!   dat_ep_connect, token         ────────────>   connection request
//!                                <────────────    HelloAck, dat_cr_accept
//!   first message, SdpStream::commit  ────────>   the connection can be accepted
//! ```
//!
//! Private data has to hold the token only, so this works on every provider: on InfiniBand and
//! RoCE, librdmacm leaves 56 bytes, too few for a Hello (64).

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use dat_api::{Cno, Cr, Evd, EvdFlags, Event, Psp};
use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
};
use sdp_proto::{
    Connection,
    wire::{Hello, WireError},
};

use crate::{
    SdpStream, Stack, errors,
    socket::{Names, Opening, Parts, Passive, Socket, To},
};

/// Peers that may be expected at a time.
const EXPECTED_MAX: usize = 1024;

/// Proof of the active end that it was met. A service point accepts each token once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; Self::LEN]);

impl Token {
    /// Bytes of a token.
    pub const LEN: usize = 16;

    /// The token of these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes of the token.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// A token that nobody can guess. The kernel's random numbers are ready since the host started.
    fn random() -> io::Result<Self> {
        let mut bytes = [0; Self::LEN];
        let mut filled = 0;
        while filled < bytes.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            match rustix::rand::getrandom(&mut bytes[filled..], flags) {
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Self(bytes))
    }

    /// The token at the start of private data, which a provider may have padded with zeros.
    fn of_private_data(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().copied().map(Self)
    }
}

impl SdpStream {
    /// The Hello of a stream that this end will connect by [`SdpStream::start_connect_met`], for
    /// the passive end.
    #[must_use]
    pub fn hello(stack: &Stack, local: SocketAddr, peer: SocketAddr) -> Vec<u8> {
        let (_, hello) = Connection::connect(stack.config.of_protocol(), local, peer.ip());
        hello.emit().to_vec()
    }

    /// Starts to connect to a [`Rendezvous`] at the address `at` of its adapter, under the token
    /// that it has given out for this end's Hello. The stream is called `local` and `peer`; it is
    /// writable when it is connected, and has an error when it is not.
    pub fn start_connect_met(
        stack: &Stack,
        (at, conn_qual): (SocketAddr, u64),
        token: Token,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> io::Result<Self> {
        let names = Names {
            local: Some(local),
            peer,
        };
        let adapter = &stack.inner.adapter;
        let to = To::Met {
            at,
            conn_qual,
            private_data: token.as_bytes(),
        };
        let socket = Socket::connect(adapter, stack.config, names, to)?;
        Ok(Self::new(stack, socket))
    }
}

/// A service point for peers that were met elsewhere.
#[derive(Debug)]
pub struct Rendezvous {
    stack: Stack,
    address: SocketAddr,
    psp: Psp,
    requests: Evd,
    notice: Notice,
    expected: HashMap<Token, Expected>,
}

/// A descriptor that is readable when there may be a connection request.
#[derive(Debug)]
enum Notice {
    /// That of the CNO of the requests.
    Cno(Cno),
    /// An eventfd that the stack's thread writes: the provider has no CNO with a descriptor.
    Thread(Arc<OwnedFd>),
}

/// A peer that is to connect.
#[derive(Debug)]
struct Expected {
    hello: Hello,
    names: Names,
    until: Instant,
}

impl Rendezvous {
    /// The time after which a peer is expected no longer.
    pub const PATIENCE: Duration = Duration::from_secs(10);

    /// Opens a service point at a connection qualifier that the provider chooses.
    pub fn new(stack: &Stack) -> io::Result<Self> {
        let address = stack.address().ok_or(Errno::ADDRNOTAVAIL)?;
        let (notice, requests) = Notice::with_requests(stack)?;
        let psp = Psp::create_any(&stack.inner.adapter.ia, &requests);
        Ok(Self {
            stack: stack.clone(),
            address,
            psp: psp.map_err(|error| errors::of_dat(&error))?,
            requests,
            notice,
            expected: HashMap::new(),
        })
    }

    /// The address of the adapter, and the connection qualifier.
    #[must_use]
    pub fn place(&self) -> (SocketAddr, u64) {
        (self.address, self.psp.conn_qual())
    }

    /// True once the device is lost: nobody can connect to this service point any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.stack.is_lost()
    }

    /// Expects the peer that has sent this Hello. `local` and `peer` are what the ends are called.
    pub fn expect(
        &mut self,
        hello: &[u8],
        local: SocketAddr,
        peer: SocketAddr,
    ) -> io::Result<Token> {
        self.forget_silent();
        if self.expected.len() >= EXPECTED_MAX {
            return Err(Errno::CONNREFUSED.into());
        }
        let hello = Hello::parse(hello).map_err(|error| match error {
            WireError::Version { .. } => io::Error::from(Errno::PROTONOSUPPORT),
            error => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
        })?;
        let token = Token::random()?;
        let expected = Expected {
            // The address is the kernel's word; only the port is the peer's.
            names: Names {
                local: Some(local),
                peer: SocketAddr::new(peer.ip(), hello.port),
            },
            hello,
            until: Instant::now() + Self::PATIENCE,
        };
        self.expected.insert(token, expected);
        Ok(token)
    }

    /// True while a peer may connect under this token.
    #[must_use]
    pub fn expects(&self, token: &Token) -> bool {
        self.expected.contains_key(token)
    }

    /// Expects the peer of this token no longer.
    pub fn forget(&mut self, token: &Token) {
        self.expected.remove(token);
    }

    /// Forgets peers that have not connected for too long.
    pub fn forget_silent(&mut self) {
        let now = Instant::now();
        self.expected.retain(|_, expected| expected.until > now);
    }

    /// The time at which [`Self::forget_silent`] has something to do next.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.expected.values().map(|expected| expected.until).min()
    }

    /// The number of peers that are expected.
    #[must_use]
    pub fn len(&self) -> usize {
        self.expected.len()
    }

    /// True if no peer is expected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.expected.is_empty()
    }

    /// The next peer that has shown its token, answered. The stream is connected, and writable,
    /// when the peer's first message is received; until then the peer may give up.
    ///
    /// To be called until there is none after the descriptor was readable.
    pub fn next_answered(&mut self) -> Option<SdpStream> {
        // The trigger is taken first: an event that comes after the last look sets it again.
        self.notice.clear();
        self.forget_silent();
        loop {
            match self.requests.dequeue() {
                Ok(Some(Event::ConnectionRequest(request))) => {
                    if let Some(stream) = self.answer(request) {
                        return Some(stream);
                    }
                }
                Ok(Some(_)) => (),
                Ok(None) => return None,
                Err(error) => {
                    tracing::error!(%error, "requests cannot be read");
                    return None;
                }
            }
        }
    }

    fn answer(&mut self, request: Cr) -> Option<SdpStream> {
        let token = Token::of_private_data(request.private_data());
        let Some(expected) = token.and_then(|token| self.expected.remove(&token)) else {
            tracing::warn!("a request from a peer that nobody expects");
            // Dropping it rejects it as well.
            drop(request.reject(&[]));
            return None;
        };
        let adapter = &self.stack.inner.adapter;
        let accepted = Parts::make(adapter, self.stack.config)
            .map_err(|error| errors::of_dat(&error))
            .and_then(|parts| {
                let passive = Passive {
                    names: expected.names,
                    transport: None,
                    opening: Opening::PassiveAwaitsMessage,
                };
                let hello = expected.hello;
                Socket::accept(adapter, parts, request, (&hello, &hello.emit()), passive)
            });
        match accepted {
            Ok(socket) => Some(SdpStream::new(&self.stack, socket)),
            Err(error) => {
                tracing::warn!(%error, "a request could not be accepted");
                None
            }
        }
    }
}

impl Notice {
    /// Makes the dispatcher of the requests, and what notifies of them.
    fn with_requests(stack: &Stack) -> io::Result<(Self, Evd)> {
        let adapter = &stack.inner.adapter;
        let requests = |cno: &Cno| {
            let flags = EvdFlags::CONNECTION_REQUEST;
            Evd::create_with_cno(&adapter.ia, EXPECTED_MAX as u32, flags, cno)
                .map_err(|error| errors::of_dat(&error))
        };
        if adapter.has_cno_fd {
            let cno = Cno::create_with_fd(&adapter.ia).map_err(|error| errors::of_dat(&error))?;
            let requests = requests(&cno)?;
            return Ok((Self::Cno(cno), requests));
        }
        let requests = requests(&adapter.cno)?;
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let doorbell = Arc::new(host::descriptors::raise(doorbell)?);
        stack.inner.ring(&doorbell, requests.id());
        Ok((Self::Thread(doorbell), requests))
    }

    /// The descriptor is not readable any more, until the next request.
    fn clear(&self) {
        match self {
            Self::Cno(cno) => while let Ok(Some(_)) = cno.take_trigger() {},
            Self::Thread(doorbell) => {
                // Nothing to read: it was not written.
                let _ = rustix::io::read(doorbell, &mut [0; 8]);
            }
        }
    }
}

impl AsFd for Rendezvous {
    /// Readable when [`Rendezvous::next_answered`] may have something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.notice {
            Notice::Cno(cno) => cno.fd().expect("it was made with a descriptor"),
            Notice::Thread(doorbell) => doorbell.as_fd(),
        }
    }
}
