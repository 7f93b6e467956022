//! Connections over TCP sockets that are connected already (DAT 2.0 iWARP extensions).
//!
//! The owner of the TCP socket connects it and polls it like any descriptor. So a connect does not
//! block, a listening socket can be inherited over `fork`, and one adapter serves every address of
//! the host. The caller names the addresses of both ends.
//!
//! The passive side accepts a connection only after the active side's first message,
//! [`SdpStream::commit`]. An active side that has withdrawn before is never accepted.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use dat_api::{Cno, Cr, Evd, EvdFlags, Event, SpId, Ssp};
use rustix::io::Errno;
use sdp_proto::wire::Hello;

use crate::{
    SdpStream, Stack, errors,
    socket::{Commitment, Names, Opening, Parts, Passive, Socket, To},
    transport::Transport,
};

/// The largest number of sockets that wait for a Hello.
const WAITING_MAX: usize = 1024;

impl SdpStream {
    /// Starts to connect over `socket`, a connected TCP socket, as the active side. `local` and
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

    /// Completes a connection that was started by [`SdpStream::start_connect_over`] and is
    /// writable. No byte may be written before.
    pub fn commit(&self) {
        self.socket().commit();
    }

    /// The commitment of the active side, for a connection from [`PendingHellos`].
    #[must_use]
    pub fn commitment(&self) -> Commitment {
        self.socket().commitment()
    }
}

/// Accepted TCP sockets whose peers are to send a Hello.
#[derive(Debug)]
pub struct PendingHellos {
    stack: Stack,
    requests: Evd,
    cno: Cno,
    waiting: HashMap<SpId, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    // Also holds the endpoint of `parts`.
    ssp: Ssp,
    parts: Parts,
    transport: Transport,
    local: SocketAddr,
    peer: SocketAddr,
    until: Instant,
}

impl PendingHellos {
    /// The time within which a peer must send its Hello. The side that answers the Hello waits no
    /// longer than this for the peer's first message.
    pub const PATIENCE: Duration = Duration::from_secs(10);

    /// Creates an empty set. The provider must support socket service points.
    pub fn new(stack: &Stack) -> io::Result<Self> {
        let ia = &stack.inner.adapter.ia;
        let flags = EvdFlags::CONNECTION_REQUEST;
        let made = Cno::create_with_fd(ia).and_then(|cno| {
            Ok((
                Evd::create_with_cno(ia, WAITING_MAX as u32, flags, &cno)?,
                cno,
            ))
        });
        let (requests, cno) = made.map_err(|error| errors::of_dat(&error))?;
        Ok(Self {
            stack: stack.clone(),
            requests,
            cno,
            waiting: HashMap::new(),
        })
    }

    /// Adds a connected TCP socket whose active end is at `peer`. `local` is the address that the
    /// stream reports for this end.
    pub fn admit(
        &mut self,
        socket: OwnedFd,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> io::Result<()> {
        self.forget_silent();
        if self.waiting.len() >= WAITING_MAX {
            return Err(Errno::CONNREFUSED.into());
        }
        let parts = Parts::make(&self.stack.inner.adapter, self.stack.config)
            .map_err(|error| errors::of_dat(&error))?;
        let transport = Transport::of(&socket)?;
        let ssp = Ssp::create(socket, &parts.ep, &self.requests, b"")
            .map_err(|refused| errors::of_dat(&refused.error))?;
        let waiting = Waiting {
            ssp,
            parts,
            transport,
            local,
            peer,
            until: Instant::now() + Self::PATIENCE,
        };
        self.waiting.insert(waiting.ssp.id(), waiting);
        Ok(())
    }

    /// Drops the sockets whose peers have not sent a Hello within [`Self::PATIENCE`].
    pub fn forget_silent(&mut self) {
        let now = Instant::now();
        self.waiting.retain(|_, waiting| waiting.until > now);
    }

    /// The time at which [`Self::forget_silent`] has something to do next.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.waiting.values().map(|waiting| waiting.until).min()
    }

    /// The number of sockets that wait for a Hello.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True if no socket waits for a Hello.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Answers the next Hello and returns its stream. The stream is connected, and writable, when
    /// the peer's first message is received; until then the peer may withdraw.
    ///
    /// After the descriptor was readable, call this until it returns `None`.
    pub fn next_answered(&mut self) -> Option<SdpStream> {
        // The trigger is cleared first: an event after the last dequeue sets it again.
        while let Ok(Some(_)) = self.cno.take_trigger() {}
        loop {
            match self.requests.dequeue() {
                Ok(Some(Event::ConnectionRequest(request))) => {
                    let waiting = self.waiting.remove(&request.service_point());
                    if let Some(stream) = waiting.and_then(|waiting| self.answer(waiting, request))
                    {
                        return Some(stream);
                    }
                }
                Ok(Some(Event::SocketDown(id))) => drop(self.waiting.remove(&id)),
                Ok(Some(_)) => (),
                Ok(None) => return None,
                Err(error) => {
                    tracing::error!(%error, "requests cannot be read");
                    return None;
                }
            }
        }
    }

    fn answer(&self, waiting: Waiting, request: Cr) -> Option<SdpStream> {
        let hello = match Hello::parse(request.private_data()) {
            Ok(hello) => hello,
            Err(error) => {
                tracing::warn!(%error, "a connection request without a valid Hello");
                drop(request.reject(&self.stack.refusal(error)));
                return None;
            }
        };
        let passive = Passive {
            // The kernel reported the address; only the port is taken from the Hello.
            names: Names {
                local: Some(waiting.local),
                peer: SocketAddr::new(waiting.peer.ip(), hello.port),
            },
            transport: Some(waiting.transport),
            opening: Opening::PassiveAwaitsMessage,
        };
        let adapter = &self.stack.inner.adapter;
        let hello_bytes = request.private_data().to_vec();
        let hello = (&hello, &hello_bytes[..]);
        match Socket::accept(adapter, waiting.parts, request, hello, passive) {
            Ok(socket) => Some(SdpStream::new(&self.stack, socket)),
            Err(error) => {
                tracing::warn!(%error, "a request could not be accepted");
                None
            }
        }
    }
}

impl AsFd for PendingHellos {
    /// The descriptor is readable when [`PendingHellos::next_answered`] may return a stream.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.cno.fd().expect("the CNO was made with a descriptor")
    }
}
