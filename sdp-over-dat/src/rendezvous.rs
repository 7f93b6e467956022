//! Connections to peers that meet over a TCP connection first. There are two ways, and in both the
//! caller names the addresses of both ends.
//!
//! *Over a device*: the ends exchange the Hello, an address of an adapter and a token over the TCP
//! connection. The active end then connects to a public service point of that adapter. The private
//! data holds only the token, so this works with every provider: on InfiniBand and RoCE, librdmacm
//! has room for 56 bytes, and a Hello needs at least 64.
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
//! *Over the TCP connection itself*, which the provider converts (DAT 2.0 iWARP extensions):
//! [`SdpStream::start_connect_over`] and [`Rendezvous::admit`]. The owner of the TCP socket
//! connects it and polls it like any descriptor. So a connect does not block, a listening socket
//! can be inherited over `fork`, and one adapter serves every address of the host.
//!
//! The passive end accepts a connection only after the active end's first message,
//! [`SdpStream::commit`]. An active end that has withdrawn before is never accepted.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use dat_api::{Cno, Cr, Evd, EvdFlags, Event, Psp, SpId, Ssp};
use host::descriptors::OwnDescriptor;
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
    socket::{Commitment, Names, Opening, Parts, Passive, Socket, To},
    transport::Transport,
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
    /// Starts to connect over `socket`, a connected TCP socket, as the active end. `local` and
    /// `peer` are the addresses that the stream reports. The stream becomes writable when it is
    /// connected, and has an error if the connect fails.
    pub fn start_connect_over(
        stack: &Stack,
        socket: OwnedFd,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> io::Result<Self> {
        let names = Names {
            local: Some(local),
            peer,
        };
        let to = To::Socket(socket);
        let socket = Socket::connect(&stack.inner.adapter, stack.config, names, to)?;
        Ok(Self::new(stack, socket))
    }

    /// Completes a connection that was started by [`SdpStream::start_connect_over`] or
    /// [`SdpStream::start_connect_met`] and is writable. No byte may be written before.
    pub fn commit(&self) {
        self.socket().commit();
    }

    /// The commitment of the active end, for a connection from a [`Rendezvous`].
    #[must_use]
    pub fn commitment(&self) -> Commitment {
        self.socket().commitment()
    }

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
        let to = To::Rendezvous {
            at,
            conn_qual,
            private_data: token.as_bytes(),
        };
        let socket = Socket::connect(adapter, stack.config, names, to)?;
        Ok(Self::new(stack, socket))
    }
}

/// The passive end: peers that are expected to connect to an adapter.
#[derive(Debug)]
pub struct Rendezvous {
    stack: Stack,
    /// The public service point, which the first token opens.
    psp: Option<Psp>,
    requests: Evd,
    notice: Notice,
    expected: HashMap<Key, Expected>,
}

/// A descriptor that is readable when there may be a connection request.
#[derive(Debug)]
enum Notice {
    /// The descriptor of the CNO to which the dispatcher of the requests is attached.
    Cno(Cno),
    /// An eventfd that the stack's thread writes, for providers whose CNOs have no descriptors.
    Thread(Arc<OwnDescriptor>),
}

/// The property by which a connection request is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    /// The token in a request to the public service point.
    Token(Token),
    /// The socket service point of the peer's TCP connection.
    Socket(SpId),
}

/// A peer whose connection request is expected.
#[derive(Debug)]
struct Expected {
    local: SocketAddr,
    /// The address that the kernel has reported. The port is taken from the Hello.
    peer: SocketAddr,
    /// The time at which the peer has connected to the service.
    since: Instant,
    until: Instant,
    by: By,
}

/// The way in which a peer connects.
#[derive(Debug)]
enum By {
    /// To the public service point. The peer has sent this Hello.
    Device(Hello),
    /// Over a TCP connection, with the Hello in the request.
    Socket(Box<Converted>),
}

