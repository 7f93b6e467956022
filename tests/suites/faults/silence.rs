//! Peers that are alive and send nothing, and peers that disappear without closing.

use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;
use stack_tests::raw::{RawPeer, SEND_HELLO};
use stack_tests::{DEADLINE, Peers, is_full, orderly, orderly_within};

use crate::{PORT, reports_the_end};

/// The setting that ends connections whose peers send nothing for two seconds.
const IMPATIENT: &str = "peer_timeout_s=2";

/// The bytes that `peer.c` sends in a flood.
fn flooded() -> Vec<u8> {
    (0..60_000_u32)
        .map(|at| (at * 31 + 7 * 7 + 1) as u8)
        .collect()
}

/// Makes a raw peer vanish from an established connection of `listen` after `before`.
fn vanishing(settings: &str, before: impl FnOnce(&mut RawPeer) -> Result<()>) -> Result<()> {
    let peers = Peers::with_params(IMPATIENT)?;
    let listener = peers.start_ready(&format!("listen {settings}"))?;
    let mut raw = RawPeer::connect(PORT)?;
    raw.start_as_initiator()?;
    before(&mut raw)?;
    raw.vanish()?;
    reports_the_end(orderly(listener)?)?;
    Ok(())
}

#[test]
fn a_peer_that_vanishes_from_an_idle_connection_is_reported() -> Result<()> {
    vanishing("hold=1", |raw| raw.send(&SEND_HELLO))
}

#[test]
fn a_peer_that_vanishes_during_a_send_is_reported() -> Result<()> {
    vanishing("flood=1 messages=400 size=60000", |raw| {
        raw.send(&SEND_HELLO)?;
        raw.read(4).map(drop)
    })
}

#[test]
fn a_peer_that_vanishes_within_its_frame_is_reported() -> Result<()> {
    vanishing("hold=1", |raw| raw.send(&SEND_HELLO[..10]))
}

#[test]
fn a_disconnect_ends_without_the_peers_answer() -> Result<()> {
    let peers = Peers::new()?;
    let listener = peers.start_ready("listen close=1")?;
    let mut raw = RawPeer::connect(PORT)?;
    raw.vanish()?;
    // The filter also drops acknowledgements of the handshake, but the request can be sent without
    // them.
    raw.send(&stack_tests::raw::REQUEST)?;
    orderly(listener)?.prints("EVENT disconnected")?;
    Ok(())
}

/// A stopped process keeps its connections, because the kernel still acknowledges segments. The
/// transfer continues when the process continues.
#[test]
fn a_peer_that_is_stopped_for_long_continues_with_its_data() -> Result<()> {
    let pause = Duration::from_secs(if is_full() { 30 } else { 2 });
    let peers = Peers::new()?;
    let listener = peers.start_ready("listen")?;
    let connector = peers.start("connect messages=6000 size=60000")?;
    listener.wait_for("EVENT established", DEADLINE)?;
    connector.wait_for("EVENT established", DEADLINE)?;
    listener.signal(Signal::SIGSTOP)?;
    std::thread::sleep(pause);
    listener.signal(Signal::SIGCONT)?;
    let deadline = DEADLINE + pause;
    orderly_within(connector, deadline)?.prints("DATA 6000 messages")?;
    orderly_within(listener, deadline)?.prints("DATA 6000 messages")?;
    Ok(())
}

/// The reader is stopped, and the other end has requests outstanding.
#[test]
fn a_stopped_reader_receives_everything_after_it_continues() -> Result<()> {
    let peers = Peers::new()?;
    let listener = peers.start_ready("listen flood=1 messages=100 size=60000")?;
    let mut raw = RawPeer::connect(PORT)?;
    raw.start_as_initiator()?;
    raw.send(&SEND_HELLO)?;
    listener.wait_for("FLOODING", DEADLINE)?;
    std::thread::sleep(Duration::from_secs(1));
    raw.read_sends(100, &flooded())?;
    drop(raw);
    orderly(listener)?.prints("FLOODED 100 good, 0 failed")?;
    Ok(())
}

#[test]
fn a_peer_killed_within_an_exchange_is_reported() -> Result<()> {
    let peers = Peers::new()?;
    let listener = peers.start_ready("listen flood=1 messages=100000 size=60000")?;
    let mut raw = RawPeer::connect(PORT)?;
    raw.start_as_initiator()?;
    raw.send(&SEND_HELLO)?;
    raw.read_sends(20, &flooded())?;
    drop(raw);
    reports_the_end(orderly(listener)?)?.prints(" failed")?;
    Ok(())
}
