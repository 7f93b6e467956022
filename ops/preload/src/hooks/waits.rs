//! `poll`, `epoll`: a wait for a listening socket also waits for its offloaded
//! connections.
//!
//! An offloaded connection needs no work here: its descriptor is a kernel object that shows the
//! connection's readiness, and the protocol's own thread makes progress once the calling thread has
//! ended its [polls](crate::socket::polling). Waits on `epoll` sets call the C library. So do all
//! other waits in a process without a listener that has an offload protocol next to it. Some waits
//! of a process with connections within the host [poll first](crate::local::spinning).

use std::ffi::{c_int, c_long, c_uint};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, POLLIN, POLLNVAL, POLLRDNORM, epoll_event, nfds_t,
    pollfd, sigset_t, size_t, timespec,
};

use super::{alias, jump, unchanged};
use crate::fd::{self, removals, sets, watches};
use crate::listener::Listener;
use crate::local::readiness;
use crate::local::spinning::{self, Wait};
use crate::process::{errno, real};
use crate::setup::offer;
use crate::socket::polling;

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let is_addition = operation == EPOLL_CTL_ADD;
    // SAFETY: the caller's arguments, unchanged.
    unsafe {
        if polling::is_in_use() || (is_addition && fd::has_listeners()) || fd::needs_library(fd) {
            return control_in_library(set, operation, fd, event);
        }
        if is_addition {
            sets::record_addition(set, fd);
        }
        if fd::has_local() && fd::is_local(fd) {
            return watches::control(set, operation, fd, event);
        }
        real::epoll_ctl(set, operation, fd, event)
    }
}

/// Performs `epoll_ctl` where this library has streams that a thread polls, listeners, or a
/// descriptor whose kernel object is not final.
///
/// # Safety
/// As for `epoll_ctl`.
#[inline(never)]
unsafe extern "C-unwind" fn control_in_library(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    polling::end_all();
    if operation == EPOLL_CTL_ADD {
        if fd::has_listeners() {
            offer::take_over(fd);
        }
        sets::record_addition(set, fd);
    }
    match Listener::of(fd) {
        // SAFETY: the caller's arguments, unchanged.
        Some(listener) => unsafe { control_listener(set, operation, fd, event, &listener) },
        // SAFETY: the caller's arguments, unchanged.
        None if fd::is_local(fd) => unsafe { watches::control(set, operation, fd, event) },
        // SAFETY: the caller's arguments, unchanged.
        None => unchanged(fd, || unsafe { real::epoll_ctl(set, operation, fd, event) }),
    }
}

/// Performs `epoll_ctl` for a listener, and for the listeners next to it.
///
/// # Safety
/// As for `epoll_ctl`.
unsafe fn control_listener(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
    listener: &Listener,
) -> c_int {
    // The kernel does not read the event of a removal, so the hook must not read it either.
    let reads = matches!(operation, EPOLL_CTL_ADD | EPOLL_CTL_MOD);
    // SAFETY: the kernel has found the event readable.
    let wanted = (reads && is_readable(event)).then(|| unsafe { event.read_unaligned() });
    let wanted = wanted.as_ref();
    // SAFETY: the table has an entry for the number, so it is not negative.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let one_shot = wanted.filter(|event| sets::is_one_shot(event));
    let joint = one_shot.and_then(|_| listener.obtain_joint(socket));
    let mut disarmed = one_shot.map(sets::disarmed_event);
    let own = match (&mut disarmed, joint) {
        (Some(disarmed), Some(_)) => ptr::from_mut(disarmed),
        _ => event,
    };
    // SAFETY: the event is the caller's or a local one.
    let result = unsafe { real::epoll_ctl(set, operation, fd, own) };
    if result != 0 || (wanted.is_none() && operation != EPOLL_CTL_DEL) {
        return result;
    }
    let why = errno::get();
    let arrival = wanted.map(sets::arrival_event);
    let is_new = match (joint, listener.joint().get()) {
        (Some(joint), _) => {
            sets::record_watched(joint);
            control(set, operation, joint, arrival)
        }
        (None, Some(unused)) if operation != EPOLL_CTL_ADD => control(set, operation, unused, None),
        _ => false,
    };
    // With a joint descriptor, the others are in the set only before a change to `EPOLLONESHOT`.
    if joint.is_none() || (is_new && operation == EPOLL_CTL_MOD) {
        if arrival.is_some() {
            listener.on_awaited();
        }
        for pending in listener.pending() {
            let arrival = arrival.filter(|_| joint.is_none());
            control(set, operation, pending.as_raw_fd(), arrival);
        }
    }
    errno::set(why);
    result
}

