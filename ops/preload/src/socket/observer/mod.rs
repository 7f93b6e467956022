//! Shows the readiness of a connection on the program's descriptor.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use ops::Watch;
use rustix::io::Errno;
use stand_in::{LibraryEnd, Signals};

use crate::events::event_thread;
use crate::events::wait_queue::WaitQueue;
use crate::socket::relay::Relay;

/// Steers the readiness of one socket's descriptor. The stream reports each change to it.
#[derive(Debug)]
pub(crate) struct Observer {
    pair: Mutex<Pair>,
    signals: Signals,
    wait_queue: WaitQueue,
    /// Carries the bytes of a connection that other processes may use.
    relay: OnceLock<Weak<Relay>>,
    /// The pending error, which `SO_ERROR` or the next call returns once.
    error: AtomicI32,
    peer_has_shut_down: AtomicBool,
    we_have_shut_down: AtomicBool,
    reading_has_ended: AtomicBool,
    end_was_read: AtomicBool,
    /// The pair shows that neither side sends any more, at both of its ends.
    hung_up: AtomicBool,
    /// Others may use the connection.
    shared: AtomicBool,
    /// An `exec` is under way: the next program would take signal bytes for data.
    paused: AtomicBool,
    /// Threads that block in calls have to leave them, because the pair is about to carry bytes.
    nobody_waits: AtomicBool,
}

/// Where a change of readiness goes.
#[derive(Debug)]
enum Pair {
    /// To the program's end of the pair, which shows it.
    Steered(LibraryEnd),
    /// To the relay, which moves the bytes.
    Carrying(Weak<Relay>),
    /// Nowhere: the connection broke or is over.
    Gone,
}

impl Observer {
    pub(crate) fn new(end: LibraryEnd, signals: Signals) -> Self {
        Self {
            pair: Mutex::new(Pair::Steered(end)),
            signals,
            wait_queue: WaitQueue::default(),
            relay: OnceLock::new(),
            error: AtomicI32::new(0),
            peer_has_shut_down: AtomicBool::new(false),
            we_have_shut_down: AtomicBool::new(false),
            reading_has_ended: AtomicBool::new(false),
            end_was_read: AtomicBool::new(false),
            hung_up: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            nobody_waits: AtomicBool::new(false),
        }
    }

    /// Whether the program sends no more.
    pub(crate) fn has_shut_down(&self) -> bool {
        self.we_have_shut_down.load(Ordering::SeqCst)
    }

    /// Whether neither side sends any more.
    pub(crate) fn is_over(&self) -> bool {
        self.peer_has_shut_down.load(Ordering::SeqCst)
            && self.we_have_shut_down.load(Ordering::SeqCst)
    }

    /// The program receives no more, which shows as if the peer sent no more.
    pub(crate) fn reading_has_ended(&self) {
        self.reading_has_ended.store(true, Ordering::SeqCst);
        self.show_end();
    }

    /// The program sends no more.
    pub(crate) fn writing_has_ended(&self) {
        self.we_have_shut_down.store(true, Ordering::SeqCst);
        if self.is_over() || self.reading_has_ended.load(Ordering::SeqCst) {
            self.show_end();
        }
        self.wait_queue.wake();
    }

    /// The program has read up to the end of what the peer sent.
    pub(crate) fn end_was_read(&self) {
        if self.is_shared() && !self.end_was_read.swap(true, Ordering::SeqCst) {
            self.show_end();
        }
    }

    fn is_shared(&self) -> bool {
        self.shared.load(Ordering::SeqCst)
    }

    /// Others are about to use the connection: from now on the pair shows no end before it was
    /// read.
    pub(crate) fn will_be_shared(&self) {
        self.shared.store(true, Ordering::SeqCst);
    }

    /// Whether the pair shows that the peer sends no more.
    pub(crate) fn shows_end_of_peer(&self) -> bool {
        self.peer_has_shut_down.load(Ordering::SeqCst)
    }

