//! The handlers of the watched descriptors.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::events::EventHandler;

/// The handlers of the descriptors that are watched.
///
/// The kernel reuses a descriptor's number as soon as it is closed, while an event of the former
/// descriptor may not have been handled yet. So each watch has its own number in addition to the
/// descriptor's, and an event with another watch's number is ignored.
#[derive(Default)]
pub(crate) struct Watches {
    watched: HashMap<RawFd, (u32, Arc<dyn EventHandler>)>,
    last: u32,
}

impl Watches {
    /// Begins a watch, and returns the mark that its events carry.
    pub(crate) fn begin(&mut self, fd: RawFd, handler: Arc<dyn EventHandler>) -> u64 {
        self.last = self.last.wrapping_add(1);
        self.watched.insert(fd, (self.last, handler));
        mark(fd, self.last)
    }

    /// Returns the mark of a descriptor's watch, which its events carry. `None`: there is no watch.
    pub(crate) fn mark_of(&self, fd: RawFd) -> Option<u64> {
        let (watch, _) = self.watched.get(&fd)?;
        Some(mark(fd, *watch))
    }

    pub(crate) fn end(&mut self, fd: RawFd) {
        self.watched.remove(&fd);
    }

    /// Returns the handler of an event; `None` if the watch has ended.
    pub(crate) fn find(&self, marked: u64) -> Option<Arc<dyn EventHandler>> {
        let fd = RawFd::try_from(marked & u64::from(u32::MAX)).ok()?;
        let (watch, handler) = self.watched.get(&fd)?;
        (mark(fd, *watch) == marked).then(|| Arc::clone(handler))
    }
}

const fn mark(fd: RawFd, watch: u32) -> u64 {
    (watch as u64) << 32 | fd.unsigned_abs() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::epoll::EventFlags;

    struct NoHandler;

    impl EventHandler for NoHandler {
        fn ready(&self, _flags: EventFlags) {}
    }

    #[test]
    fn an_event_of_an_earlier_watch_has_no_handler() {
        let mut watches = Watches::default();
        let first: Arc<dyn EventHandler> = Arc::new(NoHandler);
        let marked = watches.begin(15_004, Arc::clone(&first));
        assert_eq!(watches.mark_of(15_004), Some(marked));
        assert!(
            watches
                .find(marked)
                .is_some_and(|it| Arc::ptr_eq(&it, &first))
        );

        watches.end(15_004);
        assert!(watches.find(marked).is_none());
        let later = watches.begin(15_004, Arc::new(NoHandler));
        assert!(
            watches.find(marked).is_none(),
            "an event of an earlier watch is ignored"
        );
        assert!(watches.find(later).is_some());
        assert!(watches.find(u64::MAX).is_none());
        assert_eq!(watches.mark_of(3), None);
    }
}
