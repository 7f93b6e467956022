//! What a process holds: descriptors and threads.

use std::fmt;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// How long what is going may take to go: a thread that has been told to end is still there for a
/// moment.
const SETTLE: Duration = Duration::from_secs(3);

/// Descriptors and threads of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Holdings {
    descriptors: usize,
    threads: usize,
}

impl Holdings {
    /// As they are now.
    pub(crate) fn now() -> Self {
        Self {
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
        }
    }

    /// What there is more than before, once what is going has gone; no longer waited for when it is
    /// no more than `usual`.
    pub(crate) fn left_over(before: Self, usual: Self) -> Self {
        let deadline = Instant::now() + SETTLE;
        loop {
            let more = Self::now().beyond(before);
            if more.beyond(usual).is_none() || Instant::now() > deadline {
                return more.beyond(usual);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// As many times as much.
    pub(crate) fn times(self, count: usize) -> Self {
        Self {
            descriptors: self.descriptors * count,
            threads: self.threads * count,
        }
    }

    /// Whether it is nothing.
    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }

    fn beyond(self, other: Self) -> Self {
        Self {
            descriptors: self.descriptors.saturating_sub(other.descriptors),
            threads: self.threads.saturating_sub(other.threads),
        }
    }
}

impl fmt::Display for Holdings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} descriptors, {} threads",
            self.descriptors, self.threads
        )
    }
}

fn entries(directory: &str) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_descriptor_is_seen_and_a_closed_one_is_not() {
        // Other tests of this process open files too: only what these hold is compared.
        let before = Holdings::now();
        let held: Vec<_> = (0..200)
            .map(|_| fs::File::open("/dev/null").unwrap())
            .collect();
        assert!(Holdings::now().descriptors >= before.descriptors + 100);
        let left = Holdings::left_over(before, Holdings::default());
        assert!(left.descriptors >= 100, "{left}");
        drop(held);
        assert!(Holdings::now().descriptors < before.descriptors + 100);
    }
}
