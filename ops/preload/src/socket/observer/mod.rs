//! Shows the readiness of a stream on the program's descriptor.
//!
//! | File | Contents |
//! |---|---|
//! | `mod` | handles events and sends signals through the library's end of the pair |
//! | [`state`] | the state machine: events, and the signals that they cause |

mod state;

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use host::locks::IgnorePoison as _;
use host::stand_in::{LibraryEnd, Signals};
use ops::Watch;
use rustix::io::Errno;

use self::state::{Event, Signal, State};
use crate::events::event_thread;
use crate::events::wait_queue::WaitQueue;
use crate::process::past_library;
use crate::socket::Socket;
use crate::socket::relay::{self, Relay};

/// Steers the readiness of one socket's descriptor, as the stream reports changes.
#[derive(Debug)]
pub(crate) struct Observer {
    /// The library's end of the pair, while it steers the program's end. Transitions are made with
    /// this lock held, so that the signals enter the pair in the order of the transitions.
    end: Mutex<Option<LibraryEnd>>,
    /// The packed [`State`], which calls that move bytes read without the lock.
    state: AtomicU32,
    signals: Signals,
    wait_queue: WaitQueue,
    /// The relay of a connection that other processes may use.
    relay: OnceLock<Weak<Relay>>,
    /// The pending error, which `SO_ERROR` or the next call returns once; 0 for none.
    error: AtomicI32,
    /// The socket, once the event thread watches the library's end.
    socket: OnceLock<Weak<Socket>>,
    /// True once the program has received by a call of this library, or once it was checked whether
    /// it may receive past the library.
    is_checked: AtomicBool,
    /// True while the event thread is about to make the pair carry bytes.
    is_deferred: AtomicBool,
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
            socket: OnceLock::new(),
            is_checked: AtomicBool::new(false),
            is_deferred: AtomicBool::new(false),
        }
    }

    /// Called when the event thread watches the library's end.
    pub(crate) fn on_watched(&self, socket: Weak<Socket>) {
        let _ = self.socket.set(socket);
    }

    /// Called when the program receives by a call of this library.
    pub(crate) fn on_receive_called(&self) {
        if !self.is_checked.load(Ordering::Relaxed) {
            self.is_checked.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn state(&self) -> State {
        State::unpacked(self.state.load(Ordering::SeqCst))
    }

    /// Called when the program has ended its reading half. The descriptor shows this like an end of
    /// the peer's data.
    pub(crate) fn on_reading_ended(&self) {
        self.apply(Event::ReadingEnded);
    }

    /// Called when the program ends its writing half. Returns true to the first caller, which must
    /// shut the stream down.
    pub(crate) fn end_writing(&self) -> bool {
        !self.apply(Event::WritingEnds).has_writing_ended()
    }

    /// Called when the stream was shut down because of the program's `shutdown`.
    pub(crate) fn on_writing_ended(&self) {
        self.apply(Event::WritingEnded);
    }

    /// Called when the program has read the end of the peer's data.
    pub(crate) fn on_end_read(&self) {
        self.apply(Event::EndRead);
    }

    /// Called when other processes are about to use the connection. From now on the pair shows the
    /// end of the peer's data only after the program has read it.
    pub(crate) fn begin_sharing(&self) {
        self.apply(Event::Shared);
    }

    /// Steers a new pair, which shows the end of the peer's data once the program has read it.
    pub(crate) fn renew(&self, end: LibraryEnd) {
        let before = {
            let mut current = self.end();
            if current.is_none() {
                return;
            }
            self.signals.forget();
            self.transit(Event::Renewed);
            current.replace(end)
        };
        if let Some(before) = before {
            unwatch(&before);
        }
        self.arrived();
    }

    /// Sends no signals while an `exec` is in progress.
    pub(crate) fn pause(&self) {
        self.apply(Event::Paused);
    }

    /// Sends signals again after an `exec` has failed.
    pub(crate) fn resume(&self) {
        self.apply(Event::Resumed);
    }

    /// Hands the library's end over: from now on events are reported to the relay and not to the
    /// pair. `None`: the connection broke.
    pub(crate) fn hand_over(&self) -> Option<LibraryEnd> {
        let mut end = self.end();
        self.transit(Event::HandedOver);
        end.take()
    }

    /// Leaves the program's descriptor as it is: it shows no further event, not even when the
    /// connection is closed.
    pub(crate) fn freeze(&self) {
        // The end stays open, because closing it would be a hang-up.
        std::mem::forget(self.hand_over());
    }

    /// Steers again with an end that was handed over, whose pair has no signals.
    pub(crate) fn take_back(&self, end: LibraryEnd) {
        let mut current = self.end();
        self.signals.forget();
        if !self.transit(Event::TakenBack).is_broken() {
            *current = Some(end);
        }
        drop(current);
        self.wait_queue.wake();
    }

    /// Called when the relay has ended.
    pub(crate) fn on_relay_ended(&self) {
        self.apply(Event::Left);
    }

    /// Returns the pending error and clears it, in the descriptor too.
    pub(crate) fn take_error(&self, program: impl AsFd) -> Option<Errno> {
        let error = self.error.swap(0, Ordering::AcqRel);
        if error == 0 {
            return None;
        }
        // The kernel keeps an error for the pair too, which `poll` shows. Reading that error clears
        // it.
        let _ = rustix::net::sockopt::socket_error(program);
        Some(Errno::from_raw_os_error(error))
    }

    /// Returns the pending error without clearing it.
    pub(crate) fn pending_error(&self) -> Option<Errno> {
        let error = self.error.load(Ordering::Acquire);
        (error != 0).then(|| Errno::from_raw_os_error(error))
    }

    /// Stores the relay through which other processes use the connection.
    pub(crate) fn set_relay(&self, relay: &Arc<Relay>) {
        // Set only once, because the connection stays shared until it ends.
        let _ = self.relay.set(Arc::downgrade(relay));
    }

    /// Returns the relay, if other processes may use the connection.
    pub(crate) fn relay(&self) -> Option<Arc<Relay>> {
        self.relay.get().and_then(Weak::upgrade)
    }

    /// Returns the descriptor number of the library's end, while the end steers.
    pub(crate) fn number(&self) -> Option<RawFd> {
        self.with_end(|end| end.as_fd().as_raw_fd())
    }

    /// Returns true if the pair, while it carries signals, also holds bytes of the program.
    pub(crate) fn has_bytes(&self) -> bool {
        self.with_end(|end| end.has_bytes(&self.signals)) == Some(true)
    }

    /// Calls `work` with the record of the signals in the pair.
    pub(crate) fn with_signals<T>(&self, work: impl FnOnce(&Signals) -> T) -> T {
        work(&self.signals)
    }

    /// Calls `work` with the library's end, while the end steers.
    pub(crate) fn with_end<T>(&self, work: impl FnOnce(&LibraryEnd) -> T) -> Option<T> {
        self.end().as_ref().map(work)
    }

    /// The queue on which threads of the program sleep.
    pub(crate) fn wait_queue(&self) -> &WaitQueue {
        &self.wait_queue
    }

    /// Removes all announcements, because the program found no bytes. The caller must check the
    /// stream again afterwards.
    pub(crate) fn clear_announcement(&self, program: impl AsFd) {
        // An error means that the pair is closed, and the program sees the hang-up.
        let _ = host::stand_in::consume(program, &self.signals, true);
    }

    /// Updates the announcements after the program has read some of the bytes.
    pub(crate) fn update_announcement(&self, program: impl AsFd) {
        let _ = host::stand_in::consume(program, &self.signals, false);
    }

    /// Stops showing `OUT`, because the program found no room. The caller must check the stream
    /// again afterwards.
    pub(crate) fn close_window(&self, program: impl AsFd) {
        let _ = host::stand_in::close_window(program, &self.signals);
    }

    /// Makes a transition and performs its action. Returns the former state.
    fn apply(&self, event: Event) -> State {
        let mut end = self.end();
        let before = self.state();
        let (after, action) = before.on(event);
        self.state.store(after.packed(), Ordering::SeqCst);
        let mut reset = None;
        match (action.signal, &*end) {
            (Some(Signal::Reset), _) => reset = end.take(),
            (Some(Signal::Announce), Some(_)) if self.is_carried_first() => {}
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

    /// Returns true if the pair is about to carry bytes and must have no signal byte before: a ring
    /// that the program has set up past the library would receive it as data.
    ///
    /// This is checked before the first signal byte of a connection whose program has not received
    /// yet. A ring that is set up later than this is noticed when the program sends.
    fn is_carried_first(&self) -> bool {
        if !self.is_checked.swap(true, Ordering::Relaxed)
            && let Some(socket) = self.socket.get()
            && past_library::is_used_now()
        {
            let is_deferred = relay::carry_soon(socket);
            self.is_deferred.store(is_deferred, Ordering::Relaxed);
        }
        self.is_deferred.load(Ordering::Relaxed)
    }

    /// Called when the event thread has tried to make the pair carry bytes. A pair that cannot
    /// carry them shows the arrival after all.
    pub(crate) fn on_carry_tried(&self) {
        let end = self.end();
        self.is_deferred.store(false, Ordering::Relaxed);
        drop(end);
        self.arrived();
    }

    /// Makes a transition without a signal. The caller holds the lock.
    fn transit(&self, event: Event) -> State {
        let (after, _) = self.state().on(event);
        self.state.store(after.packed(), Ordering::SeqCst);
        after
    }

    fn send(&self, signal: Signal, end: &LibraryEnd) {
        // A send fails if all descriptors of the program are closed, which the hang-up reports.
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
            relay.end_sharing();
            // The stream may hold its locks while it reports the reset, and the last reference to
            // the relay drops the stream.
            relay.drop_later();
        }
        unwatch(&end);
        end.reset();
    }

    fn end(&self) -> MutexGuard<'_, Option<LibraryEnd>> {
        self.end.lock().ignore_poison()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        if let Some(end) = &*self.end() {
            unwatch(end);
        }
    }
}

/// Ends the event thread's watch of an end that is about to be closed.
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

    /// Wakes a receive that waits for fewer bytes. The descriptor's readiness does not change.
    fn arrived_few(&self) {
        self.wait_queue.wake();
    }

    /// Wakes a close that lingers. The descriptor's readiness does not change.
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
            // After both directions have ended, TCP has closed and receives no reset.
            return;
        }
        // Stored before the state, so that a thread that reads the broken state also reads the
        // error.
        self.error.store(why.raw_os_error(), Ordering::Release);
        self.apply(Event::Broken);
    }
}
