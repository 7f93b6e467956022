//! The thread that reads the completion channel.
//!
//! A consumer that blocks sleeps on the channel itself, so that no thread is between the device and
//! the consumer ([`Arbiter`]). It passes each event that it reads to the queue of the event, whose
//! upcall wakes the consumer of that queue. If no consumer sleeps, the engine's thread does the
//! same.
//!
//! System calls of a consumer that wakes for a completion and sleeps again: the sleep and one
//! `read`. If its wake-ups are rare, two more calls stop and start the engine's wait.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use host::locks::lock;
use host::threads::catch_panic;
use rnic::{Arbiter, Arm, RnicError, Todo, Waker};

use crate::cq::Cqs;
use crate::engine::Source;
use crate::shared::Shared;

/// The time after which the engine takes over from a consumer that does not sleep again, and the
/// interval of wake-ups below which that is worthwhile.
const TICK: Duration = Duration::from_millis(5);

/// The reader of the channel: a sleeping consumer or the engine's thread.
#[derive(Debug)]
pub(crate) struct Reader {
    shared: Arc<Shared>,
    cqs: Arc<Cqs>,
    arbiter: Arbiter,
    next_tick: Mutex<Option<Instant>>,
}

impl Reader {
    /// Makes the engine wait for the channel.
    pub(crate) fn open(shared: Arc<Shared>, cqs: Arc<Cqs>) -> Result<Self, RnicError> {
        let arbiter = Arbiter::new(TICK);
        let channel = shared.channel.as_fd().as_raw_fd();
        arbiter.begin(|| shared.engine.watch(channel, Source::Channel))?;
        Ok(Self {
            shared,
            cqs,
            arbiter,
            next_tick: Mutex::new(None),
        })
    }

    /// Called when the thread of this waker is about to sleep.
    pub(crate) fn arm(&self, waker: &Arc<Waker>) -> Arm {
        self.arbiter.on_sleep(Some(waker), |todo| self.act(todo))
    }

    /// Called when this waker's thread has woken. `is_ready`: the channel was readable. May make
    /// upcalls.
    ///
    /// Reads one event. If more events are queued, the next sleep ends at once.
    pub(crate) fn end_sleep(&self, waker: &Arc<Waker>, is_ready: bool) {
        if is_ready && self.arbiter.is_slept_on_by(waker) {
            self.take_event();
        }
        self.arbiter.on_wake(waker, |todo| {
            self.act(todo);
            if todo.tick {
                // The engine's thread sleeps without a deadline.
                self.shared.engine.wake();
            }
        });
    }

    /// Takes all events, on the engine's thread. May make upcalls.
    pub(crate) fn drain(&self) {
        while self.take_event() {}
    }

    /// Returns the time of the next tick, for the engine's thread.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        *lock(&self.next_tick)
    }

    /// Ends a tick that is due at `now`, on the engine's thread.
    pub(crate) fn on_deadline(&self, now: Instant) {
        let due = lock(&self.next_tick).take_if(|at| *at <= now);
        if due.is_some() {
            self.arbiter.on_tick(false, |todo| self.act(todo));
        }
    }

    /// Called when the device is removed.
    pub(crate) fn fail(&self) {
        self.arbiter.close(|todo| self.act(todo));
    }

    fn act(&self, todo: Todo) {
        let (engine, channel) = (&self.shared.engine, self.shared.channel.as_fd().as_raw_fd());
        match todo.engine_listens {
            Some(true) => {
                // Events that are in the channel already wake the engine too.
                if let Err(why) = engine.watch(channel, Source::Channel) {
                    tracing::error!(%why, "no thread waits for the completion channel");
                }
            }
            Some(false) => engine.unwatch(channel),
            None => {}
        }
        if todo.tick {
            *lock(&self.next_tick) = Some(Instant::now() + TICK);
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
