//! A descriptor that is readable from a deadline on.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::descriptors::OwnDescriptor;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::RaiseDescriptor;

/// A timer that runs only while it is set.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: OwnDescriptor,
    is_set: AtomicBool,
}

impl Alarm {
    pub(crate) fn new(raise: RaiseDescriptor) -> Result<Self, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self {
            timer: raise(timerfd_create(TimerfdClockId::Monotonic, flags)?)?.into(),
            is_set: AtomicBool::new(false),
        })
    }

    /// Makes the descriptor readable from `due` on, or within a millisecond if `due` has passed.
    /// `None` changes nothing.
    pub(crate) fn set(&self, due: Option<Instant>) {
        if let Some(due) = due {
            // A time of zero would stop the timer.
            let left = due.saturating_duration_since(Instant::now());
            self.arm(left.max(Duration::from_millis(1)));
            self.is_set.store(true, Ordering::Relaxed);
        }
    }

    /// Makes the descriptor unreadable until the alarm is set again.
    pub(crate) fn clear(&self) {
        if self.is_set.swap(false, Ordering::Relaxed) {
            self.arm(Duration::ZERO);
        }
    }

    pub(crate) fn descriptor(&self) -> &OwnDescriptor {
        &self.timer
    }

    fn arm(&self, after: Duration) {
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: after.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: after.subsec_nanos().into(),
            },
        };
        // This call fails only for values out of range.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
