//! Both ends of a DAT connection as processes of `tests/c/peer.c`.

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::{
    CProgram, Finished, Program, Registry, Running, Sanitizer, StackEnv, Stage, VALGRIND, device,
    provider_name,
};

/// The number of a passed descriptor in the child.
pub const PASSED_FD: i32 = 9;

/// The time after which a child counts as hanging.
pub const DEADLINE: Duration = Duration::from_secs(240);

/// The compiled program and the network, libraries and registry in which it runs.
#[derive(Debug)]
pub struct Peers {
    /// The network, libraries and registry.
    pub env: StackEnv,
    program: CProgram,
}

/// The number of descriptors that librdmacm keeps for the devices that it has used, until the
/// process ends.
const OF_DEVICE: i64 = 8;

/// The number of mappings that a process may have at its end in addition to those at its start:
/// buffers that are kept for the next use, and the arenas of the C library. More mappings are a
/// leak, and so is any additional descriptor or thread.
const MAPPINGS_KEPT: i64 = 24;

impl Peers {
    /// Compiles the program and enters a network of its own.
    pub fn new() -> Result<Self> {
        let stage = Stage::find()?;
        let program = CProgram::compile(&stage, "peer")?;
        Ok(Self {
            env: StackEnv::at(stage)?,
            program,
        })
    }

    /// Makes peers with additional words at the end of the adapter's `dat.conf` line.
    pub fn with_params(params: &str) -> Result<Self> {
        let mut peers = Self::new()?;
        peers.env.registry = Registry::loopback_with(provider_name(), params)?;
        Ok(peers)
    }

    /// Starts one end, for example `listen port=7471 hold=1`.
    pub fn start(&self, args: &str) -> Result<Running> {
        self.prepare(args).spawn()
    }

    /// Starts one end that finds `fd` as descriptor [`PASSED_FD`].
    pub fn start_with(&self, args: &str, fd: OwnedFd) -> Result<Running> {
        self.prepare(args).pass_fd(fd, PASSED_FD).spawn()
    }

    /// Starts the end that waits for a connection, and returns when that end is ready.
    pub fn start_ready(&self, args: &str) -> Result<Running> {
        let running = self.start(args)?;
        running.wait_for("READY", DEADLINE)?;
        Ok(running)
    }

    /// Starts one end under valgrind, which reports memory errors and leaks by the exit status.
    pub fn start_under_valgrind(&self, args: &str) -> Result<Running> {
        self.env
            .program("env")
            .args_line(VALGRIND)
            .arg(self.program.file())
            .args_line(args)
            .named(&format!("valgrind peer {args}"))
            .spawn()
    }

    /// Returns the program of one end, not started.
    pub fn prepare(&self, args: &str) -> Program {
        self.env
            .program(self.program.file())
            .args_line(args)
            .named(&format!("peer {args}"))
    }
}

/// Waits for an end, which must free everything and exit with status 0.
pub fn orderly(running: Running) -> Result<Finished> {
    orderly_within(running, DEADLINE)
}

/// Waits for an end as [`orderly`] does, with a deadline of its own.
pub fn orderly_within(running: Running, deadline: Duration) -> Result<Finished> {
    let finished = running.finish(deadline)?.success()?.prints("DONE")?;
    let limits = [
        (
            "descriptors",
            if device().is_some() { OF_DEVICE } else { 0 },
        ),
        ("threads", 0),
        ("mappings", MAPPINGS_KEPT),
    ];
    keeps_at_most(&finished, &limits)?;
    Ok(finished)
}

/// Checks that a program holds no more resources at its end than `limits` allow of each kind, as
/// its `LEFT` line reports. Memory is not counted under AddressSanitizer, whose allocator keeps
/// freed memory and reports leaks itself.
pub fn keeps_at_most(finished: &Finished, limits: &[(&str, i64)]) -> Result<()> {
    let counts_memory = Sanitizer::chosen() != Sanitizer::Address;
    for (what, limit) in limits {
        let left = left(finished, what)?;
        let is_memory = matches!(*what, "mappings" | "resident_kib");
        ensure!(
            left <= *limit || (is_memory && !counts_memory),
            "{left} {what} are left\n{}",
            finished.tail()
        );
    }
    Ok(())
}

/// The number of additional resources of a kind that a program holds at its end, as its `LEFT` line
/// reports.
fn left(finished: &Finished, what: &str) -> Result<i64> {
    let line = finished
        .text
        .lines()
        .rfind(|line| line.starts_with("LEFT "));
    line.and_then(|line| {
        line.split_whitespace()
            .find_map(|word| word.strip_prefix(what)?.strip_prefix('=')?.parse().ok())
    })
    .with_context(|| {
        format!(
            "no line reports how many {what} are left\n{}",
            finished.tail()
        )
    })
}
