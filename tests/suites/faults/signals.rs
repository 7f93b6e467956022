//! Signals that interrupt system calls all the time.

use anyhow::Result;
use stack_tests::{Peers, orderly};

/// Exchanges data while each end receives a signal every 200 us.
fn intact_under_storm(how: &str) -> Result<()> {
    let peers = Peers::new()?;
    let listener = peers.start_ready(&format!("listen storm=1 {how}"))?;
    let connect = format!("connect storm=1 messages=400 size=60000 {how}");
    orderly(peers.start(&connect)?)?.prints("DATA 400 messages")?;
    orderly(listener)?.prints("DATA 400 messages")?;
    Ok(())
}

#[test]
fn data_is_intact_while_consumers_block() -> Result<()> {
    intact_under_storm("")
}

#[test]
fn data_is_intact_while_consumers_poll() -> Result<()> {
    intact_under_storm("poll=1")
}

#[test]
fn a_conversion_that_waits_for_its_peer_succeeds() -> Result<()> {
    let peers = Peers::new()?;
    let listener = peers.start("ssp socket=accept storm=1")?;
    peers
        .env
        .net
        .wait_for_listener(crate::PORT, stack_tests::DEADLINE)?;
    orderly(peers.start("upgrade socket=connect storm=1")?)?.prints("DATA 10 messages")?;
    orderly(listener)?.prints("DATA 10 messages")?;
    Ok(())
}

#[test]
fn a_wait_ends_at_its_timeout_and_not_at_a_signal() -> Result<()> {
    let peers = Peers::new()?;
    let listener = orderly(peers.start("listen storm=1 timeout_ms=700")?)?;
    listener.prints("DAT_TIMEOUT_EXPIRED")?;
    Ok(())
}
