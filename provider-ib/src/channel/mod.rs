//! The completion channel of an adapter: one descriptor for the events of all its queues.
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

use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use access_layer::rnic::{Arm, Resource, RnicError, Waker};
use host::locks::lock;
use verbs_dl::Libraries;
use verbs_dl::types::*;

use self::attendance::{Attendance, Sleeper, TICK, Todo};
use crate::device::{Device, set_nonblocking};
use crate::engine::Source;
use crate::memory::refused;
use crate::rnic::Shared;

/// The channel.
#[derive(Debug)]
pub(crate) struct Channel {
    hw: NonNull<ibv_comp_channel>,
    libraries: Arc<Libraries>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    attendance: Attendance,
    /// The waker of the consumer that slept on the channel last.
    sleeper: Option<Arc<Waker>>,
    next_tick: Option<Instant>,
}

// SAFETY: verbs objects may be used by any thread (ibv_get_cq_event(3)).
unsafe impl Send for Channel {}
// SAFETY: verbs objects may be used by any thread (ibv_get_cq_event(3)).
unsafe impl Sync for Channel {}

impl Channel {
    /// Creates the channel of a device, which must stay open as long as the channel exists.
    pub(crate) fn new(device: &Device) -> Result<Self, RnicError> {
        let libraries = device.libraries.clone();
        // SAFETY: the device is open.
        let hw = unsafe { libraries.verbs.ibv_create_comp_channel(device.context()) };
        let hw = NonNull::new(hw).ok_or_else(|| refused(Resource::CompletionQueue))?;
        let channel = Self {
            hw,
            libraries,
            state: Mutex::new(State {
                attendance: Attendance::new(),
                sleeper: None,
                next_tick: None,
            }),
        };
        set_nonblocking(channel.fd())?;
        Ok(channel)
    }

    /// The channel itself, for calls that take it.
    pub(crate) fn hw(&self) -> *mut ibv_comp_channel {
        self.hw.as_ptr()
    }

    /// The descriptor that is readable when a queue has an event.
    pub(crate) fn fd(&self) -> RawFd {
        // SAFETY: the channel is alive as long as `self`, and its descriptor does not change.
        unsafe { self.hw.as_ref() }.fd
    }

    /// Called when the thread of this waker is about to sleep.
    pub(crate) fn arm(&self, shared: &Shared, waker: &Arc<Waker>) -> Arm {
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
        self.act(shared, todo);
        drop(state);
        if let Some(before) = before.filter(|_| todo.must_wake_former) {
            before.wake();
        }
        match is_reader {
            true => Arm::Sleep,
            false => Arm::Attended,
        }
    }

    /// Called when this waker's thread has woken. `is_ready`: the channel was readable. *Calls up.*
    ///
    /// Reads one event. If more events are queued, the next sleep ends at once.
    pub(crate) fn end_sleep(&self, shared: &Shared, waker: &Arc<Waker>, is_ready: bool) {
        let id = id_of(waker);
        if is_ready && lock(&self.state).attendance.is_slept_on_by(id) {
            self.take_event(shared);
        }
        let mut state = lock(&self.state);
        let todo = state.attendance.on_wake(id, Instant::now);
        self.act(shared, todo);
    }

    /// Takes all events, on the engine's thread. *Calls up.*
    pub(crate) fn drain(&self, shared: &Shared) {
        while self.take_event(shared) {}
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

    /// Ends a tick that is due at `now`, on the engine's thread. *Calls up.*
    pub(crate) fn on_deadline(&self, shared: &Shared, now: Instant) {
        let mut state = lock(&self.state);
        if state.next_tick.is_some_and(|at| at <= now) {
            state.next_tick = None;
            let todo = state.attendance.on_tick();
            self.act(shared, todo);
        }
    }

    /// Called when the device is removed. A failed channel stays ready, so a sleep on it would end
    /// at once.
    pub(crate) fn fail(&self, shared: &Shared) {
        let mut state = lock(&self.state);
        let todo = state.attendance.on_failure();
        self.act(shared, todo);
        let sleeper = state.sleeper.take().filter(|_| todo.must_wake_former);
        drop(state);
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }

    fn act(&self, shared: &Shared, todo: Todo) {
        match todo.engine_listens {
            Some(true) => {
                // Events that are in the channel already wake the engine too.
                if let Err(why) = shared.engine.watch(self.fd(), Source::Channel) {
                    tracing::error!(%why, "no thread waits for the completion channel");
                }
            }
            Some(false) => shared.engine.unwatch(self.fd()),
            None => {}
        }
        if todo.must_start_ticks {
            shared.engine.wake();
        }
    }

    /// Takes one event and passes it to its queue. Returns `false` if there is none. *Calls up.*
    fn take_event(&self, shared: &Shared) -> bool {
        let (mut hw, mut context) = (ptr::null_mut(), ptr::null_mut());
        let (verbs, channel) = (&self.libraries.verbs, self.hw());
        // SAFETY: the channel is alive and does not block; the out-pointers are of this frame.
        if unsafe { verbs.ibv_get_cq_event(channel, &raw mut hw, &raw mut context) } != 0 {
            return false;
        }
        let cq = shared.cqs.get(context.addr() as u32);
        match cq.filter(|cq| cq.hw() == hw) {
            Some(cq) => {
                cq.note_event();
                host::threads::survive(|| cq.on_event());
            }
            // SAFETY: the queue is being destroyed, which waits for this acknowledgement.
            None => unsafe { verbs.ibv_ack_cq_events(hw, 1) },
        }
        true
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: created by `new`, and its queues are destroyed: they keep the channel alive.
        unsafe { self.libraries.verbs.ibv_destroy_comp_channel(self.hw()) };
    }
}

fn id_of(waker: &Arc<Waker>) -> usize {
    Arc::as_ptr(waker).addr()
}
