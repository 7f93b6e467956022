//! The state of the process of a page: whether it runs, and still runs the program that made the
//! page.

use std::fs;

use rustix::process::Pid;

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// The process runs.
    Running,
    /// The process has ended, or its process id was reused.
    Over,
    /// The state cannot be determined on this machine.
    Unknown,
}

/// Returns the start time of a process, in clock ticks since the machine started.
#[must_use]
pub fn started(pid: u32) -> Option<u64> {
    parse_started(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Returns the calling process's id, as the kernel reports it, and its start time.
pub(super) fn own() -> Option<(u32, u64)> {
    let pid = own_pid()?;
    Some((pid, started(pid)?))
}

/// Returns the calling process's id from the kernel. In a `vfork`ed child the C library may return
/// the parent's.
pub(super) fn own_pid() -> Option<u32> {
    u32::try_from(rustix::process::getpid().as_raw_nonzero().get()).ok()
}

/// Parses `1234 (the name) S ...`: returns the 22nd word. The name may contain blanks and brackets.
fn parse_started(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

/// Returns the inode of a namespace of the calling process; `kind` is `pid` or `net`.
pub(super) fn space(kind: &str) -> u64 {
    rustix::fs::stat(format!("/proc/self/ns/{kind}")).map_or(0, |stat| stat.st_ino)
}

/// Returns the state of the process with this id and start time.
#[must_use]
pub fn of(pid: u32, then: u64) -> ProcessState {
    match started(pid) {
        Some(now) if now == then => ProcessState::Running,
        Some(_) => ProcessState::Over,
        None if started(std::process::id()).is_none() => ProcessState::Unknown,
        // Some machines hide the directory of another user's process, but a test signal still finds
        // it.
        None => match Pid::from_raw(i32::try_from(pid).unwrap_or(0)) {
            Some(pid)
                if rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH) =>
            {
                ProcessState::Unknown
            }
            _ => ProcessState::Over,
        },
    }
}

/// Returns whether a process maps a file, or `None` if the caller may not inspect the process.
#[must_use]
pub fn maps(pid: u32, identity: (u64, u64)) -> Option<bool> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    if maps.is_empty() {
        // The list is empty for a process that is ending, or that the caller may not inspect.
        return None;
    }
    Some(maps.lines().any(|line| is_mapping_of(line, identity)))
}

/// Matches a line such as `7f..-7f.. rw-s 00000000 00:1a 1234 /dev/shm/...`.
fn is_mapping_of(line: &str, (device, inode): (u64, u64)) -> bool {
    let mut words = line.split_whitespace().skip(3);
    let (Some(numbers), Some(number)) = (words.next(), words.next()) else {
        return false;
    };
    let Some((major, minor)) = numbers.split_once(':') else {
        return false;
    };
    let device_of = |number| u32::from_str_radix(number, 16).ok();
    device_of(major) == Some(rustix::fs::major(device))
        && device_of(minor) == Some(rustix::fs::minor(device))
        && number.parse() == Ok(inode)
}

/// Returns the real, effective, saved and file system user id of a process.
#[must_use]
pub fn users(pid: u32) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let numbers = line.unwrap_or_default().split_whitespace();
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// Returns the program name that the kernel shows.
#[must_use]
pub fn program(pid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(crate::observe::description::text(name.trim_ascii_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let rest = (3..60).map(|n| format!(" {n}")).collect::<String>();
        assert_eq!(parse_started(&format!("1 (a) b) (c){rest}")), Some(22));
        for broken in ["", "1 (a", "1 (a) S 1 2", "1 (a)"] {
            assert_eq!(parse_started(broken), None, "{broken}");
        }
    }

    #[test]
    fn this_process_runs_and_an_earlier_one_of_its_number_does_not() {
        let (pid, then) = own().unwrap();
        assert_eq!(of(pid, then), ProcessState::Running);
        assert_eq!(of(pid, then - 1), ProcessState::Over);
        assert_eq!(of(u32::MAX, then), ProcessState::Over);
        assert!(users(pid).contains(&rustix::process::geteuid().as_raw()));
        assert!(program(pid).is_some());
    }

    #[test]
    fn a_mapping_is_identified_by_device_and_inode() {
        let line = "7f1c4a000000-7f1c4a401000 rw-s 00000000 00:1a 77  /dev/shm/ops-0/1.2.3";
        let device = rustix::fs::makedev(0, 0x1a);
        assert!(is_mapping_of(line, (device, 77)));
        assert!(!is_mapping_of(line, (device, 78)));
        assert!(!is_mapping_of(line, (rustix::fs::makedev(1, 0x1a), 77)));
        assert!(!is_mapping_of("7f1c4a000000", (device, 77)));
        assert_eq!(maps(std::process::id(), (device, u64::MAX)), Some(false));
    }
}
