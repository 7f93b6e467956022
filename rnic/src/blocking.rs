//! Blocking, composed of the three progress calls: arm, sleep, drive.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use host::adaptive_spin::AdaptiveSpin;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{Arm, Rnic, Waker};

/// The next wait sleeps at once if the last wait took longer than this.
const SPIN_WORTH: Duration = Duration::from_micros(300);
/// The time for which a wait drives the RNIC before it sleeps. A wake-up across processors takes
/// longer than most answers of a peer, and about as long as a copy of 1 MiB, for which the sender
/// of a payload by reference waits.
const SPIN_TIME: Duration = Duration::from_micros(200);
/// The interval at which a sleep checks a waker without a descriptor. The process had no descriptor
/// left when the wait began.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Number of drives between two system calls that yield the processor.
const DRIVES_PER_YIELD: u32 = 16;

/// The longest timeout that the kernel accepts.
const LONGEST: Timespec = Timespec {
    tv_sec: i64::MAX,
    tv_nsec: 0,
};

/// Blocks until one of `cqs` may have completions, the waker is woken, or the timeout expires.
/// Returns `true` if a signal handler ended the wait.
pub(super) fn wait<R: Rnic>(
    rnic: &R,
    cqs: &[&R::Cq],
    waker: &Arc<Waker>,
    timeout: Option<Duration>,
) -> bool {
    let start = Instant::now();
    let deadline = timeout.and_then(|timeout| start.checked_add(timeout));
    let has_any = || rnic.has_unannounced(cqs);
    // An upcall during the drive lets the EVD take the completions, so the waker is checked too.
    let is_over = || waker.take_wake() || has_any();
    rnic.drive();
    let interrupted = !is_over()
        && (cqs.is_empty() || !spin(|| rnic.drive(), is_over, waker.spin(), start, deadline))
        && sleep(rnic, has_any, waker, (deadline, timeout));
    waker.spin().note_wait(start.elapsed());
    interrupted
}

/// Drives for up to [`SPIN_TIME`] if the history makes success likely. Returns `true` if the wait
/// is over.
///
/// The loop yields the processor at intervals, so that a peer on the same processor can answer.
fn spin(
    drive: impl Fn(),
    is_over: impl Fn() -> bool,
    history: &AdaptiveSpin,
    start: Instant,
    deadline: Option<Instant>,
) -> bool {
    if history.last_wait() >= SPIN_WORTH || !history.is_worth_it() {
        return false;
    }
    let until = deadline.map_or(start + SPIN_TIME, |at| at.min(start + SPIN_TIME));
    while Instant::now() < until {
        for _ in 0..DRIVES_PER_YIELD {
            drive();
            if is_over() {
                history.on_success();
                return true;
            }
        }
        std::thread::yield_now();
    }
    history.on_failure();
    false
}

/// Sleeps on the waker and the RNIC's descriptor and drives, until there may be completions.
/// Returns `true` if a signal handler ended the sleep.
fn sleep<R: Rnic>(
    rnic: &R,
    has_any: impl Fn() -> bool,
    waker: &Arc<Waker>,
    (deadline, timeout): (Option<Instant>, Option<Duration>),
) -> bool {
    // The spin was short, so the first sleep uses the whole timeout without reading the clock.
    let mut first = Some(timeout);
    while !has_any() {
        let now_left = || deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let left = first.take().unwrap_or_else(now_left);
        if left.is_some_and(|left| left.is_zero()) {
            return false;
        }
        let event = waker.prepare().ok();
        if !waker.announce_sleep() {
            return false;
        }
        let arm = rnic.arm(waker);
        let rnics = rnic.descriptor().filter(|_| arm == Arm::Sleep);
        let mut ready = Ok(Ready::default());
        if arm != Arm::HasWork && !has_any() {
            let check = event.is_none().then_some(CHECK_INTERVAL);
            ready = poll_both(event, rnics, left.into_iter().chain(check).min());
        }
        let Ready { event, rnics } = ready.unwrap_or_default();
        let is_woken = waker.end_sleep(event);
        rnic.end_sleep(waker, rnics);
        rnic.drive();
        if is_woken || ready.is_err() {
            return !is_woken && ready == Err(Errno::INTR);
        }
    }
    false
}

/// The descriptors that have ended a sleep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ready {
    event: bool,
    rnics: bool,
}

/// Sleeps on the descriptors of the waker and of the RNIC, as far as they exist.
fn poll_both(
    event: Option<BorrowedFd<'_>>,
    rnics: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> Result<Ready, Errno> {
    let timeout = timeout.map(|left| Timespec::try_from(left).unwrap_or(LONGEST));
    let is_readable = |fd: &PollFd<'_>| !fd.revents().is_empty();
    let mut ready = Ready::default();
    match (event, rnics) {
        (Some(event), Some(rnics)) => {
            let mut set = [event, rnics].map(readable);
            poll(&mut set, timeout.as_ref())?;
            [ready.event, ready.rnics] = set.each_ref().map(is_readable);
        }
        (Some(event), None) => ready.event = poll(&mut [readable(event)], timeout.as_ref())? > 0,
        (None, Some(rnics)) => ready.rnics = poll(&mut [readable(rnics)], timeout.as_ref())? > 0,
        (None, None) => {
            poll(&mut [], timeout.as_ref())?;
        }
    }
    Ok(ready)
}

fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spins(waker: &Waker, drive: impl Fn()) -> bool {
        let over = || waker.take_wake();
        spin(drive, over, waker.spin(), Instant::now(), None)
    }

    #[test]
    fn a_spin_ends_with_the_wake_up_that_its_own_drive_causes() {
        let waker = Waker::new();
        waker.spin().note_wait(Duration::ZERO);
        assert!(spins(&waker, || waker.wake()));
        assert!(!waker.take_wake(), "it is consumed");
        assert!(!spins(&waker, || {}));
        assert!(!spins(&waker, || waker.wake()), "a failure pauses it");
    }
}
