//! The costs and gains of the stack, compared with raw TCP.
//!
//! - `dat-bench`, a program of `tools`, measures DAT and SDP streams.
//! - `programs` measures programs under `opsrun`, `pairs.rs` alternates with the same programs
//!   without it; `ends.rs` has clients and servers that no package has.
//! - `peers` measures UCX and libfabric on the work of `dat-bench`.
//! - `figures.rs` reads the figures that other programs print.

pub(crate) mod ends;
pub(crate) mod figures;
mod pairs;
mod peers;
mod programs;

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use stack_tests::{Finished, StackEnv, Stage};

use crate::job::Job;
use crate::stage::{self, Progress};
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
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        match self.only {
            Some(only) => only == part,
            // The peers need packages that no other part needs.
            None => part != Part::Peers,
        }
    }
}

/// Stages, measures, and prints the tables.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    println!("{}", stage::run(workspace, Progress::Shown)?);
    let stage = Stage::at(workspace.stage_dir())?;
    for (part, contender) in [(Part::Dat, "dat"), (Part::Sdp, "sdp")] {
        if options.wants(part) {
            let env = StackEnv::at(stage.clone())?;
            measure(workspace, &env, contender, options.quick)?;
        }
    }
    if options.peers || options.wants(Part::Peers) {
        peers::measure(workspace, &stage, options.quick)?;
    }
    if options.wants(Part::Opsrun) {
        programs::measure(workspace, &stage, options.quick, &options.rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `dat-bench` for one contender and shows its output.
pub(crate) fn measure(
    workspace: &Workspace,
    env: &StackEnv,
    contender: &str,
    quick: bool,
) -> Result<Finished> {
    let tool = env.stage.bin("dat-bench");
    ensure!(
        tool.exists(),
        "{} is not staged; no package builds it",
        tool.display()
    );
    let program = env
        .program(&tool)
        .args_line(&format!("--only {contender}"))
        .args_line(if quick { "--quick" } else { "" })
        // Without it, the tool uses its own registry, which has an adapter for each row.
        .env_remove("DAT_OVERRIDE");
    Job::with_program(workspace, "dat-bench", program)
        .minutes(20)
        .echo()
        .check()
}
