//! The steps of `cargo xtask test`, in order.

use anyhow::{Context, Result, bail, ensure};

use super::Options;
use super::count::{Counts, NOT_RUN, failure_reports, failures};
use crate::install::{self, Need};
use crate::job::Job;
use crate::report::Outcome;
use crate::tidy;
use crate::workspace::{Workspace, cargo};

/// One step.
pub(super) struct Step {
    /// Its name in the report and for `--only`.
    pub(super) name: &'static str,
    /// Programs without which it cannot run.
    pub(super) needs: &'static [Need],
    /// Whether it looks at `target/stage`.
    pub(super) staged: bool,
    /// What it does.
    pub(super) run: fn(&Workspace, &Options) -> Result<Outcome>,
}

/// All steps. The quick ones come first, so that a slip shows early.
pub(super) const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        needs: &[],
        staged: false,
        run: fmt,
    },
    Step {
        name: "tidy",
        needs: &[],
        staged: false,
        run: style,
    },
    Step {
        name: "clippy",
        needs: &[install::CC],
        staged: false,
        run: clippy,
    },
    Step {
        name: "unit tests",
        needs: &[install::CC],
        staged: false,
        run: unit_tests,
    },
    Step {
        name: "docs",
        needs: &[install::CC],
        staged: false,
        run: docs,
    },
    Step {
        name: "suite abi",
        needs: BUILD,
        staged: true,
        run: |w, o| suite(w, o, "abi"),
    },
    Step {
        name: "suite handles",
        needs: BUILD,
        staged: true,
        run: |w, o| suite(w, o, "handles"),
    },
    Step {
        name: "suite c_calls",
        needs: BUILD,
        staged: true,
        run: |w, o| suite_of(w, o, "fuzz-bodies", "c_calls"),
    },
    Step {
        name: "suite registry",
        // Debian's package brings OFA's library, beside which ours is held.
        needs: &[install::CC, install::NM, install::DTEST],
        staged: true,
        run: |w, o| suite(w, o, "registry"),
    },
    Step {
        name: "suite ssp",
        needs: BUILD,
        staged: true,
        run: |w, o| suite(w, o, "ssp"),
    },
    Step {
        name: "suite ssp_behaviour",
        needs: BUILD,
        staged: true,
        run: |w, o| suite(w, o, "ssp_behaviour"),
    },
    Step {
        name: "suite compliance",
        needs: &[],
        staged: false,
        run: |w, o| suite(w, o, "compliance"),
    },
    Step {
        name: "suite documents",
        needs: &[install::CC, install::NM],
        staged: true,
        run: |w, o| suite(w, o, "documents"),
    },
    Step {
        name: "suite calls",
        needs: &[install::CC, install::NM],
        staged: true,
        run: |w, o| suite(w, o, "calls"),
    },
    Step {
        name: "suite examples",
        needs: &[install::CC, install::MAKE, install::NM, install::PKG_CONFIG],
        staged: true,
        run: |w, o| suite(w, o, "examples"),
    },
    Step {
        name: "suite ipv6",
        needs: &[install::CC, install::NM, install::IP],
        staged: true,
        run: |w, o| suite(w, o, "ipv6"),
    },
    Step {
        name: "suite ofa_headers",
        needs: &[install::CC, install::OFA_HEADERS],
        staged: false,
        run: |w, o| suite(w, o, "ofa_headers"),
    },
    Step {
        name: "suite faults",
        needs: &[install::CC, install::NM, install::VALGRIND],
        staged: true,
        run: |w, o| suite(w, o, "faults"),
    },
    Step {
        name: "suite hostile_peer",
        needs: &[install::CC, install::NM],
        staged: true,
        run: |w, o| suite(w, o, "hostile_peer"),
    },
    Step {
        name: "suite scale",
        needs: &[install::CC, install::NM],
        staged: true,
        run: |w, o| suite(w, o, "scale"),
    },
    Step {
        name: "suite capture",
        needs: &[
            install::CC,
            install::NM,
            install::TSHARK,
            install::DUMPCAP,
            install::IP,
        ],
        staged: true,
        run: |w, o| suite(w, o, "capture"),
    },
    Step {
        name: "suite debian_tools",
        needs: &[install::CC, install::NM, install::DAPLTEST, install::DTEST],
        staged: true,
        run: |w, o| suite(w, o, "debian_tools"),
    },
];