/// Returns true if the kernel can read an event. It reads the event before it checks the set.
fn is_readable(event: *mut epoll_event) -> bool {
    let before = errno::get();
    // SAFETY: the kernel checks the pointer, and no set has the number -1.
    let result = unsafe { real::epoll_ctl(-1, EPOLL_CTL_ADD, -1, event) };
    let is_readable = result == 0 || errno::get() != libc::EFAULT;
    errno::set(before);
    is_readable
}

/// Makes a set watch a descriptor of this library for these events; `None` removes the descriptor.
/// Returns true if the set did not watch it before. If the call fails, the program's set still has
/// the listener, and offloaded connections wait until the program calls `accept` for another
/// reason.
fn control(set: c_int, operation: c_int, fd: c_int, event: Option<epoll_event>) -> bool {
    let call = |operation, mut event: Option<epoll_event>| {
        let event = event.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        // SAFETY: the event is null, for a removal, or a local variable, and the listener keeps the
        // descriptor open.
        unsafe { real::epoll_ctl(set, operation, fd, event) }
    };
    match (operation, event) {
        (_, None) => {
            call(EPOLL_CTL_DEL, None);
            false
        }
        (EPOLL_CTL_ADD, Some(_)) => {
            call(EPOLL_CTL_ADD, event) == 0 || {
                call(EPOLL_CTL_MOD, event);
                false
            }
        }
        (_, Some(_)) => call(EPOLL_CTL_MOD, event) != 0 && call(EPOLL_CTL_ADD, event) == 0,
    }
}

/// Hook of `epoll_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: the call takes no pointers.
    let made = unsafe { real::epoll_create(size) };
    fd::on_set_made(made);
    made
}

/// Hook of `epoll_create1`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the call takes no pointers.
    let made = unsafe { real::epoll_create1(flags) };
    fd::on_set_made(made);
    made
}

/// Returns true if waits of this process may have work before they sleep: polls, or a removal that
/// the kernel has not seen; or after it: events of connections within the host.
#[inline]
pub(super) fn has_work() -> bool {
    polling::is_in_use() || fd::has_local() || removals::is_deferred()
}

