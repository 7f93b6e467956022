//! Binds whose completion no EVD has polled.
//!
//! An event must contain the window and the consumer's cookie, but a completion has space for one
//! word. So that word is a number, under which the two values are stored here. Numbers are not
//! reused, so a late completion finds no bind rather than another one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use dat_abi::*;
use host::locks::IgnorePoison as _;
use slab::Slab;

use crate::error::{DatError, DatResult};
use crate::handle::Handle;

/// Number of bits of a bind's number that are its index; the other bits are a counter.
const PLACE_BITS: u32 = 20;
/// Maximum number of pending binds of one IA.
const BINDS_MAX: usize = 1 << PLACE_BITS;

#[derive(Debug, Default)]
pub(crate) struct Binds(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    pending: Slab<PendingBind>,
    /// Binds that complete only if they fail, by endpoint, oldest first.
    silent: HashMap<Handle, VecDeque<u64>>,
    next: u64,
}

#[derive(Debug)]
struct PendingBind {
    id: u64,
    rmr: Handle,
    ep: Handle,
    cookie: u64,
}

/// A bind that will be posted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewBind {
    pub(crate) rmr: Handle,
    pub(crate) ep: Handle,
    pub(crate) cookie: u64,
    /// For a suppressed bind: the maximum number of completions of the endpoint that can be in
    /// progress or unread.
    pub(crate) silent_max: Option<usize>,
}

/// Content of the event of a bind, except for its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FinishedBind {
    /// The window, or null if it is unknown.
    pub(crate) rmr: DatRmrHandle,
    /// The consumer's cookie.
    pub(crate) cookie: u64,
}

impl Binds {
    /// Stores a bind and returns its number.
    pub(crate) fn begin(&self, bind: NewBind) -> DatResult<u64> {
        let mut inner = self.lock();
        if inner.pending.len() >= BINDS_MAX && !inner.retire_oldest_silent() {
            return Err(DatError::no_resources(DAT_RESOURCE_MEMORY));
        }
        let entry = inner.pending.vacant_entry();
        let place = entry.key() as u64;
        let id = inner.next << PLACE_BITS | place;
        inner.pending.insert(PendingBind {
            id,
            rmr: bind.rmr,
            ep: bind.ep,
            cookie: bind.cookie,
        });
        // Wraps after 2^44 binds; no bind is pending for that long.
        inner.next = inner.next.wrapping_add(1);
        if let Some(silent_max) = bind.silent_max {
            inner.add_silent(bind.ep, id, silent_max);
        }
        Ok(id)
    }

    /// Removes a bind that was not posted.
    pub(crate) fn cancel(&self, id: u64) {
        let mut inner = self.lock();
        if let Some(bind) = inner.take(id) {
            inner.retire_silent(bind.ep, |silent| silent == id);
        }
    }

    /// Removes a bind whose completion was polled, and returns the content of its event.
    pub(crate) fn finish(&self, id: u64) -> FinishedBind {
        let mut inner = self.lock();
        let Some(bind) = inner.take(id) else {
            return FinishedBind {
                rmr: DAT_HANDLE_NULL,
                cookie: 0,
            };
        };
        // Requests of an endpoint complete in order, so the suppressed binds that were posted
        // before this bind have succeeded.
        let count = id >> PLACE_BITS;
        inner.retire_silent(bind.ep, |silent| silent >> PLACE_BITS <= count);
        FinishedBind {
            rmr: bind.rmr.as_dat(),
            cookie: bind.cookie,
        }
    }

    /// Removes the binds of a freed endpoint, whose completions were dropped.
    pub(crate) fn forget_ep(&self, ep: Handle) {
        let mut inner = self.lock();
        if !inner.pending.is_empty() {
            inner.pending.retain(|_, bind| bind.ep != ep);
            inner.silent.remove(&ep);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().pending.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().ignore_poison()
    }
}

impl Inner {
    fn take(&mut self, id: u64) -> Option<PendingBind> {
        let place = usize::try_from(id & (BINDS_MAX as u64 - 1)).ok()?;
        let is_match = self.pending.get(place).is_some_and(|bind| bind.id == id);
        is_match.then(|| self.pending.remove(place))
    }

    /// Stores a suppressed bind. If the bind fails, it completes, and so does everything posted
    /// after it. The bind must have succeeded, and is removed, once more binds were posted after it
    /// than can be in progress or unread.
    fn add_silent(&mut self, ep: Handle, id: u64, silent_max: usize) {
        let silent = self.silent.entry(ep).or_default();
        silent.push_back(id);
        let old = if silent.len() > silent_max {
            silent.pop_front()
        } else {
            None
        };
        if let Some(old) = old {
            self.take(old);
        }
    }

