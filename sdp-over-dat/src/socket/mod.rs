//! A connection: the protocol, its buffers, and the thread that takes its events.
//!
//! | File | Contents |
//! |---|---|
//! | `setup.rs` | connect and accept |
//! | `inner.rs` | the data that the lock protects, and the state that other modules read |
//! | `attendance.rs` | the thread that takes the events of a socket |
//! | `link.rs`, `read_half.rs`, `user.rs` | states: of the transport, of the receiving direction, of the user |
//! | `drive.rs` | event handling, message sending and waiting |
//! | `send.rs`, `receive.rs` | the calls of the two directions |
//! | `in_place.rs` | writes whose bytes stay in the caller's memory |
//! | `write_zcopy.rs`, `sink_pace.rs` | readers' memory that the peer writes, and how often it is advertised |
//! | `send_ring.rs` | bytes that were written, headers, Sends in progress |
//! | `receive_queue.rs` | receive buffers, staging memory, bytes that were not read |
//! | `close.rs` | shutdown, linger and close |
//! | `suspend.rs` | a connection that another process continues, at this end or at the peer's |
//!
//! # Lock
//!
//! `Socket::inner` is the only lock. It is held during DAT calls that return at once (posts,
//! dequeue) and never while a thread waits. One thread at a time sleeps in an event dispatcher
//! ([`attendance::Attendance`]). No other thread dequeues from that dispatcher meanwhile, and the
//! sleeping thread wakes the other threads that wait.

mod attendance;
mod close;
mod drive;
mod in_place;
mod inner;
mod link;
mod read_half;
mod receive;
mod receive_queue;
mod send;
mod send_ring;
mod setup;
mod sink_pace;
mod suspend;
mod user;
mod write_zcopy;

use std::{
    io,
    net::SocketAddr,
    os::fd::BorrowedFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic::AtomicBool},
};

use dat_api::{Ep, Evd};
use host::locks::IgnorePoison as _;

use crate::{
    Config, Options, Readiness, Watch, adapter::Adapter, statistics::Statistics,
    transport::Transport,
};
pub use close::Commitment;
pub use in_place::Decision;
pub(crate) use inner::Inner;
pub(crate) use link::Opening;
pub use receive::ReceiveFlags;
pub(crate) use setup::{Names, Parts, Passive, To};

/// A connection.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) adapter: Arc<Adapter>,
    /// The sizes and limits of the socket.
    pub(crate) config: Config,
    /// The dispatcher of completions. A thread that waits sleeps here unless the next event is
    /// expected to be one of the connection, because the end of a connection also completes its
    /// receives.
    pub(crate) evd: Evd,
    /// The dispatcher of connection events, which not every provider merges with completions.
    pub(crate) connections: Evd,
    ep: Ep,
    names: Names,
    /// The TCP socket that the connection was made over, if there is one.
    transport: Option<Transport>,
    /// False if [`Self::end_polling`] has nothing to do. Stored with the lock held, loaded without
    /// it.
    is_polled: AtomicBool,
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Drop for Socket {
    /// Detaches the dispatchers from the CNO. A dispatcher cannot be freed while the stack's thread
    /// may still be notified of it, and the last owner of the socket may be another thread.
    fn drop(&mut self) {
        let inner = self.inner.get_mut();
        let inner = inner.ignore_poison();
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
        self.inner.lock().unwrap_or_else(|poisoned| {
            let mut inner = poisoned.into_inner();
            // A panic in `serve` leaves the flag set, and the watch would receive no more reports.
            inner.is_withholding = false;
            inner
        })
    }

    /// Counters of the socket, and the sizes of its memory.
    pub(crate) fn statistics(&self) -> Statistics {
        self.lock().statistics()
    }

    /// The peer's address.
    pub(crate) const fn peer(&self) -> SocketAddr {
        self.names.peer
    }

    /// The address of this end, if the provider reports it.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        let first = self.lock().first_local;
        first.or_else(|| self.local_now())
    }

    /// The address of this end on the present transport.
    fn local_now(&self) -> Option<SocketAddr> {
        if self.names.local.is_some() {
            return self.names.local;
        }
        let info = self.ep.query().ok()?;
        let port = u16::try_from(info.local_port).ok()?;
        info.local
            .or(self.adapter.address)
            .map(|address| SocketAddr::new(address.ip(), port))
    }

    /// The state that `poll` reports. Where the stack's thread serves the socket, this is the state
    /// that the thread last found; the thread reports later changes.
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
        inner.send.set_bound(options.send_bound);
        inner.show();
        self.hand_over(&mut inner);
    }

    /// Sets the keepalive options and the user timeout of the transport as on another socket.
    pub(crate) fn watch_peer_like(&self, like: BorrowedFd<'_>) -> io::Result<()> {
        let transport = self.transport.as_ref();
        Ok(transport.map_or(Ok(()), |it| it.watch_peer_like(like))?)
    }

    /// Notifies `watch` from now on.
    pub(crate) fn watch(&self, watch: Arc<dyn Watch>) {
        let mut inner = self.lock();
        self.progress(&mut inner);
        inner.watch = Some(watch);
        inner.show();
        self.hand_over(&mut inner);
    }

    /// The pending error, if any. It is returned once.
    pub(crate) fn take_error(&self) -> Option<io::Error> {
        let mut inner = self.lock();
        self.progress(&mut inner);
        inner.error.take().map(Into::into)
    }

    /// True if the user has closed the socket and the connection has not ended.
    pub(crate) fn is_closing(&self) -> bool {
        let inner = self.lock();
        inner.user.is_closing() && !inner.has_ended()
    }
}
