//! Waiting: whatever waits for a listening socket waits for its offloaded connections too.
//!
//! An offloaded connection needs nothing here: its descriptor is a kernel object that shows what it
//! is ready for. So each of these functions is the C library's, after one look at a counter, in a
//! process that has no listener with an offload protocol beside it.

use std::ffi::{c_int, c_long};
use std::ptr;
use std::time::{Duration, Instant};

use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, FD_SETSIZE, POLLERR, POLLHUP, POLLIN, POLLNVAL,
    POLLOUT, POLLPRI, POLLRDNORM, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec,
    timeval,
};

use super::alias;
use crate::{errno, listening, real, registrations, table};

/// Hook of `epoll_ctl`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    if operation == EPOLL_CTL_ADD && table::has_listeners() {
        listening::take_over(fd);
    }
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { real::epoll_ctl(set, operation, fd, event) };
    if result == 0 && operation == EPOLL_CTL_ADD {
        registrations::note(set);
    }
    if result == 0
        && matches!(operation, EPOLL_CTL_ADD | EPOLL_CTL_MOD | EPOLL_CTL_DEL)
        && let Some(listener) = table::find_listener(fd)
    {
        // SAFETY: the event that the kernel has just read, for the descriptor that goes with the
        // listener. When it cannot be added, offloaded peers wait for the next event of another
        // kind; the set itself is as the program wants it.
        unsafe { real::epoll_ctl(set, operation, listener.pending_number(), event) };
        errno::set(0);
    }
    result
}

/// Hook of `poll`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(set: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's set.
    match unsafe { Widened::of(set, count) } {
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { real::poll(set, count, timeout) },
        Some(mut wide) => {
            let (all, len) = wide.parts();
            // SAFETY: a set of our own.
            let ready = unsafe { real::poll(all, len, timeout) };
            wide.narrow(ready)
        }
    }
}

/// Hook of `ppoll`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    set: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's set.
    match unsafe { Widened::of(set, count) } {
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { real::ppoll(set, count, timeout, mask) },
        Some(mut wide) => {
            let (all, len) = wide.parts();
            // SAFETY: a set of our own, and the caller's timeout and mask.
            let ready = unsafe { real::ppoll(all, len, timeout, mask) };
            wide.narrow(ready)
        }
    }
}

/// A caller's set with the counters of its listeners behind it.
struct Widened<'a> {
    callers: &'a mut [pollfd],
    all: Vec<pollfd>,
    /// For each counter, whose it is.
    owners: Vec<usize>,
}

impl<'a> Widened<'a> {
    /// `None`: there is no such listener in the set.
    ///
    /// # Safety
    /// `set` points to `count` entries, or is null.
    unsafe fn of(set: *mut pollfd, count: nfds_t) -> Option<Self> {
        if !table::has_listeners() || set.is_null() {
            return None;
        }
        let count = usize::try_from(count).ok()?;
        // SAFETY: the caller answers for the set.
        let callers = unsafe { std::slice::from_raw_parts_mut(set, count) };
        let mut more = Vec::new();
        let mut owners = Vec::new();
        for (index, entry) in callers.iter().enumerate() {
            if let Some(listener) = table::find_listener(entry.fd) {
                more.push(pollfd {
                    fd: listener.pending_number(),
                    events: entry.events & (POLLIN | POLLRDNORM),
                    revents: 0,
                });
                owners.push(index);
            }
        }
        if owners.is_empty() {
            return None;
        }
        let mut all = callers.to_vec();
        all.append(&mut more);
        Some(Self {
            callers,
            all,
            owners,
        })
    }

    fn parts(&mut self) -> (*mut pollfd, nfds_t) {
        (self.all.as_mut_ptr(), self.all.len() as nfds_t)
    }

    /// Tells the caller what became ready, under the names that it knows.
    fn narrow(self, ready: c_int) -> c_int {
        if ready < 0 {
            return ready;
        }
        let (callers, counters) = self.all.split_at(self.callers.len());
        self.callers.copy_from_slice(callers);
        for (counter, owner) in counters.iter().zip(&self.owners) {
            let owner = &mut self.callers[*owner];
            owner.revents |= counter.revents & owner.events & (POLLIN | POLLRDNORM);
        }
        let ready = self.callers.iter().filter(|entry| entry.revents != 0);
        c_int::try_from(ready.count()).unwrap_or(c_int::MAX)
    }
}

