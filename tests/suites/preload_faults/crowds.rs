//! Many connections, and too few descriptors.

use std::time::Duration;

use anyhow::{Result, ensure};
use stack_tests::{OffloadProtocol, is_full};
use tempfile::NamedTempFile;

use crate::process::{Environment, Process};

const CONNECTIONS: usize = 1000;
const CYCLES: usize = 10_000;
/// The number of connections in the quick form, which is low because set-up over SDP is slow.
const CYCLES_QUICK: usize = 2_000;
/// The time limit of a crowd, which takes longer on a busy machine.
const LONG: Duration = Duration::from_mins(10);

/// All connections are open at the same time, and each carries its own bytes in both directions.
pub(crate) fn a_thousand_connections(protocol: &'static OffloadProtocol) -> Result<()> {
    let environment = Environment::new(protocol)?;
    let log = NamedTempFile::new()?;
    let start = |role: &str| {
        let log = log.reopen()?;
        Process::start_with(role, &environment, |command| {
            command.env("DAT_LOG", "warn").stderr(log);
        })
    };
    let server = start("echo")?;
    let port = server.read_line("port")?;
    let client = start(&format!("crowd {port} {CONNECTIONS}"))?;
    ensure!(client.read_line_within("answered", LONG)? == CONNECTIONS.to_string());
    client.finish()?;
    ensure!(server.read_line("served")? == CONNECTIONS.to_string());
    server.finish()?;
    // An overflow of a queue would be reported by an asynchronous event.
    let log = std::fs::read_to_string(log.path())?;
    let events = log.matches("asynchronous event").count();
    ensure!(
        events == 0,
        "{events} asynchronous events, such as {:?}",
        log.lines().next()
    );
    environment.check_end()
}

/// Both ends hold as many descriptors, threads and mappings afterwards as before.
pub(crate) fn thousands_of_connections_in_turn(protocol: &'static OffloadProtocol) -> Result<()> {
    let environment = Environment::new(protocol)?;
    let server = Process::start("echo", &environment)?;
    let port = server.read_line("port")?;
    let cycles = if protocol.is_sdp && !is_full() {
        CYCLES_QUICK
    } else {
        CYCLES
    };
    let client = Process::start(&format!("cycle {port} {cycles}"), &environment)?;
    ensure!(client.read_line_within("cycled", LONG)? == cycles.to_string());
    client.finish()?;
    server.read_line("served")?;
    server.finish()?;
    environment.check_end()
}

/// A program that runs out of descriptors gets an error, and can continue after closing some.
pub(crate) fn without_descriptors(protocol: &'static OffloadProtocol) -> Result<()> {
    let environment = Environment::new(protocol)?;
    let server = Process::start("echo", &environment)?;
    let port = server.read_line("port")?;
    let client = Process::start(&format!("exhaust {port}"), &environment)?;
    let made: usize = client.read_line("exhausted at")?.parse()?;
    ensure!(made > 8, "{made} connections");
    client.read_line("recovered")?;
    client.finish()?;
    server.read_line("served")?;
    server.finish()?;
    environment.check_end()
}
