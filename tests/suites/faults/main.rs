//! Faults of a peer: death, reset, silence, garbage. After each fault, the process under test has
//! reported the fault to its consumer, has freed its resources, and has not hung.

mod exhaustion;
mod pace;
mod resets;
mod signals;
mod silence;

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use rustix::net::sockopt;
use stack_tests::frame_writer::{Fpdu, write};
use stack_tests::raw::{REPLY, RawPeer, SEND_HELLO};
use stack_tests::{DEADLINE, Finished, Peers, Running, Sanitizer, not_run, orderly};

const PORT: u16 = 7471;
/// The bit of a tagged segment in its first byte, and the length of the headers of the others.
const TAGGED: u8 = 0x80;
const UNTAGGED_LEN: usize = 18;

/// A listener that holds its connection, and a raw peer that has established it.
fn held_by_raw_peer(peers: &Peers) -> Result<(Running, RawPeer)> {
    let listener = peers.start_ready("listen hold=1")?;
    let mut raw = RawPeer::connect(PORT)?;
    raw.start_as_initiator()?;
    listener.wait_for("HOLDING", DEADLINE)?;
    Ok((listener, raw))
}

/// Ends an established connection by `fault`. The consumer must get the event, and the posted
/// receive must be flushed.
fn connection_ends_after(fault: impl FnOnce(RawPeer) -> Result<()>) -> Result<()> {
    let peers = Peers::new()?;
    let (listener, raw) = held_by_raw_peer(&peers)?;
    fault(raw)?;
    let listener = orderly(listener)?;
    reports_the_end(listener)?.prints("FLUSHED 1")?;
    Ok(())
}

/// Checks that the consumer got the event of the end of its connection, or of a failed accept.
fn reports_the_end(finished: Finished) -> Result<Finished> {
    let is_reported = ["disconnected", "broken", "accept-error"]
        .iter()
        .any(|event| finished.text.contains(&format!("EVENT {event}")));
    ensure!(
        is_reported,
        "no event reported the end of the connection\n{}",
        finished.tail()
    );
    Ok(finished)
}

/// Applies `fault` with a bad peer before a good peer connects to the same port. The fault must not
/// affect the good peer.
fn listener_continues_after(fault: impl FnOnce(RawPeer) -> Result<Option<RawPeer>>) -> Result<()> {
    let peers = Peers::new()?;
    let listener = peers.start_ready("listen")?;
    let still_open = fault(RawPeer::connect(PORT)?)?;
    let connector = peers.start("connect")?;
    orderly(connector)?.prints("DATA 10 messages")?;
    orderly(listener)?.prints("DATA 10 messages")?;
    drop(still_open);
    Ok(())
}

/// Applies `fault` with a raw server to each peer that connects. The consumer must get a failure,
/// and never a connection.
fn connect_fails_after(fault: impl FnOnce(RawPeer) -> Result<Option<RawPeer>>) -> Result<()> {
    let peers = Peers::new()?;
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))?;
    let connector = peers.start("connect timeout_ms=1500")?;
    let still_open = fault(RawPeer::accept(&server)?)?;
    let connector = orderly(connector)?.never_prints("EVENT established")?;
    drop(still_open);
    let is_reported = ["non-peer-rejected", "unreachable", "timed-out"]
        .iter()
        .any(|event| connector.text.contains(&format!("EVENT {event}")));
    ensure!(
        is_reported,
        "no event reported a failure\n{}",
        connector.tail()
    );
    Ok(())
}

#[test]
fn both_ends_are_clean_under_valgrind() -> Result<()> {
    if Sanitizer::chosen() != Sanitizer::None {
        not_run("another sanitizer watches the programs, and valgrind cannot run under it");
        return Ok(());
    }
    let peers = Peers::new()?;
    let listener = peers.start_under_valgrind("listen messages=3 timeout_ms=120000")?;
    listener.wait_for("READY", DEADLINE)?;
    let connector = peers.start_under_valgrind("connect messages=3 timeout_ms=120000")?;
    orderly(connector)?.prints("DATA 3 messages")?;
    orderly(listener)?.prints("DATA 3 messages")?;
    Ok(())
}

#[test]
fn a_process_that_exits_loses_no_message_whose_send_has_completed() -> Result<()> {
    let peers = Peers::new()?;
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))?;
    // Most bytes are still in the sender's queue when the Sends have completed.
    sockopt::set_socket_recv_buffer_size(&server, 16 * 1024)?;
    let connector = peers.start("connect leave=1 messages=20 size=20000")?;
    let mut raw = RawPeer::start_as_responder(&server)?;
    connector.wait_for("LEAVING", DEADLINE)?;
    let answer = Fpdu::new(&write(0, 0, &[])).bytes();
    let mut received = 0;
    while let Some(segment) = raw.read_segment()? {
        let is_send = segment[0] & TAGGED == 0;
        received += usize::from(is_send) * segment.len().saturating_sub(UNTAGGED_LEN);
        // The kernel of a process that has ended resets the connection.
        let _ = raw.send(&answer);
    }
    ensure!(received == 20 * 20_000, "{received} bytes are received");
    connector.finish(DEADLINE)?.success()?;
    Ok(())
}

#[test]
fn a_killed_peer_is_reported() -> Result<()> {
    let peers = Peers::new()?;
    let listener = peers.start_ready("listen hold=1")?;
    let connector = peers.start("connect hold=1")?;
    listener.wait_for("HOLDING", DEADLINE)?;
    connector.wait_for("HOLDING", DEADLINE)?;
    connector.signal(Signal::SIGKILL)?;
    let listener = orderly(listener)?.prints("FLUSHED 1")?;
    let is_reported =
        listener.text.contains("EVENT disconnected") || listener.text.contains("broken");
    ensure!(is_reported, "{}", listener.tail());
    Ok(())
}

#[test]
fn a_stopped_peer_does_not_stop_us() -> Result<()> {
    let peers = Peers::new()?;
    let listener = peers.start_ready("listen hold=1")?;
    let connector = peers.start("connect hold=1 hold_ms=2000")?;
    listener.wait_for("HOLDING", DEADLINE)?;
    connector.wait_for("HOLDING", DEADLINE)?;
    listener.signal(Signal::SIGSTOP)?;
    // No event occurs within the connector's wait. Then the connector frees a connection whose peer
    // does not answer.
    orderly(connector)?;
    listener.signal(Signal::SIGCONT)?;
    orderly(listener)?;
    Ok(())
}

#[test]
fn golden_frames_of_a_plain_peer_are_parsed() -> Result<()> {
    let peers = Peers::new()?;
    let listener = peers.start_ready("listen")?;
    let mut raw = RawPeer::connect(PORT)?;
    let private_data = raw.start_as_initiator()?;
    ensure!(
        private_data.starts_with(b"private data of the accept"),
        "{private_data:?}"
    );
    // The message of five bytes is delivered. The program rejects it, because it expects sixteen.
    raw.send(&SEND_HELLO)?;
    let listener = listener.finish(DEADLINE)?;
    listener.prints("ABORTED a hello of the wrong length")?;
    Ok(())
}

#[test]
fn a_connect_to_a_peer_that_resets_fails() -> Result<()> {
    connect_fails_after(|raw| raw.reset().map(|()| None))
}

#[test]
fn a_connect_answered_by_half_a_reply_ends_at_its_timeout() -> Result<()> {
    connect_fails_after(|mut raw| {
        raw.send(&REPLY[..13])?;
        Ok(Some(raw))
    })
}
