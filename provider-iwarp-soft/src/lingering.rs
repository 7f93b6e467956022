//! A socket that lingers after the end of its connection, as with `SO_LINGER`, but without a thread
//! that blocks meanwhile.
//!
//! Closing a socket with unread data makes TCP send a reset, which can overtake the last data. So
//! the remaining bytes are sent first, then a FIN. Further data from the peer is read and discarded
//! until the peer's FIN or a deadline.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use host::locks::IgnorePoison as _;

use crate::engine::io::{self, Received, Sent};
use crate::engine::{Engine, Interest, Key, Source};
use crate::progress::conn_socket::ConnSocket;
use crate::socket::Socket;

/// The time that a peer has to close its end.
const PATIENCE: Duration = Duration::from_secs(5);
/// The delay of the late bytes.
const LATE_AFTER: Duration = Duration::from_millis(20);
/// Maximum number of reads in one pass, so that one peer does not occupy the engine.
const DISCARD_ROUNDS: usize = 64;

/// Maximum number of bytes that are discarded before the connection is aborted. TCP's usual windows
/// allow fewer bytes in flight, so only a peer that continues to send exceeds this number.
const DISCARD_MAX: usize = 16 << 20;
/// Maximum number of lingering sockets of one adapter. Above this number sockets are closed at
/// once, and their last message may be lost: descriptors are more valuable than the last message to
/// a peer that opens so many connections.
const LINGERING_MAX: usize = 1024;

/// The owner of the socket.
#[derive(Debug)]
enum SocketOwner {
    /// A connection that was removed from the engine.
    Connection(Arc<ConnSocket>),
    /// No other object: the connection was never established.
    Unconnected(Socket),
}

/// A socket that lingers.
#[derive(Debug)]
pub(crate) struct LingeringSocket {
    engine: Arc<Engine>,
    owner: SocketOwner,
    /// The unsent bytes; `None` after the FIN.
    rest: Mutex<Option<Vec<u8>>>,
    /// Bytes that are sent after [`LATE_AFTER`], before the FIN; `None` once `rest` contains them.
    late: Mutex<Option<Vec<u8>>>,
    discarded: AtomicUsize,
}

impl LingeringSocket {
    /// Ends a connection whose socket was removed from the engine: sends `rest`, and `late` after
    /// [`LATE_AFTER`]. A socket that is returned to its consumer does not linger: it is neither
    /// shut down nor read any more.
    pub(crate) fn start(socket: Arc<ConnSocket>, rest: Vec<u8>, late: Option<Vec<u8>>) {
        if socket.returns_to_consumer() {
            return;
        }
        let engine = socket.progress.engine().clone();
        Self::linger(engine, SocketOwner::Connection(socket), rest, late);
    }

    /// Ends a socket whose connection was never established.
    pub(crate) fn start_unconnected(engine: Arc<Engine>, socket: Socket) {
        Self::linger(engine, SocketOwner::Unconnected(socket), Vec::new(), None);
    }

    fn linger(engine: Arc<Engine>, owner: SocketOwner, rest: Vec<u8>, late: Option<Vec<u8>>) {
        let patience = if late.is_some() { LATE_AFTER } else { PATIENCE };
        let lingering = Arc::new(Self {
            engine: engine.clone(),
            owner,
            rest: Mutex::new(Some(rest)),
            late: Mutex::new(late),
            discarded: AtomicUsize::new(0),
        });
        let Some(interest) = lingering.proceed() else {
            return;
        };
        if engine.lingering() >= LINGERING_MAX {
            return;
        }
        let key = engine.new_key();
        // Without an engine the socket is closed at once.
        if engine.enlist_lingering(key, lingering.clone()).is_ok() {
            engine.set_deadline(key, Some(Instant::now() + patience));
            if engine.watch(key, lingering.fd(), interest).is_err() {
                engine.delist_lingering(key);
            }
        }
    }

    /// Sends, then shuts down this end, then discards input. Returns the interest to wait for, or
    /// `None` when finished. If the program has closed the descriptor, the socket is not used any
    /// more.
    fn proceed(&self) -> Option<Interest> {
        let is_lost = match &self.owner {
            SocketOwner::Connection(socket) => socket.is_lost(),
            SocketOwner::Unconnected(socket) => socket.is_lost(),
        };
        if is_lost {
            return None;
        }
        let mut rest = self.rest.lock().ignore_poison();
        if let Some(bytes) = &mut *rest {
            if !bytes.is_empty() {
                match io::send(self.fd(), bytes) {
                    Sent::Bytes(count) => drop(bytes.drain(..count)),
                    Sent::WouldBlock => {}
                    Sent::Failed(_) => return None,
                }
            }
            if bytes.is_empty() && !self.has_late() {
                io::finish(self.fd());
                *rest = None;
            }
        }
        let mut scrap = [0; 4096];
        for _ in 0..DISCARD_ROUNDS {
            match io::receive(self.fd(), &mut scrap) {
                Received::Bytes(count) => {
                    let before = self.discarded.fetch_add(count, Ordering::Relaxed);
                    if before + count > DISCARD_MAX {
                        return None;
                    }
                }
                Received::WouldBlock => break,
                Received::Eof if rest.is_some() && !self.has_late() => {
                    return Some(Interest::Writable);
                }
                Received::Eof | Received::Failed(_) => return None,
            }
        }
        Some(if rest.is_some() && !self.has_late() {
            Interest::Both
        } else {
            Interest::Readable
        })
    }

    fn has_late(&self) -> bool {
        self.late().is_some()
    }

    fn late(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.late.lock().ignore_poison()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.owner {
            SocketOwner::Connection(socket) => socket.as_fd(),
            SocketOwner::Unconnected(socket) => socket.as_fd(),
        }
    }

    fn end(&self, key: Key) {
        self.engine.unwatch(self.fd());
        self.engine.delist_lingering(key);
    }
}

impl Source for LingeringSocket {
    fn on_ready(self: Arc<Self>, key: Key, _readable: bool, _writable: bool) {
        match self.proceed() {
            Some(interest) if self.engine.rearm(key, self.fd(), interest).is_ok() => {}
            _ => self.end(key),
        }
    }

    fn on_deadline(self: Arc<Self>, key: Key) {
        let late = self.late().take();
        let Some(late) = late else {
            return self.end(key);
        };
        if let Some(rest) = &mut *self.rest.lock().ignore_poison() {
            rest.extend(late);
        }
        self.engine
            .set_deadline(key, Some(Instant::now() + PATIENCE));
        self.on_ready(key, true, true);
    }
}
