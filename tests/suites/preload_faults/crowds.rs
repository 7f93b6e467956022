//! Many connections, and too few descriptors.

use std::time::Duration;

use anyhow::{Result, ensure};
use stack_tests::{OffloadProtocol, is_full};
use tempfile::NamedTempFile;

use crate::apart::{Apart, Place};

const CONNECTIONS: usize = 1000;
const CYCLES: usize = 10_000;
/// The number of connections in the quick form; lower, because set-up over SDP takes longer.
const CYCLES_QUICK: usize = 2_000;
/// The time limit of a crowd, which takes longer on a busy machine.
const LONG: Duration = Duration::from_mins(10);

/// All connections are open at the same time, and each carries its own bytes in both directions.
pub(crate) fn a_thousand_connections(protocol: &'static OffloadProtocol) -> Result<()> {
    let place = Place::new(protocol)?;
    let log = NamedTempFile::new()?;
    let start = |part: &str| {
        let log = log.reopen()?;
        Apart::start_with(part, &place, |command| {
            command.env("DAT_LOG", "warn").stderr(log);
        })
    };
    let server = start("echo")?;
    let port = server.hear("port")?;
    let client = start(&format!("crowd {port} {CONNECTIONS}"))?;
    ensure!(client.hear_within("answered", LONG)? == CONNECTIONS.to_string());
    client.finish()?;
    ensure!(server.hear("served")? == CONNECTIONS.to_string());
    server.finish()?;
    // No queue overflows either; an overflow would be reported by an asynchronous event.
    let log = std::fs::read_to_string(log.path())?;
    let events = log.matches("asynchronous event").count();
    ensure!(
        events == 0,
        "{events} asynchronous events, such as {:?}",
        log.lines().next()
    );
    place.is_left()
}

/// Both ends hold as many descriptors, threads and mappings afterwards as before.
pub(crate) fn thousands_one_after_the_other(protocol: &'static OffloadProtocol) -> Result<()> {
    let place = Place::new(protocol)?;
    let server = Apart::start("echo", &place)?;
    let port = server.hear("port")?;
    let cycles = if protocol.is_sdp && !is_full() {
        CYCLES_QUICK
    } else {
        CYCLES
    };
    let client = Apart::start(&format!("cycle {port} {cycles}"), &place)?;
    ensure!(client.hear_within("cycled", LONG)? == cycles.to_string());
    client.finish()?;
    server.hear("served")?;
    server.finish()?;
    place.is_left()
}

/// A program that runs out of descriptors gets the error, and continues when it has closed some.
pub(crate) fn without_descriptors(protocol: &'static OffloadProtocol) -> Result<()> {
    let place = Place::new(protocol)?;
    let server = Apart::start("echo", &place)?;
    let port = server.hear("port")?;
    let client = Apart::start(&format!("exhaust {port}"), &place)?;
    let made: usize = client.hear("exhausted at")?.parse()?;
    ensure!(made > 8, "{made} connections");
    client.hear("recovered")?;
    client.finish()?;
    server.hear("served")?;
    server.finish()?;
    place.is_left()
}
