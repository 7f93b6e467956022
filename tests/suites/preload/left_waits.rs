//! Waits for offloaded sockets that a thread of the program does not end itself: it is cancelled
//! there, or a handler leaves the wait for good. `tests/c/left_waits.c` does it.

use anyhow::Result;
use stack_tests::{CProgram, OffloadProtocol};

use super::scripts;

/// What the program is told to do.
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

/// One case in a process of its own.
pub(crate) fn run(protocol: &'static OffloadProtocol, case: &str) -> Result<()> {
    let program = CProgram::compile_plain("left_waits")?;
    scripts::run(protocol, program.file(), |command| {
        command.arg(case);
    })
}
