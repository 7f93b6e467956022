//! The `epoll` sets of this process that watch a descriptor, read from `/proc`.
//!
//! A program may add a socket to a set and connect it afterwards (nginx does). Recording the events
//! of every `epoll_ctl` would slow down native sockets, so the kernel's lists are read instead.
//! This library records only which descriptors are sets, and which descriptors were added to a set.
//! Searching `/proc` for sets would cost a thousand connections a million reads.

use std::ffi::c_int;
use std::fs;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use host::descriptors;
use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLONESHOT, EPOLLOUT, EPOLLWRBAND, EPOLLWRNORM,
    epoll_event,
};
use rustix::io::FdFlags;

use crate::fd::marks::{self, Mark};
use crate::fd::{removals, slots, watches};
use crate::process::real;

/// The sets that watch a descriptor, with their events.
pub(crate) struct Registrations {
    fd: c_int,
    found: Vec<(c_int, epoll_event)>,
}

impl Registrations {
    /// Returns the sets that watch a descriptor. Without `/proc` the result is empty.
    pub(crate) fn of(fd: c_int) -> Self {
        removals::make();
        static IS_SCANNED: AtomicBool = AtomicBool::new(false);
        // The first call records sets that were inherited over an `exec`. Two threads may do this
        // at the same time, so the child of a fork never waits for a thread of its parent.
        if !IS_SCANNED.load(Ordering::Acquire) {
            record_all();
            IS_SCANNED.store(true, Ordering::Release);
        }
        let mut found = Vec::new();
        if !is_watched(fd) {
            return Self { fd, found };
        }
        for set in recorded_sets() {
            let info = fs::read_to_string(format!("/proc/self/fdinfo/{set}"));
            let events = info.unwrap_or_default();
            found.extend(
                events
                    .lines()
                    .filter_map(parse)
                    .filter(|(target, _)| *target == fd)
                    .map(|(_, event)| (set, event)),
            );
        }
        Self { fd, found }
    }

    /// Returns true if no set watches the descriptor.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Removes the descriptor from the sets.
    pub(crate) fn withdraw(&self) {
        for (set, event) in &self.found {
            let mut event = *event;
            // SAFETY: this process owns both descriptors, and the event is a local variable.
            unsafe { real::epoll_ctl(*set, EPOLL_CTL_DEL, self.fd, &raw mut event) };
        }
    }

    /// Adds the descriptors next to a listener to the sets that watch the listener. A set with
    /// `EPOLLONESHOT` watches the joint descriptor of all of them instead.
    pub(crate) fn add(&self, pending: &[c_int], joint: impl Fn() -> Option<c_int>) {
        for (set, event) in &self.found {
            let joint = if is_one_shot(event) { joint() } else { None };
            if joint.is_some() {
                let mut disarmed = disarmed_event(event);
                // SAFETY: this process owns both descriptors, and the event is a local variable.
                unsafe { real::epoll_ctl(*set, EPOLL_CTL_MOD, self.fd, &raw mut disarmed) };
            }
            for added in joint
                .iter()
                .chain(pending.iter().filter(|_| joint.is_none()))
            {
                record_watched(*added);
                let mut event = arrival_event(event);
                // SAFETY: this process owns both descriptors, and the event is a local variable.
                unsafe { real::epoll_ctl(*set, EPOLL_CTL_ADD, *added, &raw mut event) };
            }
        }
    }

    /// Arms a listener again in the sets that watch its joint descriptor `self`, which is about to
    /// be closed.
    pub(crate) fn restore(&self, listener: c_int) {
        for (set, event) in &self.found {
            let mut event = *event;
            // SAFETY: this process owns both descriptors, and the event is a local variable.
            unsafe { real::epoll_ctl(*set, EPOLL_CTL_MOD, listener, &raw mut event) };
        }
    }

    /// Replaces the descriptor `before`, which is watched like the listener, by `now`. If either is
    /// `None`, the other is only added or removed. `has_joint`: sets with `EPOLLONESHOT` watch the
    /// joint descriptor.
    pub(crate) fn exchange(&self, before: Option<c_int>, now: Option<c_int>, has_joint: bool) {
        for (set, event) in &self.found {
            if has_joint && is_one_shot(event) {
                continue;
            }
            let mut event = arrival_event(event);
            if let Some(before) = before {
                // SAFETY: this process owns both descriptors, and the event is a local variable.
                unsafe { real::epoll_ctl(*set, EPOLL_CTL_DEL, before, &raw mut event) };
            }
            if let Some(now) = now {
                // SAFETY: this process owns both descriptors, and the event is a local variable.
                unsafe { real::epoll_ctl(*set, EPOLL_CTL_ADD, now, &raw mut event) };
            }
        }
    }

    /// Adds the descriptor to the sets again, after its number was given to another kernel object.
    pub(crate) fn renew(&self) {
        for (set, event) in &self.found {
            let mut event = *event;
            // SAFETY: this process owns both descriptors, and the event is a local variable.
            unsafe { real::epoll_ctl(*set, EPOLL_CTL_ADD, self.fd, &raw mut event) };
            watches::record(*set, self.fd, event);
        }
    }
}

/// Returns the events for a descriptor that a set watches in addition to a listener. Only incoming
/// connections are reported, because the descriptor is always writable.
pub(crate) fn arrival_event(listeners: &epoll_event) -> epoll_event {
    let never = (EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND).cast_unsigned();
    epoll_event {
        events: listeners.events & !never,
        ..*listeners
    }
}

/// Returns true if a descriptor reports one event until the program arms it again.
pub(crate) fn is_one_shot(event: &epoll_event) -> bool {
    event.events & EPOLLONESHOT.cast_unsigned() != 0
}

