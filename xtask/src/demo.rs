//! The stack at work: registry, two processes, figures, C, and OFA's own test program.

use std::process::ExitCode;

use anyhow::Result;

use crate::workspace::Workspace;

/// Runs the demonstration.
pub(crate) fn run(_workspace: &Workspace) -> Result<ExitCode> {
    anyhow::bail!("the demonstration is not built yet")
}