jump! {
    fn epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int =
        if has_work() => epoll_wait_in_library;

    fn epoll_pwait(
        set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int,
        mask: *const sigset_t,
    ) -> c_int = if has_work() => epoll_pwait_in_library;

    fn epoll_pwait2(
        set: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int = if has_work() => epoll_pwait2_in_library;

    fn poll(set: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int =
        if has_work() || fd::has_listeners() => poll_in_library;

    fn ppoll(
        set: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t,
    ) -> c_int = if has_work() || fd::has_listeners() => ppoll_in_library;
}

/// Performs `epoll_wait`, and may poll before it sleeps.
///
/// # Safety
/// As for `epoll_wait`.
#[inline(never)]
pub(super) unsafe extern "C-unwind" fn epoll_wait_in_library(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    removals::make();
    // SAFETY: the caller's arguments, except for the timeout.
    let ask = || unsafe { epoll_now(set, events, most) };
    let call = |left: Option<Duration>| {
        let timeout = left.map_or(timeout, milliseconds);
        polling::before_wait(is_long(timeout), ask)
            .or_else(|| spinning::await_set(Wait::of(timeout), ask))
            // SAFETY: the caller's arguments, except for the timeout.
            .unwrap_or_else(|| unsafe { real::epoll_wait(set, events, most, timeout) })
    };
    let whole = || u64::try_from(timeout).ok().map(Duration::from_millis);
    // SAFETY: the kernel writes the events that it counts.
    unsafe { readiness::epoll(set, events, begun(timeout), whole, call) }
}

/// Performs `epoll_pwait`, and may poll before it sleeps.
///
/// # Safety
/// As for `epoll_pwait`.
#[inline(never)]
pub(super) unsafe extern "C-unwind" fn epoll_pwait_in_library(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    removals::make();
    // SAFETY: the caller's arguments, except for the timeout.
    let ask = || unsafe { epoll_now(set, events, most) };
    let call = |left: Option<Duration>| {
        let timeout = left.map_or(timeout, milliseconds);
        polling::before_wait(is_long(timeout) && mask.is_null(), ask)
            .or_else(|| {
                let wait = Wait::of(timeout).filter(|_| mask.is_null());
                spinning::await_set(wait, ask)
            })
            // SAFETY: the caller's arguments, except for the timeout.
            .unwrap_or_else(|| unsafe { real::epoll_pwait(set, events, most, timeout, mask) })
    };
    let whole = || u64::try_from(timeout).ok().map(Duration::from_millis);
    // SAFETY: the kernel writes the events that it counts.
    unsafe { readiness::epoll(set, events, begun(timeout), whole, call) }
}

/// Performs `epoll_pwait2`, and may poll before it sleeps.
///
/// # Safety
/// As for `epoll_pwait2`.
#[inline(never)]
pub(super) unsafe extern "C-unwind" fn epoll_pwait2_in_library(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    removals::make();
    // SAFETY: the caller's arguments, except for the timeout.
    let ask = || unsafe { epoll_now(set, events, most) };
    let call = |left: Option<Duration>| {
        let left = left.map(spec);
        let timeout = left.as_ref().map_or(timeout, ptr::from_ref);
        // The timeout is not read, because only the kernel can check that the pointer is valid.
        let is_endless = timeout.is_null() && mask.is_null();
        polling::before_wait(is_endless, ask)
            .or_else(|| spinning::await_set(is_endless.then_some(Wait::Long), ask))
            // SAFETY: the caller's arguments, or a local timeout.
            .unwrap_or_else(|| unsafe { real::epoll_pwait2(set, events, most, timeout, mask) })
    };
    let begun = (!timeout.is_null()).then(Instant::now);
    // SAFETY: the caller's timeout is null or valid, because the kernel has accepted it.
    let whole = || unsafe { timeout.as_ref() }.and_then(duration);
    // SAFETY: the kernel writes the events that it counts.
    unsafe { readiness::epoll(set, events, begun, whole, call) }
}

/// Returns the present time for a wait that ends by its timeout in milliseconds.
fn begun(timeout: c_int) -> Option<Instant> {
    (timeout > 0).then(Instant::now)
}

/// Converts a time to a timeout in milliseconds, which is not shorter.
fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
}

/// The size of the kernel's signal mask in bytes.
pub(super) const KERNEL_MASK: c_long = 8;

/// Returns true for a timeout in milliseconds that polls do not exceed.
fn is_long(timeout: c_int) -> bool {
    !(0..10).contains(&timeout)
}

/// Calls `epoll_pwait` without waiting. Calls the kernel by number, to avoid a cancellation point.
///
/// # Safety
/// As for `epoll_pwait`.
unsafe fn epoll_now(set: c_int, events: *mut epoll_event, most: c_int) -> c_int {
    let (number, none) = (libc::SYS_epoll_pwait, 0);
    // SAFETY: the caller's arguments, and a timeout of zero.
    let ready = unsafe {
        real::syscall(
            number,
            set.into(),
            events as _,
            most.into(),
            none,
            0,
            KERNEL_MASK,
        )
    };
    ready as c_int
}

/// Calls `ppoll` without waiting. Calls the kernel by number, to avoid a cancellation point.
///
/// # Safety
/// As for `ppoll`. The kernel checks that the set is readable.
pub(super) unsafe fn ppoll_now(set: *mut pollfd, count: nfds_t) -> c_int {
    let mut none = spec(Duration::ZERO);
    let (number, limit) = (libc::SYS_ppoll, &raw mut none);
    let count = count as c_long;
    // SAFETY: the caller's set and mask, and a local timeout of zero.
    let ready = unsafe { real::syscall(number, set as _, count, limit as _, 0, KERNEL_MASK, 0) };
    ready as c_int
}

/// Returns true for a result of polls that a wait can return. Only [`ppoll_all`] also asks for the
/// offloaded connections of listeners; it finds the polled events again.
fn is_complete(ready: &c_int) -> bool {
    *ready < 0 || !fd::has_listeners()
}

/// Performs `poll` on a set that may contain listeners, and may poll before it sleeps.
///
/// # Safety
/// As for `poll`.
#[inline(never)]
unsafe extern "C-unwind" fn poll_in_library(
    set: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
) -> c_int {
    removals::make();
    let call = |set, left: Option<Duration>| {
        // SAFETY: the caller's arguments, or a local set of the same size.
        unsafe { poll_with_listeners(set, count, left.map_or(timeout, milliseconds)) }
    };
    let whole = || u64::try_from(timeout).ok().map(Duration::from_millis);
    // SAFETY: the caller's set.
    unsafe { readiness::poll(set, count, begun(timeout), whole, call) }
}

/// # Safety
/// As for `poll`.
unsafe fn poll_with_listeners(set: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the kernel checks that the set is readable.
    let ask = || unsafe { ppoll_now(set, count) };
    let polled = polling::before_wait(is_long(timeout), ask)
        // SAFETY: as above.
        .or_else(|| unsafe { spinning::await_poll(set, count, Wait::of(timeout), ask) });
    if let Some(ready) = polled.filter(is_complete) {
        return ready;
    }
    if !fd::has_listeners() {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::poll(set, count, timeout) };
    }
    let limit = u64::try_from(timeout).map(|limit| spec(Duration::from_millis(limit)));
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the caller's set, and a local timeout.
    unsafe { ppoll_all(set, count, limit, ptr::null()) }
}

