//! Whom the steward calls for which descriptor.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::steward::Ward;

/// The wards of the descriptors that are watched.
///
/// A descriptor's number is given anew as soon as it is closed, while an event that was fetched for
/// the one before may still be on its way to its ward. So each watch has a number of its own beside
/// the descriptor's, and an event that names another one is nobody's.
#[derive(Default)]
pub(crate) struct Wards {
    watched: HashMap<RawFd, (u32, Arc<dyn Ward>)>,
    last: u32,
}

impl Wards {
    /// What the events of a watch carry that begins now.
    pub(crate) fn begin(&mut self, fd: RawFd, ward: Arc<dyn Ward>) -> u64 {
        self.last = self.last.wrapping_add(1);
        self.watched.insert(fd, (self.last, ward));
        mark(fd, self.last)
    }

    /// What the events of its watch carry.
    pub(crate) fn mark_of(&self, fd: RawFd) -> Option<u64> {
        let (watch, _) = self.watched.get(&fd)?;
        Some(mark(fd, *watch))
    }

    pub(crate) fn end(&mut self, fd: RawFd) {
        self.watched.remove(&fd);
    }

    /// Whose event this is; nobody's where the watch has ended.
    pub(crate) fn find(&self, marked: u64) -> Option<Arc<dyn Ward>> {
        let fd = RawFd::try_from(marked & u64::from(u32::MAX)).ok()?;
        let (watch, ward) = self.watched.get(&fd)?;
        (mark(fd, *watch) == marked).then(|| Arc::clone(ward))
    }
}

const fn mark(fd: RawFd, watch: u32) -> u64 {
    (watch as u64) << 32 | fd.unsigned_abs() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::epoll::EventFlags;

    struct Nobody;

    impl Ward for Nobody {
        fn ready(&self, _flags: EventFlags) {}
    }

    #[test]
    fn an_event_is_its_own_watch_s_alone() {
        let mut wards = Wards::default();
        let first: Arc<dyn Ward> = Arc::new(Nobody);
        let marked = wards.begin(15_004, Arc::clone(&first));
        assert_eq!(wards.mark_of(15_004), Some(marked));
        assert!(
            wards
                .find(marked)
                .is_some_and(|it| Arc::ptr_eq(&it, &first))
        );

        wards.end(15_004);
        assert!(wards.find(marked).is_none());
        let later = wards.begin(15_004, Arc::new(Nobody));
        assert!(wards.find(marked).is_none(), "an event of the one before");
        assert!(wards.find(later).is_some());
        assert!(wards.find(u64::MAX).is_none());
        assert_eq!(wards.mark_of(3), None);
    }
}
