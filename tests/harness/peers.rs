//! Both ends of a DAT connection as processes of `tests/c/peer.c`.

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::Result;

use crate::{CProgram, Finished, Program, Running, StackEnv, Stage};

/// Where a passed descriptor appears in the child.
pub const PASSED_FD: i32 = 9;

/// A child that has not ended after this long hangs.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The compiled program and the network, libraries and registry in which it runs.
#[derive(Debug)]
pub struct Peers {
    /// The surroundings.
    pub env: StackEnv,
    program: CProgram,
}

impl Peers {
    /// Compiles the program and enters a network of its own.
    ///
    /// # Errors
    /// When nothing is staged, or it does not compile.
    pub fn new() -> Result<Self> {
        let stage = Stage::find()?;
        let program = CProgram::compile(&stage, "peer")?;
        Ok(Self {
            env: StackEnv::at(stage)?,
            program,
        })
    }

    /// Starts one end, for example `listen port=7471 hold=1`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, args: &str) -> Result<Running> {
        self.prepare(args).spawn()
    }

    /// Starts one end that finds `fd` as descriptor [`PASSED_FD`].
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_with(&self, args: &str, fd: OwnedFd) -> Result<Running> {
        self.prepare(args).pass_fd(fd, PASSED_FD).spawn()
    }

    /// Starts the end that waits to be connected to, and returns when it is ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn start_ready(&self, args: &str) -> Result<Running> {
        let running = self.start(args)?;
        running.wait_for("READY", DEADLINE)?;
        Ok(running)
    }

    /// Starts one end under valgrind, which makes the exit status tell of memory errors and leaks.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_under_valgrind(&self, args: &str) -> Result<Running> {
        self.env
            .program("valgrind")
            .args_line(
                "--quiet --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite",
            )
            .arg(self.program.file())
            .args_line(args)
            .named(&format!("valgrind peer {args}"))
            .spawn()
    }

    /// One end as a program that is about to start.
    #[must_use]
    pub fn prepare(&self, args: &str) -> Program {
        self.env
            .program(self.program.file())
            .args_line(args)
            .named(&format!("peer {args}"))
    }
}

/// Waits for an end that should have freed everything and left with status 0.
///
/// # Errors
/// When it hangs, crashes, or gave up.
pub fn orderly(running: Running) -> Result<Finished> {
    running.finish(DEADLINE)?.success()?.says("DONE")
}