    /// Steers another pair from now on, which shows the end when it was read.
    pub(crate) fn renew(&self, end: LibraryEnd) {
        let before = {
            let mut pair = self.pair();
            if !matches!(*pair, Pair::Steered(_)) {
                return;
            }
            self.signals.forget();
            self.hung_up.store(false, Ordering::SeqCst);
            std::mem::replace(&mut *pair, Pair::Steered(end))
        };
        if let Pair::Steered(before) = &before {
            leave(before);
        }
        drop(before);
        self.arrived();
    }

    fn show_end(&self) {
        if self.holds_end_back() {
            // A pair that shows an end takes no bytes any more, and those that are unread may have
            // to go through it.
            self.arrived();
            if let Some(relay) = self.relay() {
                relay.nudge();
            }
            return;
        }
        self.steer(|end| {
            if self.holds_end_back() {
                // Others have come meanwhile, and their relay looks at the end.
                end.announce(&self.signals)
            } else if self.we_have_shut_down.load(Ordering::SeqCst) {
                self.hung_up.store(true, Ordering::SeqCst);
                end.end()
            } else {
                end.half_close()
            }
        });
    }

    /// Whether the end of the peer is shown only when it was read.
    fn holds_end_back(&self) -> bool {
        let reads_on = !self.reading_has_ended.load(Ordering::SeqCst);
        self.is_shared() && reads_on && !self.end_was_read.load(Ordering::SeqCst)
    }

    /// Whether the library's end shows a hang-up by our own doing. Then nothing but what was read
    /// goes on in any process, and who holds the program's end is not seen.
    pub(crate) fn shows_hang_up(&self) -> bool {
        self.hung_up.load(Ordering::SeqCst)
    }

    fn show_reset(&self, end: LibraryEnd) {
        if let Some(relay) = self.relay.get().and_then(Weak::upgrade) {
            relay.leave();
            // Whoever tells of the reset may hold the stream's locks, and the stream goes with the
            // last reference to its relay.
            relay.drop_later();
        }
        leave(&end);
        end.reset();
    }

    /// The pending error, which is told once; the descriptor shows it no more.
    pub(crate) fn take_error(&self, program: impl AsFd) -> Option<Errno> {
        let error = self.error.swap(0, Ordering::AcqRel);
        if error == 0 {
            return None;
        }
        // The pair's own error stands for ours, and asking takes it away.
        let _ = rustix::net::sockopt::socket_error(program);
        Some(Errno::from_raw_os_error(error))
    }

    /// Whether there is an error that nobody was told of.
    pub(crate) fn has_error(&self) -> bool {
        self.pending_error().is_some()
    }

    /// The error that nobody was told of.
    pub(crate) fn pending_error(&self) -> Option<Errno> {
        let error = self.error.load(Ordering::Acquire);
        (error != 0).then(|| Errno::from_raw_os_error(error))
    }

