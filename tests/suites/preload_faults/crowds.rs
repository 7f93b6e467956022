//! Many connections, and too few descriptors.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::apart::{Apart, Pages};

const CONNECTIONS: usize = 1000;
const CYCLES: usize = 10_000;
/// A crowd takes longer on a busy machine.
const LONG: Duration = Duration::from_mins(10);

/// All are open at once, and each carries its own bytes both ways.
pub(crate) fn a_thousand_connections() -> Result<()> {
    let pages = Pages::new()?;
    let server = Apart::start("echo", &pages)?;
    let port = server.hear("port")?;
    let client = Apart::start(&format!("crowd {port} {CONNECTIONS}"), &pages)?;
    ensure!(client.hear_within("answered", LONG)? == CONNECTIONS.to_string());
    client.finish()?;
    ensure!(server.hear("served")? == CONNECTIONS.to_string());
    server.finish()?;
    pages.are_gone()
}

/// Descriptors, threads and mappings of both ends are as many afterwards as before.
pub(crate) fn thousands_one_after_the_other() -> Result<()> {
    let pages = Pages::new()?;
    let server = Apart::start("echo", &pages)?;
    let port = server.hear("port")?;
    let client = Apart::start(&format!("cycle {port} {CYCLES}"), &pages)?;
    ensure!(client.hear_within("cycled", LONG)? == CYCLES.to_string());
    client.finish()?;
    server.hear("served")?;
    server.finish()?;
    pages.are_gone()
}

/// A program that runs out of descriptors is told so, and goes on when it has closed some.
pub(crate) fn without_descriptors() -> Result<()> {
    let pages = Pages::new()?;
    let server = Apart::start("echo", &pages)?;
    let port = server.hear("port")?;
    let client = Apart::start(&format!("exhaust {port}"), &pages)?;
    let made: usize = client.hear("exhausted at")?.parse()?;
    ensure!(made > 8, "{made} connections");
    client.hear("recovered")?;
    client.finish()?;
    server.hear("served")?;
    server.finish()?;
    pages.are_gone()
}
