//! Many connections, and too few descriptors.

use std::time::Duration;

use anyhow::{Result, ensure};
use stack_tests::{OffloadProtocol, is_full};
use tempfile::NamedTempFile;

use crate::apart::{Apart, Place};

const CONNECTIONS: usize = 1000;
const CYCLES: usize = 10_000;
/// Set-up over SDP takes longer, so the quick form has fewer.
const CYCLES_QUICK: usize = 2_000;
/// A crowd takes longer on a busy machine.
const LONG: Duration = Duration::from_mins(10);

/// All are open at once, and each carries its own bytes both ways.
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
    // Nothing overflows either, which would be told by an asynchronous event.
    let log = std::fs::read_to_string(log.path())?;
    let events = log.matches("asynchronous event").count();
    ensure!(
        events == 0,
        "{events} asynchronous events, such as {:?}",
        log.lines().next()
    );
    place.is_left()
}

/// Descriptors, threads and mappings of both ends are as many afterwards as before.
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

/// A program that runs out of descriptors is told so, and goes on when it has closed some.
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
