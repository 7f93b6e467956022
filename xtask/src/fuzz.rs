//! Fuzzing: runs each target for a while, from its committed corpus, and prints a table of the
//! results.
//!
//! The programs are built as cargo-fuzz builds them, with the stable toolchain: counters at each
//! edge and at each comparison, which libFuzzer reads.
//!
//! New inputs that a run keeps are written to `target/fuzz/kept/<target>`, crashes to
//! `target/fuzz/artifacts`; neither is committed automatically. Fuzzing works on the stable
//! toolchain, without sanitizers, at several times the speed that it would have with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use stack_tests::{Program, Registry, Stage};

use crate::job::Job;
use crate::report::{Outcome, Report};
use crate::workspace::Workspace;

/// The target that calls the staged libraries.
const STAGED: &str = "c_calls_staged";
/// The target that calls the functions in memory, from the same corpus.
const UNSTAGED: &str = "c_calls";
/// The default time of each target in seconds.
const SECONDS: u64 = 60;
/// Flags of the compiler.
const INSTRUMENTED: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run only this target instead of all of `fuzz/fuzz_targets`.
    #[arg(long)]
    target: Option<String>,
    /// Run each target for this number of inputs instead of for a minute.
    #[arg(long)]
    runs: Option<u64>,
    /// Run each target for this number of seconds; with `--runs`, the first limit ends the run.
    #[arg(long)]
    seconds: Option<u64>,
}

/// Runs the targets one after another.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let known = targets(workspace.root())?;
    let chosen = match &options.target {
        Some(name) if known.contains(name) => vec![name.clone()],
        Some(name) => bail!("no target {name}; the targets are {}", known.join(", ")),
        None => known,
    };
    build(workspace)?;
    let mut report = Report::new("fuzz");
    let mut rows = Vec::new();
    for name in &chosen {
        report.step(name, || fuzz(workspace, name, &limits(options), &mut rows));
    }
    print_table(&rows);
    Ok(report.finish())
}

/// Fuzzes every target for this number of seconds, as a step of the tests.
pub(crate) fn step(workspace: &Workspace, seconds: u64) -> Result<Outcome> {
    build(workspace)?;
    let mut rows = Vec::new();
    let limits = format!("-max_total_time={seconds}");
    for name in targets(workspace.root())? {
        if let Outcome::NotRun(why) = fuzz(workspace, &name, &limits, &mut rows)? {
            return Ok(Outcome::NotRun(why));
        }
    }
    let inputs: u64 = rows.iter().map(|row| row.executions).sum();
    let detail = format!("{inputs} inputs, {seconds} s for each target");
    Ok(Outcome::passed(rows.len(), &detail))
}

/// Builds all programs.
fn build(workspace: &Workspace) -> Result<()> {
    let build = format!(
        "build --release --bins --quiet --target {} --target-dir {}",
        triple(),
        build_dir(workspace).display()
    );
    Job::cargo(workspace, "fuzz build", &build)
        .directory(&workspace.root().join("fuzz"))
        .env("RUSTFLAGS", INSTRUMENTED)
        .minutes(30)
        .check()?;
    Ok(())
}

/// The result of one target.
#[derive(Debug)]
struct Row {
    target: String,
    executions: u64,
    per_second: u64,
    /// Crashes, hangs and similar faults; the first one ends a run.
    findings: usize,
    /// The number of inputs that together reach all covered code.
    inputs: usize,
}