/// Performs `ppoll` on a set that may contain listeners, and may poll before it sleeps.
///
/// # Safety
/// As for `ppoll`.
#[inline(never)]
unsafe extern "C-unwind" fn ppoll_in_library(
    set: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    removals::make();
    let call = |set, left: Option<Duration>| {
        let left = left.map(spec);
        let timeout = left.as_ref().map_or(timeout, ptr::from_ref);
        // SAFETY: the kernel checks that the set is readable.
        let ask = || unsafe { ppoll_now(set, count) };
        polling::before_wait(timeout.is_null() && mask.is_null(), ask)
            .filter(is_complete)
            // SAFETY: the caller's arguments, or a local set of the same size and a local timeout.
            .unwrap_or_else(|| unsafe { ppoll_all(set, count, timeout, mask) })
    };
    let begun = (!timeout.is_null()).then(Instant::now);
    // SAFETY: the caller's timeout is null or valid, because the kernel has accepted it.
    let whole = || unsafe { timeout.as_ref() }.and_then(duration);
    // SAFETY: the caller's set.
    unsafe { readiness::poll(set, count, begun, whole, call) }
}

/// Performs `ppoll` on a set that may contain listeners.
///
/// # Safety
/// As for `ppoll`.
// A separate function, as is `ppoll_wide`: a cancelled thread is unwound and drops local values,
// which is not permitted in a function with the C calling convention.
#[inline(never)]
pub(super) unsafe fn ppoll_all(
    set: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if fd::has_listeners() && !set.is_null() {
        // SAFETY: the caller's arguments, unchanged.
        unsafe { ppoll_wide(set, count, timeout, mask) }
    } else {
        // SAFETY: the caller's arguments, unchanged.
        unsafe { real::ppoll(set, count, timeout, mask) }
    }
}

