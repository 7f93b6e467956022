//! Shows the readiness of a connection on the program's descriptor.
//!
//! | File | Contents |
//! |---|---|
//! | `mod` | the library's end of the pair, and the events that come to it |
//! | [`state`] | what the descriptor shows after which event |

mod state;

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use host::stand_in::{LibraryEnd, Signals};
use ops::Watch;
use rustix::io::Errno;

use self::state::{Event, Signal, State};
use crate::events::event_thread;
use crate::events::wait_queue::WaitQueue;
use crate::socket::relay::Relay;

/// Steers the readiness of one socket's descriptor. The stream reports each change to it.
#[derive(Debug)]
pub(crate) struct Observer {
    /// The library's end, while it steers the program's. Transitions are made with this lock held,
    /// so that the signals of two of them reach the pair in their order.
    end: Mutex<Option<LibraryEnd>>,
    /// The [`State`], packed, which calls that move bytes read without the lock.
    state: AtomicU32,
    signals: Signals,
    wait_queue: WaitQueue,
    /// Carries the bytes of a connection that other processes may use.
    relay: OnceLock<Weak<Relay>>,
    /// The pending error, which `SO_ERROR` or the next call returns once.
    error: AtomicI32,
}

impl Observer {
    pub(crate) fn new(end: LibraryEnd, signals: Signals) -> Self {
        Self {
            end: Mutex::new(Some(end)),
            state: AtomicU32::new(State::NEW.packed()),
            signals,
            wait_queue: WaitQueue::default(),
            relay: OnceLock::new(),
            error: AtomicI32::new(0),
        }
    }

    pub(crate) fn state(&self) -> State {
        State::unpacked(self.state.load(Ordering::SeqCst))
    }

    /// The program receives no more, which shows as if the peer sent no more.
    pub(crate) fn reading_has_ended(&self) {
        self.apply(Event::ReadingEnded);
    }

    /// The program writes no more. Returns true for the first caller, who shuts the stream down.
    pub(crate) fn end_writing(&self) -> bool {
        !self.apply(Event::WritingEnds).writing_has_ended()
    }

    /// The stream was shut down, by the program's own `shutdown`.
    pub(crate) fn writing_has_ended(&self) {
        self.apply(Event::WritingEnded);
    }

    /// The program has read up to the end of what the peer sent.
    pub(crate) fn end_was_read(&self) {
        self.apply(Event::EndRead);
    }

    /// Other processes are about to use the connection: from now on the pair shows no end before it
    /// was read.
    pub(crate) fn will_be_shared(&self) {
        self.apply(Event::Shared);
    }

    /// Steers another pair from now on, which shows the end when it was read.
    pub(crate) fn renew(&self, end: LibraryEnd) {
        let before = {
            let mut place = self.end();
            if place.is_none() {
                return;
            }
            self.signals.forget();
            self.transit(Event::Renewed);
            place.replace(end)
        };
        if let Some(before) = before {
            unwatch(&before);
        }
        self.arrived();
    }

    /// Shows nothing while an `exec` is under way.
    pub(crate) fn pause(&self) {
        self.apply(Event::Paused);
    }

    /// Shows everything again: the `exec` has failed.
    pub(crate) fn resume(&self) {
        self.apply(Event::Resumed);
    }

    /// Gives the library's end away: the pair shows no events any more, the relay is notified of
    /// them. `None`: the connection broke.
    pub(crate) fn hand_over(&self) -> Option<LibraryEnd> {
        let mut end = self.end();
        self.transit(Event::HandedOver);
        end.take()
    }

    /// Steers again by an end that was handed over, in whose pair there are no signals.
    pub(crate) fn take_back(&self, end: LibraryEnd) {
        let mut place = self.end();
        self.signals.forget();
        if !self.transit(Event::TakenBack).is_broken() {
            *place = Some(end);
        }
        drop(place);
        self.wait_queue.wake();
    }

    /// The relay has ended.
    pub(crate) fn has_left(&self) {
        self.apply(Event::Left);
    }

    /// Returns the pending error and clears it; the descriptor shows it no more.
    pub(crate) fn take_error(&self, program: impl AsFd) -> Option<Errno> {
        let error = self.error.swap(0, Ordering::AcqRel);
        if error == 0 {
            return None;
        }
        // The pair's own error stands for ours, and asking takes it away.
        let _ = rustix::net::sockopt::socket_error(program);
        Some(Errno::from_raw_os_error(error))
    }

    /// The pending error, which stays pending.
    pub(crate) fn pending_error(&self) -> Option<Errno> {
        let error = self.error.load(Ordering::Acquire);
        (error != 0).then(|| Errno::from_raw_os_error(error))
    }