fn print_table(rows: &[Row]) {
    println!(
        "\n  {:<22} {:>12} {:>10} {:>9} {:>8}",
        "target", "executions", "per second", "findings", "inputs"
    );
    for row in rows {
        println!(
            "  {:<22} {:>12} {:>10} {:>9} {:>8}",
            row.target, row.executions, row.per_second, row.findings, row.inputs
        );
    }
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

/// The names of the targets; each program is a target.
fn targets(root: &Path) -> Result<Vec<String>> {
    let stem = |path: &PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
    Ok(programs(root)?.iter().filter_map(stem).collect())
}

fn fuzz(workspace: &Workspace, name: &str, limits: &str, rows: &mut Vec<Row>) -> Result<Outcome> {
    let artifacts = workspace.target().join("fuzz/artifacts");
    let mut program = program(workspace, name, limits, &artifacts)?;
    // Kept until the fuzzer has ended.
    let mut registry = None;
    if name == STAGED {
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
        .run()?;
    let row = row(name, &finished.text).context("the fuzzer printed no statistics")?;
    let detail = format!("{} inputs", row.executions);
    rows.push(row);
    ensure!(
        finished.status.success(),
        "{}; the input is in {}\n{}",
        finished.status,
        artifacts.display(),
        why(&finished.text)
    );
    Ok(Outcome::passed(0, detail))
}

/// The fuzzer with its corpora, dictionary and limits.
fn program(workspace: &Workspace, name: &str, limits: &str, artifacts: &Path) -> Result<Program> {
    let root = workspace.root();
    let kept = workspace.target().join("fuzz/kept").join(name);
    for dir in [kept.as_path(), artifacts] {
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    let corpus = if name == STAGED { UNSTAGED } else { name };
    let program = Program::new(fuzzer(workspace, name))
        .current_dir(root)
        .args_line(limits)
        .args_line(&format!("-max_len={} -print_final_stats=1", max_len(corpus)))
        // The limit is wall time, so it must be generous: on a busy or suspended machine an input
        // is slow without a fault.
        .args_line("-timeout=300 -report_slow_units=120")
        .arg(format!("-artifact_prefix={}/{name}-", artifacts.display()))
        .arg(&kept)
        .arg(root.join("fuzz/corpus").join(corpus));
    let dictionary = root.join(format!("fuzz/dictionaries/{corpus}.dict"));
    Ok(if dictionary.exists() {
        program.arg(format!("-dict={}", dictionary.display()))
    } else {
        program
    })
}

fn limits(options: &Options) -> String {
    match (options.runs, options.seconds) {
        (Some(runs), Some(seconds)) => format!("-runs={runs} -max_total_time={seconds}"),
        (Some(runs), None) => format!("-runs={runs}"),
        (None, seconds) => format!("-max_total_time={}", seconds.unwrap_or(SECONDS)),
    }
}

/// The longest input of a corpus: long enough for new coverage, because longer inputs reduce the
/// number of executions.
fn max_len(corpus: &str) -> usize {
    match corpus {
        "mpa_startup" => 700,
        "terminate" | "c_calls" | "marked_stream" => 256,
        _ => 512,
    }
}

/// Parses the fuzzer's output: its progress and its final statistics.
fn row(name: &str, text: &str) -> Option<Row> {
    let stat = |key: &str| {
        let line = text.lines().rev().find_map(|line| line.strip_prefix(key))?;
        line.trim().parse::<u64>().ok()
    };
    let crashed = text.lines().any(|line| line.contains("ERROR: libFuzzer"));
    let corpus = text.lines().rev().find_map(|line| {
        let (inputs, _) = line.split_once("corp: ")?.1.split_once('/')?;
        inputs.parse().ok()
    });
    Some(Row {
        target: name.to_owned(),
        executions: stat("stat::number_of_executed_units:")?,
        per_second: stat("stat::average_exec_per_sec:")?,
        findings: usize::from(crashed),
        inputs: corpus.unwrap_or(0),
    })
}

/// The panic message and the engine's own text for a finding.
fn why(text: &str) -> String {
    let is_reason = |line: &&str| {
        ["panicked at", "ERROR: libFuzzer", "SUMMARY:"]
            .iter()
            .any(|word| line.contains(word))
    };
    text.lines()
        .filter(is_reason)
        .collect::<Vec<_>>()
        .join("\n")
}

fn build_dir(workspace: &Workspace) -> PathBuf {
    workspace.target().join("fuzz/build")
}

/// The path of a program.
fn fuzzer(workspace: &Workspace, name: &str) -> PathBuf {
    let programs = build_dir(workspace).join(triple()).join("release");
    programs.join(name)
}

/// The target of the build. It is named, so that programs that run during the build, which have no
/// fuzzer, are not instrumented.
fn triple() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRASHED: &str = "#8\tINITED cov: 5 ft: 6 corp: 3/20b exec/s: 0 rss: 30Mb\n\
        thread '<unnamed>' panicked at a.rs:1:2:\n\
        ==1== ERROR: libFuzzer: deadly signal\n\
        stat::number_of_executed_units: 1234\n\
        stat::average_exec_per_sec:     56\n";

    #[test]
    fn a_row_is_parsed_from_the_output_of_the_fuzzer() {
        let crashed = row("x", CRASHED).expect("complete");
        let Row {
            executions,
            per_second,
            findings,
            inputs,
            ..
        } = crashed;
        assert_eq!((executions, per_second, findings, inputs), (1234, 56, 1, 3));
        let fine = CRASHED.replace("ERROR", "");
        assert_eq!(row("x", &fine).map(|row| row.findings), Some(0));
        assert!(row("x", "stat::number_of_executed_units: 1\n").is_none());
        assert_eq!(why(CRASHED).lines().count(), 2);
    }

    #[test]
    fn a_count_and_a_time_limit_a_run() {
        let cases = [
            (None, None, "-max_total_time=60"),
            (None, Some(5), "-max_total_time=5"),
            (Some(7), None, "-runs=7"),
            (Some(7), Some(5), "-runs=7 -max_total_time=5"),
        ];
        for (runs, seconds, expected) in cases {
            let options = Options {
                target: None,
                runs,
                seconds,
            };
            assert_eq!(limits(&options), expected);
        }
    }
}
