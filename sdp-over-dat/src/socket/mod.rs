//! One connection: the protocol, its buffers, and which thread takes its events.
//!
//! | File | What |
//! |---|---|
//! | `setup.rs` | connect and accept |
//! | `inner.rs` | what the lock protects, and what the outside sees of it |
//! | `attendance.rs` | which thread takes the events of a socket |
//! | `link.rs`, `read_half.rs`, `user.rs` | states: of the transport, of the receiving direction, of the user |
//! | `drive.rs` | events in, messages out; waiting |
//! | `send.rs`, `receive.rs` | the two directions as a user calls them |
//! | `send_ring.rs` | bytes that were written, headers, Sends under way |
//! | `receive_queue.rs` | receive buffers, staging memory, what was not read |
//! | `close.rs` | linger, and the end |
//!
//! # Lock
//!
//! `Socket::inner` is the only one. It is held over DAT calls that return at once (posts, dequeue)
//! and never while a thread waits. One thread at a time sleeps in an event dispatcher
//! ([`attendance::Attendance`]); nobody else dequeues from it meanwhile, and other threads that
//! wait are woken by that one.

mod attendance;
mod close;
mod drive;
mod inner;
mod link;
mod read_half;
mod receive;
mod receive_queue;
mod send;
mod send_ring;
mod setup;
mod user;

use std::{
    io,
    net::SocketAddr,
    os::fd::BorrowedFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use dat_api::{Ep, Evd};

use crate::{Config, Options, Readiness, Watch, adapter::Adapter, transport::Transport};
pub use close::Commitment;
pub(crate) use inner::Inner;
pub use inner::Statistics;
pub(crate) use link::Opening;
pub(crate) use receive::ReceiveFlags;
pub(crate) use setup::{Names, Parts, Passive, To};

/// One connection.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) adapter: Arc<Adapter>,
    /// Its sizes and limits.
    pub(crate) config: Config,
    /// For completions. A waiting thread waits here: what ends a connection completes its receives.
    pub(crate) evd: Evd,
    /// For connection events, which not every provider merges with completions.
    pub(crate) connections: Evd,
    ep: Ep,
    names: Names,
    /// What it was made over, where that was a TCP socket.
    transport: Option<Transport>,
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Drop for Socket {
    /// A dispatcher cannot be freed while the stack's thread may be told of it, so it is told no
    /// more: whoever is the last to hold the socket need not be that thread.
    fn drop(&mut self) {
        let inner = self.inner.get_mut();
        let inner = inner.unwrap_or_else(PoisonError::into_inner);
        if !inner.attendance.is_stacks() {
            return;
        }
        for evd in [&self.evd, &self.connections] {
            if let Err(error) = evd.set_cno(None) {
                tracing::error!(%error, "a dispatcher cannot be taken from the stack's thread");
            }
        }
    }
}

impl Socket {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counters of the socket, and the sizes of its memory.
    pub(crate) fn statistics(&self) -> Statistics {
        let inner = self.lock();
        Statistics {
            receive_buffers: inner.receive.count(),
            send_ring: inner.send.capacity(),
            ..inner.statistics
        }
    }

    /// The peer's address.
    pub(crate) const fn peer(&self) -> SocketAddr {
        self.names.peer
    }

    /// This end's address, as far as the provider tells it.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        if self.names.local.is_some() {
            return self.names.local;
        }
        let info = self.ep.query().ok()?;
        let port = u16::try_from(info.local_port).ok()?;
        info.local
            .or(self.adapter.address)
            .map(|address| SocketAddr::new(address.ip(), port))
    }

    /// What `poll` should say. Where the stack's thread looks after the socket, that is what it has
    /// found; it tells of what comes later.
    pub(crate) fn readiness(&self) -> Readiness {
        let mut inner = self.lock();
        if !inner.attendance.is_stacks() {
            self.progress(&mut inner);
        }
        inner.readiness()
    }

    /// Sets the options.
    pub(crate) fn set_options(&self, options: Options) {
        let mut inner = self.lock();
        inner.options = options;
        inner.receive.set_inline(options.oob_inline);
        inner.show();
        self.hand_over(&mut inner);
    }

    /// Watches the peer as another socket does.
    pub(crate) fn watch_peer_like(&self, like: BorrowedFd<'_>) -> io::Result<()> {
        let transport = self.transport.as_ref();
        Ok(transport.map_or(Ok(()), |it| it.watch_peer_like(like))?)
    }

    /// Tells `watch` from now on.
    pub(crate) fn watch(&self, watch: Arc<dyn Watch>) {
        let mut inner = self.lock();
        self.progress(&mut inner);
        inner.watch = Some(watch);
        inner.show();
        self.hand_over(&mut inner);
    }

    /// The error that waits to be reported, once.
    pub(crate) fn take_error(&self) -> Option<io::Error> {
        let mut inner = self.lock();
        self.progress(&mut inner);
        inner.error.take().map(Into::into)
    }

    /// Whether the user is gone and the connection is not.
    pub(crate) fn is_closing(&self) -> bool {
        let inner = self.lock();
        inner.user.is_closing() && !inner.has_ended()
    }
}
