//! Calls on offloaded sockets from which a thread does not return: the thread is cancelled, or a
//! signal handler jumps out of the call or ends the process. The program is `tests/c/left_waits.c`.

use anyhow::Result;
use stack_tests::{CProgram, OffloadProtocol};

use super::scripts;

/// The argument of the program.
pub(crate) const CASES: [&str; 12] = [
    "cancel",
    "pending",
    "left",
    "left_by_itself",
    "handlers",
    "jumps",
    "polls_left",
    "masked",
    "numbers",
    "left_calls",
    "arguments",
    "exits",
];

/// Runs one case in a new process.
pub(crate) fn run(protocol: &'static OffloadProtocol, case: &str) -> Result<()> {
    let program = CProgram::compile_plain("left_waits")?;
    scripts::run(protocol, program.file(), |command| {
        command.arg(case);
    })
}
