//! Suites of tests, as a step of a task: built, run, and counted.
//!
//! | File | Contents |
//! |---|---|
//! | `program` | building a suite, and how its program runs |
//! | `apart` | suites that run each test in a process of its own |
//! | `count` | libtest's summaries |

mod apart;
mod count;
mod program;

use anyhow::{Context as _, Result, bail, ensure};
use stack_tests::Finished;

pub(crate) use self::count::{Counts, failures};
pub(crate) use self::program::SuiteProgram;

use self::count::{NOT_RUN, failure_reports};
use crate::job::Job;
use crate::report::Outcome;
use crate::workspace::Workspace;

/// The end of the name of a suite that keeps connections on TCP.
pub(crate) const OVER_TCP: &str = " over TCP";

/// The time limit of compiling, on a machine that has not compiled before.
pub(crate) const BUILD_MINUTES: u64 = 40;

/// The time limit of a suite, which is for suites that hang. A slow machine takes many times as
/// long as an idle one.
const SUITE_MINUTES: u64 = 30;

/// Compiles tests before their time limit begins. The limit is for tests that hang, and compiling
/// on a slow machine must not count.
pub(crate) fn build(workspace: &Workspace, step: &str, which: &str) -> Result<()> {
    let args = format!("test --workspace {which} --no-run");
    let job = Job::cargo(workspace, &format!("build {step}"), &args);
    job.minutes(BUILD_MINUTES).check().map(drop)
}

/// A suite that has been built, and the settings of its run.
#[derive(Debug)]
pub(crate) struct Suite<'a> {
    workspace: &'a Workspace,
    program: SuiteProgram,
    step: &'a str,
    environment: Vec<(&'static str, &'static str)>,
    minutes: u64,
}

impl<'a> Suite<'a> {
    /// Builds the suite of `package` that the step is named after.
    pub(crate) fn build(
        workspace: &'a Workspace,
        full: bool,
        package: &str,
        step: &'a str,
    ) -> Result<Self> {
        let name = step.trim_start_matches("suite ");
        let name = name.trim_end_matches(OVER_TCP);
        let program = SuiteProgram::build(workspace, step, package, name)?;
        Ok(Self {
            workspace,
            program,
            step,
            environment: vec![("STACK_TESTS_FULL", if full { "1" } else { "" })],
            minutes: if full { 120 } else { SUITE_MINUTES },
        })
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, key: &'static str, value: &'static str) -> Self {
        self.environment.push((key, value));
        self
    }

    /// Runs those tests whose names contain `filter`.
    pub(crate) fn run(&self, filter: &str) -> Result<Finished> {
        match filter {
            "" => self.job().run(),
            _ => self.job().arg(filter).run(),
        }
    }

    /// Runs each test in a process of its own, several at a time.
    pub(crate) fn run_apart(&self) -> Result<Finished> {
        apart::run(|| self.job())
    }

    fn job(&self) -> Job {
        let job = self.program.job(self.workspace, self.step);
        let variables = self.environment.iter();
        variables
            .fold(job, |job, (key, value)| job.env(key, value))
            .minutes(self.minutes)
    }
}

/// Runs a suite of `stack-tests` with its C programs under a sanitizer.
pub(crate) fn suite_under(workspace: &Workspace, name: &str, sanitizer: &str) -> Result<Outcome> {
    let step = format!("{name} under {sanitizer}");
    let job = SuiteProgram::build(workspace, &step, "stack-tests", name)?
        .job(workspace, &step)
        .env("STACK_TESTS_SANITIZER", sanitizer)
        .minutes(SUITE_MINUTES);
    counted(job)
}

/// Combines the output of several test programs into that of one run.
pub(crate) fn combined(parts: Vec<Finished>) -> Result<Finished> {
    let first = parts.first().context("no test")?;
    let failed = parts.iter().find(|part| !part.status.success());
    Ok(Finished {
        name: first.name.clone(),
        status: failed.unwrap_or(first).status,
        text: parts.iter().map(|part| part.text.as_str()).collect(),
    })
}

/// Runs tests and counts them.
pub(crate) fn counted(job: Job) -> Result<Outcome> {
    judged(&job.run()?)
}

/// Counts the tests of a run; fails if a test failed, or if there was none. A run of which no test
/// could run here is a step that could not run.
pub(crate) fn judged(finished: &Finished) -> Result<Outcome> {
    let counts = Counts::of(&finished.text);
    if !finished.status.success() {
        let failed = failures(&finished.text);
        let report = match failure_reports(&finished.text) {
            // No test ran, so the compiler's output has the reason.
            reports if reports.is_empty() => finished.tail(),
            reports => reports,
        };
        let (passed, names) = (counts.passed, failed.join(", "));
        bail!(
            "{passed} passed, {} failed: {names}\n{report}",
            counts.failed
        );
    }
    let lines = finished.text.lines();
    let mut reasons = lines.filter_map(|line| line.strip_prefix(NOT_RUN));
    if counts.passed == 0
        && let Some(reason) = reasons.next()
    {
        return Ok(Outcome::NotRun(reason.to_owned()));
    }
    ensure!(counts.passed > 0, "no test passed");
    let mut detail = Vec::new();
    if counts.ignored > 0 {
        detail.push(format!("{} ignored", counts.ignored));
    }
    detail.extend(reasons.map(|why| format!("not run: {why}")));
    let detail = detail.join("; ");
    Ok(Outcome::passed_but(counts.passed, counts.not_run, detail))
}
