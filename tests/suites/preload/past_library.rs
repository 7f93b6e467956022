//! Connections whose descriptors are used without the C library. The program is
//! `tests/c/past_library.c`.

use anyhow::Result;
use stack_tests::{CProgram, OffloadProtocol};

use super::scripts;

/// The arguments of the program: the means, how they are set up, and when.
pub(crate) const CASES: [[&str; 3]; 12] = [
    ["ring", "number", "before"],
    ["ring", "number", "after"],
    ["ring", "instruction", "before"],
    ["ring", "instruction", "after"],
    ["aio", "number", "before"],
    ["aio", "number", "after"],
    ["aio", "instruction", "before"],
    ["aio", "instruction", "after"],
    ["instruction", "instruction", "before"],
    ["taken", "instruction", "before"],
    ["ring", "instruction", "receives"],
    ["aio", "instruction", "receives"],
];

/// Runs one case in a new process.
pub(crate) fn run(protocol: &'static OffloadProtocol, case: [&str; 3]) -> Result<()> {
    let program = CProgram::compile_plain("past_library")?;
    scripts::run(protocol, program.file(), |command| {
        command.args(case);
    })
}
