//! A process without descriptors or memory: its calls return errors, and it recovers.

use anyhow::Result;
use stack_tests::{CProgram, Sanitizer, not_run, passes};

/// Runs one trial of `exhaust.c`.
fn recovers(trial: &str) -> Result<()> {
    passes(CProgram::compile, "exhaust", trial)
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
fn no_descriptor_for_a_wait() -> Result<()> {
    recovers("descriptors-wait")
}

/// Runs one trial with a limit on memory. Does not run with a sanitizer, which needs more memory.
fn recovers_with_less_memory(trial: &str) -> Result<()> {
    if Sanitizer::chosen() == Sanitizer::None {
        return recovers(trial);
    }
    not_run("a sanitizer needs more memory than the limit of this test");
    Ok(())
}

#[test]
fn no_memory_for_objects() -> Result<()> {
    recovers_with_less_memory("memory-create")
}

#[test]
fn no_memory_for_an_adapter() -> Result<()> {
    recovers_with_less_memory("memory-open")
}

#[test]
fn no_memory_for_posts() -> Result<()> {
    recovers_with_less_memory("memory-post")
}
