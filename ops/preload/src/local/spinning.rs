//! Polling before sleeping, which `opsrun --spin` turns on.
//!
//! Waking a thread that sleeps takes longer than all else that a short message within the host
//! costs. A thread that is about to sleep for a connection within the host polls it for
//! [`OPS_SPIN`](VARIABLE) microseconds first; the call is then the C library's, as without this.
//!
//! It polls only where a processor is idle: between two polls it lets other threads run, and where
//! one has run, nobody of this process polls for [`PAUSE`].

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libc::{MSG_DONTWAIT, MSG_WAITALL, nfds_t, pollfd, ssize_t};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl};

use crate::process::errno;
use crate::table;

/// The environment variable that holds the microseconds.
const VARIABLE: &str = "OPS_SPIN";

/// The most that it may say. A thread that polls longer than a wake-up takes gains nothing.
const MOST_US: u32 = 1000;

/// A call that lets others run takes less where nobody else has run.
const ALONE: Duration = Duration::from_micros(5);

/// The time in which no thread polls, after processors have had other work.
const PAUSE: Duration = Duration::from_millis(10);

/// The time to poll, in microseconds; 0: not at all.
static LIMIT_US: AtomicU32 = AtomicU32::new(0);

/// Until when nobody polls, in microseconds from [`start`].
static PAUSED_UNTIL_US: AtomicU64 = AtomicU64::new(0);

/// Reads the environment, when the library is loaded.
pub(crate) fn begin() {
    let limit = host::environment::variable(VARIABLE).and_then(|text| text.to_str()?.parse().ok());
    if let Some(limit) = limit {
        start();
        LIMIT_US.store(MOST_US.min(limit), Ordering::Relaxed);
    }
}

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// Returns true in programs that `opsrun --spin` has started.
#[inline]
pub(crate) fn is_on() -> bool {
    LIMIT_US.load(Ordering::Relaxed) != 0
}

/// Receives what is there, or comes soon, by a call that takes flags. `None`: the call is to be
/// made as the program made it.
#[inline]
pub(crate) fn receive(
    fd: c_int,
    flags: c_int,
    call: impl FnOnce(c_int) -> ssize_t,
) -> Option<ssize_t> {
    if !is_on() || flags & MSG_WAITALL != 0 || !table::is_local(fd) {
        return None;
    }
    let before = errno::get();
    let received = call(flags | MSG_DONTWAIT);
    if received >= 0 || errno::get() != libc::EAGAIN || flags & MSG_DONTWAIT != 0 {
        return Some(received);
    }
    // SAFETY: the kernel has just answered a call on it.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    if fcntl_getfl(socket).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK)) {
        return Some(received);
    }
    until(|| has_input(socket));
    errno::set(before);
    None
}

/// Polls a set of `epoll` whose program has connections within the host.
#[inline]
pub(crate) fn await_set(set: c_int, is_waiting: bool) {
    if is_on() && is_waiting && set >= 0 && table::has_local() {
        // SAFETY: a number from 0 up; the kernel says EBADF when it names nothing.
        let set = unsafe { BorrowedFd::borrow_raw(set) };
        until(|| has_input(set));
    }
}

/// Polls a set of `poll` that has connections within the host. `ask` is the call without time.
///
/// # Safety
/// As for `poll`; `ask` finds out whether the set is the caller's.
#[inline]
pub(crate) unsafe fn await_poll(
    set: *const pollfd,
    count: nfds_t,
    is_waiting: bool,
    ask: impl Fn() -> c_int,
) {
    if !is_on() || !is_waiting || !table::has_local() || ask() != 0 {
        return;
    }
    // SAFETY: the kernel has just read so many entries.
    let is_local = |at| table::is_local(unsafe { set.add(at).read_unaligned() }.fd);
    if (0..count as usize).any(is_local) {
        until(|| ask() != 0);
    }
}

fn has_input(fd: BorrowedFd<'_>) -> bool {
    let mut set = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut set, Some(&Timespec::default())) != Ok(0)
}

/// Polls until something is there, the time is over, or other threads want the processor.
#[cold]
fn until(is_there: impl Fn() -> bool) {
    let begun = Instant::now();
    let since_start = |at: Instant| at.duration_since(start()).as_micros() as u64;
    if since_start(begun) < PAUSED_UNTIL_US.load(Ordering::Relaxed) {
        return;
    }
    let end = begun + Duration::from_micros(LIMIT_US.load(Ordering::Relaxed).into());
    while !is_there() {
        let left = Instant::now();
        rustix::thread::sched_yield();
        let back = Instant::now();
        if back.duration_since(left) > ALONE {
            let paused = since_start(back + PAUSE);
            PAUSED_UNTIL_US.fetch_max(paused, Ordering::Relaxed);
            return;
        }
        if back >= end {
            return;
        }
    }
}
