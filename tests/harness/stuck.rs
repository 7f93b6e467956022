//! A report on every child of a test, for a child that does not end in time. The cause is often
//! another child.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::unistd::Pid;

/// The time limit of the debugger for one process.
const DEBUGGER: Duration = Duration::from_secs(20);
/// The number of frames that are printed of each thread.
const FRAMES: usize = 40;
/// The number of processes that are printed. A program that forks may have many, of which the first
/// are enough.
const PROCESSES: usize = 12;

/// The process groups of the running children, and their programs' names.
static ALIVE: Mutex<BTreeMap<i32, String>> = Mutex::new(BTreeMap::new());

fn alive() -> MutexGuard<'static, BTreeMap<i32, String>> {
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records that a child has started.
pub(crate) fn on_start(pid: Pid, name: &str) {
    alive().insert(pid.as_raw(), name.to_owned());
}

/// Records that a child has ended, and its group with it.
pub(crate) fn on_end(pid: Pid) {
    alive().remove(&pid.as_raw());
}

/// The threads of all children and of the processes that they started, and the bytes that are
/// queued in the sockets of their networks.
pub(crate) fn report() -> String {
    let groups = alive().clone();
    let mut report = String::from("What the processes of the test were doing:\n");
    let mut networks = Vec::new();
    for (pid, name) in processes(&groups).into_iter().take(PROCESSES) {
        let _ = writeln!(report, "  process {pid}, of {name}: {}", command(pid));
        append_threads(pid, &mut report);
        append_frames(pid, &mut report);
        let network = fs::read_link(format!("/proc/{pid}/ns/net")).unwrap_or_default();
        if !networks.contains(&network) {
            networks.push(network);
            append_queues(pid, &mut report);
        }
    }
    report
}

/// All processes whose group is a child's, and that child's name.
fn processes(groups: &BTreeMap<i32, String>) -> Vec<(i32, &str)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut found: Vec<(i32, &str)> = numbers
        .filter_map(|pid| Some((pid, groups.get(&group_of(pid)?)?.as_str())))
        .collect();
    found.sort_unstable();
    found
}

fn group_of(pid: i32) -> Option<i32> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // A program's name may contain any byte, so the fields are taken from after the last bracket.
    line.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(2)?
        .parse()
        .ok()
}

fn command(pid: i32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    line.chars().take(160).collect()
}

/// Appends the kernel's view of each thread: its state, and the system call that it is in.
fn append_threads(pid: i32, report: &mut String) {
    for entry in fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let of = |what: &str| {
            let read = fs::read_to_string(entry.path().join(what));
            read.unwrap_or_else(|why| why.to_string())
        };
        let status = of("status");
        let lines = status.lines();
        let signals = lines.filter(|line| {
            let kinds = ["State:", "SigPnd:", "ShdPnd:", "SigBlk:"];
            kinds.iter().any(|kind| line.starts_with(kind))
        });
        let signals: Vec<String> = signals.map(|line| line.replace('\t', " ")).collect();
        let name = of("comm");
        let number = entry.file_name();
        let _ = writeln!(
            report,
            "    thread {} {}: call {}; in {}; {}",
            number.display(),
            name.trim(),
            of("syscall").trim(),
            of("wchan").trim(),
            signals.join(", ")
        );
    }
}

/// Appends the stack of each thread, if this machine has a debugger.
fn append_frames(pid: i32, report: &mut String) {
    let every = format!("thread apply all backtrace {FRAMES}");
    let debugger = Command::new("timeout")
        .arg(DEBUGGER.as_secs().to_string())
        .args(["gdb", "--batch", "--quiet", "-p", &pid.to_string()])
        .args(["-ex", &every])
        .stdin(Stdio::null())
        .output();
    let text = match &debugger {
        Ok(output) => String::from_utf8_lossy(&output.stdout),
        Err(why) => {
            let _ = writeln!(report, "    no debugger: {why}");
            return;
        }
    };
    let of_threads = |line: &&str| line.starts_with('#') || line.starts_with("Thread");
    let mut any = false;
    for line in text.lines().filter(of_threads) {
        any = true;
        let _ = writeln!(report, "    {line}");
    }
    if !any {
        let _ = writeln!(report, "    no frames: is gdb installed?");
    }
}

/// Appends the connections of a process's network that have bytes in flight or not read.
fn append_queues(pid: i32, report: &mut String) {
    for kind in ["tcp", "tcp6"] {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{kind}")).unwrap_or_default();
        for line in table.lines().skip(1) {
            let queues = line.split_whitespace().nth(4);
            if queues.is_some_and(|queues| queues != "00000000:00000000") {
                let _ = writeln!(report, "    {kind}: {}", line.trim());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;

    #[test]
    fn a_hanging_process_and_its_system_call_are_reported() {
        let other = Program::new("sh").arg("-c").arg("sleep 61 | cat");
        let _other = other.spawn().unwrap();
        let mut report = String::new();
        // On a busy machine the shell may not have started its programs within the first limit.
        for limit in [300, 3_000, 30_000].map(Duration::from_millis) {
            let stuck = Program::new("sleep").arg("60").spawn().unwrap();
            report = stuck.finish(limit).unwrap_err().to_string();
            assert!(
                report.contains(&format!("sleep: still running after {limit:?}")),
                "{report}"
            );
            let expected = ["sleep 60", "sleep 61", "cat", "SigBlk: "];
            if expected.iter().all(|text| report.contains(text)) {
                return;
            }
        }
        panic!("{report}");
    }
}
