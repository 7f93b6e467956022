//! Polling before sleeping.
//!
//! Waking a sleeping thread takes longer than all other work for a short local message. So a thread
//! that is about to wait for a local connection may poll first:
//!
//! - by default, while polls take less of the processor's time than to sleep would
//!   ([`Mode::Thrifty`]);
//! - with [`OPS_SPIN`](VARIABLE) microseconds, which `opsrun --spin` sets, wherever an event may be
//!   found within that time ([`Mode::Eager`]). Zero turns polling off.
//!
//! A thread polls only while a processor is idle: between polls it yields to other threads, and the
//! duration of that call shows whether another thread has run. [`PollingPolicy`] decides which
//! waits poll.
//!
//! A signal ends the wait as it would end a sleep: signals are blocked meanwhile, and the handlers
//! run afterwards. That is not possible in the first thread of a process with other threads (see
//! [`SignalsBlocked::begin_polling`]). Such a thread polls only if its wait has a short limit, by
//! which it ends in any case.
//!
//! A call that polls makes these system calls: two to block and unblock signals, one for each poll,
//! and one for each yield; in a process with several threads one for the thread's id; for a receive
//! one for the socket's flags, and the receive itself after a poll with success; before a sleep one
//! for pending signals, and for a receive one for its time limit. A call that has a result at once
//! makes no more than without polling.

use std::cell::Cell;
use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::LocalKey;
use std::time::{Duration, Instant};

use libc::{MSG_DONTWAIT, MSG_WAITALL, nfds_t, pollfd, ssize_t};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, socket_timeout};

use crate::fd;
use crate::local::polling_policy::{Mode, Polled, PollingPolicy};
use crate::process::signals_blocked::SignalsBlocked;
use crate::process::{errno, guard, is_nonblocking, shown_events};

/// The environment variable that holds the time to poll in microseconds.
const VARIABLE: &str = "OPS_SPIN";

/// The maximum time to poll in microseconds. Polling longer than a wake-up takes gains nothing.
const MOST_US: u32 = 1000;

/// The time that a thrifty thread polls, in microseconds: the longest wake-up of a sleeping peer
/// that is usual on virtual machines, and some work of the peer.
const THRIFTY_US: u32 = 50;

/// The maximum duration of a poll that takes less of the processor's time than to sleep and to be
/// woken.
const EARLY: Duration = Duration::from_micros(20);

/// The maximum duration of a `sched_yield` during which no other thread has run.
const ALONE: Duration = Duration::from_micros(5);

/// The number of polls between two yields, once a yield has shown that no other thread waits for
/// the processor. A yield takes longer than several polls.
const POLLS_PER_YIELD: u32 = 16;

/// The time to poll, in microseconds; 0 disables polling.
static LIMIT_US: AtomicU32 = AtomicU32::new(0);

/// The mode of all threads.
static MODE: OnceLock<Mode> = OnceLock::new();

/// The policy of a thread for one kind of wait; `None` before the first wait.
type ThreadPolicy = LocalKey<Cell<Option<PollingPolicy>>>;

thread_local! {
    /// For waits for descriptors.
    static FOR_SETS: Cell<Option<PollingPolicy>> = const { Cell::new(None) };
    /// For receives. It is separate, because receives from sockets without blocking never wait.
    static FOR_RECEIVES: Cell<Option<PollingPolicy>> = const { Cell::new(None) };
}

/// The longest time that a wait of the program may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// At most a second. Programs that wait in such steps look after signals between them.
    Short,
    Long,
}

impl Wait {
    /// The wait of a call with this timeout in milliseconds; `None` if the call does not wait.
    #[inline]
    pub(crate) fn of(timeout: c_int) -> Option<Self> {
        match timeout {
            0 => None,
            1..=1000 => Some(Self::Short),
            _ => Some(Self::Long),
        }
    }
}

