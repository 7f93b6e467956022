//! Event dispatchers and endpoints for tasks of tokio (feature `tokio`).
//!
//! The provider makes a descriptor readable when a dispatcher gets an event, and the runtime waits
//! for that descriptor as for a socket. There is no further thread.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::cno::Cno;
use crate::connection::{Close, Ep, EpAttr, EpEvds, Evd, EvdFlags, Event};
use crate::error::{Error, Result, SocketError};
use crate::event::{ConnectionKind, DtoCompletion};
use crate::ia::Ia;
use crate::lock::lock;
use crate::pz::Pz;

/// A dispatcher whose events tasks can await. Several tasks may wait; each event goes to one.
#[derive(Debug)]
pub struct AsyncEvd {
    // Declared first: the registration of the descriptor ends before the provider closes it.
    trigger: AsyncFd<Trigger>,
    evd: Evd,
}

/// A notification object with a descriptor, as the runtime sees it.
#[derive(Debug)]
struct Trigger(Cno);

impl AsRawFd for Trigger {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd().map_or(-1, |fd| fd.as_raw_fd())
    }
}

fn of_io(error: &io::Error) -> Error {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    SocketError { errno }.into()
}

impl AsyncEvd {
    /// Creates a dispatcher with room for at least `min_qlen` events. The caller runs in a runtime
    /// whose I/O is enabled.
    ///
    /// # Errors
    /// Those of [`Evd::create`]; [`Error::Missing`] with OFA's registry library, which has no
    /// descriptors for notification objects.
    pub fn create(ia: &Ia, min_qlen: u32, flags: EvdFlags) -> Result<Self> {
        let cno = Cno::create_with_fd(ia)?;
        let evd = Evd::create_with_cno(ia, min_qlen, flags, &cno)?;
        // SAFETY: `create_with_fd` has returned a descriptor, which the provider keeps open and
        // unchanged until the last clone of the object is dropped. The registration holds one.
        let trigger = unsafe { AsyncFd::register_with_interest(Trigger(cno), Interest::READABLE) };
        let trigger = trigger.map_err(|error| of_io(&error.into()))?;
        Ok(Self { trigger, evd })
    }

    /// Waits for the next event. Cancelling the wait loses no event.
    pub async fn next(&self) -> Result<Event> {
        loop {
            // A trigger is not a count of events, so the task sleeps only after it has found the
            // dispatcher empty.
            if let Some(event) = self.evd.dequeue()? {
                return Ok(event);
            }
            let ready = self.trigger.readable().await;
            let mut ready = ready.map_err(|error| of_io(&error))?;
            while ready.get_inner().0.take_trigger()?.is_some() {}
            ready.clear_ready();
            // Another task may have to take the rest of the events.
        }
    }

    /// The dispatcher, for the objects that deliver events to it. The program must not wait on it.
    #[must_use]
    pub const fn evd(&self) -> &Evd {
        &self.evd
    }
}

/// An endpoint with dispatchers of its own, for one task.
#[derive(Debug)]
pub struct AsyncEp {
    ep: Ep,
    transfers: AsyncEvd,
    connections: AsyncEvd,
    /// Completions that a wait for another one has found.
    skipped: Mutex<VecDeque<DtoCompletion>>,
}

impl AsyncEp {
    /// Creates an endpoint with room for at least `completions` completions.
    pub fn create(pz: &Pz, completions: u32, attr: Option<&EpAttr>) -> Result<Self> {
        let ia = pz.ia();
        let transfers = AsyncEvd::create(ia, completions, EvdFlags::DTO)?;
        let connections = AsyncEvd::create(ia, 8, EvdFlags::CONNECTION)?;
        let evds = EpEvds {
            recv: transfers.evd(),
            request: transfers.evd(),
            connect: connections.evd(),
        };
        Ok(Self {
            ep: Ep::create(pz, evds, attr)?,
            transfers,
            connections,
            skipped: Mutex::default(),
        })
    }

    /// The endpoint, for posts.
    #[must_use]
    pub const fn ep(&self) -> &Ep {
        &self.ep
    }

    /// Connects to the service `conn_qual` at `remote`.
    ///
    /// # Errors
    /// Those of [`Ep::start_connect`], and [`Error::Refused`] with the event that ended the
    /// attempt.
    pub async fn connect(
        &self,
        remote: SocketAddr,
        conn_qual: u64,
        timeout: Option<Duration>,
    ) -> Result<()> {
        self.ep.start_connect(remote, conn_qual, timeout, b"")?;
        self.established().await
    }

    /// Waits until the connection is established, after an accept for instance.
    pub async fn established(&self) -> Result<()> {
        match self.ended_or_established().await? {
            ConnectionKind::Established => Ok(()),
            other => Err(Error::Refused(other)),
        }
    }

    /// Ends the connection after everything that was posted, and waits for the end.
    pub async fn disconnect(&self) -> Result<()> {
        self.ep.disconnect(Close::Graceful)?;
        self.disconnected().await.map(drop)
    }

    /// Waits for the end of the connection, and returns its kind.
    pub async fn disconnected(&self) -> Result<ConnectionKind> {
        loop {
            match self.ended_or_established().await? {
                ConnectionKind::Established => {}
                end => return Ok(end),
            }
        }
    }

    async fn ended_or_established(&self) -> Result<ConnectionKind> {
        loop {
            if let Event::Connection(event) = self.connections.next().await? {
                return Ok(event.kind);
            }
        }
    }

    /// Waits for the completion of the work that was posted with `cookie`. Other completions are
    /// kept for later calls.
    ///
    /// # Errors
    /// [`Error::Failed`] if the work did not succeed.
    pub async fn completion(&self, cookie: u64) -> Result<DtoCompletion> {
        let kept = {
            let mut skipped = lock(&self.skipped);
            let at = skipped.iter().position(|done| done.cookie == cookie);
            at.and_then(|at| skipped.remove(at))
        };
        let done = match kept {
            Some(done) => done,
            None => loop {
                match self.transfers.next().await? {
                    Event::Dto(done) if done.cookie == cookie => break done,
                    Event::Dto(done) => lock(&self.skipped).push_back(done),
                    other => tracing::debug!(?other, "no completion"),
                }
            },
        };
        match done.status.is_success() {
            true => Ok(done),
            false => Err(Error::Failed(done.status)),
        }
    }
}
