//! A process that runs cases, one after another, until one hangs, crashes or fails.
//!
//! The client's worker reads names from its standard input. For each name it writes `begin` and
//! then the verdict to its standard output. The server's worker receives the names from the
//! client's worker, over the connection that is its standard input.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::case::{Case, Part};
use crate::cases;
use crate::control::Control;
use crate::leaks::Holdings;
use crate::side::Side;
use crate::verdict::Verdict;
use crate::watchdog::Watchdog;

/// The state that a worker keeps for all its cases.
struct Worker {
    ia_name: String,
    limit: Duration,
    watchdog: Watchdog,
    control: Control,
    /// The resources that opening and closing the adapter leaks; only `ia/leaves-nothing` reports
    /// them.
    usual: Holdings,
    cases: Vec<Case>,
}

/// Runs the server's ends of cases for the client at the other end of standard input.
pub(crate) fn serve(ia_name: &str, limit: Duration) -> Result<()> {
    let connection: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    let mut worker = Worker::start(ia_name, limit, TcpStream::from(connection))?;
    while let Some(name) = worker.control.next_case()? {
        let case = worker.case(&name)?;
        ensure!(case.server.is_some(), "{name} has no server's part");
        worker.run(&case, false)?;
    }
    Ok(())
}

/// Runs the cases named on standard input with the server at `peer`, and ends with the first that
/// fails, because the state of the process is unreliable after a failure.
pub(crate) fn lead(ia_name: &str, limit: Duration, peer: &str) -> Result<()> {
    let connection = TcpStream::connect(peer)
        .with_context(|| format!("no server at {peer}; start one there with --role server"))?;
    let mut report = Report::take_output()?;
    let mut worker = Worker::start(ia_name, limit, connection)?;
    for name in std::io::stdin().lock().lines() {
        let name = name?;
        report.write_line(&format!("begin {name}"))?;
        let case = worker.case(&name)?;
        if case.server.is_some() {
            worker.control.start_case(&name)?;
        }
        let verdict = worker.run(&case, true)?;
        report.write_line(&verdict.to_string())?;
        if matches!(verdict, Verdict::Failed(_)) {
            return Ok(());
        }
    }
    Ok(())
}

impl Worker {
    fn start(ia_name: &str, limit: Duration, connection: TcpStream) -> Result<Self> {
        let control = Control::new(connection)?;
        let watchdog = Watchdog::start(Some(control.connection()?));
        watchdog.arm(limit);
        let usual = Holdings::left_by_opening(ia_name)?;
        watchdog.disarm();
        Ok(Self {
            ia_name: ia_name.to_owned(),
            limit,
            watchdog,
            control,
            usual,
            cases: cases::all(),
        })
    }

    fn case(&self, name: &str) -> Result<Case> {
        let case = self.cases.iter().find(|case| case.name == name);
        case.cloned().with_context(|| {
            format!("no case {name}: both ends need the same version of this program")
        })
    }

    /// Runs this end's part of a case. Returns the verdict on the whole case.
    fn run(&mut self, case: &Case, is_client: bool) -> Result<Verdict> {
        self.watchdog.arm(self.limit);
        let mut side = Side {
            ia_name: &self.ia_name,
            is_client,
            size: case.size,
            limit: self.limit,
            openings: Cell::new(0),
            control: case.server.is_some().then_some(&mut self.control),
        };
        let part = case.server.as_ref().filter(|_| !is_client);
        let ours = attempt(&mut side, part.unwrap_or(&case.client), self.usual);
        let verdict = match case.server {
            Some(_) => {
                let theirs = self.control.end(&ours)?;
                Verdict::of_case(ours, theirs)
            }
            None => ours,
        };
        self.watchdog.disarm();
        Ok(verdict)
    }
}

/// Runs a part and checks the resources that it leaks.
fn attempt(side: &mut Side<'_>, part: &Part, usual: Holdings) -> Verdict {
    let before = Holdings::now();
    let verdict = Verdict::of(part(side));
    if verdict != Verdict::Ok {
        return verdict;
    }
    let left = Holdings::left_over(before, usual.times(side.openings.get()));
    if left.is_none() {
        Verdict::Ok
    } else {
        Verdict::Failed(format!("leaked: {left}"))
    }
}

/// Standard output, reserved for the lines of this process. What libraries print goes to standard
/// error: OFA's provider and libsiw report faults on standard output, where a line would be taken
/// for a verdict.
struct Report(File);

impl Report {
    /// Must be called before a library is loaded.
    fn take_output() -> Result<Self> {
        let output = std::io::stdout().as_fd().try_clone_to_owned()?;
        // SAFETY: takes no pointers, and both descriptors are open.
        if unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) } < 0 {
            return Err(std::io::Error::last_os_error()).context("taking standard output");
        }
        Ok(Self(File::from(output)))
    }

    fn write_line(&mut self, line: &str) -> Result<()> {
        // One write per line, because the supervisor reads lines.
        Ok(self.0.write_all(format!("{line}\n").as_bytes())?)
    }
}
