//! One external command of a step: limited in time, with its output in a log.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use stack_tests::{Finished, Program};

use crate::workspace::{Workspace, cargo};

/// The number of lines of a failed command's log that are printed.
const TAIL_LINES: usize = 40;

/// A command with a name, a deadline and a log file.
#[derive(Debug)]
pub(crate) struct Job {
    program: Program,
    deadline: Duration,
    log: PathBuf,
}

impl Job {
    /// Creates a job that runs a program in the workspace root.
    pub(crate) fn new(workspace: &Workspace, name: &str, program: &str) -> Self {
        Self::with_program(
            workspace,
            name,
            Program::new(program).current_dir(workspace.root()),
        )
    }

    /// Creates a job from a command that is already configured.
    pub(crate) fn with_program(workspace: &Workspace, name: &str, program: Program) -> Self {
        Self {
            program: program.named(name),
            deadline: Duration::from_secs(120),
            log: workspace
                .log_dir()
                .join(format!("{}.log", name.replace(' ', "-"))),
        }
    }

    /// Creates a job that runs a program in a directory.
    pub(crate) fn at(workspace: &Workspace, name: &str, program: &Path, directory: &Path) -> Self {
        let program = Program::new(program).current_dir(directory);
        Self::with_program(workspace, name, program)
    }

    /// Creates a job that runs cargo.
    pub(crate) fn cargo(workspace: &Workspace, name: &str, args: &str) -> Self {
        Self::new(workspace, name, &cargo())
            .args(args)
            .env("CARGO_TERM_COLOR", "never")
    }

    /// Appends blank-separated arguments.
    pub(crate) fn args(mut self, line: &str) -> Self {
        self.program = self.program.args_line(line);
        self
    }

    /// Appends one argument as it is.
    pub(crate) fn arg(mut self, arg: &str) -> Self {
        self.program = self.program.arg(arg);
        self
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, key: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.program = self.program.env(key, value);
        self
    }

    /// Sets the time limit.
    pub(crate) fn minutes(mut self, minutes: u64) -> Self {
        self.deadline = Duration::from_secs(60 * minutes);
        self
    }

    /// Sets the working directory, which is the workspace's without this call.
    pub(crate) fn directory(mut self, directory: &Path) -> Self {
        self.program = self.program.current_dir(directory);
        self
    }

    /// Repeats the output as it is received.
    pub(crate) fn echo(mut self) -> Self {
        self.program = self.program.echo();
        self
    }

    /// Runs the command, writes the log, and returns the output, whatever the exit status.
    pub(crate) fn run(self) -> Result<Finished> {
        let log = self.log.clone();
        let finished = self.finish()?;
        record(&log, &finished.text)?;
        Ok(finished)
    }

    /// Runs the command and returns the output, whatever the exit status, without a log.
    pub(crate) fn finish(self) -> Result<Finished> {
        self.program.spawn()?.finish(self.deadline)
    }

    /// Writes the log of a command whose runs were finished without one.
    pub(crate) fn record(&self, text: &str) -> Result<()> {
        record(&self.log, text)
    }

    /// Runs the command and fails unless it exits with status 0; the error includes the end of its
    /// output.
    pub(crate) fn check(self) -> Result<Finished> {
        let log = self.log.clone();
        let finished = self.run()?;
        if finished.status.success() {
            return Ok(finished);
        }
        let lines: Vec<&str> = finished.text.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
        bail!(
            "{}: {}; the whole output is in {}\n{tail}",
            finished.name,
            finished.status,
            log.display()
        )
    }
}

fn record(log: &Path, text: &str) -> Result<()> {
    let dir = log.parent().context("a log is in a directory")?;
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    fs::write(log, text).with_context(|| format!("writing {}", log.display()))
}
