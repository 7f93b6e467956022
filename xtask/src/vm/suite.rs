//! The suite `guest`: built on the host, run in the guest.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use stack_tests::Finished;

use super::{Job, Kernel, Machine, Output, parts};
use crate::job;
use crate::table::Page;
use crate::workspace::Workspace;

/// The part of the suite that is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The tests of every quick run.
    Quick,
    /// Every line on every ground.
    Full,
}

impl Extent {
    /// The time limit of the boot and all tests of one guest.
    fn deadline(self) -> Duration {
        let minutes = match self {
            Self::Quick => 20,
            Self::Full => 90,
        };
        Duration::from_secs(60 * minutes)
    }
}

/// Boots and runs the tests whose names contain `filter`. Fails if a required program is missing.
pub(crate) fn run(
    workspace: &Workspace,
    extent: Extent,
    filter: &str,
    output: Output,
) -> Result<Finished> {
    let full = if extent == Extent::Full { "1" } else { "" };
    let program = program(workspace, "guest")?;
    let job = |arguments: &[OsString]| {
        Job::new(program.clone())
            .args(arguments)
            .env("DAT_STAGE", workspace.stage_dir())
            .env("STACK_TESTS_FULL", full)
            .env("RUST_LIB_BACKTRACE", "0")
            .deadline(extent.deadline())
    };
    let kernel = Kernel::get(workspace)?;
    let finished = if extent == Extent::Full && filter.is_empty() {
        parts::run(workspace, &kernel, job)?
    } else {
        Machine::new(workspace, &kernel).run(&job(&[filter.into()]), output)?
    };
    let log = workspace.log_dir().join("guest.log");
    fs::create_dir_all(workspace.log_dir())?;
    fs::write(&log, &finished.text).with_context(|| format!("writing {}", log.display()))?;
    Ok(finished)
}

/// The page of OFA's command lines by ground, with their results.
pub(crate) const PAGE: Page = Page {
    file: "docs/compatibility.md",
    title: "Command line",
    command: "cargo xtask vm table --write",
};

/// Builds a suite and returns its program.
fn program(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    let args = format!("test -p stack-tests --test {name} --no-run");
    let build = job::Job::cargo(workspace, &format!("build {name}"), &args).minutes(9);
    let program = executable(&build.check()?.text).map(|path| workspace.root().join(path));
    program.with_context(|| format!("cargo made no program of the suite {name}"))
}

/// The program that cargo reports as built, possibly relative to the workspace.
fn executable(text: &str) -> Option<&str> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.trim().strip_prefix("Executable "))?;
    line.split_once('(')?.1.strip_suffix(')')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_a_suite_is_found_in_cargos_output() {
        let text =
            "    Finished `test` profile\n  Executable suites/a.rs (target/debug/deps/a-1)\n";
        assert_eq!(executable(text), Some("target/debug/deps/a-1"));
        assert_eq!(executable("error: no"), None);
    }
}
