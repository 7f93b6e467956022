//! The connections behind the program's descriptors.
//!
//! A [`Socket`] is a connection of this process whose bytes an offload protocol carries, with the
//! semantics of a TCP socket. The bytes of a [`relay_client`] connection pass through the program's
//! descriptor to the process that owns the connection. A [`local`] connection is a kernel socket.
//! For the first two, the program's descriptor is one end of a socket pair (`host::stand_in`). The
//! pair carries either *signals*, single bytes by which the library steers the readiness of the
//! program's end, or the *bytes* of the connection.
//!
//! | File | Contents |
//! |---|---|
//! | [`observer`] | shows the readiness of the stream on the program's descriptor |
//! | [`room`] | the descriptors of a connection, reserved before the connection is made |
//! | [`receive`], [`send`] | the two directions, with flags, timeouts and signals |
//! | [`in_place`] | long sends and receives without a copy |
//! | [`send_turn`] | keeps the bytes of a send together |
//! | [`handed_over`] | completes a call when the descriptor has begun to carry the bytes |
//! | [`ending`] | `shutdown`, `close`, `SO_LINGER` |
//! | [`calls`] | counts and stops the calls of this process on a connection |
//! | [`identity`] | addresses and options; each process that uses a connection has a copy |
//! | [`operations`] | the answers of a connection to calls on its descriptors |
//! | [`options`], [`requests`] | `getsockopt`, `setsockopt`; `ioctl` |
//! | [`polling`] | polls before a blocking receive sleeps |
//! | [`vector`] | lists of buffers, `struct iovec` in C |
//! | [`relay`] | a shared connection in the process that owns it |
//! | [`relay_client`] | a shared connection in all other processes |
//! | [`shared_state`] | the memory that these processes share |
//! | [`local`] | a connection within the host |

pub(crate) mod calls;
pub(crate) mod ending;
mod handed_over;
pub(crate) mod identity;
mod in_place;
pub(crate) mod local;
pub(crate) mod observer;
mod operations;
pub(crate) mod options;
pub(crate) mod polling;
pub(crate) mod receive;
pub(crate) mod relay;
pub(crate) mod relay_client;
pub(crate) mod requests;
pub(crate) mod room;
pub(crate) mod send;
mod send_turn;
pub(crate) mod shared_state;
pub(crate) mod vector;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use host::adaptive_spin::AdaptiveSpin;
use host::stand_in::Stage;
use ops::{OffloadStream, Watch};
use rustix::io::Errno;

use calls::{CallGuard, Calls};
use identity::Identity;
use observer::Observer;
use send_turn::SendTurn;

use crate::process::{self, termination};
use crate::tcp::names::Family;
use crate::tcp::options::Options;

/// A connected socket that an offload protocol carries.
pub(crate) struct Socket {
    stream: Arc<dyn OffloadStream>,
    observer: Arc<Observer>,
    identity: Arc<Identity>,
    calls: Calls,
    spin: AdaptiveSpin,
    turn: SendTurn,
    send_pace: in_place::Pace,
    receive_pace: in_place::Pace,
    /// `SO_RCVLOWAT`.
    receive_low: AtomicUsize,
    /// The number of descriptors of this process that refer to the connection.
    numbers: AtomicU32,
    /// True until a call has returned the result of a non-blocking `connect`.
    is_connect_pending: AtomicBool,
    /// The process that made the socket; a fork copies the value.
    maker: i32,
}

/// True once a socket was made, in this process or in a parent before a fork.
static WERE_MADE: AtomicBool = AtomicBool::new(false);

/// Returns false if this process has had no socket, so no offload protocol has bytes to deliver.
pub(crate) fn were_made() -> bool {
    WERE_MADE.load(Ordering::Acquire)
}

impl Socket {
    /// Makes a socket of a connected stream. `observer` steers the program's descriptor.
    pub(crate) fn new(
        stream: Box<dyn OffloadStream>,
        observer: Observer,
        family: Family,
        options: Options,
    ) -> Result<Self, Errno> {
        WERE_MADE.store(true, Ordering::Release);
        let stream: Arc<dyn OffloadStream> = Arc::from(stream);
        let observer = Arc::new(observer);
        stream.watch(Arc::clone(&observer) as _);
        let (local, peer) = (stream.local(), stream.peer());
        let identity = Arc::new(Identity::new(family, local, peer, options));
        let socket = Self {
            stream,
            observer,
            identity,
            calls: Calls::default(),
            spin: AdaptiveSpin::default(),
            turn: SendTurn::default(),
            send_pace: in_place::Pace::default(),
            receive_pace: in_place::Pace::default(),
            receive_low: AtomicUsize::new(1),
            numbers: AtomicU32::new(0),
            is_connect_pending: AtomicBool::new(false),
            maker: process::id(),
        };
        socket.apply_initial_options()?;
        Ok(socket)
    }

    /// Records that the connection was made by a non-blocking `connect`, whose result the next
    /// `connect` returns.
    pub(crate) fn expect_connect(&self) {
        self.is_connect_pending.store(true, Ordering::Relaxed);
    }

    /// Returns true once after [`expect_connect`](Self::expect_connect).
    fn take_connect_result(&self) -> bool {
        self.is_connect_pending.swap(false, Ordering::Relaxed)
    }

    /// Resets the connection, whose bytes a pair carries. Called on the event thread.
    pub(crate) fn abort_carried(&self) {
        if let Some(relay) = self.observer.relay() {
            relay.end_sharing();
        }
        self.stream.abort();
    }