const BUILD: &[Need] = &[
    install::CC,
    install::NM,
    install::PKG_CONFIG,
    install::VALGRIND,
];

fn fmt(workspace: &Workspace, _: &Options) -> Result<Outcome> {
    Job::cargo(workspace, "fmt", "fmt --all --check -- -l")
        .check()
        .context("run `cargo fmt`")?;
    Ok(Outcome::passed(0, ""))
}

fn style(workspace: &Workspace, _: &Options) -> Result<Outcome> {
    let faults = tidy::check(workspace)?;
    if faults.is_empty() {
        return Ok(Outcome::passed(0, "sizes, widths, marks, dead files"));
    }
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    bail!("{} faults\n{}", lines.len(), lines.join("\n"))
}

fn clippy(workspace: &Workspace, _: &Options) -> Result<Outcome> {
    // The suites are not among all targets, because a plain `cargo test` must leave them out.
    for targets in [
        "--workspace --all-targets",
        "-p stack-tests -p fuzz-bodies --test *",
    ] {
        let args = format!("clippy {targets} --quiet -- -D warnings");
        Job::cargo(workspace, "clippy", &args).minutes(8).check()?;
    }
    Ok(Outcome::passed(0, "all targets, warnings are errors"))
}

fn unit_tests(workspace: &Workspace, _: &Options) -> Result<Outcome> {
    let args = "test --workspace --no-fail-fast";
    counted(Job::cargo(workspace, "unit tests", args).minutes(9))
}

fn docs(workspace: &Workspace, _: &Options) -> Result<Outcome> {
    Job::cargo(
        workspace,
        "docs",
        "doc --workspace --no-deps --document-private-items --quiet",
    )
    // Private items are documented too, so links to them are good ones.
    .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")
    .minutes(5)
    .check()?;
    Ok(Outcome::passed(0, "warnings are errors"))
}

/// Runs one suite of `tests/` against the stage, in a user namespace if that is what it takes to
/// give each test a network of its own.
fn suite(workspace: &Workspace, options: &Options, name: &str) -> Result<Outcome> {
    suite_of(workspace, options, "stack-tests", name)
}

fn suite_of(
    workspace: &Workspace,
    options: &Options,
    package: &str,
    name: &str,
) -> Result<Outcome> {
    let step = format!("suite {name}");
    let command = format!("test -p {package} --test {name} --no-fail-fast");
    let (program, prefix) = match namespace_prefix(workspace) {
        Some(prefix) => ("unshare".to_owned(), format!("{prefix} {} ", cargo())),
        None => (cargo(), String::new()),
    };
    let job = Job::new(workspace, &step, &program)
        .args(&format!("{prefix}{command}"))
        .env("RUST_LIB_BACKTRACE", "0")
        .env("DAT_STAGE", workspace.stage_dir())
        .env("STACK_TESTS_FULL", if options.full() { "1" } else { "" })
        .minutes(if options.full() { 60 } else { 5 });
    counted(job)
}

/// How an ordinary user gets network namespaces: by being root of a user namespace.
fn namespace_prefix(workspace: &Workspace) -> Option<&'static str> {
    const PREFIX: &str = "--user --map-root-user";
    if nix::unistd::geteuid().is_root() {
        return None;
    }
    let probe = Job::new(workspace, "unshare", "unshare").args(&format!("{PREFIX} --net true"));
    probe.check().is_ok().then_some(PREFIX)
}

fn counted(job: Job) -> Result<Outcome> {
    let finished = job.run()?;
    let counts = Counts::of(&finished.text);
    if !finished.status.success() {
        let failed = failures(&finished.text);
        let told = match failure_reports(&finished.text) {
            // Nothing ran: the reason is the compiler's.
            reports if reports.is_empty() => finished.tail(),
            reports => reports,
        };
        let (passed, names) = (counts.passed, failed.join(", "));
        bail!("{passed} passed, {} failed: {names}\n{told}", counts.failed);
    }
    ensure!(counts.passed > 0, "not one test ran");
    let mut detail = match counts.ignored {
        0 => String::new(),
        ignored => format!("{ignored} ignored"),
    };
    for line in finished.text.lines() {
        if let Some(why) = line.strip_prefix(NOT_RUN) {
            detail.push_str(&format!("; not run: {why}"));
        }
    }
    Ok(Outcome::passed(counts.passed, detail))
}
