//! Programs with several trials, of which the first argument names one.

use anyhow::Result;

use crate::{CProgram, DEADLINE, StackEnv, Stage};

/// Runs one trial of a C program in a network namespace.
pub fn passes(program: &str, trial: &str) -> Result<()> {
    let stage = Stage::find()?;
    let program = CProgram::compile(&stage, program)?;
    let env = StackEnv::at(stage)?;
    env.program(program.file())
        .arg(trial)
        .named(trial)
        .run(DEADLINE)?
        .prints("PASSED")?;
    Ok(())
}
