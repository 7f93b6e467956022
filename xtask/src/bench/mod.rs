//! The costs and gains of the stack, compared with raw TCP.
//!
//! - `dat.rs` measures DAT and SDP streams by `dat-bench`, a program of `tools`.
//! - `programs` measures programs under `opsrun` and without it; `ends.rs` has clients and servers
//!   that no package has.
//! - `peers` measures UCX, libfabric and perftest under `verbsrun` on the work of `dat-bench`.
//! - `mpi.rs` measures Intel MPI over DAPL, over its TCP and over its shared memory.
//! - `contest.rs` alternates between the ways to do the work of a row, and prints the table.
//! - `figures.rs` reads the figures that other programs print.

mod contest;
mod dat;
pub(crate) mod ends;
pub(crate) mod figures;
mod mpi;
mod peers;
mod programs;

use std::fs;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use stack_tests::{Finished, StackEnv, Stage};

use crate::job::Job;
use crate::stage::{self, Form, Progress};
use crate::workspace::Workspace;

/// The options of the measurement.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measure fewer sizes, in shorter rounds.
    #[arg(long)]
    quick: bool,
    /// Measure UCX and libfabric too, on the work of DAT over shared memory.
    #[arg(long)]
    peers: bool,
    /// Measure only this part.
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Of the programs under opsrun, measure only rows with this in the title.
    #[arg(long, value_name = "WORD", default_value = "")]
    rows: String,
}

/// A part that can be measured on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// DAT and raw TCP.
    Dat,
    /// SDP streams and raw TCP.
    Sdp,
    /// Programs with and without opsrun.
    Opsrun,
    /// DAT, UCX and libfabric in one table.
    Peers,
    /// Intel MPI over DAPL and over its own transports.
    Mpi,
    /// Programs for verbs under verbsrun, and DAT.
    Verbs,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        match self.only {
            Some(only) => only == part,
            // These need packages that no other part needs.
            None => !matches!(part, Part::Peers | Part::Mpi | Part::Verbs),
        }
    }
}

/// Stages, measures, and prints the tables.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    println!("{}", stage::run(workspace, Progress::Shown, Form::Release)?);
    let stage = Stage::at(workspace.stage_dir())?;
    for (part, contender) in [(Part::Dat, "dat"), (Part::Sdp, "sdp")] {
        if options.wants(part) {
            dat::measure(workspace, &stage, contender, options.quick)?;
        }
    }
    if options.peers || options.wants(Part::Peers) {
        peers::measure(workspace, &stage, &peers::OTHERS, options.quick)?;
    }
    if options.wants(Part::Mpi) {
        mpi::measure(workspace, &stage, options.quick)?;
    }
    if options.wants(Part::Verbs) {
        peers::measure(workspace, &stage, &peers::VERBS, options.quick)?;
    }
    if options.wants(Part::Opsrun) {
        programs::measure(workspace, &stage, options.quick, &options.rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The rounds of a comparison with other implementations, and the milliseconds of their samples.
fn plan(quick: bool) -> (usize, u32) {
    match quick {
        true => (3, 120),
        false => (7, 150),
    }
}

/// The machine's load of the last minute.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// Runs `dat-bench` with these arguments and shows its output.
pub(crate) fn measure(workspace: &Workspace, env: &StackEnv, line: &str) -> Result<Finished> {
    let tool = env.stage.bin("dat-bench");
    ensure!(
        tool.exists(),
        "{} is not staged; no package builds it",
        tool.display()
    );
    let program = env.program(&tool).args_line(line);
    Job::with_program(workspace, "dat-bench", program)
        .minutes(20)
        .echo()
        .check()
}