    fn options(&self) -> MutexGuard<'_, Options> {
        self.identity.options()
    }

    pub(crate) fn identity(&self) -> Arc<Identity> {
        self.identity.clone()
    }

    pub(crate) fn stream(&self) -> &dyn OffloadStream {
        &*self.stream
    }

    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Returns the pending error as a number, and clears it.
    pub(crate) fn take_error(&self, fd: BorrowedFd<'_>) -> i32 {
        self.observer.take_error(fd).map_or(0, Errno::raw_os_error)
    }

    /// Begins a call. Returns `None` if the descriptor carries the bytes, or will soon carry them.
    pub(crate) fn begin_call(&self) -> Option<CallGuard<'_>> {
        self.calls.begin()
    }

    /// Interrupts the calls of this process, and lets no call begin. Returns false if a call has
    /// not ended in time.
    pub(crate) fn stop_calls(&self, within: Duration) -> bool {
        self.calls.stop();
        self.observer.wait_queue().wake();
        let have_ended = self.calls.await_none(within);
        self.stream.end_polling();
        have_ended
    }

    /// Ends the effect of [`stop_calls`](Self::stop_calls).
    pub(crate) fn allow_calls(&self) {
        self.calls.allow();
    }

    /// Returns true if a call continues on the stream. Returns false if the descriptor carries the
    /// bytes, and the rest of the call must use the descriptor. While another process requests the
    /// connection, the call waits for the decision.
    ///
    /// The call does not return early with a part of its bytes, because a call on a TCP socket
    /// would not.
    fn may_use_stream(&self, fd: BorrowedFd<'_>) -> bool {
        if !self.calls.is_stopped() {
            return true;
        }
        // The relay stays alive until the decision is made. The outcome is in the shared state.
        let relay = self.observer.relay();
        let is_over = || {
            relay.as_ref().is_none_or(|relay| {
                let shared_state = relay.shared_state();
                shared_state.await_decision();
                // In any other stage the hand-over was aborted. The call continues on the stream,
                // and returns an error if the connection has failed.
                matches!(shared_state.stage(), Stage::Carrying | Stage::Ended)
            })
        };
        let continues = self.calls.pause(is_over);
        if !continues {
            // The requesting process sets the timeouts too, but possibly after this call.
            self.identity.apply_timeouts(fd);
        }
        continues
    }

    /// Waits until a requested hand-over is completed or aborted.
    pub(crate) fn await_decision(&self) {
        if let Some(relay) = self.observer.relay() {
            relay.shared_state().await_decision();
        }
    }

    /// Announces readable bytes again, after signals may have been lost.
    pub(crate) fn show_all(&self) {
        if self.stream.readiness().readable {
            self.observer.arrived();
        }
    }

    /// Prepares an `exec`: removes the signals from the descriptor's pair and sends no more. The
    /// pair shows a reset once the old program has ended.
    pub(crate) fn stop_steering(&self, fd: BorrowedFd<'_>) {
        self.observer.pause();
        self.observer.clear_announcement(fd);
    }

    /// Shows events again after an `exec` has failed.
    pub(crate) fn resume_steering(&self) {
        self.observer.resume();
        self.show_all();
        if self.stream.readiness().writable {
            self.observer.room();
        }
    }

    /// Shows the end of the peer's stream, which was held back, once all bytes before it are read.
    pub(crate) fn show_end_if_read(&self) {
        if self.observer.state().has_peer_ended() && self.stream.unread() == 0 {
            self.observer.on_end_read();
        }
    }

    /// Counts a new descriptor of this process.
    pub(crate) fn add_number(&self) {
        self.numbers.fetch_add(1, Ordering::AcqRel);
    }
}

/// The deadline of a call that any signal ends: longer than any call waits in practice.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The time that a call may wait, from `O_NONBLOCK`, `MSG_DONTWAIT` and the timeouts of the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// The call does not wait.
    None,
    Until(Instant),
    Endless,
}

impl Patience {
    pub(crate) fn of(fd: BorrowedFd<'_>, flags: i32, timeout: Option<Duration>) -> Self {
        let nonblocking = flags & libc::MSG_DONTWAIT != 0 || process::is_nonblocking(fd);
        match timeout {
            _ if nonblocking => Self::None,
            Some(timeout) => Self::Until(Instant::now() + timeout),
            None => Self::Endless,
        }
    }

    /// Waits for an event after `seen`. Any signal ends a call that can return a number of bytes
    /// without another event (`may_be_last`), as on a TCP socket.
    pub(crate) fn wait(self, socket: &Socket, seen: u32, may_be_last: bool) -> Result<(), Errno> {
        if socket.calls.is_stopped() {
            return Err(calls::HANDED_OVER);
        }
        if termination::is_by_another_thread() {
            // The hook holds the thread. If the thread continues, its connection is closed.
            return Err(Errno::CONNRESET);
        }
        let deadline = match self {
            Self::None => return Err(Errno::AGAIN),
            Self::Until(deadline) => Some(deadline),
            // Every signal ends a sleep that has a deadline.
            Self::Endless => may_be_last.then(|| Instant::now() + DAY),
        };
        socket.stream.end_polling();
        let wait_queue = socket.observer.wait_queue();
        socket
            .calls
            .while_asleep(|| wait_queue.sleep(seen, deadline))
    }
}
