//! Handles that are null, stale, foreign or of the wrong kind, at every entry of the C interface.

use std::time::Duration;

use anyhow::Result;
use stack_tests::{CProgram, IA_NAME, StackEnv};

const DEADLINE: Duration = Duration::from_secs(60);

/// Architecture decision 7: such a handle gets `DAT_INVALID_HANDLE`; it is never dereferenced as
/// something else.
#[test]
fn bad_handles_are_refused_by_every_entry() -> Result<()> {
    let env = StackEnv::new()?;
    let program = CProgram::compile(&env.stage, "bad_handles")?;
    env.program(program.file())
        .arg(IA_NAME)
        .spawn()?
        .finish(DEADLINE)?
        .success()?
        .says(" 0 wrong answers")?;
    Ok(())
}