/// Hook of `select`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn select(
    count: c_int,
    readable: *mut fd_set,
    writable: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's sets.
    let mut sets = unsafe { Sets::of(count, readable, writable, except) };
    if !sets.has_listener() {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::select(count, readable, writable, except, timeout) };
    }
    let start = Instant::now();
    // SAFETY: the caller's timeout, if there is one.
    let limit = match unsafe { timeout.as_ref() } {
        None => None,
        Some(limit) => match duration(limit.tv_sec, limit.tv_usec.saturating_mul(1000)) {
            Some(limit) => Some(limit),
            None => {
                errno::set(libc::EINVAL);
                return -1;
            }
        },
    };
    let spec = limit.map(|limit| timespec {
        tv_sec: c_long::try_from(limit.as_secs()).unwrap_or(c_long::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let spec = spec.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the caller's sets and a timeout of ours.
    let ready = unsafe { sets.wait(spec, ptr::null()) };
    if let Some(limit) = limit {
        let left = limit.saturating_sub(start.elapsed());
        // SAFETY: the caller's timeout, which Linux turns into what is left of it.
        unsafe {
            (*timeout).tv_sec = c_long::try_from(left.as_secs()).unwrap_or(c_long::MAX);
            (*timeout).tv_usec = left.subsec_micros().into();
        }
    }
    ready
}

/// Hook of `pselect`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    count: c_int,
    readable: *mut fd_set,
    writable: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's sets.
    let mut sets = unsafe { Sets::of(count, readable, writable, except) };
    if !sets.has_listener() {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::pselect(count, readable, writable, except, timeout, mask) };
    }
    // SAFETY: the caller's sets, timeout and mask.
    unsafe { sets.wait(timeout, mask) }
}

fn duration(seconds: c_long, nanos: c_long) -> Option<Duration> {
    let seconds = u64::try_from(seconds).ok()?;
    let nanos = u64::try_from(nanos).ok()?;
    Some(Duration::from_secs(seconds) + Duration::from_nanos(nanos))
}

/// The three sets of a `select`.
struct Sets {
    sets: [*mut fd_set; 3],
    wanted: Vec<pollfd>,
}

/// What each set asks of `poll`, and what of its answers means "ready" there.
const ASKED: [i16; 3] = [POLLIN, POLLOUT, POLLPRI];
const READY: [i16; 3] = [POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, POLLPRI];

impl Sets {
    /// # Safety
    /// The sets are null or hold `count` bits.
    unsafe fn of(
        count: c_int,
        readable: *mut fd_set,
        writable: *mut fd_set,
        except: *mut fd_set,
    ) -> Self {
        let sets = [readable, writable, except];
        let mut wanted = Vec::new();
        if table::has_listeners() {
            for fd in 0..count.clamp(0, FD_SETSIZE as c_int) {
                let mut events = 0;
                for (set, asked) in sets.iter().zip(ASKED) {
                    // SAFETY: the caller's set, and a bit within it.
                    if !set.is_null() && unsafe { libc::FD_ISSET(fd, *set) } {
                        events |= asked;
                    }
                }
                if events != 0 {
                    wanted.push(pollfd {
                        fd,
                        events,
                        revents: 0,
                    });
                }
            }
        }
        Self { sets, wanted }
    }

    fn has_listener(&self) -> bool {
        let mut wanted = self.wanted.iter();
        wanted.any(|entry| table::find_listener(entry.fd).is_some())
    }

    /// Waits by `poll`, which can name the counters of listeners whatever their numbers are.
    ///
    /// # Safety
    /// The caller's timeout and mask.
    unsafe fn wait(&mut self, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        let count = self.wanted.len() as nfds_t;
        // SAFETY: a set of our own.
        let ready = unsafe { ppoll(self.wanted.as_mut_ptr(), count, timeout, mask) };
        if ready < 0 {
            return ready;
        }
        if self
            .wanted
            .iter()
            .any(|entry| entry.revents & POLLNVAL != 0)
        {
            errno::set(libc::EBADF);
            return -1;
        }
        let mut bits = 0;
        for entry in &self.wanted {
            for ((set, asked), means) in self.sets.iter().zip(ASKED).zip(READY) {
                if entry.events & asked == 0 {
                    continue;
                }
                if entry.revents & means != 0 {
                    bits += 1;
                } else {
                    // SAFETY: the bit was found in this set.
                    unsafe { libc::FD_CLR(entry.fd, *set) };
                }
            }
        }
        bits
    }
}

/// What the checked forms do first: a set must lie within its object.
unsafe fn check(count: nfds_t, room: size_t) {
    if (room / size_of::<pollfd>()) < usize::try_from(count).unwrap_or(usize::MAX) {
        // SAFETY: it takes nothing and does not return.
        unsafe { super::transfer::__chk_fail() }
    }
}

alias! {
    __poll(set: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = poll(set, count, timeout);
    __poll_chk(set: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int =
        { check(count, room); poll(set, count, timeout) };
    __ppoll_chk(
        set: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t,
        room: size_t,
    ) -> c_int = { check(count, room); ppoll(set, count, timeout, mask) };
    __select(
        count: c_int, readable: *mut fd_set, writable: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int = select(count, readable, writable, except, timeout);
}