/// Returns the events for a listener whose joint descriptor is watched.
pub(crate) fn disarmed_event(listeners: &epoll_event) -> epoll_event {
    epoll_event {
        events: EPOLLONESHOT.cast_unsigned(),
        ..*listeners
    }
}

/// The highest number that was used as a set. Programs make their sets early, so few slots have
/// lower numbers.
static LAST: AtomicI32 = AtomicI32::new(-1);

/// Records that the program adds a descriptor to a set. The caller records this before the
/// addition, because another thread may replace the descriptor right after it.
#[inline]
pub(crate) fn record_addition(set: c_int, fd: c_int) {
    record_set(set);
    record_watched(fd);
}

/// Records that the program has used a descriptor as a set. `/proc` shows whether it still is one.
#[inline]
fn record_set(set: c_int) {
    if !marks::has(set, Mark::Set) {
        record_new_set(set);
    }
}

#[cold]
fn record_new_set(set: c_int) {
    LAST.fetch_max(set, Ordering::Relaxed);
    marks::set(set, Mark::Set, true);
}

/// True if sets may watch descriptors without a mark: sets were inherited over an `exec`, or a
/// number has no slot.
static IS_UNRECORDED: AtomicBool = AtomicBool::new(false);

/// Records that a set watches a descriptor from now on.
#[inline]
pub(crate) fn record_watched(fd: c_int) {
    if !marks::set(fd, Mark::Watched, true) {
        IS_UNRECORDED.store(true, Ordering::Release);
    }
}

/// Returns false for a descriptor that no set watches. Without this check each connection would
/// read the lists of all sets.
fn is_watched(fd: c_int) -> bool {
    IS_UNRECORDED.load(Ordering::Acquire) || marks::has(fd, Mark::Watched)
}

fn record_all() {
    for set in inherited_sets() {
        if !recorded_sets().any(|known| known == set) && watches_any(set) {
            IS_UNRECORDED.store(true, Ordering::Release);
        }
        record_set(set);
    }
}

/// Returns the sets of this process, except those of this project's libraries, whose lists are long
/// and have no descriptor of the program.
fn inherited_sets() -> impl Iterator<Item = c_int> {
    let numbers = fs::read_dir("/proc/self/fd").into_iter().flatten();
    numbers.flatten().filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let object = fs::read_link(entry.path()).ok()?;
        let is_set = object.as_os_str() == "anon_inode:[eventpoll]";
        (is_set && !is_of_libraries(number)).then_some(number)
    })
}

/// Returns true for a number among those of the libraries that does not survive an `exec`.
fn is_of_libraries(number: c_int) -> bool {
    // SAFETY: the number is listed as open, so it is not negative, and one system call uses it.
    let flags = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) });
    number >= descriptors::lowest() && flags.is_ok_and(|it| it.contains(FdFlags::CLOEXEC))
}

fn watches_any(set: c_int) -> bool {
    fs::read_to_string(format!("/proc/self/fdinfo/{set}")).is_ok_and(|info| info.contains("tfd:"))
}

fn recorded_sets() -> impl Iterator<Item = c_int> {
    (0..=LAST.load(Ordering::Relaxed)).filter(|number| marks::has(*number, Mark::Set))
}

/// Returns a connection within the host that a set watches with this data, with the registration.
/// The kernel's list has the number of the kernel object, because that of the descriptor may be
/// closed.
pub(crate) fn find_local(set: c_int, data: u64) -> Option<(c_int, epoll_event)> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{set}")).ok()?;
    let inode = |line: &str| {
        let word = line
            .split_whitespace()
            .find_map(|it| it.strip_prefix("ino:"));
        u64::from_str_radix(word?, 16).ok()
    };
    let listed = |line| Some((inode(line)?, parse(line)?.1));
    slots::local().find_map(|fd| {
        // SAFETY: the number has an entry, so it is not negative.
        let object = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
        let mut all = info.lines().filter_map(listed);
        let is_it =
            |(inode, event): &(u64, epoll_event)| *inode == object.st_ino && event.u64 == data;
        all.find(is_it).map(|(_, event)| (fd, event))
    })
}

/// Parses a line such as `tfd: 5 events: 80000019 data: 5 ...`. The descriptor is decimal; events
/// and data are hexadecimal.
fn parse(line: &str) -> Option<(c_int, epoll_event)> {
    let mut words = line.split_whitespace();
    let mut after = |label: &str| words.by_ref().find(|word| *word == label).and(words.next());
    let target = after("tfd:")?.parse().ok()?;
    let events = u32::from_str_radix(after("events:")?, 16).ok()?;
    let u64 = u64::from_str_radix(after("data:")?, 16).ok()?;
    Some((target, epoll_event { events, u64 }))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::event::epoll;

    use super::*;

    #[test]
    fn sets_of_the_libraries_are_not_inherited() {
        let of_program = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let of_library = descriptors::copy(&of_program).unwrap();
        let all: Vec<c_int> = inherited_sets().collect();
        assert!(all.contains(&of_program.as_raw_fd()));
        assert!(!all.contains(&of_library.as_raw_fd()));
    }

    #[test]
    fn a_set_that_survives_an_exec_is_inherited_at_each_number() {
        let set = epoll::create(epoll::CreateFlags::empty()).unwrap();
        let high = descriptors::copy(&set).unwrap();
        rustix::io::fcntl_setfd(&high, FdFlags::empty()).unwrap();
        assert!(inherited_sets().any(|found| found == high.as_raw_fd()));
    }
}
