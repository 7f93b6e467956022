//! The task `advisories`: known vulnerabilities of the dependencies, by `cargo deny`.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::job::Job;
use crate::report::{Outcome, Report};
use crate::workspace::{Workspace, cargo};

/// Compares `Cargo.lock` with the RustSec database, which `cargo deny` fetches.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    let mut report = Report::new("advisories");
    report.step("cargo deny", || {
        let found = Command::new(cargo()).args(["deny", "--version"]).output()?;
        if !found.status.success() {
            let why = "cargo-deny is missing: `cargo install --locked cargo-deny`";
            return Ok(Outcome::NotRun(why.to_owned()));
        }
        Job::cargo(workspace, "advisories", "deny check advisories").check()?;
        let version = String::from_utf8_lossy(&found.stdout).trim().to_owned();
        Ok(Outcome::passed(
            1,
            format!("no advisory applies ({version})"),
        ))
    });
    Ok(report.finish())
}
