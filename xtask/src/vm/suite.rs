//! The suite `guest`: built on the host, run in the guest.

use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use stack_tests::Finished;

use super::{Job, Kernel, Machine, Output, parts};
use crate::suites::SuiteProgram;
use crate::table::Page;
use crate::workspace::Workspace;

/// The part of the suite that is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The tests of every quick run.
    Quick,
    /// Every line on every configuration.
    Full,
}

impl Extent {
    /// The time limit of the boot and all tests of one guest. A slow machine takes many times as
    /// long as an idle one.
    fn deadline(self) -> Duration {
        let minutes = match self {
            Self::Quick => 60,
            Self::Full => 180,
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
    let program = SuiteProgram::build(workspace, "guest", "stack-tests", "guest")?.file;
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

/// The page of OFA's command lines by configuration, with their results.
pub(crate) const PAGE: Page = Page {
    file: "docs/compatibility.md",
    title: "Command line",
    command: "cargo xtask vm table --write",
};
