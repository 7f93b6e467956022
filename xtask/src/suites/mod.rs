//! Suites of tests, as a step of a task: built, run, and counted.
//!
//! | File | Contents |
//! |---|---|
//! | `count` | libtest's summaries |

mod count;

use anyhow::{Result, bail, ensure};
use stack_tests::Finished;

use self::count::{Counts, NOT_RUN, failure_reports, failures};
use crate::job::Job;
use crate::report::Outcome;
use crate::workspace::{Workspace, cargo};

/// The end of the name of a suite that keeps connections on TCP.
pub(crate) const OVER_TCP: &str = " over TCP";

/// The time limit of compiling, on a machine that has not compiled before.
pub(crate) const BUILD_MINUTES: u64 = 40;

/// Compiles tests before their time limit begins. The limit is for tests that hang, and compiling
/// on a slow machine must not count.
pub(crate) fn build(workspace: &Workspace, step: &str, which: &str) -> Result<Finished> {
    let args = format!("test {which} --no-run");
    let job = Job::cargo(workspace, &format!("build {step}"), &args);
    job.minutes(BUILD_MINUTES).check()
}

/// Runs those tests of a suite whose names contain `filter`.
pub(crate) fn finished_suite(
    workspace: &Workspace,
    full: bool,
    package: &str,
    step: &str,
    filter: &str,
) -> Result<Finished> {
    let job = built_suite(workspace, full, package, step)?;
    let job = if filter.is_empty() {
        job
    } else {
        job.args("--").arg(filter)
    };
    job.run()
}

/// The suite that a step is named after, built.
pub(crate) fn built_suite(
    workspace: &Workspace,
    full: bool,
    package: &str,
    step: &str,
) -> Result<Job> {
    let name = step.trim_start_matches("suite ");
    let name = name.trim_end_matches(OVER_TCP);
    build(workspace, step, &format!("-p {package} --test {name}"))?;
    Ok(suite_job(workspace, package, step, name)
        .env("STACK_TESTS_FULL", if full { "1" } else { "" })
        .minutes(if full { 120 } else { 5 }))
}

/// Runs a suite of `stack-tests` with its C programs under a sanitizer.
pub(crate) fn suite_under(workspace: &Workspace, name: &str, sanitizer: &str) -> Result<Outcome> {
    let step = format!("{name} under {sanitizer}");
    build(workspace, &step, &format!("-p stack-tests --test {name}"))?;
    let job = suite_job(workspace, "stack-tests", &step, name)
        .env("STACK_TESTS_SANITIZER", sanitizer)
        .minutes(15);
    counted(job)
}

fn suite_job(workspace: &Workspace, package: &str, step: &str, name: &str) -> Job {
    let command = format!("test -p {package} --test {name} --no-fail-fast");
    let (program, prefix) = match namespace_prefix(workspace) {
        Some(prefix) => ("unshare".to_owned(), format!("{prefix} {} ", cargo())),
        None => (cargo(), String::new()),
    };
    Job::new(workspace, step, &program)
        .args(&format!("{prefix}{command}"))
        .env("RUST_LIB_BACKTRACE", "0")
        .env("DAT_STAGE", workspace.stage_dir())
}

/// The command with which an ordinary user gets network namespaces: it makes the user root of a
/// user namespace.
fn namespace_prefix(workspace: &Workspace) -> Option<&'static str> {
    const PREFIX: &str = "--user --map-root-user";
    if nix::unistd::geteuid().is_root() {
        return None;
    }
    let probe = Job::new(workspace, "unshare", "unshare").args(&format!("{PREFIX} --net true"));
    probe.check().is_ok().then_some(PREFIX)
}

/// Runs tests and counts them.
pub(crate) fn counted(job: Job) -> Result<Outcome> {
    judged(&job.run()?)
}

/// Counts the tests of a run; fails if a test failed, or if there was none.
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
    ensure!(counts.passed > 0, "not one test ran");
    let mut detail = Vec::new();
    if counts.ignored > 0 {
        detail.push(format!("{} ignored", counts.ignored));
    }
    let lines = finished.text.lines();
    let reasons = lines.filter_map(|line| line.strip_prefix(NOT_RUN));
    detail.extend(reasons.map(|why| format!("not run: {why}")));
    let detail = detail.join("; ");
    Ok(Outcome::passed_but(counts.passed, counts.not_run, detail))
}