/// A TCP connection that becomes an RDMA connection.
#[derive(Debug)]
struct Converted {
    // Also holds the endpoint of `parts`.
    ssp: Ssp,
    parts: Parts,
    transport: Transport,
}

impl Rendezvous {
    /// The time within which a peer must connect, or send its Hello. The end that answers the
    /// Hello waits no longer than this for the peer's first message.
    pub const PATIENCE: Duration = Duration::from_secs(10);

    /// Creates a rendezvous that expects no peer.
    pub fn new(stack: &Stack) -> io::Result<Self> {
        let (notice, requests) = Notice::with_requests(stack)?;
        Ok(Self {
            stack: stack.clone(),
            psp: None,
            requests,
            notice,
            expected: HashMap::new(),
        })
    }

    /// True once the device is lost. No peer can connect any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.stack.is_lost()
    }

    /// Expects the peer that has sent `hello`. Returns the address of the adapter, the connection
    /// qualifier of the service point, and the peer's token. The stream will report the addresses
    /// `local` and `peer`, the latter with the port of the Hello. `since` is the time at which the
    /// peer has connected to the service.
    pub fn expect(
        &mut self,
        hello: &[u8],
        local: SocketAddr,
        peer: SocketAddr,
        since: Instant,
    ) -> io::Result<((SocketAddr, u64), Token)> {
        let hello = Hello::parse(hello).map_err(|error| match error {
            WireError::Version { .. } => io::Error::from(Errno::PROTONOSUPPORT),
            error => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
        })?;
        self.make_room()?;
        let place = self.open()?;
        let token = Token::random()?;
        self.add(Key::Token(token), (local, peer), since, By::Device(hello));
        Ok((place, token))
    }

    /// Opens the public service point at a connection qualifier that the provider chooses, if it
    /// is not open.
    fn open(&mut self) -> io::Result<(SocketAddr, u64)> {
        let address = self.stack.address().ok_or(Errno::ADDRNOTAVAIL)?;
        let psp = match &self.psp {
            Some(psp) => psp,
            None => {
                let psp = Psp::create_any(&self.stack.inner.adapter.ia, &self.requests);
                self.psp
                    .insert(psp.map_err(|error| errors::of_dat(&error))?)
            }
        };
        Ok((address, psp.conn_qual()))
    }

    /// Expects a Hello on `socket`, a connected TCP socket whose active end is at `peer`. `local`
    /// is the address that the stream reports for this end, and `since` the time at which the peer
    /// has connected to the service. The provider must support socket service points.
    pub fn admit(
        &mut self,
        socket: OwnedFd,
        local: SocketAddr,
        peer: SocketAddr,
        since: Instant,
    ) -> io::Result<()> {
        self.make_room()?;
        let parts = Parts::make(&self.stack.inner.adapter, self.stack.config)
            .map_err(|error| errors::of_dat(&error))?;
        let transport = Transport::of(&socket)?;
        let ssp = Ssp::create(socket, &parts.ep, &self.requests, b"")
            .map_err(|refused| errors::of_dat(&refused.error))?;
        let key = Key::Socket(ssp.id());
        let converted = Converted {
            ssp,
            parts,
            transport,
        };
        self.add(key, (local, peer), since, By::Socket(Box::new(converted)));
        Ok(())
    }

    fn make_room(&mut self) -> io::Result<()> {
        self.forget_silent();
        if self.expected.len() < EXPECTED_MAX {
            Ok(())
        } else {
            Err(Errno::CONNREFUSED.into())
        }
    }

    fn add(&mut self, key: Key, (local, peer): (SocketAddr, SocketAddr), since: Instant, by: By) {
        let until = Instant::now() + Self::PATIENCE;
        let expected = Expected {
            local,
            peer,
            since,
            until,
            by,
        };
        self.expected.insert(key, expected);
    }

    /// The peers that are expected: the time at which each has connected to the service, and its
    /// address.
    pub fn peers(&self) -> impl Iterator<Item = (Instant, IpAddr)> {
        let expected = self.expected.values();
        expected.map(|expected| (expected.since, expected.peer.ip()))
    }

    /// True while a peer may connect with this token.
    #[must_use]
    pub fn expects(&self, token: &Token) -> bool {
        self.expected.contains_key(&Key::Token(*token))
    }

    /// Stops expecting the peer of this token.
    pub fn forget(&mut self, token: &Token) {
        self.expected.remove(&Key::Token(*token));
    }

    /// Forgets the peers that have not connected, or sent their Hello, within [`Self::PATIENCE`].
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

    /// Answers the next request of an expected peer and returns its stream, with the time at which
    /// the peer has connected to the service. The stream is
    /// connected, and writable, when the peer's first message is received; until then the peer may
    /// withdraw.
    ///
    /// After the descriptor was readable, call this until it returns `None`.
    pub fn next_answered(&mut self) -> Option<(SdpStream, Instant)> {
        // The trigger is cleared first: an event after the last dequeue sets it again.
        self.notice.clear();
        self.forget_silent();
        loop {
            match self.requests.dequeue() {
                Ok(Some(Event::ConnectionRequest(request))) => {
                    if let Some(answered) = self.answer(request) {
                        return Some(answered);
                    }
                }
                Ok(Some(Event::SocketDown(id))) => drop(self.expected.remove(&Key::Socket(id))),
                Ok(Some(_)) => (),
                Ok(None) => return None,
                Err(error) => {
                    tracing::error!(%error, "requests cannot be read");
                    return None;
                }
            }
        }
    }

    /// Removes the peer that makes this request.
    fn take(&mut self, request: &Cr) -> Option<Expected> {
        let point = request.service_point();
        let key = if self.psp.as_ref().is_some_and(|psp| psp.id() == point) {
            Key::Token(Token::of_private_data(request.private_data())?)
        } else {
            Key::Socket(point)
        };
        self.expected.remove(&key)
    }

    fn answer(&mut self, request: Cr) -> Option<(SdpStream, Instant)> {
        let Some(expected) = self.take(&request) else {
            tracing::warn!("a connection request of a peer that is not expected");
            // If the reject call fails, dropping the request rejects it.
            drop(request.reject(&[]));
            return None;
        };
        let since = expected.since;
        match expected.accept(&self.stack, request) {
            Ok(socket) => Some((SdpStream::new(&self.stack, socket), since)),
            Err(error) => {
                tracing::warn!(%error, "a request could not be accepted");
                None
            }
        }
    }
}

