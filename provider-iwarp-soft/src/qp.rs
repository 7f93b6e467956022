//! Queue pairs: posted work, and the connection that carries it.
//!
//! # Locks, in order
//!
//! 1. `link`: the state of the queue pair and everything of its connection. Threads that make
//!    progress *try* it; only connection management waits for it.
//! 2. `submitted`, `receives`: the queues for posts while another thread holds `link`. Held for a
//!    push or a swap.
//! 3. The memory table (read side), then the rings of the completion queues.
//!
//! The lock of [`completion_gate`] comes before the rings and after everything else.
//!
//! No upcall is made under any of these locks: [`Effects`] collects a drive's notifications.
//!
//! # Established first
//!
//! A completion of a connection can be polled only after the upcall that delivers `Established`,
//! see [`completion_gate`].
//!
//! # Lost posts
//!
//! A poster that cannot get `link` queues its request in `submitted` and tries once more. The
//! holder checks `submitted` again after it has released `link`. Both order their check after their
//! store, so one of them sees the other's store.

mod completion_gate;
mod drive;
mod event_order;
mod moving;
mod post;
mod unready;
mod watermarks;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

use completion_gate::CompletionGate;
use host::locks::lock;
use rnic::{
    Access, AsyncEvent, Completion, QpAttr, QpToken, ReceiveWaits, RnicError, Traffic, UpcallQueue,
};
use watermarks::Watermarks;

use crate::adapter::Shared;
use crate::carrier::ReceiveSource;
use crate::conn::Conn;
use crate::cq::{Cq, Pushed};
use crate::engine::Key;
use crate::memory::Denied;
use crate::progress::PolledList;
use crate::srq::Srq;
use crate::startup::attempt::ConnectAttempt;
use crate::tally::Tally;
use crate::work::{RecvSlot, SendSlot};
use rnic::ConnectionEvent;

/// The state of a queue pair.
///
/// `Idle` becomes `Connecting` in `connect` and `connect_socket`; both become `Up` in
/// `on_connected`, which `accept` reaches from `Idle`. `abandon` ends an attempt, `finish` a
/// connection, and `flush_idle` a queue pair without either: all end in `Down` with everything
/// flushed. `reset` makes `Down` `Idle` again. No other code writes the state.
#[derive(Debug)]
pub(crate) enum Link {
    /// Not connected, may connect.
    Idle,
    /// An attempt to connect is under way.
    Connecting(Box<ConnectAttempt>),
    /// In full operation.
    Up(Box<Conn>),
    /// Was connected, or a connect was attempted.
    Down,
}

/// The queue for posts that find the connection busy, and what happens to a post.
#[derive(Debug)]
struct Queue<T> {
    mode: Mode,
    slots: VecDeque<T>,
    /// The connection that the next post wakes, because its next message waits for a receive.
    wakes: Option<Key>,
}

/// The mode of a queue, which decides what happens to a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Not connected since the creation or the last reset, or connecting.
    Idle,
    /// Connected.
    Open,
    /// A connection, or an attempt to connect, has ended: posts are flushed at once.
    Flushing,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            mode: Mode::Idle,
            slots: VecDeque::new(),
            wakes: None,
        }
    }
}

/// The notifications that a drive must make after it has released its locks.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    send: Pushed,
    recv: Pushed,
    /// May hold the last reference to a queue pair, so it is dropped after the locks.
    former: Option<PolledList>,
    /// The violation of the peer that has ended the connection.
    violation: Option<AsyncEvent>,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    me: Weak<Self>,
    pub(crate) token: QpToken,
    pub(crate) attr: QpAttr,
    pub(crate) shared: Arc<Shared>,
    pd: u32,
    send_cq: Option<Arc<Cq>>,
    recv_cq: Option<Arc<Cq>>,
    srq: Option<Arc<Srq>>,
    link: Mutex<Link>,
    submitted: Mutex<Queue<SendSlot>>,
    /// True if `submitted` is not empty.
    has_submitted: AtomicBool,
    receives: Mutex<Queue<RecvSlot>>,
    sends: Tally,
    recvs: Tally,
    watermarks: Watermarks,
    /// The limits that the consumer has set for waits of messages, if it has.
    waits: Mutex<Option<ReceiveWaits>>,
    /// The rights that the peer does not have ([`Denied`]).
    denied: AtomicU8,
    /// The payload bytes of the connections that have ended, by carrier. Written under `link`.
    ended_traffic: Mutex<Traffic>,
    gate: CompletionGate,
    events: UpcallQueue<ConnectionEvent>,
    /// A disconnect that is not in `events` yet, because the `Established` of other queue pairs
    /// must be delivered first.
    deferred: Mutex<Option<ConnectionEvent>>,
    /// True once the access layer has dropped the queue pair: no more events are delivered.
    is_destroyed: AtomicBool,
}

