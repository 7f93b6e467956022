//! A process without descriptors or memory: its calls say so, and it recovers.

use anyhow::Result;
use stack_tests::{CProgram, DEADLINE, StackEnv, Stage};

/// Runs one trial of `exhaust.c`.
fn recovers(trial: &str) -> Result<()> {
    let stage = Stage::find()?;
    let program = CProgram::compile(&stage, "exhaust")?;
    let env = StackEnv::at(stage)?;
    env.program(program.file())
        .arg(trial)
        .named(trial)
        .spawn()?
        .finish(DEADLINE)?
        .success()?
        .says("PASSED")?;
    Ok(())
}

#[test]
fn no_descriptor_for_an_adapter() -> Result<()> {
    recovers("descriptors-open")
}

#[test]
fn no_descriptor_for_a_connect() -> Result<()> {
    recovers("descriptors-connect")
}

#[test]
fn no_descriptor_for_an_accept() -> Result<()> {
    recovers("descriptors-accept")
}

#[test]
fn no_memory_for_objects() -> Result<()> {
    recovers("memory-create")
}

#[test]
fn no_memory_for_an_adapter() -> Result<()> {
    recovers("memory-open")
}

#[test]
fn no_memory_for_posts() -> Result<()> {
    recovers("memory-post")
}
