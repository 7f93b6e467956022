//! Full buffers on both sides, and many bytes.

use std::time::Duration;

use anyhow::{Result, ensure};
use stack_tests::is_full;

use crate::apart::{Apart, Pages};

/// Bytes of the quick form, and of the long one.
const BYTES: u64 = 256 << 20;
const BYTES_FULL: u64 = 16 << 30;
/// The long form takes no longer on a machine that is not busy.
const LONG: Duration = Duration::from_mins(30);

/// Both give until nothing fits, nobody takes; then both take and give the rest.
pub(crate) fn both_sides_full() -> Result<()> {
    let pages = Pages::new()?;
    let bytes = 8 << 20;
    let mut server = Apart::start(&format!("exchange - {bytes}"), &pages)?;
    let port = server.hear("port")?;
    let mut client = Apart::start(&format!("exchange {port} {bytes}"), &pages)?;
    for side in [&mut server, &mut client] {
        let full = side.hear("full")?;
        ensure!(full.parse::<u64>()? > 0, "nothing fits: {full}");
    }
    for side in [&mut server, &mut client] {
        side.tell("go on")?;
    }
    for side in [server, client] {
        ensure!(side.hear("exchanged")? == format!("{bytes} {bytes}"));
        side.finish()?;
    }
    pages.are_gone()
}

/// Every byte arrives once and in its place.
pub(crate) fn many_bytes() -> Result<()> {
    let pages = Pages::new()?;
    let bytes = if is_full() { BYTES_FULL } else { BYTES };
    let receiver = Apart::start("receive", &pages)?;
    let port = receiver.hear("port")?;
    let sender = Apart::start(&format!("send {port} {bytes}"), &pages)?;
    sender.hear_within("sent", LONG)?;
    ensure!(receiver.hear("received")? == format!("{bytes} end"));
    sender.finish()?;
    receiver.finish()?;
    pages.are_gone()
}
