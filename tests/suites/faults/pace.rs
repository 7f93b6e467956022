//! Bytes that are received and sent as slowly, or in as small pieces, as TCP allows.

use std::time::Duration;

use anyhow::Result;
use stack_tests::{Pace, Peers, orderly, relay};

use crate::PORT;

const RELAY_PORT: u16 = PORT + 1;

/// Exchanges `work` through a relay, and checks that all data are correct.
fn intact_through(pace: Pace, messages: u32, size: u32) -> Result<()> {
    let peers = Peers::new()?;
    let listener = peers.start_ready("listen")?;
    relay(RELAY_PORT, PORT, pace)?;
    let connect = format!("connect port={RELAY_PORT} messages={messages} size={size}");
    let connector = peers.start(&connect)?;
    let data = format!("DATA {messages} messages");
    orderly(connector)?.prints(&data)?;
    orderly(listener)?.prints(&data)?;
    Ok(())
}

#[test]
fn byte_by_byte() -> Result<()> {
    intact_through(Pace::ByteByByte, 4, 3000)
}

#[test]
fn in_pieces_that_are_no_frames() -> Result<()> {
    intact_through(Pace::Chopped, 40, 60_000)
}

#[test]
fn through_a_reader_that_pauses() -> Result<()> {
    intact_through(
        Pace::PauseAfter(30_000, Duration::from_millis(700)),
        20,
        60_000,
    )
}

#[test]
fn through_a_slow_reader() -> Result<()> {
    intact_through(Pace::Slow(700, Duration::from_millis(1)), 5, 60_000)
}
