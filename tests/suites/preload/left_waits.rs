//! Waits for offloaded sockets that a thread of the program does not finish: the thread is
//! cancelled there, or a signal handler jumps out of the wait. The program is
//! `tests/c/left_waits.c`.

use anyhow::Result;
use stack_tests::{CProgram, OffloadProtocol};

use super::scripts;

/// The argument of the program.
pub(crate) const CASES: [&str; 8] = [
    "cancel",
    "pending",
    "left",
    "left_by_itself",
    "handlers",
    "jumps",
    "numbers",
    "arguments",
];

/// Runs one case in a process of its own.
pub(crate) fn run(protocol: &'static OffloadProtocol, case: &str) -> Result<()> {
    let program = CProgram::compile_plain("left_waits")?;
    scripts::run(protocol, program.file(), |command| {
        command.arg(case);
    })
}
