//! The connections behind the program's descriptors.
//!
//! A [`Socket`] is a connection whose bytes an offload protocol carries, with the meaning that the
//! kernel gives to a TCP socket; this process moves them. The bytes of a [`relayed`] connection go
//! through the program's descriptor, from and to the process that owns the connection. A [`local`]
//! connection is a socket of the kernel.
//!
//! | File | Contents |
//! |---|---|
//! | [`observer`] | shows the readiness of the stream on the program's descriptor |
//! | [`room`] | the descriptors of a connection, made before the connection |
//! | [`receive`], [`send`] | the two directions, with flags, timeouts and signals |
//! | [`handed_over`] | the rest of a call when the descriptor carries the bytes |
//! | [`ending`] | shutting down, closing, lingering |
//! | [`calls`] | threads in calls, which leave when other processes are to use the connection |
//! | [`identity`] | addresses and options, of which each process that uses a connection has a copy |
//! | [`options`], [`requests`] | `getsockopt`, `setsockopt`; `ioctl` |
//! | [`vector`] | lists of buffers, as C has them |
//! | [`relay`] | the owner's side of a connection that other processes may use |
//! | [`relayed`] | the users' side |
//! | [`shared_state`] | memory that these processes share |
//! | [`local`] | a connection within the host |

pub(crate) mod calls;
pub(crate) mod ending;
mod handed_over;
pub(crate) mod identity;
pub(crate) mod local;
pub(crate) mod observer;
pub(crate) mod options;
pub(crate) mod receive;
pub(crate) mod relay;
pub(crate) mod relayed;
pub(crate) mod requests;
pub(crate) mod room;
pub(crate) mod send;
pub(crate) mod shared_state;
pub(crate) mod vector;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use host::stand_in::{LibraryEnd, Signals, Stage};
use ops::{OffloadStream, Watch};
use rustix::event::epoll::EventFlags;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;

use calls::{Calls, UnderWay};
use identity::Identity;
use observer::Observer;

use crate::events::{EventHandler, event_thread};
use crate::process;
use crate::tcp::names::Family;
use crate::tcp::options::Options;

/// A connected socket that an offload protocol carries.
pub(crate) struct Socket {
    stream: Arc<dyn OffloadStream>,
    observer: Arc<Observer>,
    identity: Arc<Identity>,
    calls: Calls,
    /// The number of descriptors of this process that name it.
    numbers: AtomicU32,
    /// The process that made it.
    maker: i32,
}

impl Socket {
    /// The program's socket is `stream`; `end` steers the program's descriptor.
    pub(crate) fn new(
        stream: Box<dyn OffloadStream>,
        end: LibraryEnd,
        family: Family,
        options: Options,
    ) -> Result<Self, Errno> {
        let stream: Arc<dyn OffloadStream> = Arc::from(stream);
        let observer = Arc::new(Observer::new(end, Signals::new()));
        stream.watch(Arc::clone(&observer) as _);
        if let Some(descriptor) = stream.descriptor() {
            let handler = Arc::new(StreamProgress(Arc::clone(&stream)));
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP;
            event_thread()?.watch(descriptor, flags, handler)?;
        }
        let (local, peer) = (stream.local(), stream.peer());
        let identity = Arc::new(Identity::new(family, local, peer, options));
        let socket = Self {
            stream,
            observer,
            identity,
            calls: Calls::default(),
            numbers: AtomicU32::new(0),
            maker: process::id(),
        };
        socket.behaves_as_set()?;
        Ok(socket)
    }

