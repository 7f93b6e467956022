//! The steps of `cargo xtask test`, in order.

use anyhow::{Context, Result, bail};

use super::{Options, arm64};
use crate::fuzz;
use crate::install::{
    CC, CXX, DAPLTEST, DTEST, DUMPCAP, FABRIC, IBV_PINGPONG, IP, MAKE, MPICH, MPICH_CC, NFT, NM,
    NSENTER, Need, OFA_HEADERS, OPEN_MPI, OPEN_MPI_CC, PATCH, PERFTEST, PIP, PKG_CONFIG, PYTHON,
    RPING, STRACE, TC, TSHARK, UCX, VALGRIND, VERBS_HEADERS,
};
use crate::job::Job;
use crate::package;
use crate::programs;
use crate::report::Outcome;
use crate::suites::{BUILD_MINUTES, Suite, build, counted, judged};
use crate::table::Scope;
use crate::tidy;
use crate::vm::Output;
use crate::vm::suite::{self, Extent};
use crate::workspace::Workspace;

/// A step of the test run.
pub(super) struct Step {
    /// The name in the report and for `--only`.
    pub(super) name: &'static str,
    /// Programs without which the step cannot run.
    pub(super) needs: &'static [Need],
    /// True if the step uses `target/stage`.
    pub(super) staged: bool,
    /// True if the step runs in parallel with the steps after it.
    pub(super) is_parallel: bool,
    carrier: Carrier,
    processes: Processes,
    work: Work,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Processes {
    /// One process runs all tests.
    One,
    /// Each test runs in a process of its own, several at a time.
    PerTest,
}

/// The carrier of connections within the host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// The provider's choice, which is normally shared memory.
    Default,
    /// TCP: the suite adds `local=off` to its adapters.
    Tcp,
}

enum Work {
    /// Calls this function.
    Check(fn(&Workspace, &Options) -> Result<Outcome>),
    /// Runs the suite that the step is named after, of this package.
    Suite(&'static str),
}

impl Step {
    const fn check(
        name: &'static str,
        needs: &'static [Need],
        run: fn(&Workspace, &Options) -> Result<Outcome>,
    ) -> Self {
        Self {
            name,
            needs,
            staged: false,
            is_parallel: false,
            carrier: Carrier::Default,
            processes: Processes::One,
            work: Work::Check(run),
        }
    }

    /// A suite of `tests/` against the stage; `name` is `suite` and the name of the suite.
    const fn suite(name: &'static str, needs: &'static [Need]) -> Self {
        Self {
            name,
            needs,
            staged: true,
            is_parallel: false,
            carrier: Carrier::Default,
            processes: Processes::One,
            work: Work::Suite("stack-tests"),
        }
    }

    /// Runs the suite again with connections on TCP; `name` ends with
    /// [`OVER_TCP`](crate::suites::OVER_TCP).
    const fn over_tcp(mut self) -> Self {
        self.carrier = Carrier::Tcp;
        self
    }

    /// Runs each test of the suite in a process of its own, several at a time.
    const fn apart(mut self) -> Self {
        self.processes = Processes::PerTest;
        self
    }

    /// Makes the check use the stage.
    const fn on_stage(mut self) -> Self {
        self.staged = true;
        self
    }

    /// Runs the step in parallel with the steps after it.
    const fn in_parallel(mut self) -> Self {
        self.is_parallel = true;
        self
    }

    /// Makes the suite use the sources only.
    const fn unstaged(mut self) -> Self {
        self.staged = false;
        self
    }

    /// Sets the package of the suite.
    const fn of(mut self, package: &'static str) -> Self {
        self.work = Work::Suite(package);
        self
    }