    /// Whether it broke.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(*self.pair(), Pair::Gone)
    }

    /// Other processes may use the connection, through this.
    pub(crate) fn is_shared_by(&self, relay: &Arc<Relay>) {
        // Set once: it is shared until it ends.
        let _ = self.relay.set(Arc::downgrade(relay));
    }

    /// What carries the connection for others, if they may use it.
    pub(crate) fn relay(&self) -> Option<Arc<Relay>> {
        self.relay.get().and_then(Weak::upgrade)
    }

    /// The number of the library's end, while it steers.
    pub(crate) fn number(&self) -> Option<RawFd> {
        self.with_end(|end| end.as_fd().as_raw_fd())
    }

    /// Does something with the library's end, while it steers.
    pub(crate) fn with_end<T>(&self, work: impl FnOnce(&LibraryEnd) -> T) -> Option<T> {
        match &*self.pair() {
            Pair::Steered(end) => Some(work(end)),
            _ => None,
        }
    }

    /// Gives the library's end away: the pair shows no news any more, `relay` is told of them.
    /// `None`: the connection broke.
    pub(crate) fn hand_over(&self, relay: Weak<Relay>) -> Option<LibraryEnd> {
        let mut pair = self.pair();
        match std::mem::replace(&mut *pair, Pair::Carrying(relay)) {
            Pair::Steered(end) => Some(end),
            other => {
                *pair = other;
                None
            }
        }
    }

    /// The opposite, for a pair without signals.
    pub(crate) fn take_back(&self, end: LibraryEnd) {
        self.signals.forget();
        *self.pair() = Pair::Steered(end);
        self.wait_queue.wake();
    }

    /// The connection is over.
    pub(crate) fn gone(&self) {
        let mut pair = self.pair();
        if matches!(*pair, Pair::Carrying(_)) {
            *pair = Pair::Gone;
        }
    }

    /// Threads that wait in calls leave them, or may wait again.
    pub(crate) fn stop_waiting(&self, stop: bool) {
        self.nobody_waits.store(stop, Ordering::SeqCst);
        self.wait_queue.wake();
    }

    /// Whether nobody may wait in a call.
    pub(crate) fn has_stopped_waiting(&self) -> bool {
        self.nobody_waits.load(Ordering::SeqCst)
    }

    /// Shows nothing for a while, or what there is again.
    pub(crate) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::SeqCst);
        if !paused && (self.shows_end_of_peer() || self.reading_has_ended.load(Ordering::SeqCst)) {
            self.show_end();
        }
    }

    /// Where threads of the program sleep.
    pub(crate) fn wait_queue(&self) -> &WaitQueue {
        &self.wait_queue
    }

    /// The program found nothing to read: no announcement must be left. The caller looks again.
    pub(crate) fn nothing_to_read(&self, program: impl AsFd) {
        // Without the pair there is nothing to show; the program sees the hang-up.
        let _ = stand_in::consume(program, &self.signals, true);
    }

    /// The program read something, and there is more.
    pub(crate) fn something_left(&self, program: impl AsFd) {
        let _ = stand_in::consume(program, &self.signals, false);
    }

    /// The program found no room. The caller looks again.
    pub(crate) fn no_room(&self, program: impl AsFd) {
        let _ = stand_in::close_window(program, &self.signals);
    }

    fn steer(&self, how: impl FnOnce(&LibraryEnd) -> io::Result<()>) {
        let relay = match &*self.pair() {
            Pair::Steered(_) if self.paused.load(Ordering::SeqCst) => None,
            Pair::Steered(end) => {
                // It fails when every descriptor of the program is closed; that is told elsewhere.
                let _ = how(end);
                None
            }
            Pair::Carrying(relay) => relay.upgrade(),
            Pair::Gone => None,
        };
        if let Some(relay) = relay {
            relay.nudge();
        }
        self.wait_queue.wake();
    }

    fn pair(&self) -> MutexGuard<'_, Pair> {
        self.pair.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        if let Pair::Steered(end) = &*self.pair() {
            leave(end);
        }
    }
}

/// The event thread hears no more of an end that is about to be closed.
fn leave(end: &LibraryEnd) {
    if let Ok(thread) = event_thread() {
        thread.unwatch(end);
    }
}

impl Watch for Observer {
    fn arrived(&self) {
        self.steer(|end| end.announce(&self.signals));
    }

    fn room(&self) {
        self.steer(|end| end.open_window(&self.signals));
    }

    /// A close that lingers waits for it. Nothing that the descriptor shows changes by it.
    fn all_sent(&self) {
        self.wait_queue.wake();
    }

    fn urgent(&self) {
        self.steer(LibraryEnd::announce_urgent);
    }

    fn peer_ended(&self) {
        self.peer_has_shut_down.store(true, Ordering::SeqCst);
        self.show_end();
    }

    fn broken(&self, why: Errno) {
        if self.is_over() {
            // Both sides have had their say; TCP has closed by then and hears no reset.
            return;
        }
        self.error.store(why.raw_os_error(), Ordering::Release);
        let end = {
            let mut pair = self.pair();
            match std::mem::replace(&mut *pair, Pair::Gone) {
                Pair::Steered(end) => Some(end),
                // Who moves the bytes sees it behind the last of them.
                Pair::Carrying(relay) => {
                    *pair = Pair::Carrying(relay);
                    None
                }
                Pair::Gone => None,
            }
        };
        match end {
            Some(end) => self.show_reset(end),
            None => self.steer(|_| Ok(())),
        }
        self.wait_queue.wake();
    }
}
