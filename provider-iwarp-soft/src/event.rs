//! News of a connection on their way up.
//!
//! An event is queued while the connection is locked and told after that, by whichever thread held
//! it. The queue keeps the order and makes sure that one event at a time is told: `Established`
//! never comes after the ending that followed it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use access_layer::rnic::ConnectionEvent;

/// A [`ConnectionEvent`] that owns what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnEvent {
    Established {
        local: SocketAddr,
        remote: SocketAddr,
        private_data: Vec<u8>,
    },
    PeerRejected {
        private_data: Vec<u8>,
    },
    NonPeerRejected,
    Unreachable,
    TimedOut,
    AcceptFailed,
    Disconnected,
    Broken,
    /// Not of the connection: the queue pair takes no more receives from its shared queue.
    LastReceive,
}

impl OwnEvent {
    /// What the connection has to tell; `None` for news of something else.
    pub(crate) fn as_event(&self) -> Option<ConnectionEvent<'_>> {
        Some(match self {
            Self::Established {
                local,
                remote,
                private_data,
            } => ConnectionEvent::Established {
                local: *local,
                remote: *remote,
                private_data,
            },
            Self::PeerRejected { private_data } => ConnectionEvent::PeerRejected { private_data },
            Self::NonPeerRejected => ConnectionEvent::NonPeerRejected,
            Self::Unreachable => ConnectionEvent::Unreachable,
            Self::TimedOut => ConnectionEvent::TimedOut,
            Self::AcceptFailed => ConnectionEvent::AcceptFailed,
            Self::Disconnected => ConnectionEvent::Disconnected,
            Self::Broken => ConnectionEvent::Broken,
            Self::LastReceive => return None,
        })
    }
}

/// The events of one queue pair that have not been told.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    waiting: AtomicBool,
    state: Mutex<State>,
    /// The thread that told has told everything.
    told: Condvar,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<OwnEvent>,
    /// Who tells.
    teller: Option<ThreadId>,
}

impl EventQueue {
    pub(crate) fn push(&self, event: OwnEvent) {
        let mut state = self.lock();
        state.events.push_back(event);
        self.waiting.store(true, Ordering::Release);
    }

    /// Tells what waits, in order. Returns at once when another thread is telling: it goes on.
    pub(crate) fn tell(&self, mut upcall: impl FnMut(&OwnEvent)) {
        if !self.waiting.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.lock();
        if state.teller.is_some() {
            return;
        }
        state.teller = Some(thread::current().id());
        while let Some(event) = state.events.pop_front() {
            drop(state);
            let unwinding = Unwinding(self);
            upcall(&event);
            std::mem::forget(unwinding);
            state = self.lock();
        }
        state.teller = None;
        self.waiting.store(false, Ordering::Release);
        self.told.notify_all();
    }

    /// Returns when another thread that is telling has told everything. Upcalls run no consumer
    /// code, so it does not take long; within an upcall it does not wait for itself.
    pub(crate) fn wait_for_teller(&self) {
        let mut state = self.lock();
        let me = thread::current().id();
        while state.teller.is_some_and(|teller| teller != me) {
            state = self
                .told
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropped only when an upcall panics: the next one to tell goes on.
struct Unwinding<'a>(&'a EventQueue);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        self.0.lock().teller = None;
        self.0.told.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_the_teller_returns_when_all_is_told() {
        let queue = EventQueue::default();
        queue.push(OwnEvent::TimedOut);
        queue.push(OwnEvent::Broken);
        let (begun, has_begun) = std::sync::mpsc::channel();
        let told = Mutex::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                queue.tell(|_| {
                    let _ = begun.send(());
                    thread::sleep(std::time::Duration::from_millis(20));
                    queue.wait_for_teller();
                    *told.lock().unwrap() += 1;
                });
            });
            has_begun.recv().unwrap();
            queue.wait_for_teller();
            assert_eq!(*told.lock().unwrap(), 2);
        });
    }

    #[test]
    fn an_event_queued_by_an_upcall_comes_after_it() {
        let queue = EventQueue::default();
        queue.push(OwnEvent::TimedOut);
        let mut told = Vec::new();
        queue.tell(|event| {
            if told.is_empty() {
                queue.push(OwnEvent::Broken);
                queue.tell(|_| panic!("told within an upcall"));
            }
            told.push(event.clone());
        });
        assert_eq!(told, [OwnEvent::TimedOut, OwnEvent::Broken]);
        queue.tell(|_| panic!("told twice"));
    }
}