/// Performs `ppoll` on a set that contains listeners.
///
/// # Safety
/// As for `ppoll`.
#[inline(never)]
unsafe fn ppoll_wide(
    set: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let begun = Instant::now();
    let mut left = None;
    loop {
        let limit = left.as_ref().map_or(timeout, ptr::from_ref);
        // SAFETY: the caller's set.
        let Some(mut wide) = (unsafe { ExtendedSet::of(set, count) }) else {
            // SAFETY: the caller's arguments, with the rest of the timeout.
            return unsafe { real::ppoll(set, count, limit, mask) };
        };
        let (all, len) = wide.parts();
        // SAFETY: a local set, the rest of the timeout, and the caller's mask.
        let ready = unsafe { real::ppoll(all, len, limit, mask) };
        let has_changed = ready > 0 && wide.take_over() | wide.note_lost();
        let reported = wide.report(ready);
        if reported != 0 || !has_changed {
            return reported;
        }
        // SAFETY: the caller's timeout is null or valid, because the kernel has accepted it.
        let whole = unsafe { timeout.as_ref() }.and_then(duration);
        left = whole.map(|whole| spec(whole.saturating_sub(begun.elapsed())));
    }
}

/// Returns the number of entries that the kernel reads: the kernel's count has 32 bits.
fn kernel_count(count: nfds_t) -> usize {
    count as c_uint as usize
}

/// Returns true if a set has an address and a size that programs use. For all other sets, the
/// kernel is asked whether they are readable, which takes a system call.
fn is_plausible(set: *mut pollfd, count: usize) -> bool {
    const MANY: usize = 1024;
    set.is_aligned() && is_plausible_address(set) && count <= MANY
}

/// Returns false for an address in the first page, where programs have no memory.
pub(super) fn is_plausible_address<T>(set: *mut T) -> bool {
    const PAGE: usize = 4096;
    set.addr() >= PAGE
}

/// A caller's set, extended by the counters of its listeners and by descriptors of listening
/// processes. Entries that the kernel ignores are left out: programs pass as many entries as they
/// may have descriptors, and the kernel refuses longer sets.
struct ExtendedSet {
    /// The caller's set. Its memory is accessible, but the contents may change at any time.
    set: *mut pollfd,
    /// The number of entries of the caller's set.
    count: usize,
    /// The index in the caller's set of each entry of `all` that is the caller's.
    indices: Vec<usize>,
    /// The caller's entries, followed by the added entries.
    all: Vec<pollfd>,
    /// The listener of each added entry, with its index in `all`.
    owners: Vec<(usize, Arc<Listener>)>,
    counters: usize,
}

impl ExtendedSet {
    /// Returns `None` if the set contains no such listener, or the kernel refuses the set.
    ///
    /// # Safety
    /// `set` points to `count` entries, or the kernel or [`is_plausible`] rejects it.
    unsafe fn of(set: *mut pollfd, count: nfds_t) -> Option<Self> {
        let own = kernel_count(count);
        // SAFETY: the kernel checks that the set is readable.
        if !is_plausible(set, own) && unsafe { ppoll_now(set, count) } < 0 {
            return None;
        }
        // SAFETY: the caller or the kernel guarantees that this many entries are readable.
        let entry = |at| unsafe { set.add(at).read_unaligned() };
        if !(0..own).any(|at| fd::is_listener(entry(at).fd)) {
            return None;
        }
        let used = (0..own).map(|at| (at, entry(at)));
        let (indices, mut all): (Vec<usize>, Vec<pollfd>) =
            used.filter(|(_, entry)| entry.fd >= 0).unzip();
        let listeners = listeners_of(&all);
        let mut owners = Vec::new();
        for (at, listener) in &listeners {
            let events = all[*at].events & (POLLIN | POLLRDNORM);
            for pending in listener.awaited() {
                all.push(watched(pending, events));
                owners.push((*at, Arc::clone(listener)));
            }
        }
        let counters = owners.len();
        for (at, listener) in listeners {
            if let Some(process) = listener.listening_process() {
                // A hang-up is always reported and needs no flag.
                all.push(watched(process, 0));
                owners.push((at, Arc::clone(&listener)));
            }
        }
        Some(Self {
            set,
            count: own,
            indices,
            all,
            owners,
            counters,
        })
    }

