//! A supervised child process.

use std::io::{self, PipeReader, Read, Write as _};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::stuck;

/// The time that the pipe may stay open after the child has ended, for output that is still in
/// transit.
const DRAIN: Duration = Duration::from_secs(60);

/// The number of lines of a child's output that are printed after a failure.
const TAIL_LINES: usize = 30;

/// A started child. Dropping it kills its whole process group and reaps it.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    reaped: bool,
    shared: Arc<Shared>,
}

/// A child's exit status and all its output.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Name given to the program.
    pub name: String,
    /// Exit status. Some third-party tools exit with 0 after a failure, so check `text` as well.
    pub status: ExitStatus,
    /// Standard output and standard error, in the order written.
    pub text: String,
}

/// The form in which a child's output is repeated on the test's standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Echo {
    /// Not at all.
    None,
    /// With each line indented.
    Indented,
    /// As it is received.
    Plain,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    text: String,
    closed: bool,
    exited: bool,
}

impl Running {
    pub(crate) fn watch(name: String, child: Child, reader: PipeReader, echo: Echo) -> Self {
        let shared = Arc::new(Shared::default());
        let output = Arc::clone(&shared);
        thread::spawn(move || read_output(reader, &output, echo));
        let exit = Arc::clone(&shared);
        let pid = pid_of(&child);
        stuck::on_start(pid, &name);
        thread::spawn(move || {
            // WNOWAIT does not reap the child. Its process id is reused only after `wait` has
            // reaped it, so the kill of the group below cannot hit another process.
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            while waitid(Id::Pid(pid), flags) == Err(nix::Error::EINTR) {}
            exit.update(|state| state.exited = true);
        });
        Self {
            name,
            child,
            reaped: false,
            shared,
        }
    }

    /// Waits until `text` appears in the output.
    ///
    /// # Errors
    /// When the child ends first, or at the deadline; the message holds the end of its output.
    pub fn wait_for(&self, text: &str, deadline: Duration) -> Result<()> {
        let state = self.shared.wait(deadline, |state| {
            state.text.contains(text) || (state.exited && state.closed)
        });
        if state.text.contains(text) {
            return Ok(());
        }
        let (exited, tail) = (state.exited, tail(&state.text));
        drop(state);
        if exited {
            bail!("{}: ended before printing {text:?}\n{tail}", self.name);
        }
        let doing = stuck::report();
        bail!(
            "{}: is silent before printing {text:?}\n{tail}{doing}",
            self.name
        )
    }

    /// Waits for the end, kills the remaining process group, and returns all output.
    ///
    /// # Errors
    /// At the deadline; the message holds the end of the output.
    pub fn finish(mut self, deadline: Duration) -> Result<Finished> {
        let exited = self.shared.wait(deadline, |state| state.exited).exited;
        let doing = (!exited).then(stuck::report);
        let status = self.end()?;
        let text = self.shared.wait(DRAIN, |state| state.closed).text.clone();
        if let Some(doing) = doing {
            bail!(
                "{}: still running after {deadline:?}\n{}{doing}",
                self.name,
                tail(&text)
            );
        }
        Ok(Finished {
            name: self.name.clone(),
            status,
            text,
        })
    }

    /// Sends a signal to the child alone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        nix::sys::signal::kill(self.pid(), signal)
            .map_err(|e| anyhow!("{}: sending {signal}: {e}", self.name))
    }

    /// Everything written so far.
    pub fn text(&self) -> String {
        self.shared.lock().text.clone()
    }

    /// Returns true if the child has ended.
    pub fn has_ended(&self) -> bool {
        self.shared.lock().exited
    }

    /// The process id.
    pub fn pid(&self) -> Pid {
        pid_of(&self.child)
    }

    fn end(&mut self) -> io::Result<ExitStatus> {
        if !self.reaped {
            // ESRCH means that the group has no process any more.
            let _ = killpg(self.pid(), Signal::SIGKILL);
            stuck::on_end(self.pid());
            self.reaped = true;
        }
        self.child.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A child that cannot be waited for has already been reaped.
        let _ = self.end();
    }
}

impl Finished {
    /// Passes when the child exited with status 0.
    pub fn success(self) -> Result<Self> {
        if self.status.success() {
            return Ok(self);
        }
        let how = match self.status.signal() {
            Some(signal) => format!("killed by signal {signal}"),
            None => format!("{}", self.status),
        };
        bail!("{}: {how}\n{}", self.name, tail(&self.text))
    }

    /// Passes when the output contains `text`.
    pub fn prints(self, text: &str) -> Result<Self> {
        if self.text.contains(text) {
            return Ok(self);
        }
        bail!(
            "{}: never printed {text:?}\n{}",
            self.name,
            tail(&self.text)
        )
    }

    /// Passes when no line of the output contains `text`, ignoring case.
    pub fn never_prints(self, text: &str) -> Result<Self> {
        let wanted = text.to_lowercase();
        match self
            .text
            .lines()
            .find(|line| line.to_lowercase().contains(&wanted))
        {
            None => Ok(self),
            Some(line) => bail!("{}: printed {line:?}\n{}", self.name, tail(&self.text)),
        }
    }

    /// The last lines of the output.
    pub fn tail(&self) -> String {
        tail(&self.text)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn wait(&self, deadline: Duration, done: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let end = Instant::now() + deadline;
        let mut state = self.lock();
        while !done(&state) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }
}

fn read_output(mut reader: PipeReader, shared: &Shared, echo: Echo) {
    let mut buffer = [0; 4096];
    let mut line_starts = true;
    while let Ok(len @ 1..) = reader.read(&mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..len]);
        match echo {
            Echo::None => (),
            Echo::Indented => print_indented(&text, &mut line_starts),
            Echo::Plain => print_at_once(&buffer[..len]),
        }
        shared.update(|state| state.text.push_str(&text));
    }
    shared.update(|state| state.closed = true);
}

fn print_at_once(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    // A failure is ignored: without a reader of this test's output the output is lost, but the
    // result of the child still counts.
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

fn print_indented(text: &str, line_starts: &mut bool) {
    for piece in text.split_inclusive('\n') {
        let indent = if *line_starts { "    | " } else { "" };
        print!("{indent}{piece}");
        *line_starts = piece.ends_with('\n');
    }
}

fn pid_of(child: &Child) -> Pid {
    // Process ids of Linux stay below 2^22.
    Pid::from_raw(child.id().cast_signed())
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.len().saturating_sub(TAIL_LINES);
    lines[first..]
        .iter()
        .map(|line| format!("    | {line}\n"))
        .collect()
}
