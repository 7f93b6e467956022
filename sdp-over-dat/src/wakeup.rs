//! What wakes the stack's thread.

use std::sync::atomic::{AtomicBool, Ordering};

use dat_api::{Cno, Evd, EvdFlags, EvdId, Ia};

/// Events that fit. There is one at a time; a thread that is interrupted while it signals can make
/// it one more.
const LENGTH: u32 = 16;

/// A dispatcher that holds an event while there is something to be told.
#[derive(Debug)]
pub(crate) struct Wakeup {
    evd: Evd,
    pending: Pending,
}

/// Whether it has been signalled, and for what.
#[derive(Debug, Default)]
struct Pending {
    /// An event is there, or about to be.
    is_pending: AtomicBool,
    /// Somebody wants all sockets looked at.
    wants_look: AtomicBool,
}

impl Wakeup {
    /// One that triggers `cno`.
    pub(crate) fn new(ia: &Ia, cno: &Cno) -> dat_api::Result<Self> {
        Ok(Self {
            evd: Evd::create_with_cno(ia, LENGTH, EvdFlags::SOFTWARE, cno)?,
            pending: Pending::default(),
        })
    }

    /// What the CNO says that it has triggered.
    pub(crate) fn id(&self) -> EvdId {
        self.evd.id()
    }

    /// Wakes the thread, to look at all sockets or only to sleep less long.
    pub(crate) fn signal(&self, look: bool) {
        if !self.pending.signal(look) {
            return;
        }
        if let Err(error) = self.evd.post_software(0) {
            // The next one tries again.
            self.pending.is_pending.store(false, Ordering::SeqCst);
            tracing::warn!(%error, "the stack's thread cannot be woken");
        }
    }

    /// The thread has woken. Whether it is to look at all sockets.
    pub(crate) fn clear(&self) -> bool {
        while let Ok(Some(_)) = self.evd.dequeue() {}
        self.pending.clear()
    }
}

impl Pending {
    /// Whether an event is to be posted.
    fn signal(&self, look: bool) -> bool {
        // Said first: whoever clears it from now on hears it, with an event or without.
        if look {
            self.wants_look.store(true, Ordering::SeqCst);
        }
        !self.is_pending.swap(true, Ordering::SeqCst)
    }

    /// Whether all sockets are to be looked at. Called when no event is left.
    fn clear(&self) -> bool {
        self.is_pending.store(false, Ordering::SeqCst);
        self.wants_look.swap(false, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_posted_for_the_first_signal_after_it_was_cleared() {
        let pending = Pending::default();
        assert!(pending.signal(false));
        assert!(!pending.signal(true), "one is there");
        assert!(!pending.signal(false));
        assert!(pending.clear(), "the second wanted a look");
        assert!(pending.signal(false));
        assert!(!pending.clear(), "the look was taken");
    }
}
