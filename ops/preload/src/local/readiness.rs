//! The events of `poll` and `epoll` where a socket of `AF_UNIX` shows others than TCP.
//!
//! The kernel shows a hang-up (`POLLHUP`) as soon as the peer has closed its socket; TCP shows it
//! when both directions have [ended](super::ends). The kernel shows `POLLWRBAND` for a writable
//! socket; TCP never does. A wait that has found neither makes no further system call: its results
//! are checked for these two events. `select` shows neither.
//!
//! A hang-up may be the only event of a connection that a wait has found. TCP would continue to
//! wait, so the wait is made again: without the connection, or by a set that reports only changes
//! of it.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use libc::{EPOLLERR, EPOLLHUP, EPOLLWRBAND, POLLHUP, POLLWRBAND, epoll_event, nfds_t, pollfd};

use super::ends::{self, Event, Sending};
use crate::fd::watches::{self, Registration};
use crate::fd::{has_local, is_local, sets};
use crate::process::{errno, real, restrictions};

const ERR: u32 = EPOLLERR.cast_unsigned();
const HUP: u32 = EPOLLHUP.cast_unsigned();
const WRBAND: u32 = EPOLLWRBAND.cast_unsigned();

/// Returns the events that TCP shows where the kernel shows `shown` for a local connection. The
/// events have the same values for `poll` and `epoll`.
fn as_tcp(fd: c_int, shown: u32) -> u32 {
    let shown = shown & !WRBAND;
    if shown & HUP == 0 {
        return shown;
    }
    let real = ends::with(fd, |socket, fd| {
        if shown & ERR != 0 {
            // The connection stays reset after a call has returned the error.
            ends::record(socket, fd, Event::Reset);
            return shown;
        }
        match ends::sending(socket, fd) {
            Sending::Open => shown & !HUP,
            Sending::Ended => shown,
            Sending::Refused => shown | ERR,
        }
    });
    real.unwrap_or(shown)
}

/// Waits by `call`, which takes the rest of the time, until `check` leaves events of those that the
/// kernel has found. The first call has `None`, and makes the wait as the program does. `whole`
/// returns the time that the program permits; `begun` is needed if it is neither zero nor infinite.
fn repeat(
    begun: Option<Instant>,
    whole: impl Fn() -> Option<Duration>,
    call: impl Fn(Option<Duration>) -> c_int,
    mut check: impl FnMut(c_int) -> c_int,
) -> c_int {
    let mut left = None;
    loop {
        let ready = call(left);
        if ready <= 0 {
            return ready;
        }
        let kept = check(ready);
        if kept != 0 {
            return kept;
        }
        let elapsed = begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        left = whole().map(|whole| whole.saturating_sub(elapsed));
    }
}

/// Performs `epoll_wait` or a related function; see [`repeat`].
///
/// # Safety
/// `call` writes as many events to `events` as it returns.
#[inline]
pub(crate) unsafe fn epoll(
    set: c_int,
    events: *mut epoll_event,
    begun: Option<Instant>,
    whole: impl Fn() -> Option<Duration>,
    call: impl Fn(Option<Duration>) -> c_int,
) -> c_int {
    // SAFETY: the caller guarantees the events.
    let check = |ready| unsafe { keep_events(set, events, ready) };
    repeat(begun, whole, call, check)
}

/// Changes the events that a set has reported. Returns the number of those that remain.
///
/// # Safety
/// There are `ready` events.
unsafe fn keep_events(set: c_int, events: *mut epoll_event, ready: c_int) -> c_int {
    let mut kept = 0;
    for at in 0..usize::try_from(ready).unwrap_or(0) {
        // SAFETY: the caller guarantees this many events; the type permits any alignment.
        let mut event = unsafe { events.add(at).read_unaligned() };
        let is_rare = event.events & (HUP | WRBAND) != 0;
        if is_rare && has_local() {
            event.events = events_of_set(set, &event);
        }
        if event.events == 0 {
            continue;
        }
        if is_rare || kept != at {
            // SAFETY: the index is at most that of the event that was read.
            unsafe { events.add(kept).write_unaligned(event) };
        }
        kept += 1;
    }
    c_int::try_from(kept).unwrap_or(c_int::MAX)
}

/// Returns the events that TCP shows for an event of a set; none if the wait must continue.
#[cold]
fn events_of_set(set: c_int, event: &epoll_event) -> u32 {
    let mut watched = Watched::default();
    watches::find(set, event.u64, |fd, registration| {
        watched.add(fd, registration, event);
    });
    if watched.count == 0
        && watches::has_several()
        && !restrictions::is_restricted()
        && let Some((fd, registration)) = sets::find_local(set, event.u64)
    {
        watched.add(fd, registration, event);
    }
    match watched.last {
        None => event.events,
        Some(_) if watched.shown != 0 => watched.shown,
        Some((fd, registration)) => {
            let reports_once = (libc::EPOLLET | libc::EPOLLONESHOT).cast_unsigned();
            let is_silent = registration.events & reports_once != 0
                || (watched.count == 1 && watches::report_changes_only(set, fd, &registration));
            match is_silent {
                true => 0,
                false => event.events,
            }
        }
    }
}

