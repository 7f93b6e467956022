//! Processes in which each allocation fails in turn, or each call that makes a descriptor, or
//! which may open few descriptors. Every call returns an error, or a socket uses TCP; no process is
//! ended, and no byte is wrong or lost.
//!
//! The programs are `tests/c/scarce_*.c`. A run walks all calls once for each point: an allocation
//! that fails alone or with all after it, a call that makes a descriptor and fails alone, or a
//! number of descriptors. The long form takes every point, the usual one a sample.

use anyhow::{Result, ensure};
use stack_tests::{
    CProgram, Finished, NetSpace, Offload, OffloadProtocol, OpsRun, Registry, SOFTWARE, Sanitizer,
    StackEnv, Stage, is_full, not_run,
};
use tempfile::TempDir;

/// The time limit of one run, far longer than any run takes.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(1800);

/// The kinds of scarcity of memory: one allocation fails, or one and all after it.
const MEMORY: &[&str] = &["once 1", "from 1"];
/// The kinds of scarcity of descriptors: a number of them, beginning with none, or one call that
/// fails because the process or the host has none.
const DESCRIPTORS: &[&str] = &["descriptors 0", "EMFILE 1", "ENFILE 2"];
/// Each third number of descriptors is a point of the usual form, and each third call.
const DESCRIPTORS_SAMPLE: u32 = 3;

/// Walks the calls of sockets under `opsrun`, with every `sample`th point in the usual form.
fn sockets(kinds: &[&str], protocol: usize, offload: Offload, sample: u32) -> Result<()> {
    if has_allocator_of_its_own() {
        return Ok(());
    }
    let program = CProgram::compile_plain("scarce_sockets")?;
    let stage = Stage::find()?;
    let dir = TempDir::with_prefix("scarce-")?;
    let _net = NetSpace::enter()?;
    let run = OpsRun::new(&stage, &OffloadProtocol::ALL[protocol], offload, dir.path())?;
    let run = run.untraced();
    for kind in kinds {
        let finished = run
            .program(program.file())
            .args_line(&format!("{kind} {}", stride(sample)))
            .named(kind)
            .run(LIMIT)?;
        check(kind, &finished)?;
    }
    Ok(())
}

/// Returns true if a sanitizer replaces the allocator.
fn has_allocator_of_its_own() -> bool {
    let has_own = Sanitizer::chosen() != Sanitizer::None;
    if has_own {
        not_run("the sanitizer has an allocator of its own");
    }
    has_own
}

fn stride(sample: u32) -> u32 {
    if is_full() { 1 } else { sample }
}

/// Prints the number of points, and fails if a process was ended.
fn check(kind: &str, finished: &Finished) -> Result<()> {
    let points = finished
        .text
        .lines()
        .find_map(|line| line.strip_prefix("POINTS "));
    println!("{kind}: {} points", points.unwrap_or("no"));
    ensure!(finished.text.contains("PASSED"), "{}", finished.tail());
    Ok(())
}

/// Walks the calls of DAT, with additional words in the parameters of the adapter.
fn dat(kinds: &[&str], params: &str, sample: u32) -> Result<()> {
    if has_allocator_of_its_own() {
        return Ok(());
    }
    let stage = Stage::find()?;
    let program = CProgram::compile(&stage, "scarce_dat")?;
    let registry = Registry::loopback_with(SOFTWARE, params)?;
    let env = StackEnv::of(stage, registry, NetSpace::enter()?);
    for kind in kinds {
        let finished = env
            .program(program.file())
            .args_line(&format!("{kind} {}", stride(sample)))
            .named(kind)
            .run(LIMIT)?;
        check(kind, &finished)?;
    }
    Ok(())
}

#[test]
fn dat_in_shared_memory() -> Result<()> {
    dat(MEMORY, "", 3)
}

#[test]
fn dat_over_tcp() -> Result<()> {
    dat(MEMORY, " local=off", 3)
}

/// Without memory a socket on TCP works as in a process without the library.
#[test]
fn sockets_that_a_rule_keeps_on_tcp() -> Result<()> {
    sockets(MEMORY, 1, Offload::Nothing, 2)
}

#[test]
fn connections_within_the_host() -> Result<()> {
    sockets(MEMORY, 1, Offload::AllSoon, 3)
}

#[test]
fn connections_over_sdp() -> Result<()> {
    sockets(MEMORY, 0, Offload::AllSoon, 19)
}

#[test]
fn dat_in_shared_memory_without_descriptors() -> Result<()> {
    dat(DESCRIPTORS, "", DESCRIPTORS_SAMPLE)
}

#[test]
fn dat_over_tcp_without_descriptors() -> Result<()> {
    dat(DESCRIPTORS, " local=off", DESCRIPTORS_SAMPLE)
}

#[test]
fn sockets_on_tcp_without_descriptors() -> Result<()> {
    sockets(DESCRIPTORS, 1, Offload::Nothing, DESCRIPTORS_SAMPLE)
}

#[test]
fn connections_within_the_host_without_descriptors() -> Result<()> {
    sockets(DESCRIPTORS, 1, Offload::AllSoon, DESCRIPTORS_SAMPLE)
}

#[test]
fn connections_over_sdp_without_descriptors() -> Result<()> {
    sockets(DESCRIPTORS, 0, Offload::AllSoon, DESCRIPTORS_SAMPLE)
}
