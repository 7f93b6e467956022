//! Waking a consumer that sleeps in [`Rnic::wait`](super::Rnic::wait).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::adaptive_spin::AdaptiveSpin;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

const IDLE: u32 = 0;
const SLEEPING: u32 = 1;
const WOKEN: u32 = 2;

/// A descriptor to sleep on together with sockets, and a state that saves the write when nobody
/// sleeps.
///
/// One sleeper at a time, any number of wakers. A wake-up that comes before the sleep makes the
/// sleep return at once, so the sequence *look, sleep* cannot lose one.
///
/// The system calls go past libc, in which they would be cancellation points: a consumer's thread
/// that is cancelled while it wakes another one would be unwound out of the midst of us.
#[derive(Debug)]
pub struct Waker {
    event: OwnedFd,
    state: AtomicU32,
    spin: AdaptiveSpin,
}

/// How a sleep ended.
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
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes no pointers; the result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: eventfd just returned this descriptor and nobody else knows it.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self {
            event,
            state: AtomicU32::new(IDLE),
            spin: AdaptiveSpin::default(),
        })
    }

    /// Wakes the sleeper, or the next one. Costs a system call only when somebody sleeps.
    pub fn wake(&self) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == SLEEPING {
            // The result does not matter: at most one count is outstanding, so the write neither
            // blocks nor fails.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
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

    /// Announces the sleep. `false`: a wake-up came first (and is consumed), do not sleep.
    ///
    /// After `true`, sleep on [`as_fd`](AsFd::as_fd) being readable and then call
    /// [`end_sleep`](Self::end_sleep).
    pub fn begin_sleep(&self) -> bool {
        match self
            .state
            .compare_exchange(IDLE, SLEEPING, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => true,
            Err(_) => {
                self.state.store(IDLE, Ordering::Release);
                false
            }
        }
    }

    /// Ends the sleep. `true`: a wake-up came and is consumed.
    pub fn end_sleep(&self) -> bool {
        if self.state.swap(IDLE, Ordering::AcqRel) != WOKEN {
            return false;
        }
        // Exactly one waker saw SLEEPING, and it writes exactly once. Reading blocks for the moment
        // between its swap and its write, so that no stale count is left to wake later sleepers for
        // nothing.
        let mut count = [0; size_of::<u64>()];
        while rustix::io::read(&self.event, &mut count) == Err(Errno::INTR) {}
        true
    }

    /// Sleeps on this waker alone.
    pub fn sleep(&self, timeout: Option<Duration>) -> Slept {
        if !self.begin_sleep() {
            return Slept::Woken;
        }
        let mut set = [PollFd::from_borrowed_fd(self.event.as_fd(), PollFlags::IN)];
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

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_the_sleep_is_not_lost() {
        let waker = Waker::new().unwrap();
        waker.wake();
        assert_eq!(waker.sleep(None), Slept::Woken);
        assert_eq!(waker.sleep(Some(Duration::ZERO)), Slept::TimedOut);
    }

    #[test]
    fn a_sleeper_is_woken_by_another_thread() {
        let waker = std::sync::Arc::new(Waker::new().unwrap());
        let other = waker.clone();
        let thread = std::thread::spawn(move || other.wake());
        assert_eq!(waker.sleep(None), Slept::Woken);
        thread.join().unwrap();
    }

    #[test]
    fn two_wakes_are_one() {
        let waker = Waker::new().unwrap();
        waker.wake();
        waker.wake();
        assert_eq!(waker.sleep(None), Slept::Woken);
        assert_eq!(waker.sleep(Some(Duration::ZERO)), Slept::TimedOut);
    }
}
