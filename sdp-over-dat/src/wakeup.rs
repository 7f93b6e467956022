//! The wake-up of the stack's thread.

use std::sync::atomic::{AtomicBool, Ordering};

use dat_api::{Cno, Evd, EvdFlags, EvdId, Ia};

/// The number of events that the dispatcher can hold. There is one at a time, but a thread that is
/// interrupted while it signals can add another.
const LENGTH: u32 = 16;

/// A dispatcher that holds an event while the stack's thread has something to do.
#[derive(Debug)]
pub(crate) struct Wakeup {
    evd: Evd,
    pending: Pending,
}

/// The state of the wake-up.
#[derive(Debug, Default)]
struct Pending {
    /// True while an event is in the dispatcher, or is about to be posted.
    is_pending: AtomicBool,
    /// True if all sockets are to be polled.
    polls_all: AtomicBool,
}

impl Wakeup {
    /// Creates a dispatcher that triggers `cno`.
    pub(crate) fn new(ia: &Ia, cno: &Cno) -> dat_api::Result<Self> {
        Ok(Self {
            evd: Evd::create_with_cno(ia, LENGTH, EvdFlags::SOFTWARE, cno)?,
            pending: Pending::default(),
        })
    }

    /// The identifier that the CNO reports when this dispatcher triggered it.
    pub(crate) fn id(&self) -> EvdId {
        self.evd.id()
    }

    /// Wakes the thread. If `polls_all`, the thread polls all sockets; otherwise it only shortens
    /// its sleep.
    pub(crate) fn signal(&self, polls_all: bool) {
        if !self.pending.signal(polls_all) {
            return;
        }
        if let Err(error) = self.evd.post_software(0) {
            // The next signal tries again.
            self.pending.is_pending.store(false, Ordering::SeqCst);
            tracing::warn!(%error, "the stack's thread cannot be woken");
        }
    }

    /// Removes the events after the thread has woken. Returns true if all sockets are to be polled.
    pub(crate) fn clear(&self) -> bool {
        while let Ok(Some(_)) = self.evd.dequeue() {}
        self.pending.clear()
    }
}

impl Pending {
    /// Returns true if an event is to be posted.
    fn signal(&self, polls_all: bool) -> bool {
        // Stored first, so that every thread that clears the state from now on sees the request,
        // even if this call posts no event.
        if polls_all {
            self.polls_all.store(true, Ordering::SeqCst);
        }
        !self.is_pending.swap(true, Ordering::SeqCst)
    }

    /// Returns true if all sockets are to be polled. The caller has removed all events.
    fn clear(&self) -> bool {
        self.is_pending.store(false, Ordering::SeqCst);
        self.polls_all.swap(false, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_posted_for_the_first_signal_after_it_was_cleared() {
        let pending = Pending::default();
        assert!(pending.signal(false));
        assert!(!pending.signal(true), "an event is pending");
        assert!(!pending.signal(false));
        assert!(pending.clear(), "the second asked to poll all");
        assert!(pending.signal(false));
        assert!(!pending.clear(), "the request was cleared");
    }
}
