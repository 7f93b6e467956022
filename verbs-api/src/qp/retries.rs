//! The time for which a requester repeats a request whose peer has vanished.
//!
//! A device notices by `timeout` and `retry_cnt` that its peer does not answer. The RNIC notices at
//! once, by the end of the connection. But a program may end as soon as it has all that it wants,
//! and its peer may then still have to poll the completions of earlier work, also that of other
//! queue pairs of the completion queue. A request that failed at once would overtake them. So it
//! fails when a device would report the failure, or after [`LONGEST`].

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use host::locks::lock;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::fault::Fault;
use crate::watch::{Watch, Watched, Watcher};

/// The longest time. Nothing can be received from a peer that has vanished.
const LONGEST: Duration = Duration::from_secs(1);

/// The timer of a queue pair.
#[derive(Default)]
pub(super) struct Retries {
    /// The time in nanoseconds; 0: failures are reported at once.
    time: AtomicU64,
    running: Mutex<Option<(OwnedFd, Arc<Watch>)>>,
}

impl Retries {
    /// Sets the time by the attributes `timeout` and `retry_cnt`.
    pub(super) fn set(&self, timeout: u8, retry_cnt: u8) {
        let time = u64::try_from(time(timeout, retry_cnt).as_nanos());
        self.time.store(time.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// True if a request is repeated.
    pub(super) fn are_made(&self) -> bool {
        self.time.load(Ordering::Relaxed) > 0
    }

    /// Calls `watched` when the time has passed.
    pub(super) fn start(
        &self,
        watcher: &Watcher,
        number: u32,
        watched: Weak<dyn Watched>,
    ) -> Result<(), Fault> {
        let time = Duration::from_nanos(self.time.load(Ordering::Relaxed));
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(time).map_err(|_| Errno::INVAL)?,
        };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
        let watch = watcher.watch()?;
        watch.add(number.into(), timer.as_fd(), watched)?;
        watch.arm(number.into(), timer.as_fd());
        *lock(&self.running) = Some((timer, watch));
        Ok(())
    }

    /// Ends the retries of a queue pair that is reset or destroyed, and makes none from now on.
    pub(super) fn stop(&self, number: u32) {
        self.time.store(0, Ordering::Relaxed);
        if let Some((timer, watch)) = lock(&self.running).take() {
            watch.remove(number.into(), timer.as_fd());
        }
    }
}

/// Returns the time after which a device reports that its peer does not answer (InfiniBand
/// specification, section 9.7.6.1.3), up to [`LONGEST`]. A `timeout` of 0 stands for no limit.
fn time(timeout: u8, retry_cnt: u8) -> Duration {
    const UNIT_NS: u64 = 4096;
    if timeout == 0 {
        return LONGEST;
    }
    let once = Duration::from_nanos(UNIT_NS << (timeout % 32));
    (once * (u32::from(retry_cnt) + 1)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_follows_the_attributes_up_to_a_limit() {
        assert_eq!(time(1, 0), Duration::from_nanos(8192));
        assert_eq!(time(14, 7), Duration::from_nanos(536_870_912));
        assert_eq!(time(18, 0), LONGEST);
        assert_eq!(time(31, 7), LONGEST);
        assert_eq!(time(0, 0), LONGEST);
    }
}