/// The protection domain, the completion queues and the shared receive queue of a queue pair.
#[derive(Debug)]
pub(crate) struct QpParts {
    pub(crate) pd: u32,
    pub(crate) send_cq: Option<Arc<Cq>>,
    pub(crate) recv_cq: Option<Arc<Cq>>,
    pub(crate) srq: Option<Arc<Srq>>,
}

impl Qp {
    pub(crate) fn new(
        shared: Arc<Shared>,
        parts: QpParts,
        attr: QpAttr,
        token: QpToken,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            token,
            attr,
            shared,
            pd: parts.pd,
            send_cq: parts.send_cq,
            recv_cq: parts.recv_cq,
            srq: parts.srq,
            link: Mutex::new(Link::Idle),
            submitted: Mutex::default(),
            has_submitted: AtomicBool::new(false),
            receives: Mutex::default(),
            sends: Tally::default(),
            recvs: Tally::default(),
            watermarks: Watermarks::default(),
            waits: Mutex::default(),
            denied: AtomicU8::new(0),
            ended_traffic: Mutex::default(),
            gate: CompletionGate::default(),
            events: UpcallQueue::default(),
            deferred: Mutex::default(),
            is_destroyed: AtomicBool::new(false),
        })
    }

    /// Returns the numbers of unconsumed receives and of requests that have not completed.
    pub(crate) fn pending(&self) -> (u32, u32) {
        (self.recvs.pending(), self.sends.pending())
    }

    /// Frees the place of a request or receive, because the consumer has taken its completion.
    pub(crate) fn on_taken(&self, is_receive: bool) {
        match is_receive {
            true => self.recvs.take(),
            false => self.sends.take(),
        }
    }

    /// Ends the connection, because the access layer has dropped the queue pair. No more events are
    /// delivered.
    pub(crate) fn destroy(&self) {
        self.is_destroyed.store(true, Ordering::Release);
        self.disconnect(true);
        self.shared.event_order.on_delivered(self);
        self.shared.remove_qp();
    }

    /// Returns to idle after a connection. Receives posted while idle stay posted.
    pub(crate) fn reset(&self) -> Result<(), RnicError> {
        let mut link = self.lock_link();
        match *link {
            Link::Idle => Ok(()),
            Link::Down => {
                *link = Link::Idle;
                lock(&self.submitted).mode = Mode::Idle;
                lock(&self.receives).mode = Mode::Idle;
                Ok(())
            }
            Link::Connecting(_) | Link::Up(_) => {
                Err(RnicError::InvalidState("the queue pair is connected"))
            }
        }
    }

    /// Takes a shared receive, unless the queue pair would exceed its hard mark. Then the message
    /// has no receive, and the connection breaks.
    fn take_shared(&self, srq: &Srq) -> Option<RecvSlot> {
        if !self.may_take_shared() {
            return None;
        }
        let slot = srq.take()?;
        self.recvs.add_by_link();
        Some(slot)
    }

    fn may_take_shared(&self) -> bool {
        let held = self.recvs.pending().saturating_add(1);
        self.watermarks.admit(held)
    }

    /// See `Rnic::set_remote_access`. A peer that may copy directly already keeps that permission
    /// until the connection ends.
    pub(crate) fn set_remote_access(&self, granted: Access) {
        let denied = Denied::without(granted).bits();
        self.denied.store(denied, Ordering::Relaxed);
    }

    /// See `Rnic::set_recv_watermarks`.
    pub(crate) fn set_watermarks(&self, soft: Option<u32>, hard: Option<u32>) {
        self.watermarks.set(soft, hard);
    }

    pub(crate) fn lock_link(&self) -> MutexGuard<'_, Link> {
        lock(&self.link)
    }

    fn try_lock_link(&self) -> Option<MutexGuard<'_, Link>> {
        match self.link.try_lock() {
            Ok(link) => Some(link),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Adds completions to the queues, or stores them at the gate while it is closed.
    fn publish(
        &self,
        send: &mut Vec<Completion>,
        recv: &mut Vec<Completion>,
        effects: &mut Effects,
    ) {
        if !self.gate.hold(send, recv) {
            self.push_to_queues(send, recv, effects);
        }
    }

    fn push_to_queues(
        &self,
        send: &mut Vec<Completion>,
        recv: &mut Vec<Completion>,
        effects: &mut Effects,
    ) {
        if let Some(cq) = &self.recv_cq {
            effects.recv.add(cq.push(recv));
        }
        if let Some(cq) = &self.send_cq {
            effects.send.add(cq.push(send));
        }
        recv.clear();
        send.clear();
    }

    /// Queues an event for [`Self::make_upcalls`].
    pub(crate) fn queue_event(&self, event: ConnectionEvent) {
        self.events.push(event);
    }

    /// Delivers the notifications of a drive. Called with no lock held.
    pub(crate) fn make_upcalls(&self, effects: &Effects) {
        let upcall = &self.shared.upcall;
        self.notify_queues(effects);
        if let Some(srq) = &self.srq {
            if srq.take_limit_event() {
                upcall.async_event(AsyncEvent::SrqLimit(srq.token));
            }
            if !self.is_destroyed.load(Ordering::Acquire) && self.watermarks.take_event() {
                upcall.async_event(AsyncEvent::RecvWatermark(self.token));
            }
        }
        if let Some(violation) = effects.violation
            && !self.is_destroyed.load(Ordering::Acquire)
        {
            upcall.async_event(violation);
        }
        self.events.deliver(|event| {
            if !self.has_last_receive(event) {
                self.deliver(event);
            } else {
                let (me, event) = (self.me.clone(), event.clone());
                let last_receives = &self.shared.last_receives;
                last_receives.push(Box::new(move || {
                    if let Some(me) = me.upgrade() {
                        me.deliver(&event);
                    }
                }));
                last_receives.deliver(|deliver| deliver());
            }
            if matches!(event, ConnectionEvent::Established { .. }) {
                self.open_gate();
            }
        });
    }

    fn deliver(&self, event: &ConnectionEvent) {
        if self.is_destroyed.load(Ordering::Acquire) {
            return;
        }
        let shared = &self.shared;
        shared.upcall.connection(self.token, event);
        shared.event_order.on_delivered(self);
        if self.has_last_receive(event) {
            let event = AsyncEvent::LastWqeReached(self.token);
            shared.upcall.async_event(event);
        }
    }

    fn has_last_receive(&self, event: &ConnectionEvent) -> bool {
        event.is_disconnect() && self.srq.is_some()
    }

    /// Waits until another thread that delivers events of this queue pair has delivered them.
    fn wait_for_delivery(&self) {
        self.events.wait_for_delivery();
        if self.srq.is_some() {
            self.shared.last_receives.wait_for_delivery();
        }
    }

    /// Publishes the completions that waited for the `Established` upcall, which has returned.
    fn open_gate(&self) {
        let mut effects = Effects::default();
        self.gate
            .on_notified(|send, recv| self.push_to_queues(send, recv, &mut effects));
        self.notify_queues(&effects);
    }

    /// Makes the upcalls about the completion queues, also those of other queue pairs: an upcall
    /// that is not made is lost.
    fn notify_queues(&self, effects: &Effects) {
        let upcall = &self.shared.upcall;
        for (cq, pushed) in [(&self.recv_cq, effects.recv), (&self.send_cq, effects.send)] {
            let Some(cq) = cq else { continue };
            if pushed.overflow {
                upcall.async_event(AsyncEvent::CqOverflow(cq.token));
            }
            if pushed.must_notify {
                upcall.cq_ready(cq.token);
            }
        }
    }
}

impl ReceiveSource for Qp {
    fn take_receive(&self, batch: &mut VecDeque<RecvSlot>) -> Option<RecvSlot> {
        if let Some(srq) = &self.srq {
            return self.take_shared(srq);
        }
        if batch.is_empty() {
            std::mem::swap(&mut lock(&self.receives).slots, batch);
        }
        batch.pop_front()
    }
}

impl Pushed {
    fn add(&mut self, other: Self) {
        self.must_notify |= other.must_notify;
        self.overflow |= other.overflow;
    }
}