impl Expected {
    fn accept(self, stack: &Stack, request: Cr) -> io::Result<Arc<Socket>> {
        let adapter = &stack.inner.adapter;
        let (hello, bytes, parts, converted) = match self.by {
            By::Device(hello) => {
                let parts = Parts::make(adapter, stack.config);
                let parts = parts.map_err(|error| errors::of_dat(&error))?;
                (hello, hello.emit().to_vec(), parts, None)
            }
            By::Socket(converted) => {
                let bytes = request.private_data().to_vec();
                let hello = match Hello::parse(&bytes) {
                    Ok(hello) => hello,
                    Err(error) => {
                        let why = io::Error::new(io::ErrorKind::InvalidData, error.to_string());
                        drop(request.reject(&stack.refusal(error)));
                        return Err(why);
                    }
                };
                let Converted {
                    ssp,
                    parts,
                    transport,
                } = *converted;
                (hello, bytes, parts, Some((ssp, transport)))
            }
        };
        let passive = Passive {
            names: Names {
                local: Some(self.local),
                peer: SocketAddr::new(self.peer.ip(), hello.port),
            },
            transport: converted.as_ref().map(|(_, transport)| *transport),
            opening: Opening::PassiveAwaitsMessage,
        };
        Socket::accept(adapter, parts, request, (&hello, &bytes), passive)
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
        let doorbell = Arc::new(host::descriptors::raise(doorbell)?.into());
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
