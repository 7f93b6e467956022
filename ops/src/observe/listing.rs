//! All pages that the caller may read.

use std::os::fd::OwnedFd;

use host::clock::Clock;

use crate::observe::directory::{Directory, Name, Opened, PageRoot};
use crate::observe::layout::{HEADER_LEN, PAGE_LEN};
use crate::observe::process::{self, ProcessState};
use crate::observe::snapshot::{Fault, Row, Snapshot, Totals, len_used};

/// The maximum number of reads of a page whose records change meanwhile.
const READS_MAX: usize = 16;
/// The age in seconds from which an incomplete page counts as abandoned.
const ABANDONED_AGE_S: i64 = 10;

/// A process and its sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// The user id of the page's owner.
    pub user: u32,
    /// The program name that the kernel shows.
    pub program: String,
    /// The inode of the process's network namespace.
    pub net_space: u64,
    /// The totals of the process.
    pub totals: Totals,
    /// The reasons for which connections stayed on TCP, with the number of each.
    pub reasons: Vec<(String, u64)>,
    /// The sockets of the process.
    pub rows: Vec<Row>,
}

/// All processes whose pages the caller may read.
#[derive(Debug, Default)]
pub struct Listing {
    /// The processes, sorted by process id.
    pub processes: Vec<Process>,
    /// Files that are not pages of living processes: user, name and fault.
    pub faults: Vec<(u32, Name, Fault)>,
}

impl Listing {
    /// Reads all pages, and removes those of processes that have ended.
    #[must_use]
    pub fn read(root: &PageRoot) -> Self {
        let mut listing = Self::default();
        let here = process::space("pid");
        for directory in root.readable() {
            for name in directory.names() {
                match examine(&directory, name, here) {
                    Found::Process(process) => listing.processes.push(*process),
                    Found::Fault(fault) => listing.faults.push((directory.owner, name, fault)),
                    Found::Over => directory.remove(name),
                    Found::Nothing => {}
                }
            }
        }
        listing.processes.sort_by_key(|process| process.pid);
        listing
    }
}

/// Removes at most `most` pages of the calling user whose processes have ended. This runs when a
/// program has its first socket, so it must be cheap: a living process is recognised by the page's
/// name without opening the page, and only the header of other pages is read.
pub(super) fn sweep(root: &PageRoot, most: usize) {
    let Ok(directory) = root.own() else {
        return;
    };
    let here = process::space("pid");
    let names = directory.names().into_iter();
    let left = names
        .filter(|name| process::of(name.pid, name.started) == ProcessState::Over)
        .filter(|name| is_abandoned(&directory, *name, here));
    for name in left.take(most) {
        directory.remove(name);
    }
}

/// Returns true if the page can be removed. The caller has checked that the process in the page's
/// name has ended. The page must be that process's, or be invalid and abandoned.
fn is_abandoned(directory: &Directory, name: Name, here: u64) -> bool {
    let Some(file) = directory.read(name) else {
        return false;
    };
    let header = copy(&file.fd, HEADER_LEN);
    let fault = match Snapshot::parse(&header, &header, &header) {
        // The page is from another PID namespace, so its process id means another process here.
        Ok(page) if page.pid_space != here => return false,
        Ok(page) if (page.pid, page.started) == (name.pid, name.started) => return true,
        Ok(_) => Fault::Process,
        Err(fault) => fault,
    };
    matches!(of_no_page(name, &file, fault), Found::Over)
}

enum Found {
    Process(Box<Process>),
    Fault(Fault),
    /// The page's process has ended.
    Over,
    /// The page was removed, or is not readable for this caller.
    Nothing,
}

fn examine(directory: &Directory, name: Name, here: u64) -> Found {
    let Some(file) = directory.read(name) else {
        return Found::Nothing;
    };
    let snapshot = match read(&file) {
        Ok(snapshot) => snapshot,
        Err(fault) => return of_no_page(name, &file, fault),
    };
    if snapshot.pid_space != here {
        // The page is from another PID namespace, so its process id means another process here.
        return Found::Nothing;
    }
    if (snapshot.pid, snapshot.started) != (name.pid, name.started) {
        return of_no_page(name, &file, Fault::Process);
    }
    let over = process::of(name.pid, name.started) == ProcessState::Over
        // A process that has called `execve` runs, but has no page of its former program.
        || process::maps(name.pid, file.identity) == Some(false);
    if over {
        return Found::Over;
    }
    let users = process::users(name.pid);
    if directory.owner != 0 && !users.is_empty() && !users.contains(&directory.owner) {
        return Found::Fault(Fault::Owner);
    }
    Found::Process(Box::new(Process {
        pid: name.pid,
        user: directory.owner,
        program: process::program(name.pid).unwrap_or_default(),
        net_space: snapshot.net_space,
        totals: snapshot.totals,
        reasons: snapshot.reasons,
        rows: snapshot.rows,
    }))
}

/// Classifies a file without a valid page: its process was killed while it made the page, or
/// another program made the file.
fn of_no_page(name: Name, file: &Opened, fault: Fault) -> Found {
    let now = i64::try_from(Clock::Real.now().as_secs()).unwrap_or(i64::MAX);
    let age = now.saturating_sub(file.modified);
    match process::of(name.pid, name.started) {
        ProcessState::Over if age > ABANDONED_AGE_S => Found::Over,
        _ if fault == Fault::Incomplete && age <= ABANDONED_AGE_S => Found::Nothing,
        _ => Found::Fault(fault),
    }
}

/// Reads a page until no record changes during the read, but at most [`READS_MAX`] times. Returns
/// the last result.
fn read(file: &Opened) -> Result<Snapshot, Fault> {
    let read_once = || {
        let header = copy(&file.fd, HEADER_LEN);
        let len = len_used(&header);
        let [before, bytes, after] = [(); 3].map(|()| copy(&file.fd, len));
        Snapshot::parse(&before, &bytes, &after)
    };
    let mut last = read_once()?;
    for _ in 1..READS_MAX {
        if last.torn == 0 {
            break;
        }
        last = read_once()?;
    }
    Ok(last)
}

/// Returns the first bytes of a file, or all of a shorter one.
fn copy(fd: &OwnedFd, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len.min(PAGE_LEN)];
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(fd, &mut bytes[done..], done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    bytes.truncate(done);
    bytes
}
