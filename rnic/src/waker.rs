//! Waking a consumer that sleeps in [`Rnic::wait`](super::Rnic::wait).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use host::adaptive_spin::AdaptiveSpin;
use host::descriptors::OwnDescriptor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

const IDLE: u32 = 0;
const SLEEPING: u32 = 1;
const WOKEN: u32 = 2;

/// The pause after a sleep on a descriptor that the program has taken.
const LOST_PAUSE: Duration = Duration::from_millis(10);

/// A descriptor on which a thread sleeps together with sockets, and a state that saves the write if
/// no thread sleeps. The descriptor is created for the first sleep: most wakers of a process with
/// many connections never have a sleeper. A wait of an EVD does not depend on it: without a free
/// descriptor, the wait checks the state at intervals.
///
/// One thread may sleep at a time; any number of threads may wake it. A wake-up before the sleep
/// makes the sleep return at once, so the sequence *poll, sleep* cannot lose a wake-up.
///
/// The sleep and the wake bypass libc, whose wrappers of `poll`, `read` and `write` are
/// cancellation points: a thread of the consumer that is cancelled while it wakes another thread
/// would be unwound in the middle of this code.
#[derive(Debug, Default)]
pub struct Waker {
    event: OnceLock<OwnDescriptor>,
    state: AtomicU32,
    spin: AdaptiveSpin,
    serves_others: bool,
}

/// The reason why a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slept {
    /// The waker was woken.
    Woken,
    /// The timeout expired, or the descriptor is lost.
    TimedOut,
    /// A signal handler ran in the thread.
    Interrupted,
}

impl Waker {
    /// Creates a waker without a pending wake-up.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a waker whose sleeper waits for events of many connections.
    #[must_use]
    pub fn serving_others() -> Self {
        Self {
            serves_others: true,
            ..Self::default()
        }
    }

    /// True if the sleeper serves many connections. A thread that waits for one event dispatcher
    /// then has precedence on the descriptor of the RNIC.
    #[must_use]
    pub fn serves_others(&self) -> bool {
        self.serves_others
    }

    /// Creates the descriptor, unless it exists, and moves it out of the way of the program. Called
    /// before the first sleep.
    ///
    /// # Errors
    /// The error of `eventfd`, or `EBADF` if the program has closed the descriptor meanwhile.
    pub fn prepare(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(event) = self.event.get() {
            return Ok(event.as_fd());
        }
        // SAFETY: eventfd takes no pointers; the result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: eventfd just returned this descriptor, and no other code has its number.
        let made = host::descriptors::raise(unsafe { OwnedFd::from_raw_fd(fd) })?;
        // If another thread was faster, its descriptor is kept and this one is closed.
        Ok(self.event.get_or_init(|| made.into()).as_fd())
    }

    /// Wakes the current or the next sleeper. Makes system calls only if a thread sleeps: an
    /// `fstat`, so that no file of the program is written, and a `write`.
    pub fn wake(&self) {
        if self.state.swap(WOKEN, Ordering::AcqRel) != SLEEPING {
            return;
        }
        if let Some(event) = self.event.get() {
            event.count_up();
        }
    }

    /// Consumes a wake-up that preceded the sleep. Returns `false` if there is none.
    pub fn take_wake(&self) -> bool {
        self.state.load(Ordering::Acquire) == WOKEN
            && self.state.swap(IDLE, Ordering::AcqRel) == WOKEN
    }

    /// The history of the waits with this waker.
    pub(super) fn spin(&self) -> &AdaptiveSpin {
        &self.spin
    }

    /// Announces the sleep and returns the descriptor to sleep on. `None` means that the caller
    /// must not sleep: a wake-up was pending and is now consumed, or the descriptor cannot be
    /// created ([`prepare`](Self::prepare)).
    ///
    /// After `Some`, the caller sleeps until the descriptor is readable and then calls
    /// [`end_sleep`](Self::end_sleep).
    pub fn begin_sleep(&self) -> Option<BorrowedFd<'_>> {
        let event = self.prepare().ok()?;
        self.announce_sleep().then_some(event)
    }

    /// Announces a sleep that checks the waker at intervals if it has no descriptor. Returns false
    /// if a wake-up was pending, which is now consumed. After `true`, the caller calls
    /// [`end_sleep`](Self::end_sleep).
    pub(super) fn announce_sleep(&self) -> bool {
        let announced =
            self.state
                .compare_exchange(IDLE, SLEEPING, Ordering::AcqRel, Ordering::Acquire);
        if announced.is_err() {
            self.state.store(IDLE, Ordering::Release);
        }
        announced.is_ok()
    }

    /// Ends the sleep. Returns `true` if a wake-up occurred, and consumes it.
    ///
    /// `is_ready` is true if the descriptor ended the sleep. If it was ready without a wake-up, the
    /// program has closed the descriptor and opened a file of its own under that number. That file
    /// may always be ready, so this call pauses.
    pub fn end_sleep(&self, is_ready: bool) -> bool {
        if self.state.swap(IDLE, Ordering::AcqRel) != WOKEN {
            if is_ready {
                std::thread::sleep(LOST_PAUSE);
            }
            return false;
        }
        let Some(event) = self.event.get() else {
            return true;
        };
        // Exactly one thread that wakes saw SLEEPING, and that thread writes exactly once. The read
        // blocks for the moment between the swap and the write of that thread, so that no stale
        // count stays and wakes a later sleeper.
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
        let is_ready = !set[0].revents().is_empty();
        if self.end_sleep(is_ready) {
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
    use std::os::fd::AsRawFd;

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

    /// A daemon closes all descriptors, and its own files may then get the same numbers.
    #[test]
    fn a_number_that_the_program_has_taken_stays_open() {
        let waker = Waker::new();
        let number = waker.prepare().unwrap().as_raw_fd();
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        // SAFETY: both numbers are open, and the test owns them.
        assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), number) }, number);
        assert_eq!(waker.sleep(None), Slept::TimedOut, "the descriptor is lost");
        drop(waker);
        // SAFETY: the number is that of the duplicate above, which nothing else owns.
        assert!(rustix::io::fcntl_getfd(unsafe { OwnedFd::from_raw_fd(number) }).is_ok());
    }

    #[test]
    fn a_descriptor_is_made_for_the_first_sleep() {
        let waker = Waker::new();
        waker.wake();
        assert!(waker.take_wake());
        assert!(waker.event.get().is_none(), "no thread has slept");
        assert_eq!(waker.sleep(Some(Duration::ZERO)), Slept::TimedOut);
        assert!(waker.event.get().is_some());
    }

    /// Programs expect the low numbers for their own files.
    #[test]
    fn a_descriptor_has_a_high_number() {
        let waker = Waker::new();
        let number = waker.prepare().unwrap().as_raw_fd();
        assert!(number >= host::descriptors::lowest(), "{number}");
    }
}
