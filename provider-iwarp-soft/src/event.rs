//! News of a connection on their way up.
//!
//! An event is queued while the connection is locked and told after that, by whichever thread held
//! it. The queue keeps the order and makes sure that one event at a time is told: `Established`
//! never comes after the ending that followed it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

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
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<OwnEvent>,
    telling: bool,
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
        if state.telling {
            return;
        }
        state.telling = true;
        while let Some(event) = state.events.pop_front() {
            drop(state);
            upcall(&event);
            state = self.lock();
        }
        state.telling = false;
        self.waiting.store(false, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
