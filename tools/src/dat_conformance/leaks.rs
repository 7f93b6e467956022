//! What a process holds: descriptors and threads.

use std::fmt;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// How long what is going may take to go: a thread that has been told to end is still there for a
/// moment.
const SETTLE: Duration = Duration::from_secs(3);

/// Descriptors and threads of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

    /// Says what there is more than before, if it does not go away.
    pub(crate) fn left_over(before: Self) -> Option<String> {
        let deadline = Instant::now() + SETTLE;
        loop {
            let now = Self::now();
            let more = Self {
                descriptors: now.descriptors.saturating_sub(before.descriptors),
                threads: now.threads.saturating_sub(before.threads),
            };
            if more.descriptors + more.threads == 0 {
                return None;
            }
            if Instant::now() > deadline {
                return Some(format!("left behind: {more}"));
            }
            thread::sleep(Duration::from_millis(5));
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
        drop(held);
        assert!(Holdings::now().descriptors < before.descriptors + 100);
    }
}
