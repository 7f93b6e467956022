//! Waking a consumer that sleeps in [`Rnic::wait`](super::Rnic::wait).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::adaptive_spin::AdaptiveSpin;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

const IDLE: u32 = 0;
const SLEEPING: u32 = 1;
const WOKEN: u32 = 2;

/// A descriptor to sleep on together with sockets, and a state that saves the write when nobody
/// sleeps. The descriptor is made for the first sleep: most wakers of a process with many
/// connections never have a sleeper.
///
/// One thread may sleep at a time; any number of threads may wake it. A wake-up before the sleep
/// makes the sleep return at once, so the sequence *poll, sleep* cannot lose a wake-up.
///
/// The system calls go past libc, in which they would be cancellation points: a consumer's thread
/// that is cancelled while it wakes another one would be unwound out of the midst of us.
#[derive(Debug, Default)]
pub struct Waker {
    event: OnceLock<OwnedFd>,
    state: AtomicU32,
    spin: AdaptiveSpin,
    serves_others: bool,
}

/// The reason why a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slept {
    /// By a wake-up.
    Woken,
    /// The time is over.
    TimedOut,
    /// A signal handler ran in the thread.
    Interrupted,
}

impl Waker {
    /// A waker that nobody has woken.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A new waker whose sleeper waits for events of many connections.
    #[must_use]
    pub fn serving_others() -> Self {
        Self {
            serves_others: true,
            ..Self::default()
        }
    }

    /// True if the sleeper serves many connections: it leaves the descriptors of the RNIC to a
    /// thread that waits for one event dispatcher.
    #[must_use]
    pub fn serves_others(&self) -> bool {
        self.serves_others
    }

    /// Makes the descriptor, unless there is one. Called before the first sleep.
    ///
    /// # Errors
    /// Why there is none.
    pub fn prepare(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(event) = self.event.get() {
            return Ok(event.as_fd());
        }
        // SAFETY: eventfd takes no pointers; the result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: eventfd just returned this descriptor and nobody else knows it.
        let made = unsafe { OwnedFd::from_raw_fd(fd) };
        // Where another thread was faster, its descriptor counts and this one is closed.
        Ok(self.event.get_or_init(|| made).as_fd())
    }

    /// Wakes the sleeper, or the next one. Costs a system call only when somebody sleeps.
    pub fn wake(&self) {
        if self.state.swap(WOKEN, Ordering::AcqRel) != SLEEPING {
            return;
        }
        if let Some(event) = self.event.get() {
            // The result does not matter: at most one count is outstanding, so the write neither
            // blocks nor fails.
            let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
        }
    }

    /// Consumes a wake-up that came before the sleep. `false`: there is none.
    pub fn take_wake(&self) -> bool {
        self.state.load(Ordering::Acquire) == WOKEN
            && self.state.swap(IDLE, Ordering::AcqRel) == WOKEN
    }

    /// The history of the waits with this waker.
    pub(super) fn spin(&self) -> &AdaptiveSpin {
        &self.spin
    }

    /// Announces the sleep and returns the descriptor to sleep on. `None`: a wake-up came first
    /// (and is consumed), do not sleep. Neither is to be done where the descriptor cannot be made
    /// ([`prepare`](Self::prepare)).
    ///
    /// After `Some`, sleep until the descriptor is readable and then call
    /// [`end_sleep`](Self::end_sleep).
    pub fn begin_sleep(&self) -> Option<BorrowedFd<'_>> {
        let event = self.prepare().ok()?;
        match self
            .state
            .compare_exchange(IDLE, SLEEPING, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => Some(event),
            Err(_) => {
                self.state.store(IDLE, Ordering::Release);
                None
            }
        }
    }

    /// Ends the sleep. `true`: a wake-up came and is consumed.
    pub fn end_sleep(&self) -> bool {
        if self.state.swap(IDLE, Ordering::AcqRel) != WOKEN {
            return false;
        }
        let Some(event) = self.event.get() else {
            return true;
        };
        // Exactly one waker saw SLEEPING, and it writes exactly once. Reading blocks for the moment
        // between its swap and its write, so that no stale count is left to wake later sleepers for
        // nothing.
        let mut count = [0; size_of::<u64>()];
        while rustix::io::read(event, &mut count) == Err(Errno::INTR) {}
        true
    }

    /// Sleeps on this waker alone.
    pub fn sleep(&self, timeout: Option<Duration>) -> Slept {
        let Some(event) = self.begin_sleep() else {
            return Slept::Woken;
        };
        let mut set = [PollFd::from_borrowed_fd(event, PollFlags::IN)];
        let longest = Timespec {
            tv_sec: i64::MAX,
            tv_nsec: 0,
        };
        let limit = timeout.map(|timeout| Timespec::try_from(timeout).unwrap_or(longest));
        let slept = poll(&mut set, limit.as_ref());
        if self.end_sleep() {
            Slept::Woken
        } else if slept == Err(Errno::INTR) {
            Slept::Interrupted
        } else {
            Slept::TimedOut
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_the_sleep_is_not_lost() {
        let waker = Waker::new();
        waker.wake();
        assert_eq!(waker.sleep(None), Slept::Woken);
        assert_eq!(waker.sleep(Some(Duration::ZERO)), Slept::TimedOut);
    }

    #[test]
    fn a_sleeper_is_woken_by_another_thread() {
        let waker = std::sync::Arc::new(Waker::new());
        let other = waker.clone();
        let thread = std::thread::spawn(move || other.wake());
        assert_eq!(waker.sleep(None), Slept::Woken);
        thread.join().unwrap();
    }

    #[test]
    fn two_wakes_are_one() {
        let waker = Waker::new();
        waker.wake();
        waker.wake();
        assert_eq!(waker.sleep(None), Slept::Woken);
        assert_eq!(waker.sleep(Some(Duration::ZERO)), Slept::TimedOut);
    }

    #[test]
    fn a_descriptor_is_made_for_the_first_sleep() {
        let waker = Waker::new();
        waker.wake();
        assert!(waker.take_wake());
        assert!(waker.event.get().is_none(), "nobody has slept");
        assert_eq!(waker.sleep(Some(Duration::ZERO)), Slept::TimedOut);
        assert!(waker.event.get().is_some());
    }
}
