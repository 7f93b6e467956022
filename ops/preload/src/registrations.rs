//! Which `epoll` sets of this process watch a number, asked of the kernel.
//!
//! Programs may add a socket to a set and connect it afterwards (nginx does). Keeping books of
//! every `epoll_ctl` would make each native socket pay for that; the kernel has the books in
//! `/proc`.

use std::ffi::c_int;
use std::fs;

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, epoll_event};

use crate::real;

/// The sets that watch a number, and how.
pub(crate) struct Registrations {
    fd: c_int,
    found: Vec<(c_int, epoll_event)>,
}

impl Registrations {
    /// Asks for a number. Without `/proc` there are none.
    pub(crate) fn of(fd: c_int) -> Self {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc/self/fd")
            .into_iter()
            .flatten()
            .flatten()
        {
            let is_set = fs::read_link(entry.path())
                .is_ok_and(|to| to.as_os_str() == "anon_inode:[eventpoll]");
            let number = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if let (true, Some(set)) = (is_set, number) {
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
        }
        Self { fd, found }
    }

    /// Takes the number out of the sets.
    pub(crate) fn withdraw(&self) {
        for (set, event) in &self.found {
            let mut event = *event;
            // SAFETY: a set and a number of this process.
            unsafe { real::epoll_ctl(*set, EPOLL_CTL_DEL, self.fd, &raw mut event) };
        }
    }

    /// Adds what the number names now.
    pub(crate) fn renew(&self) {
        for (set, event) in &self.found {
            let mut event = *event;
            // SAFETY: a set and a number of this process.
            unsafe { real::epoll_ctl(*set, EPOLL_CTL_ADD, self.fd, &raw mut event) };
        }
    }
}

/// `tfd: 5 events: 80000019 data: 5 ...`, numbers but the first in hexadecimal.
fn parse(line: &str) -> Option<(c_int, epoll_event)> {
    let mut words = line.split_whitespace();
    let mut after = |label: &str| words.by_ref().find(|word| *word == label).and(words.next());
    let target = after("tfd:")?.parse().ok()?;
    let events = u32::from_str_radix(after("events:")?, 16).ok()?;
    let u64 = u64::from_str_radix(after("data:")?, 16).ok()?;
    Some((target, epoll_event { events, u64 }))
}