    pub(super) fn run(&self, workspace: &Workspace, options: &Options) -> Result<Outcome> {
        match self.work {
            Work::Check(run) => run(workspace, options),
            Work::Suite(package) => run_suite(workspace, options, package, self),
        }
    }
}

/// All steps. The quick ones are first, so that simple mistakes are found early.
pub(super) const STEPS: &[Step] = &[
    Step::check("fmt", &[], fmt),
    Step::check("tidy", &[], style),
    Step::check("clippy", &[CC], clippy),
    Step::check("unit tests", &[CC], unit_tests),
    Step::check("docs", &[CC], docs),
    Step::check("arm64", arm64::NEEDS, arm64::check),
    Step::check("suites are built", &[CC], build_suites),
    // An emulated machine uses one processor, and the suites leave as much unused.
    Step::check("guest", &[CC, NM, DAPLTEST, DTEST], guest)
        .on_stage()
        .in_parallel(),
    Step::suite("suite handles", BUILD),
    Step::suite("suite c_calls", BUILD).of("fuzz-bodies"),
    // Debian's package contains OFA's library, with which ours is compared.
    Step::suite("suite registry", &[CC, NM, DTEST]),
    Step::suite("suite ssp", BUILD),
    Step::suite("suite ssp_behaviour", BUILD),
    Step::suite("suite handoff", BUILD),
    Step::suite("suite policing", BUILD),
    Step::suite("suite compliance", &[]).unstaged(),
    Step::suite("suite documents", &[CC, NM, PATCH]),
    Step::suite("suite calls", &[CC, NM]),
    // Debian's package contains OFA's library.
    Step::suite("suite itapi", &[CC, NM, DTEST]),
    Step::suite("suite sdp_dat", &[CC, MAKE, PKG_CONFIG]),
    Step::suite("suite rust_api", BUILD),
    Step::suite("suite sdp", BUILD).apart(),
    Step::suite("suite sdp_hostile", BUILD),
    Step::suite("suite examples", &[CC, MAKE, NM, PKG_CONFIG]),
    Step::check("package", package::TEST_NEEDS, packages).on_stage(),
    Step::suite("suite ipv6", &[CC, NM, IP]),
    Step::suite("suite netlink", &[CC, IP]).of("ops").unstaged(),
    Step::suite("suite switch", &[CC, IP]).of("ops").unstaged(),
    Step::suite("suite portmap", &[CC]).of("ops").unstaged(),
    Step::suite(
        "suite preload",
        &[CC, NM, PYTHON, VALGRIND, MAKE, PKG_CONFIG, IP],
    ),
    Step::suite("suite preload_faults", &[CC, NM, IP, TC, NFT]),
    Step::suite("suite opsrun", &[CC, NM, PYTHON, STRACE]),
    Step::check("suite programs", programs::NEEDS, suite_of_programs).on_stage(),
    Step::suite("suite ofa_headers", &[CC, OFA_HEADERS]).unstaged(),
    Step::suite("suite faults", &[CC, NM, VALGRIND]),
    Step::suite("suite scarce", &[CC, NM]),
    Step::suite(
        "suite verbs",
        &[CC, NM, IP, IBV_PINGPONG, PERFTEST, RPING, VERBS_HEADERS],
    ),
    Step::suite(
        "suite verbs_libraries",
        &[
            CC,
            NM,
            IP,
            FABRIC,
            UCX,
            OPEN_MPI,
            OPEN_MPI_CC,
            MPICH,
            MPICH_CC,
        ],
    ),
    Step::suite("suite conformance", &[CC, NM, IP]),
    Step::suite("suite hostile_peer", &[CC, NM]),
    Step::suite("suite scale", &[CC, NM]),
    Step::suite("suite capture", &[CC, NM, TSHARK, DUMPCAP, IP]),
    Step::suite("suite dissector", &[CC, NM, TSHARK, DUMPCAP]),
    Step::suite(
        "suite debian_tools",
        &[CC, NM, DAPLTEST, DTEST, OFA_HEADERS],
    ),
    Step::suite("suite mpi", &[CC, NM, IP, NSENTER, PYTHON, PIP]),
    Step::suite("suite ssp over TCP", BUILD).over_tcp(),
    Step::suite("suite calls over TCP", &[CC, NM]).over_tcp(),
    Step::suite("suite itapi over TCP", &[CC, NM, DTEST]).over_tcp(),
    Step::suite("suite rust_api over TCP", BUILD).over_tcp(),
    Step::suite("suite sdp over TCP", BUILD).over_tcp().apart(),
    Step::suite("suite faults over TCP", &[CC, NM, VALGRIND]).over_tcp(),
    Step::suite("suite scale over TCP", &[CC, NM]).over_tcp(),
    Step::suite(
        "suite debian_tools over TCP",
        &[CC, NM, DAPLTEST, DTEST, OFA_HEADERS],
    )
    .over_tcp(),
    Step::check("fuzz", &[CC, CXX], fuzz_targets).on_stage(),
];

const BUILD: &[Need] = &[CC, NM, PKG_CONFIG, VALGRIND];

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
    // The suites are not part of all targets, because a plain `cargo test` must not run them.
    for targets in ["--workspace --all-targets", "--workspace --test *"] {
        let args = format!("clippy {targets} --quiet -- -D warnings");
        Job::cargo(workspace, "clippy", &args)
            .minutes(BUILD_MINUTES)
            .check()?;
    }
    Ok(Outcome::passed(0, "all targets, warnings are errors"))
}

