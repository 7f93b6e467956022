//! Waits until the bytes in transit through the stack of this process have been received. They have
//! been received once each thread of the process has slept, however busy the processors are.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// The time after which a thread that has not slept counts as one that never sleeps.
const DEADLINE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(1);

/// Waits `rounds` times until each other thread of this process has gone to sleep, at least for
/// `pause`. After that, all bytes in transit through the stack of this process have been received,
/// however busy the processors are.
pub fn let_others_run(rounds: usize, pause: Duration) {
    for _ in 0..rounds {
        let before = threads();
        std::thread::sleep(pause);
        let end = Instant::now() + DEADLINE;
        while !have_slept(&before) && Instant::now() < end {
            std::thread::sleep(PAUSE);
        }
    }
}

#[derive(PartialEq, Eq)]
struct Seen {
    is_asleep: bool,
    sleeps: u64,
}

fn have_slept(before: &BTreeMap<String, Seen>) -> bool {
    threads().iter().all(|(thread, now)| {
        let then = before.get(thread);
        now.is_asleep || then.is_none_or(|then| now.sleeps > then.sleeps)
    })
}

/// All other threads of this process. A thread that ends meanwhile is omitted.
fn threads() -> BTreeMap<String, Seen> {
    let own = nix::unistd::gettid().to_string();
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return BTreeMap::new();
    };
    let names = tasks.filter_map(|task| task.ok()?.file_name().into_string().ok());
    names
        .filter(|name| *name != own)
        .filter_map(|name| seen(&name).map(|seen| (name, seen)))
        .collect()
}

fn seen(thread: &str) -> Option<Seen> {
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
    Some(Seen {
        is_asleep: field("State:\t")?.starts_with('S'),
        sleeps: field("voluntary_ctxt_switches:\t")?.parse().ok()?,
    })
}