    /// Other processes may use the connection, through this relay.
    pub(crate) fn is_shared_by(&self, relay: &Arc<Relay>) {
        // Set once: the connection is shared until it ends.
        let _ = self.relay.set(Arc::downgrade(relay));
    }

    /// The relay, if other processes may use the connection.
    pub(crate) fn relay(&self) -> Option<Arc<Relay>> {
        self.relay.get().and_then(Weak::upgrade)
    }

    /// The number of the library's end, while it steers.
    pub(crate) fn number(&self) -> Option<RawFd> {
        self.with_end(|end| end.as_fd().as_raw_fd())
    }

    /// Does something with the library's end, while it steers.
    pub(crate) fn with_end<T>(&self, work: impl FnOnce(&LibraryEnd) -> T) -> Option<T> {
        self.end().as_ref().map(work)
    }

    /// The place where threads of the program sleep.
    pub(crate) fn wait_queue(&self) -> &WaitQueue {
        &self.wait_queue
    }

    /// The program found nothing to read: no announcement must be left. The caller checks the
    /// stream once more.
    pub(crate) fn nothing_to_read(&self, program: impl AsFd) {
        // Without the pair there is nothing to show; the program sees the hang-up.
        let _ = host::stand_in::consume(program, &self.signals, true);
    }

    /// The program read something, and there is more.
    pub(crate) fn something_left(&self, program: impl AsFd) {
        let _ = host::stand_in::consume(program, &self.signals, false);
    }

    /// The program found no room. The caller checks the stream once more.
    pub(crate) fn no_room(&self, program: impl AsFd) {
        let _ = host::stand_in::close_window(program, &self.signals);
    }

    /// Makes a transition and does what it demands. Returns the state before.
    fn apply(&self, event: Event) -> State {
        let mut end = self.end();
        let before = self.state();
        let (after, action) = before.on(event);
        self.state.store(after.packed(), Ordering::SeqCst);
        let mut reset = None;
        match (action.signal, &*end) {
            (Some(Signal::Reset), _) => reset = end.take(),
            (Some(signal), Some(end)) => self.send(signal, end),
            _ => {}
        }
        drop(end);
        if let Some(end) = reset {
            self.show_reset(end);
        }
        if action.nudges
            && let Some(relay) = self.relay()
        {
            relay.nudge();
        }
        if action.wakes {
            self.wait_queue.wake();
        }
        before
    }

    /// Makes a transition that demands nothing of the pair, by a caller that holds the lock.
    fn transit(&self, event: Event) -> State {
        let (after, _) = self.state().on(event);
        self.state.store(after.packed(), Ordering::SeqCst);
        after
    }

    fn send(&self, signal: Signal, end: &LibraryEnd) {
        // It fails when every descriptor of the program is closed; the hang-up reports that.
        let _ = match signal {
            Signal::Announce => end.announce(&self.signals),
            Signal::AnnounceUrgent => end.announce_urgent(),
            Signal::OpenWindow => end.open_window(&self.signals),
            Signal::HalfClose => end.half_close(),
            Signal::HangUp => end.end(),
            Signal::Reset => Ok(()),
        };
    }

    fn show_reset(&self, end: LibraryEnd) {
        if let Some(relay) = self.relay() {
            relay.leave();
            // The stream may hold its locks while it reports the reset, and the stream goes with
            // the last reference to its relay.
            relay.drop_later();
        }
        unwatch(&end);
        end.reset();
    }

    fn end(&self) -> MutexGuard<'_, Option<LibraryEnd>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        if let Some(end) = &*self.end() {
            unwatch(end);
        }
    }
}

/// Removes an end that is about to be closed from the event thread.
fn unwatch(end: &LibraryEnd) {
    if let Ok(thread) = event_thread() {
        thread.unwatch(end);
    }
}

impl Watch for Observer {
    fn hold(&self) {
        self.wait_queue.hold();
    }

    fn release(&self) {
        self.wait_queue.release();
    }

    fn arrived(&self) {
        self.apply(Event::Arrived);
    }

    fn room(&self) {
        self.apply(Event::Room);
    }

    /// A close that lingers waits for it. Nothing that the descriptor shows changes by it.
    fn all_sent(&self) {
        self.wait_queue.wake();
    }

    fn urgent(&self) {
        self.apply(Event::Urgent);
    }

    fn peer_ended(&self) {
        self.apply(Event::PeerEnded);
    }

    fn broken(&self, why: Errno) {
        if self.state().is_over() {
            // Both sides have ended; TCP has closed by then, and receives no reset.
            return;
        }
        // Before the state, so that a thread that finds the connection broken finds the error too.
        self.error.store(why.raw_os_error(), Ordering::Release);
        self.apply(Event::Broken);
    }
}
