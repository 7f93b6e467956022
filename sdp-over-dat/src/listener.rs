//! A listening socket.

use std::{
    io,
    net::SocketAddr,
    sync::{Condvar, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use dat_api::{Cr, Evd, EvdFlags, Event, Psp, abi::DAT_INTERRUPTED_CALL};
use host::locks::IgnorePoison as _;
use rustix::io::Errno;
use sdp_proto::wire::Hello;

use crate::{
    SdpStream, Stack, errors,
    socket::{Names, Opening, Parts, Passive, Socket},
};

/// Accepts connections at a port of the stack's address.
#[derive(Debug)]
pub struct SdpListener {
    stack: Stack,
    psp: Psp,
    requests: Evd,
    address: SocketAddr,
    waiter: WaiterLock,
}

/// Held by the one thread that waits for requests, because DAT permits one waiter in a dispatcher
/// (DAT 2.0, `dat_evd_wait`).
#[derive(Debug, Default)]
struct WaiterLock {
    is_taken: Mutex<bool>,
    released: Condvar,
}

/// The guard of a [`WaiterLock`].
struct WaiterGuard<'a>(&'a WaiterLock);

impl WaiterLock {
    fn is_taken(&self) -> MutexGuard<'_, bool> {
        self.is_taken.lock().ignore_poison()
    }

    /// Waits for the lock. Returns `None` if the lock is not free by `until`.
    fn take(&self, until: Option<Instant>) -> Option<WaiterGuard<'_>> {
        let mut is_taken = self.is_taken();
        while *is_taken {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return None;
            }
            let pause = left.unwrap_or(Duration::from_secs(3600));
            let waited = self.released.wait_timeout(is_taken, pause);
            is_taken = waited.ignore_poison().0;
        }
        *is_taken = true;
        Some(WaiterGuard(self))
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        *self.0.is_taken() = false;
        self.0.released.notify_one();
    }
}

impl SdpListener {
    /// Listens at `address`; port 0 asks for any port. The connection qualifier of the service is
    /// the port.
    pub fn bind(stack: &Stack, address: SocketAddr) -> io::Result<Self> {
        let ia = &stack.inner.adapter.ia;
        let created = Evd::create(ia, stack.config.backlog, EvdFlags::CONNECTION_REQUEST).and_then(
            |requests| {
                let psp = match address.port() {
                    0 => Psp::create_any(ia, &requests)?,
                    port => Psp::create(ia, u64::from(port), &requests)?,
                };
                Ok((psp, requests))
            },
        );
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
            waiter: WaiterLock::default(),
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
            let Some(held) = self.waiter.take(until) else {
                return Err(Errno::AGAIN.into());
            };
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let event = self.requests.wait(left);
            // Another thread may wait for the next request while this one answers.
            drop(held);
            match event {
                Ok(Some(Event::ConnectionRequest(request))) => {
                    if let Some(stream) = self.answer(request) {
                        let peer = stream.peer_addr();
                        return Ok((stream, peer));
                    }
                }
                Ok(Some(_)) => (),
                Ok(None) => return Err(Errno::AGAIN.into()),
                Err(error) if error.is(DAT_INTERRUPTED_CALL) => {
                    return Err(Errno::INTR.into());
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