/// Reads the environment, when the library is loaded.
pub(crate) fn begin() {
    let asked = host::environment::variable(VARIABLE).and_then(|text| text.to_str()?.parse().ok());
    let (mode, limit) = match asked {
        Some(limit) => (Mode::Eager, MOST_US.min(limit)),
        None => (Mode::Thrifty, THRIFTY_US),
    };
    let _ = MODE.set(mode);
    start();
    LIMIT_US.store(limit, Ordering::Relaxed);
}

/// Ends polling in this process.
pub(crate) fn end() {
    LIMIT_US.store(0, Ordering::Relaxed);
}

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// Returns true if waits of this process may poll.
#[inline]
pub(crate) fn is_on() -> bool {
    fd::has_local() && LIMIT_US.load(Ordering::Relaxed) != 0
}

/// Returns true if a receive from this descriptor may poll.
#[inline]
pub(crate) fn may_poll(fd: c_int) -> bool {
    is_on() && fd::is_local(fd)
}

/// Receives data that is available, or waits for it by polls. `call` receives with the flags that
/// it is given. `None`: the caller must make the call as the program made it.
#[inline]
pub(crate) fn receive(
    fd: c_int,
    flags: c_int,
    call: impl FnMut(c_int) -> ssize_t,
) -> Option<ssize_t> {
    let may_wait = flags & (MSG_DONTWAIT | MSG_WAITALL) == 0;
    if !may_wait || !may_poll(fd) || !must_poll(&FOR_RECEIVES) {
        return None;
    }
    receive_by_polls(fd, flags, call)
}

#[cold]
fn receive_by_polls(
    fd: c_int,
    flags: c_int,
    mut call: impl FnMut(c_int) -> ssize_t,
) -> Option<ssize_t> {
    let before = errno::get();
    let received = call(flags | MSG_DONTWAIT);
    if received >= 0 || errno::get() != libc::EAGAIN {
        return Some(received);
    }
    // SAFETY: the kernel has just answered a call on the number, so it is open.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    if is_nonblocking(socket) {
        record(&FOR_RECEIVES, Polled::Nothing, Instant::now());
        errno::set(libc::EAGAIN);
        return Some(-1);
    }
    let ends_by_any = || matches!(socket_timeout(socket, Timeout::Recv), Ok(Some(_)));
    let ask = || {
        let shown = shown_events(socket, PollFlags::IN);
        (shown != Ok(PollFlags::empty())).then_some(())
    };
    let polled = poll(&FOR_RECEIVES, Wait::Long, ends_by_any, ask);
    errno::set(before);
    match polled {
        // The receive itself finds what the poll has found.
        Ok(_) => None,
        Err(why) => {
            errno::set(why.raw_os_error());
            Some(-1)
        }
    }
}

/// Polls an `epoll` set of a program that has local connections. `ask` is the program's call
/// without a timeout; it must not be a cancellation point. `None`: the caller must make the call as
/// the program made it. `wait`: `None` for a call that must not poll.
#[inline]
pub(crate) fn await_set(wait: Option<Wait>, ask: impl Fn() -> c_int) -> Option<c_int> {
    let wait = wait.filter(|_| is_on())?;
    must_poll(&FOR_SETS).then(|| poll_set(wait, || true, ask))?
}

/// Polls a set of `poll` that has local connections, as [`await_set`] does.
///
/// # Safety
/// The contract of `poll`. `ask` makes the kernel check that the set is readable.
#[inline]
pub(crate) unsafe fn await_poll(
    set: *const pollfd,
    count: nfds_t,
    wait: Option<Wait>,
    ask: impl Fn() -> c_int,
) -> Option<c_int> {
    let wait = wait.filter(|_| is_on())?;
    let has_local = || {
        // SAFETY: the kernel has just read this many entries.
        let is_local = |at| fd::is_local(unsafe { set.add(at).read_unaligned() }.fd);
        (0..count as usize).any(is_local)
    };
    must_poll(&FOR_SETS).then(|| poll_set(wait, has_local, ask))?
}

