//! Programs that rely on details of TCP sockets. The program is `tests/c/as_over_tcp.c`.

use anyhow::Result;
use stack_tests::{CProgram, OffloadProtocol};

use super::scripts;

/// The arguments of the program. The second value is true for cases that apply only to connections
/// within the host.
pub(crate) const CASES: [(&str, bool); 5] = [
    ("stream_closed", false),
    ("nothing_received", false),
    ("joined_at_exit", false),
    ("descriptors_passed", true),
    ("handler_ends", true),
];

/// Runs one case in a new process.
pub(crate) fn run(protocol: &'static OffloadProtocol, case: &str) -> Result<()> {
    let program = CProgram::compile_plain("as_over_tcp")?;
    scripts::run(protocol, program.file(), |command| {
        command.arg(case);
    })
}
