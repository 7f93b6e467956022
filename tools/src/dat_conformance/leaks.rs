//! The resources that a process holds: descriptors and threads.

use std::fmt;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use dat_api::Ia;

/// The time limit for resources to disappear: a thread that was asked to end still exists for a
/// moment.
const SETTLE: Duration = Duration::from_secs(3);

/// Descriptors and threads of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Holdings {
    descriptors: usize,
    threads: usize,
}

impl Holdings {
    /// The current descriptors and threads.
    pub(crate) fn now() -> Self {
        Self {
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
        }
    }

    /// The resources held in addition to `before` and `usual`, after resources that are about to be
    /// released are gone. The wait ends early once nothing exceeds `usual`.
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

    /// The resources that a process holds in addition after it has opened and closed the adapter.
    /// Resources that libraries keep from their first use on are not included.
    pub(crate) fn left_by_opening(ia_name: &str) -> Result<Self> {
        for _ in 0..2 {
            drop(Ia::open(ia_name)?);
        }
        let before = Self::now();
        drop(Ia::open(ia_name)?);
        Ok(Self::left_over(before, Self::default()))
    }

    /// Multiplies both counts.
    pub(crate) fn times(self, count: usize) -> Self {
        Self {
            descriptors: self.descriptors * count,
            threads: self.threads * count,
        }
    }

    /// Returns true if both counts are 0.
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
        // Other tests of this process open files too, so only the differences between these values
        // are compared.
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
