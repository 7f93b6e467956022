//! A listening socket.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use dat_api::{Cr, Evd, EvdFlags, Event, Psp};
use host::descriptors::OwnDescriptor;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::Errno,
};
use sdp_proto::wire::Hello;

use crate::{
    SdpStream, Stack, errors,
    socket::{Names, Opening, Parts, Passive, Socket},
};

/// The longest sleep of an accept. The stack's thread writes the doorbell, and another stream's
/// [`Watch`](crate::Watch), which is the program's code, may hold that thread up.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Accepts connections at a port of the stack's address.
#[derive(Debug)]
pub struct SdpListener {
    stack: Stack,
    psp: Psp,
    requests: Evd,
    address: SocketAddr,
    /// Written by the stack's thread for each request.
    doorbell: Arc<OwnDescriptor>,
}

impl SdpListener {
    /// Listens at `address`; port 0 asks for any port. The connection qualifier of the service is
    /// the port.
    pub fn bind(stack: &Stack, address: SocketAddr) -> io::Result<Self> {
        let ia = &stack.inner.adapter.ia;
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let doorbell = Arc::new(host::descriptors::raise(doorbell)?.into());
        let (flags, cno) = (EvdFlags::CONNECTION_REQUEST, &stack.inner.adapter.cno);
        let requests = Evd::create_with_cno(ia, stack.config.backlog, flags, cno);
        let created = requests.and_then(|requests| {
            stack.inner.ring(&doorbell, requests.id());
            // No service point exists yet, so there was no request.
            let _ = rustix::io::read(&doorbell, &mut [0; 8]);
            let psp = match address.port() {
                0 => Psp::create_any(ia, &requests)?,
                port => Psp::create(ia, u64::from(port), &requests)?,
            };
            Ok((psp, requests))
        });
        let (psp, requests) = created.map_err(|error| {
            if error.is(dat_api::abi::DAT_CONN_QUAL_IN_USE) {
                Errno::ADDRINUSE.into()
            } else {
                errors::of_dat(&error)
            }
        })?;
        let port = u16::try_from(psp.conn_qual()).unwrap_or(address.port());
        Ok(Self {
            stack: stack.clone(),
            psp,
            requests,
            address: SocketAddr::new(address.ip(), port),
            doorbell,
        })
    }

    /// The address at which the listener accepts connections.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The connection qualifier of the service.
    #[must_use]
    pub fn conn_qual(&self) -> u64 {
        self.psp.conn_qual()
    }

    /// Waits for the next connection and accepts it.
    pub fn accept(&self) -> io::Result<(SdpStream, SocketAddr)> {
        self.accept_timeout(None)
    }

    /// Waits for the next connection, at most for `timeout`, and accepts it. Zero does not wait.
    pub fn accept_timeout(&self, timeout: Option<Duration>) -> io::Result<(SdpStream, SocketAddr)> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(request) = self.next_request()? {
                if let Some(stream) = self.answer(request) {
                    let peer = stream.peer_addr();
                    return Ok((stream, peer));
                }
                continue;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(Errno::AGAIN.into());
            }
            let pause = left.map_or(LOOK_INTERVAL, |left| left.min(LOOK_INTERVAL));
            let pause = Timespec::try_from(pause).ok();
            poll(
                &mut [PollFd::new(&self.doorbell, PollFlags::IN)],
                pause.as_ref(),
            )?;
        }
    }

    /// Takes the next connection request, if there is one. The descriptor stays readable while
    /// there may be more: requests that a thread does not take are left for another one.
    fn next_request(&self) -> io::Result<Option<Cr>> {
        let mut is_cleared = false;
        loop {
            match self.requests.dequeue() {
                Ok(Some(Event::ConnectionRequest(request))) => {
                    if is_cleared {
                        self.doorbell.count_up();
                    }
                    return Ok(Some(request));
                }
                Ok(Some(_)) => (),
                Ok(None) if is_cleared => return Ok(None),
                Ok(None) => {
                    // The read fails if the doorbell was not written.
                    let _ = rustix::io::read(&self.doorbell, &mut [0; 8]);
                    is_cleared = true;
                }
                Err(error) => return Err(errors::of_dat(&error)),
            }
        }
    }

    /// Accepts or rejects a request. A peer that sends no valid Hello does not end the accept call.
    fn answer(&self, request: Cr) -> Option<SdpStream> {
        let hello = match Hello::parse(request.private_data()) {
            Ok(hello) => hello,
            Err(error) => {
                tracing::warn!(%error, "a connection request without a valid Hello is rejected");
                // If the reject call fails, dropping the request rejects it.
                drop(request.reject(&self.stack.refusal(error)));
                return None;
            }
        };
        let mut peer = SocketAddr::new(hello.source, hello.port);
        if let Some(remote) = request.remote() {
            // A connection that continues after a suspension has another port than its Hello.
            let port = if hello.port == 0 {
                remote.port()
            } else {
                hello.port
            };
            peer = SocketAddr::new(remote.ip(), port);
        }
        let passive = Passive {
            names: Names { local: None, peer },
            transport: None,
            opening: Opening::Passive,
        };
        let adapter = &self.stack.inner.adapter;
        let hello_bytes = request.private_data().to_vec();
        let accepted = Parts::make(adapter, self.stack.config)
            .map_err(|error| errors::of_dat(&error))
            .and_then(|parts| {
                Socket::accept(adapter, parts, request, (&hello, &hello_bytes), passive)
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

impl AsFd for SdpListener {
    /// A descriptor for `poll`, which is readable when [`SdpListener::accept`] may return a stream.
    /// The caller must not read it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}
