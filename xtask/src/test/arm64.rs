//! 64-bit Arm, on a machine with another processor.

use anyhow::Result;

use super::Options;
use crate::install::{AARCH64_CC, AARCH64_LIBC, Need, QEMU_AARCH64};
use crate::job::Job;
use crate::report::Outcome;
use crate::suites::{BUILD_MINUTES, counted};
use crate::workspace::Workspace;

/// Programs that the step needs.
pub(super) const NEEDS: &[Need] = &[AARCH64_CC, AARCH64_LIBC, QEMU_AARCH64];

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Crates whose unit tests an emulator of one process can run: those of libraries.
const TESTED: &str = "-p dat-abi -p dat-conf -p host -p dat-api -p libdat2 -p iwarp-proto \
    -p access-layer -p provider-iwarp-soft -p sdp-proto -p sdp-checker -p sdp-over-dat -p ops \
    -p ops-preload";

/// Parts of the names of tests that need a system call that QEMU does not pass on.
const SKIPPED: &[&str] = &[
    // process_vm_readv(2)
    "local::pull::tests",
    "both_system_calls_agree",
    // madvise(2) with advice that changes the memory
    "a_child_has_no_mark",
    "returned_pages_are_zero_and_usable",
    "the_child_of_a_fork_has_no_mapping",
    // requests of sock_diag(7)
    "a_request_is_received_by_the_connection_the_listener_or_nobody",
    // epoll_pwait2(2)
    "a_kernel_without_precise_waits_is_asked_once",
];

/// Compiles all crates for 64-bit Arm. In full runs, runs the unit tests of [`TESTED`] under QEMU,
/// whose memory is ordered as that of this machine's processor.
pub(super) fn check(workspace: &Workspace, options: &Options) -> Result<Outcome> {
    let add = format!("target add {TARGET}");
    let rustup = Job::new(workspace, "rustup target add", "rustup").args(&add);
    let added = rustup.minutes(5).run();
    if !added.is_ok_and(|added| added.status.success()) {
        let why = format!("`rustup {add}` failed");
        return Ok(Outcome::NotRun(why));
    }
    let all = format!("check --workspace --all-targets --quiet --target {TARGET}");
    compiled(Job::cargo(workspace, "arm64 check", &all)).check()?;
    if !options.full() {
        return Ok(Outcome::passed(0, "compiled; unit tests run with --full"));
    }
    let skipped: String = SKIPPED.iter().map(|it| format!(" --skip {it}")).collect();
    let tests = format!("test --no-fail-fast --lib --target {TARGET} {TESTED} --{skipped}");
    counted(compiled(Job::cargo(workspace, "arm64 unit tests", &tests)))
}

/// Sets the compiler, the linker and the emulator.
fn compiled(job: Job) -> Job {
    job.env("CC_aarch64_unknown_linux_gnu", "aarch64-linux-gnu-gcc")
        .env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
            "aarch64-linux-gnu-gcc",
        )
        .env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
            "qemu-aarch64 -L /usr/aarch64-linux-gnu",
        )
        .minutes(BUILD_MINUTES)
}
