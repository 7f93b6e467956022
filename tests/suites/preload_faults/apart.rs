//! Processes under the library.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stack_tests::Stage;
use tempfile::TempDir;

/// Which part a process plays; without it, it is the suite.
pub(crate) const PART: &str = "PRELOAD_FAULTS_PART";
/// Far beyond what anything here takes on an idle machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// A process. Its drop kills it.
pub(crate) struct Apart {
    child: Child,
    tell: Option<ChildStdin>,
    said: Receiver<String>,
    part: String,
}

/// Where the processes of one test tell of their sockets.
pub(crate) struct Pages(TempDir);

impl Pages {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(TempDir::new()?))
    }

    /// Nobody has left a page behind, once a reader has come by.
    pub(crate) fn are_gone(&self) -> Result<()> {
        let listed = Command::new(Stage::find()?.bin("opsrun"))
            .args(["ss", "-H"])
            .env("OPS_PAGES", self.0.path())
            .output()
            .context("running opsrun ss")?;
        ensure!(
            listed.status.success() && listed.stdout.is_empty() && listed.stderr.is_empty(),
            "sockets are left: {listed:?}"
        );
        for directory in std::fs::read_dir(self.0.path())? {
            let left = std::fs::read_dir(directory?.path())?.count();
            ensure!(left == 0, "{left} pages are left");
        }
        Ok(())
    }
}

impl Apart {
    /// Starts one.
    pub(crate) fn start(part: &str, pages: &Pages) -> Result<Self> {
        let library = Stage::find()?.lib().join("libops-preload.so");
        let mut child = Command::new(std::env::current_exe()?)
            .env("LD_PRELOAD", library)
            .env("OPS_TEST_PROTOCOL", "1")
            .env("OPS_PAGES", pages.0.path())
            .env_remove("OPS_RULES")
            .env(PART, part)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {part}"))?;
        let output = child.stdout.take().context("it has an output")?;
        let (sender, said) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            tell: child.stdin.take(),
            child,
            said,
            part: part.to_owned(),
        })
    }

    /// The next line that begins with a word, and what it says behind it.
    pub(crate) fn hear(&self, word: &str) -> Result<String> {
        self.hear_within(word, DEADLINE)
    }

    /// The same, of a process that may take longer.
    pub(crate) fn hear_within(&self, word: &str, within: Duration) -> Result<String> {
        let end = Instant::now() + within;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.said.recv_timeout(left) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(word) {
                        return Ok(rest.trim().to_owned());
                    }
                    ensure!(!line.starts_with("failed"), "{}: {line}", self.part);
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{}: nothing of `{word}` within {within:?}", self.part)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("{}: it ended before `{word}`", self.part)
                }
            }
        }
    }

    /// Says a line to it.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        let to = self.tell.as_mut().context("it listens")?;
        writeln!(to, "{line}").with_context(|| format!("telling {}", self.part))
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?);
        kill(pid, signal).with_context(|| format!("{signal} to {}", self.part))
    }

    /// Waits for its end, which is to be a good one.
    pub(crate) fn finish(mut self) -> Result<()> {
        drop(self.tell.take());
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                let told: Vec<String> = self.said.iter().collect();
                ensure!(status.success(), "{}: {status}, {told:?}", self.part);
                return Ok(());
            }
            ensure!(Instant::now() < end, "{}: it does not end", self.part);
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
