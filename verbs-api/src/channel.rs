//! Completion channels.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use host::locks::{IgnorePoison as _, lock};
use rustix::io::Errno;
use verbs_dl::types::{ibv_comp_channel, ibv_context, ibv_cq};

use crate::events::EventQueue;
use crate::fault::{self, Fault};
use crate::object::Object;
use crate::users::{Use, Used, Users};

/// A completion channel.
#[derive(Debug)]
pub(crate) struct Channel {
    events: EventQueue<Arc<Notified>>,
    users: Users,
}

impl Used for Channel {
    fn users(&self) -> &Users {
        &self.users
    }
}

type ChannelObject = Object<ibv_comp_channel, Arc<Channel>>;

/// The part of a completion queue that its channel uses.
#[derive(Debug)]
pub(crate) struct Notified {
    /// Held while an event is added to the channel, so that none is added after the end.
    state: Mutex<State>,
    /// The structure of the completion queue, once it exists.
    pub(crate) object: AtomicPtr<ibv_cq>,
    /// The number of events that the program has received and not acknowledged.
    unacknowledged: Mutex<u32>,
    acknowledged: Condvar,
}

/// The treatment of the next completion.
#[derive(Debug)]
enum State {
    /// It is not reported.
    Idle(Option<Use<Channel>>),
    /// It is reported on the channel, if there is one.
    Armed(Option<Use<Channel>>),
    /// The completion queue is destroyed.
    Retired,
}

impl State {
    /// Changes the state as `next` says, which receives the channel.
    fn change(&mut self, next: impl FnOnce(Option<Use<Channel>>) -> Self) {
        *self = match std::mem::replace(self, Self::Retired) {
            Self::Idle(channel) | Self::Armed(channel) => next(channel),
            Self::Retired => Self::Retired,
        };
    }
}

impl Notified {
    pub(crate) fn new(channel: Option<Use<Channel>>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::Idle(channel)),
            object: AtomicPtr::default(),
            unacknowledged: Mutex::new(0),
            acknowledged: Condvar::new(),
        })
    }

    pub(crate) fn arm(&self) {
        lock(&self.state).change(State::Armed);
    }

    /// True if the next completion is reported on a channel.
    pub(crate) fn is_armed(&self) -> bool {
        matches!(*lock(&self.state), State::Armed(Some(_)))
    }

    /// Reports a completion, if the completion queue is armed and has a channel.
    pub(crate) fn notify(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        if let State::Armed(Some(channel)) = &*state {
            channel.events.push(self.clone());
        }
        state.change(State::Idle);
    }

    /// Called before the completion queue is destroyed: removes its events, and waits until the
    /// program has acknowledged those that it received.
    pub(crate) fn retire(self: &Arc<Self>) {
        let former = std::mem::replace(&mut *lock(&self.state), State::Retired);
        if let State::Idle(Some(channel)) | State::Armed(Some(channel)) = &former {
            channel.events.remove(|event| Arc::ptr_eq(event, self));
        }
        drop(former);
        let mut count = lock(&self.unacknowledged);
        while *count > 0 {
            count = self.acknowledged.wait(count).ignore_poison();
        }
    }

    pub(crate) fn acknowledge(&self, events: u32) {
        let mut count = lock(&self.unacknowledged);
        *count = count.saturating_sub(events);
        self.acknowledged.notify_all();
    }
}

/// Returns a channel as a user of it.
///
/// # Safety
/// `channel` is null or a live channel of this library.
pub(crate) unsafe fn of(channel: *mut ibv_comp_channel) -> Option<Use<Channel>> {
    // SAFETY: the caller guarantees a live channel.
    (!channel.is_null()).then(|| Use::of(unsafe { ChannelObject::own(channel) }))
}

/// Creates a completion channel.
pub(crate) fn create(context: *mut ibv_context) -> Result<*mut ibv_comp_channel, Fault> {
    let channel = Arc::new(Channel {
        events: EventQueue::new()?,
        users: Users::default(),
    });
    let c = ibv_comp_channel {
        context,
        fd: channel.events.descriptor()?,
        refcnt: 0,
    };
    Ok(ChannelObject::create(c, channel))
}

/// `ibv_create_comp_channel(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    fault::pointer(create(context))
}

/// `ibv_destroy_comp_channel(3)`. `EBUSY` while completion queues use the channel.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(
    channel: *mut ibv_comp_channel,
) -> libc::c_int {
    // SAFETY: the program passes a live channel.
    if unsafe { ChannelObject::own(channel) }.users.exist() {
        return fault::code(Err(Errno::BUSY));
    }
    // SAFETY: the program does not use the channel after this call, and its descriptor is open.
    unsafe {
        libc::close((*channel).fd);
        ChannelObject::destroy(channel);
    }
    0
}

/// Removes the events of a channel whose completion queues this library polls itself.
///
/// # Safety
/// `channel` is a live channel of this library.
pub(crate) unsafe fn discard_events(channel: *mut ibv_comp_channel) {
    // SAFETY: the caller guarantees a live channel.
    let events = unsafe { &ChannelObject::own(channel).events };
    while events.take().is_some() {}
}

/// `ibv_get_cq_event(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the program passes a live channel.
    let channel = unsafe { ChannelObject::own(channel) };
    let event = match channel.events.next() {
        Ok(event) => event,
        Err(fault) => return fault::minus_one(Err(fault)),
    };
    *lock(&event.unacknowledged) += 1;
    let object = event.object.load(Ordering::Acquire);
    // SAFETY: the program passes pointers to its variables. The completion queue is alive, because
    // its destruction removes its events and waits for those that are not acknowledged.
    unsafe {
        *cq = object;
        *cq_context = (*object).cq_context;
    }
    0
}
