//! Starting a child process.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{Echo, Finished, Running};

/// The limit of the numbers that [`Program::pass_fd`] accepts.
const ABOVE_PASSED: RawFd = 64;

/// The time for which another process may have a program open for writing.
const BUSY: Duration = Duration::from_secs(60);

/// A program that has not been started yet. It will have its own process group, recorded output and
/// an empty input.
#[must_use]
pub struct Program {
    command: Command,
    name: String,
    passed: Vec<(OwnedFd, RawFd)>,
    network: Option<File>,
    echo: Echo,
}

impl Program {
    /// The program at `path`, or found on `PATH`.
    pub fn new(path: impl AsRef<OsStr>) -> Self {
        let path = path.as_ref();
        let name = Path::new(path)
            .file_name()
            .unwrap_or(path)
            .to_string_lossy()
            .into_owned();
        Self {
            command: Command::new(path),
            name,
            passed: Vec::new(),
            network: None,
            echo: Echo::None,
        }
    }

    /// Appends blank-separated arguments.
    pub fn args_line(mut self, line: &str) -> Self {
        self.command.args(line.split_whitespace());
        self
    }

    /// Appends one argument as it is.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Removes an environment variable.
    pub fn env_remove(mut self, key: &str) -> Self {
        self.command.env_remove(key);
        self
    }

    /// Sets the working directory.
    pub fn current_dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Sets the name used in messages, for example `dtest client`.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Repeats each line of output on the test's standard output, indented.
    pub fn echo(self) -> Self {
        self.echo_as(Echo::Indented)
    }

    /// Repeats the child's output in this form.
    pub fn echo_as(mut self, echo: Echo) -> Self {
        self.echo = echo;
        self
    }

    /// Passes `fd` to the child as descriptor `number`. This process closes `fd` when the program
    /// starts.
    pub fn pass_fd(mut self, fd: OwnedFd, number: RawFd) -> Self {
        self.passed.push((fd, number));
        self
    }

    /// Makes the program run in this network namespace.
    pub(crate) fn in_network(mut self, network: File) -> Self {
        self.network = Some(network);
        self
    }

    /// Starts the program.
    pub fn spawn(mut self) -> Result<Running> {
        let (reader, writer) = io::pipe().context("creating a pipe")?;
        let duplicate = writer.try_clone().context("duplicating a pipe")?;
        self.command
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(duplicate)
            .process_group(0);
        self.prepare_child();
        let child = self
            .start()
            .with_context(|| format!("starting {:?}", self.command))?;
        Ok(Running::watch(self.name, child, reader, self.echo))
    }

    /// Runs the program to its end.
    ///
    /// # Errors
    /// If the program fails or is still running at the deadline.
    pub fn run(self, deadline: Duration) -> Result<Finished> {
        self.spawn()?.finish(deadline)?.success()
    }

    /// Starts the child and retries while the file is busy: a program that was copied a moment ago
    /// may still be open for writing in a child that another thread has just forked, until that
    /// child executes a program.
    fn start(&mut self) -> io::Result<Child> {
        let end = Instant::now() + BUSY;
        loop {
            match self.command.spawn() {
                Err(why) if why.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < end => {
                    thread::sleep(Duration::from_millis(10));
                }
                started => return started,
            }
        }
    }

    fn prepare_child(&mut self) {
        let mut moves: Vec<(RawFd, RawFd)> = self
            .passed
            .iter()
            .map(|(fd, number)| (fd.as_raw_fd(), *number))
            .collect();
        let network = self.network.as_ref().map(AsRawFd::as_raw_fd);
        // SAFETY: between fork and exec the closure makes only the async-signal-safe calls prctl,
        // setns, fcntl and dup2, and allocates nothing; `moves` was built before the fork. The
        // descriptors stay open because `self.passed` and `self.network` live until after `spawn`.
        unsafe {
            self.command.pre_exec(move || {
                // If a test is killed, the kernel kills its children.
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                if let Some(network) = network
                    && libc::setns(network, libc::CLONE_NEWNET) != 0
                {
                    return Err(io::Error::last_os_error());
                }
                // The descriptors are first moved to numbers where none overwrites another. A
                // descriptor that already has its final number is moved too: otherwise the exec
                // would close it, because dup2 onto itself keeps its close-on-exec flag.
                for (fd, _) in &mut moves {
                    *fd = libc::fcntl(*fd, libc::F_DUPFD_CLOEXEC, ABOVE_PASSED);
                    if *fd < 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                for &(fd, number) in &moves {
                    if libc::dup2(fd, number) < 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}
