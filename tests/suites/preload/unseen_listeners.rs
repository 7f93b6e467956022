//! Servers that wait for clients or accept them past the library. The program is
//! `tests/c/unseen_listeners.c`.

use std::fs;

use anyhow::Result;
use stack_tests::{CProgram, OffloadProtocol, not_run};

use super::scripts;

/// The arguments of the program.
pub(crate) const CASES: [&str; 7] = [
    "ring_polls",
    "ring_accepts",
    "accepts_past",
    "polls_past",
    "polls_and_accepts_past",
    "deferred",
    "is_slow",
];

/// Runs one case in a new process.
pub(crate) fn run(protocol: &'static OffloadProtocol, case: &str) -> Result<()> {
    // Kernels without this file permit io_uring, or lack it.
    let permitted = fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    if case.starts_with("ring") && permitted.is_ok_and(|text| text.trim() != "0") {
        not_run("io_uring is not permitted");
        return Ok(());
    }
    let program = CProgram::compile_plain("unseen_listeners")?;
    scripts::run(protocol, program.file(), |command| {
        command.arg(case);
    })
}