fn unit_tests(workspace: &Workspace, _: &Options) -> Result<Outcome> {
    build(workspace, "unit tests", "")?;
    let args = "test --workspace --no-fail-fast";
    counted(Job::cargo(workspace, "unit tests", args).minutes(BUILD_MINUTES))
}

/// Builds all suites. The steps of the suites would build them one after another, which keeps one
/// processor busy.
fn build_suites(workspace: &Workspace, _: &Options) -> Result<Outcome> {
    build(workspace, "suites", "--test *")?;
    Ok(Outcome::passed(0, ""))
}

fn docs(workspace: &Workspace, _: &Options) -> Result<Outcome> {
    Job::cargo(
        workspace,
        "docs",
        "doc --workspace --no-deps --document-private-items --quiet",
    )
    // Private items are documented too, so links to them are valid.
    .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")
    .minutes(BUILD_MINUTES)
    .check()?;
    Ok(Outcome::passed(0, "warnings are errors"))
}

/// Makes the packages, and installs and removes them in a fresh Debian root.
fn packages(workspace: &Workspace, _: &Options) -> Result<Outcome> {
    package::test(workspace)
}

/// Runs the suite `guest` where the kernel has RDMA devices, and compares its page with the
/// results.
fn guest(workspace: &Workspace, options: &Options) -> Result<Outcome> {
    let extent = if options.full() {
        Extent::Full
    } else {
        Extent::Quick
    };
    let finished = suite::run(workspace, extent, "", Output::Kept)?;
    let outcome = judged(&finished)?;
    suite::PAGE.check(workspace, &finished.text, Scope::Whole)?;
    Ok(outcome)
}

/// Runs the suite `programs`, and compares its page with the results.
fn suite_of_programs(workspace: &Workspace, options: &Options) -> Result<Outcome> {
    programs::provide_more(workspace, options.full());
    let suite = Suite::build(workspace, options.full(), "stack-tests", "suite programs")?;
    let finished = suite.run("")?;
    let outcome = judged(&finished)?;
    programs::PAGE.check(workspace, &finished.text, Scope::Whole)?;
    Ok(outcome)
}

/// Fuzzes every target for a short time, or for two minutes in full runs.
fn fuzz_targets(workspace: &Workspace, options: &Options) -> Result<Outcome> {
    fuzz::step(workspace, if options.full() { 120 } else { 2 })
}

/// Runs one suite, against the stage if it uses the stage.
fn run_suite(
    workspace: &Workspace,
    options: &Options,
    package: &str,
    step: &Step,
) -> Result<Outcome> {
    let suite = Suite::build(workspace, options.full(), package, step.name)?;
    let suite = match step.carrier {
        Carrier::Default => suite,
        Carrier::Tcp => suite.env("STACK_TESTS_CARRIER", "tcp"),
    };
    let finished = match step.processes {
        Processes::One => suite.run("")?,
        Processes::PerTest => suite.run_apart()?,
    };
    judged(&finished)
}
