//! Programs that rely on details of TCP sockets. The program is `tests/c/as_over_tcp.c`.

use anyhow::Result;
use stack_tests::{CProgram, OffloadProtocol, VALGRIND};

use super::scripts;

/// The arguments of the program. The second value is true for cases that apply only to connections
/// within the host.
pub(crate) const CASES: [(&str, bool); 6] = [
    ("stream_closed", false),
    ("nothing_received", false),
    ("joined_at_exit", false),
    ("last_thread", false),
    ("descriptors_passed", true),
    ("handler_ends", true),
];

/// The case that runs under valgrind as well.
const UNDER_VALGRIND: &str = "stream_closed";

/// Runs one case in a new process under valgrind, where the library must work, use no memory
/// wrongly and leave none behind.
pub(crate) fn run_under_valgrind(protocol: &'static OffloadProtocol) -> Result<()> {
    let program = CProgram::compile_plain("as_over_tcp")?;
    scripts::run(protocol, "env", |command| {
        let line = VALGRIND.split_whitespace();
        command.args(line).arg(program.file()).arg(UNDER_VALGRIND);
    })
}

/// Runs one case in a new process.
pub(crate) fn run(protocol: &'static OffloadProtocol, case: &str) -> Result<()> {
    let program = CProgram::compile_plain("as_over_tcp")?;
    scripts::run(protocol, program.file(), |command| {
        command.arg(case);
    })
}
