//! Every check and suite, one line each.
//!
//! A step passes, fails, or reports that it could not run here; every step has a line. The steps
//! are in `steps.rs`.

mod steps;

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;

use crate::install;
use crate::report::{Outcome, Report};
use crate::stage;
use crate::workspace::Workspace;

use self::steps::{STEPS, Step};

/// The selection of steps, and the length of their runs.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run other projects' tools with all iterations of their own regression lists.
    #[arg(long)]
    full: bool,
    /// Run only steps whose name contains this word, and the stage if they need it.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

/// Runs the chosen steps in order and prints a summary.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let chosen: Vec<&Step> = STEPS.iter().filter(|step| options.wants(step)).collect();
    let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
    ensure!(
        !chosen.is_empty(),
        "no such step; the steps are: {}",
        names.join(", ")
    );

    let mut report = Report::new("test");
    let needs: Vec<_> = chosen.iter().flat_map(|step| step.needs).copied().collect();
    report.step("packages", || install::provide(workspace, &needs));
    let mut staged = Staging::NotTried;
    for step in chosen {
        if step.staged && staged == Staging::NotTried {
            staged = stage_all(workspace, &mut report);
        }
        report.step(step.name, || match (install::missing(step.needs), staged) {
            (absent, _) if !absent.is_empty() => Ok(Outcome::NotRun(install::advice(&absent))),
            (_, Staging::Failed) if step.staged => Ok(Outcome::NotRun(
                "there is no stage; the error is above".into(),
            )),
            _ => step.run(workspace, options),
        });
    }
    Ok(report.finish())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Staging {
    NotTried,
    Done,
    Failed,
}

fn stage_all(workspace: &Workspace, report: &mut Report) -> Staging {
    if report.step("stage and exports", || stage::step(workspace)) {
        Staging::Done
    } else {
        Staging::Failed
    }
}

impl Options {
    fn wants(&self, step: &Step) -> bool {
        self.only
            .as_ref()
            .is_none_or(|word| step.name.contains(word))
    }

    /// True if the long lists were requested.
    pub(crate) fn full(&self) -> bool {
        self.full
    }
}
