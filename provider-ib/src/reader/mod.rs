//! The thread that reads the completion channel.
//!
//! | File | Contents |
//! |---|---|
//! | [`attendance`] | which thread reads the channel |
//!
//! A consumer that blocks sleeps on the channel itself, so that no thread is between the device and
//! the consumer. It passes each event that it reads to the queue of the event, whose upcall wakes
//! the consumer of that queue. If no consumer sleeps, the engine's thread does the same.
//!
//! System calls of a consumer that wakes for a completion and sleeps again: the sleep and one
//! `read`. If its wake-ups are rare, two more calls stop and start the engine's wait.

mod attendance;

use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use access_layer::rnic::{Arm, Waker};
use host::locks::lock;
use host::threads::catch_panic;

use self::attendance::{Attendance, Sleeper, TICK, Todo};
use crate::cq::Cqs;
use crate::engine::Source;
use crate::shared::Shared;

/// The reader of the channel: a sleeping consumer or the engine's thread.
#[derive(Debug)]
pub(crate) struct Reader {
    shared: Arc<Shared>,
    cqs: Arc<Cqs>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    attendance: Attendance,
    /// The waker of the consumer that slept on the channel last.
    sleeper: Option<Arc<Waker>>,
    next_tick: Option<Instant>,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>, cqs: Arc<Cqs>) -> Self {
        Self {
            shared,
            cqs,
            state: Mutex::new(State {
                attendance: Attendance::new(),
                sleeper: None,
                next_tick: None,
            }),
        }
    }

    /// Called when the thread of this waker is about to sleep.
    pub(crate) fn arm(&self, waker: &Arc<Waker>) -> Arm {
        let sleeper = Sleeper {
            id: id_of(waker),
            serves_others: waker.serves_others(),
        };
        let mut state = lock(&self.state);
        let (is_reader, todo) = state.attendance.on_sleep(sleeper, Instant::now);
        let before = match is_reader {
            true => state.sleeper.replace(waker.clone()),
            false => None,
        };
        self.act(todo);
        drop(state);
        if let Some(before) = before.filter(|_| todo.must_wake_former) {
            before.wake();
        }
        match is_reader {
            true => Arm::Sleep,
            false => Arm::Attended,
        }
    }

    /// Called when this waker's thread has woken. `is_ready`: the channel was readable. May make
    /// upcalls.
    ///
    /// Reads one event. If more events are queued, the next sleep ends at once.
    pub(crate) fn end_sleep(&self, waker: &Arc<Waker>, is_ready: bool) {
        let id = id_of(waker);
        if is_ready && lock(&self.state).attendance.is_slept_on_by(id) {
            self.take_event();
        }
        let mut state = lock(&self.state);
        let todo = state.attendance.on_wake(id, Instant::now);
        self.act(todo);
    }

    /// Takes all events, on the engine's thread. May make upcalls.
    pub(crate) fn drain(&self) {
        while self.take_event() {}
    }

    /// Returns the time of the next tick, for the engine's thread.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let mut state = lock(&self.state);
        if !state.attendance.is_ticking() {
            state.next_tick = None;
        } else if state.next_tick.is_none() {
            state.next_tick = Some(Instant::now() + TICK);
        }
        state.next_tick
    }

    /// Ends a tick that is due at `now`, on the engine's thread.
    pub(crate) fn on_deadline(&self, now: Instant) {
        let mut state = lock(&self.state);
        if state.next_tick.is_some_and(|at| at <= now) {
            state.next_tick = None;
            let todo = state.attendance.on_tick();
            self.act(todo);
        }
    }

    /// Called when the device is removed. A failed channel stays ready, so a sleep on it would end
    /// at once.
    pub(crate) fn fail(&self) {
        let mut state = lock(&self.state);
        let todo = state.attendance.on_failure();
        self.act(todo);
        let sleeper = state.sleeper.take().filter(|_| todo.must_wake_former);
        drop(state);
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }

    fn act(&self, todo: Todo) {
        match todo.engine_listens {
            Some(true) => {
                // Events that are in the channel already wake the engine too.
                if let Err(why) = self
                    .shared
                    .engine
                    .watch(self.shared.channel.as_fd().as_raw_fd(), Source::Channel)
                {
                    tracing::error!(%why, "no thread waits for the completion channel");
                }
            }
            Some(false) => self
                .shared
                .engine
                .unwatch(self.shared.channel.as_fd().as_raw_fd()),
            None => {}
        }
        if todo.must_start_ticks {
            self.shared.engine.wake();
        }
    }

    /// Takes one event and passes it to its queue. Returns `false` if there is none. May make an
    /// upcall.
    fn take_event(&self) -> bool {
        let Some((hw, number)) = self.shared.channel.next() else {
            return false;
        };
        match self.cqs.get(number).filter(|cq| cq.hw() == hw) {
            Some(cq) => {
                cq.note_event();
                catch_panic(|| cq.on_event());
            }
            // SAFETY: the event was taken above and is acknowledged once. Its queue is being
            // destroyed, and the destruction waits for the acknowledgement.
            None => unsafe { self.shared.channel.acknowledge(hw) },
        }
        true
    }
}

fn id_of(waker: &Arc<Waker>) -> usize {
    Arc::as_ptr(waker).addr()
}