    fn parts(&mut self) -> (*mut pollfd, nfds_t) {
        (self.all.as_mut_ptr(), self.all.len() as nfds_t)
    }

    /// Returns the added entries, with their owners.
    fn added(&self) -> impl Iterator<Item = (&pollfd, &(usize, Arc<Listener>))> {
        self.all[self.indices.len()..].iter().zip(&self.owners)
    }

    /// Takes over the services whose listening process has ended. Returns true if there was such a
    /// service.
    fn take_over(&self) -> bool {
        let mut has_taken_over = false;
        for (process, (at, listener)) in self.added().skip(self.counters) {
            if process.revents != 0 && listener.needs_service() {
                offer::take_over(self.all[*at].fd);
                has_taken_over = true;
            }
        }
        has_taken_over
    }

    /// Records listeners whose added descriptors the program has closed. Returns true if there was
    /// one.
    fn note_lost(&self) -> bool {
        let lost = self
            .added()
            .filter(|(entry, _)| entry.revents & POLLNVAL != 0);
        lost.map(|(_, (_, listener))| listener.set_lost()).count() > 0
    }

    /// Writes the results to the caller's set, and returns the number of ready entries.
    fn report(mut self, ready: c_int) -> c_int {
        if ready < 0 {
            return ready;
        }
        let (own, counters) = self.all.split_at_mut(self.indices.len());
        for (counter, (owner, _)) in counters.iter().zip(&self.owners).take(self.counters) {
            let owner = &mut own[*owner];
            owner.revents |= counter.revents & owner.events & (POLLIN | POLLRDNORM);
        }
        let mut passed = self.indices.iter().zip(&*own).peekable();
        for at in 0..self.count {
            let revents = passed.next_if(|(index, _)| **index == at);
            let revents = revents.map_or(0, |(_, entry)| entry.revents);
            // SAFETY: the caller's set was readable when the wait began, and by the caller's
            // contract it is writable.
            unsafe { (&raw mut (*self.set.add(at)).revents).write_unaligned(revents) };
        }
        let ready = own.iter().filter(|entry| entry.revents != 0);
        c_int::try_from(ready.count()).unwrap_or(c_int::MAX)
    }
}

/// Returns an entry for a descriptor of this library.
fn watched(fd: impl AsRawFd, events: i16) -> pollfd {
    pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    }
}

/// Returns the listeners of a set that have an offload protocol next to them, with their indices. A
/// service that ended at an `exec` is begun again.
fn listeners_of(set: &[pollfd]) -> Vec<(usize, Arc<Listener>)> {
    let find = |fd| {
        let listener = Listener::of(fd)?;
        if !listener.lacks_service() {
            return Some(listener);
        }
        offer::take_over(fd);
        Listener::of(fd)
    };
    let all = set.iter().enumerate();
    let listeners = all.filter_map(|(at, entry)| Some((at, find(entry.fd)?)));
    listeners.filter(|(_, it)| !it.is_lost()).collect()
}

/// Converts a time from C. `None`: the kernel refuses the value.
pub(super) fn duration(time: &timespec) -> Option<Duration> {
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanos = u32::try_from(time.tv_nsec).ok()?;
    (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
}

/// Converts a time to C.
pub(crate) fn spec(time: Duration) -> timespec {
    timespec {
        tv_sec: c_long::try_from(time.as_secs()).unwrap_or(c_long::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Ends the program if a set is larger than its object, for the checked forms.
unsafe fn check(count: nfds_t, room: size_t) {
    if (room / size_of::<pollfd>()) < usize::try_from(count).unwrap_or(usize::MAX) {
        // SAFETY: the function has no arguments and does not return.
        unsafe { real::__chk_fail() }
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
}
