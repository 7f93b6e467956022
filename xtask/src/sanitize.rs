//! The suites whose C programs are checked for memory errors and leaks, and the interpreter for
//! code that has `unsafe` or parses wire input and needs no system calls.

use std::process::ExitCode;
use std::thread;

use anyhow::{Result, anyhow};
use clap::Args;

use crate::install;
use crate::job::Job;
use crate::report::{Outcome, Report};
use crate::stage::{self, Progress};
use crate::suites::{counted, suite_under};
use crate::workspace::Workspace;

/// Suites of C programs, and true for those that meet their deadlines under the slow valgrind.
const CHECKED: [(&str, bool); 7] = [
    ("calls", true),
    ("itapi", true),
    ("examples", true),
    ("handles", true),
    ("faults", false),
    ("ssp", false),
    ("scale", false),
];

/// Packages for the interpreter, and the tests of each that it can run.
const INTERPRETED: [(&str, &str); 6] = [
    ("dat-abi", "--lib"),
    ("host", "--lib -- reserve::"),
    (
        "access-layer",
        "--lib -- handle:: addr:: ep::qp_cell:: evd::state::",
    ),
    ("rnic", "--lib -- upcall_queue::"),
    ("sdp-proto", "--lib"),
    ("iwarp-proto", "--lib"),
];

const NO_MIRI: &str = "no Miri: rustup component add --toolchain nightly miri rust-src";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only suites whose name contains this word.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

/// Runs the suites under each sanitizer.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let mut report = Report::new("sanitize");
    let needs = [
        install::CC,
        install::MAKE,
        install::PKG_CONFIG,
        install::VALGRIND,
        // The suite itapi runs over OFA's library too.
        install::DTEST,
    ];
    report.step("packages", || install::provide(workspace, &needs));
    report.step("stage", || stage::step(workspace, Progress::Kept));
    let wanted = |name: &str| options.only.as_ref().is_none_or(|word| name.contains(word));
    for sanitizer in ["address", "valgrind"] {
        for (suite, is_quick) in CHECKED {
            if wanted(suite) && (is_quick || sanitizer == "address") {
                report.step(&format!("{suite} under {sanitizer}"), || {
                    suite_under(workspace, suite, sanitizer)
                });
            }
        }
    }
    Ok(report.finish())
}

/// Runs the tests that Miri can run; reports if Miri is missing.
pub(crate) fn miri(workspace: &Workspace) -> Result<ExitCode> {
    let mut report = Report::new("miri");
    let version = Job::new(workspace, "miri version", "cargo")
        .args("+nightly miri --version")
        .run();
    let is_installed = version.is_ok_and(|finished| finished.status.success());
    thread::scope(|scope| {
        // Each run keeps one processor busy. The runs start together and are reported in order.
        let runs = INTERPRETED.map(|(package, tests)| {
            let run = move || interpret(workspace, package, tests);
            (package, is_installed.then(|| scope.spawn(run)))
        });
        for (package, run) in runs {
            report.step(package, || match run {
                Some(run) => run.join().map_err(|_| anyhow!("its step panicked"))?,
                None => Ok(Outcome::NotRun(NO_MIRI.into())),
            });
        }
    });
    Ok(report.finish())
}

fn interpret(workspace: &Workspace, package: &str, tests: &str) -> Result<Outcome> {
    let job = Job::new(workspace, &format!("miri {package}"), "cargo")
        .args(&format!("+nightly miri test -p {package} {tests}"))
        // Tests read the clock, and files with golden bytes.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .minutes(60);
    counted(job)
}
