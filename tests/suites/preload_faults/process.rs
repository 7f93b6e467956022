//! Processes that run with the library preloaded.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stack_tests::{NetSpace, Offload, OffloadProtocol, OpsRun, Program, Stage, Veth, awaited};
use tempfile::TempDir;

/// The variable that names the program of a process. A process without the variable is the suite.
pub(crate) const ROLE: &str = "PRELOAD_FAULTS_ROLE";
/// The variable with the peer's address, if it is not the loopback address.
pub(crate) const HOST: &str = "PRELOAD_FAULTS_HOST";
/// The time limit of a step, far longer than any step takes on an idle machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// A process, which is killed when this value is dropped.
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    role: String,
}

/// The environment of one test: a network of its own, the settings of `opsrun`, and the directory
/// in which its processes publish their sockets.
pub(crate) struct Environment {
    ops: OpsRun,
    _settings: TempDir,
    pages: TempDir,
    // Declared last, so that the network is dropped after all other fields.
    net: NetSpace,
}

impl Environment {
    pub(crate) fn new(protocol: &'static OffloadProtocol) -> Result<Self> {
        Self::with_offload(Offload::All, protocol)
    }

    pub(crate) fn with_offload(
        offload: Offload,
        protocol: &'static OffloadProtocol,
    ) -> Result<Self> {
        let net = NetSpace::enter()?;
        let settings = TempDir::new()?;
        Ok(Self {
            ops: OpsRun::new(&Stage::find()?, protocol, offload, settings.path())?,
            _settings: settings,
            pages: TempDir::new()?,
            net,
        })
    }

    /// With further settings in the rules of the sockets that are offloaded.
    pub(crate) fn with_settings(
        protocol: &'static OffloadProtocol,
        settings: &str,
    ) -> Result<Self> {
        let environment = Self::new(protocol)?;
        Ok(Self {
            ops: environment.ops.with_settings(settings)?,
            ..environment
        })
    }

    /// The cable to a second network, if one can be made.
    pub(crate) fn cable(&self) -> Result<Option<Veth>> {
        Veth::create(&self.net)
    }

    /// Checks the SDP messages of the test's processes against the rules and returns their number.
    /// Must be called when all processes have ended.
    pub(crate) fn messages(&self) -> Result<u64> {
        self.ops.check_traces()
    }

    /// Checks and counts the messages of a test in which peers break rules on purpose.
    pub(crate) fn messages_of_victims(&self) -> Result<u64> {
        self.ops.check_victims()
    }

    /// The output of `opsrun ss` for the test's processes.
    pub(crate) fn listed(&self) -> Result<String> {
        self.listed_with("ss -H")
    }

    /// The output of `opsrun` with these arguments for the test's processes.
    pub(crate) fn listed_with(&self, arguments: &str) -> Result<String> {
        let listed = Program::new(Stage::find()?.bin("opsrun"))
            .args_line(arguments)
            .env("OPS_PAGES", self.pages.path())
            .spawn()?;
        Ok(listed.finish(DEADLINE)?.success()?.text)
    }

    /// Checks that no process broke a rule of the protocol, and that no page of a process is left
    /// after a reader has read the pages.
    pub(crate) fn check_end(&self) -> Result<()> {
        let messages = self.messages()?;
        ensure!(
            messages > 0 || !self.ops.protocol().is_sdp,
            "no SDP message was recorded"
        );
        let listed = self.listed()?;
        ensure!(listed.is_empty(), "sockets are left: {listed}");
        for directory in std::fs::read_dir(self.pages.path())? {
            let left = std::fs::read_dir(directory?.path())?.count();
            ensure!(left == 0, "{left} pages are left");
        }
        Ok(())
    }
}

impl Process {
    pub(crate) fn start(role: &str, environment: &Environment) -> Result<Self> {
        Self::start_with(role, environment, |_| {})
    }

    /// Starts a process with further settings.
    pub(crate) fn start_with(
        role: &str,
        environment: &Environment,
        with: impl FnOnce(&mut Command),
    ) -> Result<Self> {
        let mut command = environment.ops.preloaded(std::env::current_exe()?);
        with(&mut command);
        let mut child = command
            .env("OPS_PAGES", environment.pages.path())
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {role}"))?;
        let output = child.stdout.take().context("no pipe from the process")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            stdin: child.stdin.take(),
            child,
            lines,
            role: role.to_owned(),
        })
    }

    /// Waits for the next line that begins with a word, and returns the rest of the line.
    pub(crate) fn read_line(&self, word: &str) -> Result<String> {
        self.read_line_within(word, DEADLINE)
    }

    /// Waits for such a line with another time limit.
    pub(crate) fn read_line_within(&self, word: &str, within: Duration) -> Result<String> {
        let end = Instant::now() + within;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(word) {
                        return Ok(rest.trim().to_owned());
                    }
                    ensure!(!line.starts_with("failed"), "{}: {line}", self.role);
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{}: no line `{word}` within {within:?}", self.role)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("{}: it ended before `{word}`", self.role)
                }
            }
        }
    }

    pub(crate) fn write_line(&mut self, line: &str) -> Result<()> {
        let to = self.stdin.as_mut().context("its input is closed")?;
        writeln!(to, "{line}").with_context(|| format!("writing to {}", self.role))
    }

    /// Returns the rest of the next line that begins with a word, if there is one within a time.
    pub(crate) fn try_read_line(&self, word: &str, within: Duration) -> Result<Option<String>> {
        match self.lines.recv_timeout(within) {
            Ok(line) => {
                let rest = line.strip_prefix(word);
                let rest = rest.with_context(|| format!("{}: {line}", self.role))?;
                Ok(Some(rest.trim().to_owned()))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("{}: it ended before `{word}`", self.role)
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?);
        kill(pid, signal).with_context(|| format!("{signal} to {}", self.role))
    }

    /// Waits for the end of the process, which must be a success.
    pub(crate) fn finish(mut self) -> Result<()> {
        drop(self.stdin.take());
        let status = awaited!(self.child.try_wait()?, "{}: it does not end", self.role);
        let rest: Vec<String> = self.lines.iter().collect();
        ensure!(status.success(), "{}: {status}, {rest:?}", self.role);
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
