//! An upcall that records.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

pub use ::rnic::ConnectionEvent as Event;
use ::rnic::*;
use provider_iwarp_soft::*;

use super::DEADLINE;

/// An upcall, as it was made.
#[derive(Debug)]
pub enum Notification {
    CqReady(u64),
    Request {
        listener: u64,
        request: SoftRequest,
        remote: SocketAddr,
        private_data: Vec<u8>,
        truncated: bool,
    },
    Connection {
        qp: u64,
        event: Event,
    },
    SocketDown(u64),
    Async(AsyncEvent),
}

/// Records upcalls; nudges wake the wakers that were registered for them.
#[derive(Default)]
pub struct Recorder {
    notifications: Mutex<VecDeque<Notification>>,
    changed: Condvar,
    wakers: Mutex<Vec<(u64, Arc<Waker>)>>,
    gates: Mutex<Gates>,
    gates_changed: Condvar,
}

/// An upcall in which the thread that makes it may have to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// The delivery of a request of this listener: the thread waits after the delivery.
    Request(u64),
    /// `Established` of this queue pair: the thread waits before the delivery.
    Established(u64),
    /// `Disconnected` of this queue pair: the thread waits after the delivery.
    Disconnected(u64),
}

#[derive(Default)]
struct Gates {
    closed: Vec<Gate>,
    is_established_held: bool,
}

impl Recorder {
    pub fn wake_on(&self, cq: u64, waker: &Arc<Waker>) {
        self.wakers.lock().unwrap().push((cq, waker.clone()));
    }

    fn push(&self, notification: Notification) {
        self.notifications.lock().unwrap().push_back(notification);
        self.changed.notify_all();
    }

    /// Waits for the first event that `wanted` accepts, and takes it.
    pub fn expect<T>(
        &self,
        what: &str,
        mut wanted: impl FnMut(&Notification) -> bool,
        take: impl FnOnce(Notification) -> T,
    ) -> T {
        let deadline = Instant::now() + DEADLINE;
        let mut notifications = self.notifications.lock().unwrap();
        loop {
            if let Some(at) = notifications.iter().position(&mut wanted) {
                return take(notifications.remove(at).unwrap());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {what}; there is {notifications:?}");
            notifications = self.changed.wait_timeout(notifications, left).unwrap().0;
        }
    }

    /// Takes the first event, if there is any.
    pub fn try_next(&self) -> Option<Notification> {
        self.notifications.lock().unwrap().pop_front()
    }

    pub fn connection(&self, qp: u64) -> Event {
        self.connection_of(|token| token == qp).1
    }

    /// The next connection event of any queue pair.
    pub fn any_connection(&self) -> (u64, Event) {
        self.connection_of(|_| true)
    }

    fn connection_of(&self, wanted: impl Fn(u64) -> bool) -> (u64, Event) {
        self.expect(
            "connection event",
            |it| matches!(it, Notification::Connection { qp, .. } if wanted(*qp)),
            |it| match it {
                Notification::Connection { qp, event } => (qp, event),
                _ => unreachable!(),
            },
        )
    }

    pub fn request(&self, listener: u64) -> (SoftRequest, Vec<u8>) {
        self.expect(
            "connection request",
            |it| matches!(it, Notification::Request { listener: token, .. } if *token == listener),
            |it| match it {
                Notification::Request {
                    request,
                    private_data,
                    ..
                } => (request, private_data),
                _ => unreachable!(),
            },
        )
    }

    /// Makes threads wait at `gate` from now on.
    pub fn hold(&self, gate: Gate) {
        self.gates.lock().unwrap().closed.push(gate);
    }

    /// Lets the threads that wait at `gate` continue.
    pub fn release(&self, gate: Gate) {
        self.gates.lock().unwrap().closed.retain(|it| *it != gate);
        self.gates_changed.notify_all();
    }

    pub fn release_all(&self) {
        *self.gates.lock().unwrap() = Gates::default();
        self.gates_changed.notify_all();
    }

    /// Returns when a thread blocks before an `Established`.
    pub fn wait_until_held(&self) {
        let gates = self.gates.lock().unwrap();
        let wait = self
            .gates_changed
            .wait_timeout_while(gates, DEADLINE, |gates| !gates.is_established_held);
        assert!(!wait.unwrap().1.timed_out(), "no event was reported");
    }

    /// Waits until `gate` is open.
    fn pass(&self, gate: Gate) {
        let mut gates = self.gates.lock().unwrap();
        if matches!(gate, Gate::Established(_)) && gates.closed.contains(&gate) {
            gates.is_established_held = true;
            self.gates_changed.notify_all();
        }
        let is_closed = |gates: &mut Gates| gates.closed.contains(&gate);
        drop(self.gates_changed.wait_while(gates, is_closed).unwrap());
    }

    pub fn socket_down(&self, token: u64) {
        self.expect(
            "socket down",
            |it| matches!(it, Notification::SocketDown(t) if *t == token),
            drop,
        );
    }

    /// True if an event of this queue pair is waiting.
    pub fn has_connection_event(&self, qp: u64) -> bool {
        let notifications = self.notifications.lock().unwrap();
        notifications
            .iter()
            .any(|n| matches!(n, Notification::Connection { qp: token, .. } if *token == qp))
    }

    pub fn asynchronous(&self) -> AsyncEvent {
        self.expect(
            "asynchronous event",
            |it| matches!(it, Notification::Async(_)),
            |it| match it {
                Notification::Async(event) => event,
                _ => unreachable!(),
            },
        )
    }
}

impl EventUpcall for Recorder {
    fn cq_ready(&self, cq: CqToken) {
        for (token, waker) in self.wakers.lock().unwrap().iter() {
            if *token == cq.0 {
                waker.wake();
            }
        }
        self.push(Notification::CqReady(cq.0));
    }

    fn connection(&self, qp: QpToken, event: &ConnectionEvent) {
        if matches!(event, Event::Established { .. }) {
            self.pass(Gate::Established(qp.0));
        }
        let event = event.clone();
        let is_end = event == Event::Disconnected;
        self.push(Notification::Connection { qp: qp.0, event });
        if is_end {
            self.pass(Gate::Disconnected(qp.0));
        }
    }

    fn socket_down(&self, armed: ListenToken) {
        self.push(Notification::SocketDown(armed.0));
    }

    fn async_event(&self, event: AsyncEvent) {
        self.push(Notification::Async(event));
    }
}

impl Upcall<SoftRnic> for Recorder {
    fn connection_request(
        &self,
        listener: ListenToken,
        request: SoftRequest,
        info: &RequestInfo<'_>,
    ) {
        self.push(Notification::Request {
            listener: listener.0,
            request,
            remote: info.remote,
            private_data: info.private_data.to_vec(),
            truncated: info.truncated,
        });
        self.pass(Gate::Request(listener.0));
    }
}
