//! Many connections in one process, at once and one after another.

use std::time::Duration;

use anyhow::Result;
use stack_tests::{CProgram, Program, StackEnv, Stage, keeps_at_most, not_run, orderly_within};

/// The time limit, which is generous: a loaded machine makes a connection in a millisecond.
const DEADLINE: Duration = Duration::from_secs(600);

/// The number of connections of one process.
const CROWD: u64 = 1000;
/// The number of descriptors of a process in addition to its connections.
const OTHER_DESCRIPTORS: u64 = 64;

/// The number of connections that are opened and closed.
const CYCLES: u32 = 10_000;
/// The memory in KiB that may stay allocated after the cycles; one byte per cycle is about 10 KiB.
const CYCLES_KEEP_KIB: i64 = 1024;

/// The number of mappings that may remain after the cycles, because the C library's allocator makes
/// a mapping occasionally. One mapping per cycle would be a thousand times as many.
const CYCLES_KEEP_MAPPINGS: i64 = 8;

struct Crowd {
    env: StackEnv,
    program: CProgram,
}

impl Crowd {
    fn new() -> Result<Self> {
        let stage = Stage::find()?;
        let program = CProgram::compile(&stage, "crowd")?;
        let env = StackEnv::at(stage)?;
        Ok(Self { env, program })
    }

    fn program(&self, args: &str) -> Program {
        self.env
            .program(self.program.file())
            .args_line(args)
            .named(&format!("crowd {args}"))
    }
}

#[test]
fn a_thousand_endpoints_exchange_at_once() -> Result<()> {
    let (_, hard) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)?;
    if hard < CROWD + OTHER_DESCRIPTORS {
        not_run(&format!("{hard} descriptors are too few (ulimit -Hn)"));
        return Ok(());
    }
    let crowd = Crowd::new()?;
    let listener = crowd.program(&format!("listen count={CROWD}")).spawn()?;
    listener.wait_for("READY", DEADLINE)?;
    let connector = crowd.program(&format!("connect count={CROWD}")).spawn()?;
    orderly_within(connector, DEADLINE)?.prints("EXCHANGED 3 rounds")?;
    orderly_within(listener, DEADLINE)?.prints("ECHOED 3000 messages")?;
    Ok(())
}

#[test]
fn ten_thousand_connections_leak_no_resources() -> Result<()> {
    let crowd = Crowd::new()?;
    let cycles = crowd.program(&format!("cycles count={CYCLES}")).spawn()?;
    let finished = cycles.finish(DEADLINE)?.success()?.prints("PASSED")?;
    let limits = [
        ("descriptors", 0),
        ("threads", 0),
        ("mappings", CYCLES_KEEP_MAPPINGS),
        ("resident_kib", CYCLES_KEEP_KIB),
    ];
    keeps_at_most(&finished, &limits)
}