/// Asks once, and then polls if `may_poll` permits it. Returns the wait's result if it is over.
#[cold]
fn poll_set(wait: Wait, may_poll: impl FnOnce() -> bool, ask: impl Fn() -> c_int) -> Option<c_int> {
    // A wait that finds an event here makes no call that is a cancellation point.
    guard::test_cancel();
    let before = errno::get();
    let ask = || Some(ask()).filter(|ready| *ready != 0);
    if let Some(ready) = ask() {
        return Some(ready);
    }
    if !may_poll() {
        return None;
    }
    match poll(&FOR_SETS, wait, || true, ask) {
        Ok(None) => {
            errno::set(before);
            None
        }
        Ok(ready) => ready,
        Err(why) => {
            errno::set(why.raw_os_error());
            Some(-1)
        }
    }
}

/// Returns true if this call of the thread must poll before it waits.
fn must_poll(policy: &'static ThreadPolicy) -> bool {
    change(policy, |policy| {
        policy.on_wait(|| since_start(Instant::now()))
    })
}

/// Records the result of a poll in a policy of the thread.
fn record(policy: &'static ThreadPolicy, polled: Polled, at: Instant) {
    change(policy, |policy| {
        policy.on_polled(polled, since_start(at));
        true
    });
}

/// Changes a policy of the thread. Returns false for a thread that is ending.
fn change(policy: &'static ThreadPolicy, change: impl FnOnce(&mut PollingPolicy) -> bool) -> bool {
    let changed = policy.try_with(|cell| {
        let mode = || MODE.get().copied().unwrap_or(Mode::Thrifty);
        let mut policy = cell.get().unwrap_or_else(|| PollingPolicy::new(mode()));
        let result = change(&mut policy);
        cell.set(Some(policy));
        result
    });
    changed.unwrap_or(false)
}

fn since_start(at: Instant) -> Duration {
    at.saturating_duration_since(start())
}

/// Polls by `ask`, and records the result in a policy of the thread. `ends_by_any`: true if a
/// handler with `SA_RESTART` ends the wait too.
///
/// # Errors
/// `EINTR` if a signal has ended the wait.
fn poll<T>(
    policy: &'static ThreadPolicy,
    wait: Wait,
    ends_by_any: impl FnOnce() -> bool,
    ask: impl FnMut() -> Option<T>,
) -> Result<Option<T>, Errno> {
    let blocked = SignalsBlocked::begin_polling();
    if blocked.is_none() && wait == Wait::Long {
        record(policy, Polled::Nothing, Instant::now());
        return Ok(None);
    }
    let (polled, result, at) = poll_until_time(Instant::now(), ask);
    record(policy, polled, at);
    let is_interrupted = result.is_none()
        && blocked
            .as_ref()
            .is_some_and(|blocked| blocked.will_interrupt(ends_by_any()));
    let after = errno::get();
    // The handlers run here: they belong to the program, and may leave the call by `siglongjmp`.
    drop(blocked);
    errno::set(after);
    match is_interrupted {
        true => Err(Errno::INTR),
        false => Ok(result),
    }
}

/// Calls `ask` until it returns a result, the time is over, or another thread uses the processor.
/// Returns the time of the end too.
fn poll_until_time<T>(
    begun: Instant,
    mut ask: impl FnMut() -> Option<T>,
) -> (Polled, Option<T>, Instant) {
    let end = begun + Duration::from_micros(LIMIT_US.load(Ordering::Relaxed).into());
    let mut back = begun;
    let mut polls = 1;
    loop {
        for _ in 0..polls {
            if let Some(result) = ask() {
                let is_early = back.duration_since(begun) <= EARLY;
                let polled = if is_early {
                    Polled::Found
                } else {
                    Polled::FoundLate
                };
                return (polled, Some(result), back);
            }
        }
        let asked = Instant::now();
        rustix::thread::sched_yield();
        back = Instant::now();
        if back.duration_since(asked) > ALONE {
            return (Polled::Interrupted, None, back);
        }
        if back >= end {
            return (Polled::Nothing, None, back);
        }
        polls = POLLS_PER_YIELD;
    }
}