    fn options(&self) -> MutexGuard<'_, Options> {
        self.identity.options()
    }

    /// The addresses and options.
    pub(crate) fn identity(&self) -> Arc<Identity> {
        self.identity.clone()
    }

    /// The connection itself.
    pub(crate) fn stream(&self) -> &dyn OffloadStream {
        &*self.stream
    }

    /// The steering of the program's descriptor.
    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Returns the pending error as a number, and clears it.
    pub(crate) fn take_error(&self, fd: BorrowedFd<'_>) -> i32 {
        self.observer.take_error(fd).map_or(0, Errno::raw_os_error)
    }

    /// Begins a call; `None` while the descriptor carries bytes, or is about to.
    pub(crate) fn begin_call(&self) -> Option<UnderWay<'_>> {
        self.calls.begin()
    }

    /// Has the threads in calls leave, and no other begin one. Returns false if one has not left in
    /// time.
    pub(crate) fn stop_calls(&self, within: Duration) -> bool {
        self.calls.stop();
        self.observer.wait_queue().wake();
        self.calls.await_none(within)
    }

    /// Calls may begin again.
    pub(crate) fn allow_calls(&self) {
        self.calls.allow();
    }

    /// In a call: if others are to use the connection, waits until it is decided who moves the
    /// bytes. `false`: the descriptor carries them, and what is left of the call is left to it.
    ///
    /// The call goes on there because one of a TCP socket knows of no such change, and would not
    /// come back with a part of what it was to move.
    fn goes_on_here(&self, fd: BorrowedFd<'_>) -> bool {
        if !self.calls.are_stopped() {
            return true;
        }
        // The relay is kept until the decision is made; the shared state has the outcome.
        let relay = self.observer.relay();
        let is_over = || {
            relay.as_ref().is_none_or(|relay| {
                let place = relay.place();
                place.await_decision();
                // In any other stage the hand-over was given up: the call goes on here, and returns
                // the reason if the connection has failed.
                matches!(place.stage(), Stage::Carrying | Stage::Ended)
            })
        };
        let here = self.calls.step_aside(is_over);
        if !here {
            // The process that asked for the bytes does so too, but perhaps after this call.
            self.identity.apply_timeouts(fd);
        }
        here
    }

    /// Waits until it is decided who moves the bytes.
    pub(crate) fn await_decision(&self) {
        if let Some(relay) = self.observer.relay() {
            relay.place().await_decision();
        }
    }

    /// Shows again what is there, after signals may have been lost.
    pub(crate) fn show_all(&self) {
        if self.stream.readiness().readable {
            self.observer.arrived();
        }
    }

    /// The program may become another one: its descriptor shows no more than what it has to, and
    /// breaks when everything of this program ends.
    pub(crate) fn stop_steering(&self, fd: BorrowedFd<'_>) {
        self.observer.pause();
        self.observer.nothing_to_read(fd);
    }

    /// The program has not become another one.
    pub(crate) fn resume_steering(&self) {
        self.observer.resume();
        self.show_all();
        if self.stream.readiness().writable {
            self.observer.room();
        }
    }

    /// An end of the peer that was held back is shown when nothing is left before it.
    pub(crate) fn show_end_if_read(&self) {
        if self.observer.state().peer_has_ended() && self.stream.unread() == 0 {
            self.observer.end_was_read();
        }
    }

    /// Returns true if it was made in this process, and not copied by a fork.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.maker == process::id()
    }

    /// Counts one more descriptor of this process.
    pub(crate) fn named(&self) {
        self.numbers.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts one descriptor less. Returns true if it was the last.
    pub(crate) fn unnamed(&self) -> bool {
        self.numbers.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let (Some(descriptor), Ok(thread)) = (self.stream.descriptor(), event_thread()) {
            thread.unwatch(descriptor);
        }
    }
}

/// A stream that makes progress when its descriptor is ready.
struct StreamProgress(Arc<dyn OffloadStream>);

impl EventHandler for StreamProgress {
    fn ready(&self, _flags: EventFlags) {
        self.0.drive();
    }
}

/// Longer than it matters: a call that ends with it has moved bytes and says so.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The time that a call may wait, from `O_NONBLOCK`, `MSG_DONTWAIT` and the timeouts of the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// Until then.
    Until(Instant),
    /// For ever.
    Endless,
}

impl Patience {
    pub(crate) fn of(fd: BorrowedFd<'_>, flags: i32, timeout: Option<Duration>) -> Self {
        let nonblocking = flags & libc::MSG_DONTWAIT != 0
            || fcntl_getfl(fd.as_fd()).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK));
        match timeout {
            _ if nonblocking => Self::None,
            Some(timeout) => Self::Until(Instant::now() + timeout),
            None => Self::Endless,
        }
    }

    /// Waits for an event since `seen`. A call that has moved bytes already (`begun`) ends with
    /// every signal and returns their number, as on a TCP socket.
    pub(crate) fn wait(self, socket: &Socket, seen: u32, begun: bool) -> Result<(), Errno> {
        if socket.calls.are_stopped() {
            return Err(calls::ELSEWHERE);
        }
        let wait_queue = socket.observer.wait_queue();
        match self {
            Self::None => Err(Errno::AGAIN),
            Self::Until(deadline) => wait_queue.sleep(seen, Some(deadline)),
            // A sleep with a deadline is one that every signal ends.
            Self::Endless if begun => wait_queue.sleep(seen, Some(Instant::now() + DAY)),
            Self::Endless => wait_queue.sleep(seen, None),
        }
    }
}