/// The connections that an event of a set may belong to: those that are registered with its data.
#[derive(Default)]
struct Watched {
    count: usize,
    /// The events of all of them.
    shown: u32,
    last: Option<(c_int, epoll_event)>,
}

impl Watched {
    fn add(&mut self, fd: c_int, registration: epoll_event, event: &epoll_event) {
        self.count += 1;
        self.shown |= as_tcp(fd, event.events);
        self.last = Some((fd, registration));
    }
}

/// Performs `poll` or `ppoll`; see [`repeat`].
///
/// # Safety
/// The contract of `poll`. `call` takes a set of this size, which is readable and writable if the
/// call succeeds.
#[inline]
pub(crate) unsafe fn poll(
    set: *mut pollfd,
    count: nfds_t,
    begun: Option<Instant>,
    whole: impl Fn() -> Option<Duration>,
    call: impl Fn(*mut pollfd, Option<Duration>) -> c_int,
) -> c_int {
    let ready = call(set, None);
    if ready <= 0 || !has_local() {
        return ready;
    }
    // SAFETY: the kernel has written to this many entries.
    let kept = unsafe { keep_entries(set, count, ready, |_| ()) };
    if kept != 0 {
        return kept;
    }
    // SAFETY: as above.
    unsafe { poll_without(set, count, begun, whole, call) }
}

/// Waits for a set without the connections of which the kernel shows only events that TCP does not
/// show.
///
/// # Safety
/// As for [`poll`]; the set is readable and writable.
#[cold]
unsafe fn poll_without(
    set: *mut pollfd,
    count: nfds_t,
    begun: Option<Instant>,
    whole: impl Fn() -> Option<Duration>,
    call: impl Fn(*mut pollfd, Option<Duration>) -> c_int,
) -> c_int {
    let len = count as u32 as usize;
    // SAFETY: the caller guarantees that this many entries are readable.
    let entry = |at| unsafe { set.add(at).read_unaligned() };
    let mut copy: Vec<pollfd> = (0..len).map(entry).collect();
    let copied = copy.as_mut_ptr();
    // The first call finds the connections that are to be left out.
    // SAFETY: the copy has this many entries.
    let check = |ready| unsafe { keep_entries(copied, count, ready, |it| it.fd = !it.fd) };
    let ready = repeat(begun, whole, |left| call(copied, left), check);
    for (at, waited) in copy.iter().enumerate() {
        // SAFETY: the caller guarantees that this many entries are writable.
        unsafe { (&raw mut (*set.add(at)).revents).write_unaligned(waited.revents) };
    }
    ready
}

/// Changes the events that the kernel has written to a set. Returns the number of entries with
/// events, of `ready` before. Calls `on_none` for each entry that has none any more.
///
/// # Safety
/// There are `count` entries.
unsafe fn keep_entries(
    set: *mut pollfd,
    count: nfds_t,
    ready: c_int,
    on_none: impl Fn(&mut pollfd),
) -> c_int {
    let mut kept = ready;
    for at in 0..count as u32 as usize {
        // SAFETY: the caller guarantees this many entries; the read permits any alignment.
        let mut entry = unsafe { set.add(at).read_unaligned() };
        if entry.revents & (POLLHUP | POLLWRBAND) == 0 || !is_local(entry.fd) {
            continue;
        }
        let shown = as_tcp(entry.fd, u32::from(entry.revents.cast_unsigned()));
        entry.revents = (shown as u16).cast_signed();
        if shown == 0 {
            kept -= 1;
            on_none(&mut entry);
        }
        // SAFETY: as above, for the write.
        unsafe { set.add(at).write_unaligned(entry) };
    }
    kept
}

/// Makes the sets that report only changes report that bytes were refused.
pub(crate) fn on_refused(fd: c_int) {
    let Some(Registration { set, mut event }) = watches::registration(fd) else {
        return;
    };
    let (once, changes) = (
        libc::EPOLLONESHOT.cast_unsigned(),
        libc::EPOLLET.cast_unsigned(),
    );
    if event.events & (once | changes) == changes {
        let why = errno::get();
        // SAFETY: the event is a local variable; the kernel checks the descriptors.
        unsafe { real::epoll_ctl(set, libc::EPOLL_CTL_MOD, fd, &raw mut event) };
        errno::set(why);
    }
}
