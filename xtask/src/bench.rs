//! Latency and bandwidth beside raw TCP.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use stack_tests::{Finished, StackEnv, Stage};

use crate::job::Job;
use crate::stage::{self, Progress};
use crate::workspace::Workspace;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Fewer sizes and shorter rounds.
    #[arg(long)]
    quick: bool,
}

/// Stages, measures, prints the table.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    println!("{}", stage::run(workspace, Progress::Shown)?);
    let env = StackEnv::at(Stage::at(workspace.stage_dir())?)?;
    measure(workspace, &env, options.quick)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `dat-bench` and shows what it prints.
pub(crate) fn measure(workspace: &Workspace, env: &StackEnv, quick: bool) -> Result<Finished> {
    let tool = env.stage.bin("dat-bench");
    ensure!(
        tool.exists(),
        "{} is not staged; no package builds it",
        tool.display()
    );
    let program = env
        .program(&tool)
        .args_line(if quick { "--quick" } else { "" })
        // The tool's own registry has an adapter for each row.
        .env_remove("DAT_OVERRIDE");
    Job::with_program(workspace, "dat-bench", program)
        .minutes(10)
        .echo()
        .check()
}
