//! Connections to peers that have exchanged the set-up over another connection, such as a kernel
//! TCP connection: the Hello, an address of an adapter and a token. The active end then connects
//! to a public service point of that adapter.
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
//! The private data holds only the token, so this works with every provider: on InfiniBand and
//! RoCE, librdmacm has room for 56 bytes, and a Hello has 64.

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

/// The largest number of peers that are expected at a time.
const EXPECTED_MAX: usize = 1024;

/// The proof that an active end has sent its Hello. A service point accepts each token once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; Self::LEN]);

impl Token {
    /// The length of a token in bytes.
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

    /// Creates a token that cannot be guessed. `getrandom` does not block on a booted host.
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

    /// Starts to connect to a [`Rendezvous`] at the address `at` of its adapter, with the token
    /// that it has returned for this end's Hello. The stream reports the addresses `local` and
    /// `peer`. It becomes writable when it is connected, and has an error if the connect fails.
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

/// A service point for peers that have sent their Hello over another connection.
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
    /// The descriptor of the CNO to which the dispatcher of the requests is attached.
    Cno(Cno),
    /// An eventfd that the stack's thread writes, for providers whose CNOs have no descriptors.
    Thread(Arc<OwnedFd>),
}

/// A peer whose connection request is expected.
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

    /// True once the device is lost. No peer can connect to this service point any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.stack.is_lost()
    }

    /// Expects the peer that has sent `hello`, and returns its token. The stream will report the
    /// addresses `local` and `peer`, the latter with the port of the Hello.
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
            // The kernel reported the address; only the port is taken from the Hello.
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

    /// True while a peer may connect with this token.
    #[must_use]
    pub fn expects(&self, token: &Token) -> bool {
        self.expected.contains_key(token)
    }

    /// Stops expecting the peer of this token.
    pub fn forget(&mut self, token: &Token) {
        self.expected.remove(token);
    }

    /// Forgets the peers that have not connected within [`Self::PATIENCE`].
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

    /// Answers the next request with a valid token and returns its stream. The stream is connected,
    /// and writable, when the peer's first message is received; until then the peer may withdraw.
    ///
    /// After the descriptor was readable, call this until it returns `None`.
    pub fn next_answered(&mut self) -> Option<SdpStream> {
        // The trigger is cleared first: an event after the last dequeue sets it again.
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
            tracing::warn!("a connection request without a valid token");
            // If the reject call fails, dropping the request rejects it.
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
    /// Creates the dispatcher of the requests, and the descriptor that shows them.
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

    /// Makes the descriptor unreadable until the next request.
    fn clear(&self) {
        match self {
            Self::Cno(cno) => while let Ok(Some(_)) = cno.take_trigger() {},
            Self::Thread(doorbell) => {
                // The read fails if the doorbell was not written.
                let _ = rustix::io::read(doorbell, &mut [0; 8]);
            }
        }
    }
}

impl AsFd for Rendezvous {
    /// The descriptor is readable when [`Rendezvous::next_answered`] may return a stream.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.notice {
            Notice::Cno(cno) => cno.fd().expect("the CNO was made with a descriptor"),
            Notice::Thread(doorbell) => doorbell.as_fd(),
        }
    }
}
