//! Fuzzing: each target for a while, from its committed corpus.
//!
//! What a run finds worth keeping goes to `target/fuzz/kept/<target>`, crashes to
//! `target/fuzz/artifacts`; neither is committed by itself. Works on the stable toolchain, without
//! sanitizers, at several times the speed that it would have with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use stack_tests::{Program, Registry, Stage};

use crate::job::Job;
use crate::report::{Outcome, Report};
use crate::workspace::Workspace;

/// The target that calls the staged libraries.
const C_CALLS: &str = "c_calls";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only this target; all of `fuzz/fuzz_targets` without it.
    #[arg(long)]
    target: Option<String>,
    /// Inputs to run; without it each target runs for a minute.
    #[arg(long)]
    runs: Option<u64>,
}

/// Runs the targets one after another.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let known = targets(workspace.root())?;
    let chosen = match &options.target {
        Some(name) if known.contains(name) => vec![name.clone()],
        Some(name) => bail!("no target {name}; there are {}", known.join(", ")),
        None => known,
    };
    let version = Job::cargo(workspace, "cargo-fuzz", "fuzz --version").run()?;
    ensure!(
        version.status.success(),
        "cargo-fuzz is not installed; `cargo install cargo-fuzz` installs it"
    );
    let build = format!(
        "fuzz build --sanitizer none --target-dir {}",
        build_dir(workspace).display()
    );
    Job::cargo(workspace, "fuzz build", &build)
        .minutes(30)
        .check()?;
    let mut report = Report::new("fuzz");
    for name in &chosen {
        report.step(name, || fuzz(workspace, name, options.runs));
    }
    Ok(report.finish())
}

/// The root source files of the fuzzing programs, which belong to a workspace of their own.
pub(crate) fn programs(root: &Path) -> Result<Vec<PathBuf>> {
    let dir = root.join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))?;
    let mut programs = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    programs.sort();
    Ok(programs)
}

/// Each program is a target.
fn targets(root: &Path) -> Result<Vec<String>> {
    let stem = |path: &PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
    Ok(programs(root)?.iter().filter_map(stem).collect())
}

fn fuzz(workspace: &Workspace, name: &str, runs: Option<u64>) -> Result<Outcome> {
    let root = workspace.root();
    let kept = workspace.target().join("fuzz/kept").join(name);
    let artifacts = workspace.target().join("fuzz/artifacts");
    for dir in [&kept, &artifacts] {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    }
    let mut program = Program::new(fuzzer(workspace, name))
        .current_dir(root)
        .args_line(&match runs {
            Some(runs) => format!("-runs={runs}"),
            None => "-max_total_time=60".to_owned(),
        })
        .args_line("-timeout=20 -max_len=2048 -print_final_stats=1")
        .arg(format!("-artifact_prefix={}/{name}-", artifacts.display()))
        .arg(&kept)
        .arg(root.join("fuzz/corpus").join(name));
    let dictionary = root.join(format!("fuzz/dictionaries/{name}.dict"));
    if dictionary.exists() {
        program = program.arg(format!("-dict={}", dictionary.display()));
    }
    // Lives until the fuzzer has ended.
    let mut registry = None;
    if name == C_CALLS {
        let Ok(stage) = Stage::at(workspace.stage_dir()) else {
            return Ok(Outcome::NotRun(
                "nothing is staged; `cargo xtask stage`".into(),
            ));
        };
        let provider = stage.provider().display().to_string();
        let file = registry.insert(Registry::loopback(&provider)?);
        program = program
            .env("DAT_LIBRARY", stage.lib().join("libdat2.so.2"))
            .env("DAT_OVERRIDE", file.file());
    }
    let finished = Job::with_program(workspace, &format!("fuzz {name}"), program)
        .minutes(24 * 60)
        .check()?;
    let executed = finished
        .text
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))
        .context("the fuzzer does not say how many inputs it ran")?;
    Ok(Outcome::passed(0, format!("{} inputs", executed.trim())))
}

fn build_dir(workspace: &Workspace) -> PathBuf {
    workspace.target().join("fuzz/build")
}

/// Where cargo-fuzz puts its programs: it always names the target triple.
fn fuzzer(workspace: &Workspace, name: &str) -> PathBuf {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    build_dir(workspace).join(triple).join("release").join(name)
}
