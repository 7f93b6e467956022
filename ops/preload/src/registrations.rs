//! The `epoll` sets of this process that watch a descriptor, read from `/proc`.
//!
//! A program may add a socket to a set and connect it afterwards (nginx does). Recording the events
//! of every `epoll_ctl` would slow down native sockets, so the kernel's lists are read instead.
//! This library records only which descriptors are sets, and which descriptors were added to a set.
//! Searching `/proc` for sets would cost a thousand connections a million reads.

use std::ffi::c_int;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLONESHOT, EPOLLOUT, EPOLLWRBAND, EPOLLWRNORM,
    epoll_event,
};

use crate::deferred_removal;
use crate::marks::{self, Mark};
use crate::process::real;

/// The sets that watch a descriptor, with their events.
pub(crate) struct Registrations {
    fd: c_int,
    found: Vec<(c_int, epoll_event)>,
}

impl Registrations {
    /// Returns the sets that watch a descriptor. Without `/proc` the result is empty.
    pub(crate) fn of(fd: c_int) -> Self {
        deferred_removal::make();
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

/// The number of descriptors that may be sets: as many as the table has slots.
const NUMBERS: usize = 1 << 20;
const BITS: usize = 64;

/// The descriptors that were last used as sets. `/proc` shows whether such a descriptor still is a
/// set.
static SETS: [AtomicU64; NUMBERS / BITS] = [const { AtomicU64::new(0) }; NUMBERS / BITS];

/// The index of the last word of [`SETS`] that has had a bit.
static LAST: AtomicUsize = AtomicUsize::new(0);

/// Records that the program adds a descriptor to a set. The caller records this before the
/// addition, because another thread may replace the descriptor right after it.
#[inline]
pub(crate) fn record_addition(set: c_int, fd: c_int) {
    record_set(set);
    record_watched(fd);
}

/// Records that the program has used a descriptor as a set.
#[inline]
fn record_set(set: c_int) {
    let number = set.cast_unsigned() as usize;
    let bit = 1 << (number % BITS);
    if let Some(word) = SETS.get(number / BITS)
        && word.load(Ordering::Relaxed) & bit == 0
    {
        record_new_set(set, word, bit);
    }
}

#[cold]
fn record_new_set(set: c_int, word: &AtomicU64, bit: u64) {
    LAST.fetch_max(set.cast_unsigned() as usize / BITS, Ordering::Relaxed);
    word.fetch_or(bit, Ordering::Release);
}

/// True if sets were inherited over an `exec`. The descriptors that they watch were not recorded.
static IS_INHERITED: AtomicBool = AtomicBool::new(false);

/// Records that a set watches a descriptor from now on.
#[inline]
pub(crate) fn record_watched(fd: c_int) {
    marks::set(fd, Mark::Watched, true);
}

/// Records that the program closes a descriptor.
pub(crate) fn record_closed(fd: c_int) {
    marks::set(fd, Mark::Watched, false);
}

/// Returns false for a descriptor that no set watches. Without this check each connection would
/// read the lists of all sets.
fn is_watched(fd: c_int) -> bool {
    IS_INHERITED.load(Ordering::Acquire) || marks::is_beyond(fd) || marks::has(fd, Mark::Watched)
}

fn record_all() {
    for entry in fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
    {
        let is_set =
            fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == "anon_inode:[eventpoll]");
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let (true, Some(set)) = (is_set, number) {
            if !recorded_sets().any(|known| known == set) && watches_any(set) {
                IS_INHERITED.store(true, Ordering::Release);
            }
            record_set(set);
        }
    }
}

fn watches_any(set: c_int) -> bool {
    fs::read_to_string(format!("/proc/self/fdinfo/{set}")).is_ok_and(|info| info.contains("tfd:"))
}

fn recorded_sets() -> impl Iterator<Item = c_int> {
    let words = SETS.iter().map(|word| word.load(Ordering::Acquire));
    let words = words.take(LAST.load(Ordering::Relaxed) + 1);
    words
        .enumerate()
        .filter(|(_, word)| *word != 0)
        .flat_map(|(index, word)| {
            (0..BITS)
                .filter(move |bit| word >> bit & 1 == 1)
                .filter_map(move |bit| c_int::try_from(index * BITS + bit).ok())
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