    /// Removes the suppressed binds of an endpoint that satisfy `is_over`.
    fn retire_silent(&mut self, ep: Handle, is_over: impl Fn(u64) -> bool) {
        let Some(mut silent) = self.silent.remove(&ep) else {
            return;
        };
        silent.retain(|id| {
            let over = is_over(*id);
            if over {
                self.take(*id);
            }
            !over
        });
        if !silent.is_empty() {
            self.silent.insert(ep, silent);
        }
    }

    /// Removes the oldest suppressed bind of the endpoint that has the most suppressed binds.
    /// Returns `false` if there is no suppressed bind.
    fn retire_oldest_silent(&mut self) -> bool {
        let most = self.silent.values_mut().max_by_key(|silent| silent.len());
        let oldest = most.and_then(VecDeque::pop_front);
        oldest.is_some_and(|id| self.take(id).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(number: u64) -> Handle {
        Handle::from_token(number * 8).unwrap()
    }

    fn bind(ep: u64, cookie: u64, silent_max: Option<usize>) -> NewBind {
        NewBind {
            rmr: handle(1),
            ep: handle(ep),
            cookie,
            silent_max,
        }
    }

    const UNKNOWN: FinishedBind = FinishedBind {
        rmr: DAT_HANDLE_NULL,
        cookie: 0,
    };

    fn done(cookie: u64) -> FinishedBind {
        FinishedBind {
            rmr: handle(1).as_dat(),
            cookie,
        }
    }

    #[test]
    fn a_number_is_not_reused() {
        let binds = Binds::default();
        let first = binds.begin(bind(2, 5, None)).unwrap();
        binds.cancel(first);
        let second = binds.begin(bind(2, 6, None)).unwrap();
        assert_eq!(binds.finish(first), UNKNOWN);
        assert_eq!(binds.finish(second), done(6));
        assert_eq!(binds.finish(second), UNKNOWN);
        assert_eq!(binds.finish(u64::MAX), UNKNOWN);
    }

    #[test]
    fn a_completion_ends_the_silent_binds_before_it_on_its_endpoint() {
        let binds = Binds::default();
        let begin = |ep, cookie, silent| binds.begin(bind(ep, cookie, silent)).unwrap();
        let before = begin(2, 1, Some(9));
        let other = begin(3, 2, Some(9));
        let signalled = begin(2, 3, None);
        let later = begin(2, 4, Some(9));
        assert_eq!(binds.finish(signalled), done(3));
        assert_eq!(binds.finish(before), UNKNOWN);
        assert_eq!(binds.finish(other), done(2), "it failed");
        assert_eq!(binds.finish(later), done(4));
        assert_eq!((binds.len(), binds.lock().silent.len()), (0, 0));
    }

    #[test]
    fn silent_binds_that_must_have_succeeded_end() {
        let binds = Binds::default();
        let ids: Vec<_> = (0..10)
            .map(|cookie| binds.begin(bind(2, cookie, Some(4))).unwrap())
            .collect();
        assert_eq!(binds.len(), 4);
        assert_eq!(binds.finish(ids[5]), UNKNOWN);
        assert_eq!(binds.finish(ids[6]), done(6));
        binds.forget_ep(handle(2));
        assert_eq!((binds.len(), binds.lock().silent.len()), (0, 0));
    }

    #[test]
    fn a_cancelled_bind_is_no_longer_silent() {
        let binds = Binds::default();
        let id = binds.begin(bind(2, 1, Some(4))).unwrap();
        binds.cancel(id);
        assert_eq!((binds.len(), binds.lock().silent.len()), (0, 0));
    }

    #[test]
    fn a_full_table_drops_silent_binds_only() {
        let binds = Binds::default();
        for cookie in 0..BINDS_MAX as u64 - 1 {
            binds.begin(bind(2, cookie, None)).unwrap();
        }
        for cookie in 0..3 {
            binds.begin(bind(3, cookie, Some(9))).unwrap();
        }
        binds.begin(bind(2, 1, None)).unwrap();
        assert!(binds.begin(bind(2, 2, None)).is_err());
        binds.forget_ep(handle(2));
        binds.begin(bind(2, 2, None)).unwrap();
    }
}
