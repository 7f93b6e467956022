//! Every check and suite, one line each.
//!
//! A step passes, fails, or reports that it could not run here; every step has a line. The steps
//! are in `steps.rs`.

mod arm64;
mod steps;

use std::process::ExitCode;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use clap::Args;

use crate::install;
use crate::report::{Outcome, Report, timed};
use crate::stage::{self, Progress};
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
    thread::scope(|scope| {
        let mut staged = Staging::NotTried;
        let mut parallel = Vec::new();
        for step in chosen {
            if step.staged && staged == Staging::NotTried {
                staged = stage_all(workspace, &mut report);
            }
            let run = move || run_step(workspace, options, step, staged);
            if step.is_parallel {
                parallel.push((step.name, scope.spawn(move || timed(run))));
            } else {
                report.step(step.name, run);
            }
            let (ended, running) = parallel.into_iter().partition(|(_, it)| it.is_finished());
            join(ended, &mut report);
            parallel = running;
        }
        join(parallel, &mut report);
    });
    Ok(report.finish())
}

fn run_step(
    workspace: &Workspace,
    options: &Options,
    step: &Step,
    staged: Staging,
) -> Result<Outcome> {
    match (install::missing(step.needs), staged) {
        (absent, _) if !absent.is_empty() => Ok(Outcome::NotRun(install::advice(&absent))),
        (_, Staging::Failed) if step.staged => Ok(Outcome::NotRun(
            "there is no stage; the error is above".into(),
        )),
        _ => step.run(workspace, options),
    }
}

/// A step that runs in parallel with others.
type InParallel<'scope> = (
    &'static str,
    ScopedJoinHandle<'scope, (Result<Outcome>, Duration)>,
);

/// Waits for the ends of steps, and prints their lines.
fn join(steps: Vec<InParallel<'_>>, report: &mut Report) {
    for (name, thread) in steps {
        let (result, duration) = thread
            .join()
            .unwrap_or_else(|_| (Err(anyhow!("the step panicked")), Duration::ZERO));
        report.record(name, result, duration);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Staging {
    NotTried,
    Done,
    Failed,
}

fn stage_all(workspace: &Workspace, report: &mut Report) -> Staging {
    if report.step("stage and exports", || {
        stage::step(workspace, Progress::Kept)
    }) {
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
