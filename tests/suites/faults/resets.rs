//! A TCP reset in every state of a connection, seen from either end.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, ensure};
use stack_tests::frame_writer::{Fpdu, Frame, Read, read_request, read_response, terminate};
use stack_tests::raw::{REPLY, REQUEST, RawPeer, SEND_HELLO};
use stack_tests::{DEADLINE, Finished, Peers, orderly};

use crate::{
    PORT, connect_fails_after, connection_ends_after, held_by_raw_peer, listener_continues_after,
    reports_the_end,
};

/// An enhanced Request that announces a ready-to-receive message of any kind (RFC 6581 section 9).
const ENHANCED_REQUEST: [u8; 24] = *b"MPA ID Req Frame\x50\x02\x00\x04\xc0\x01\xc0\x01";

/// Runs `listen` with `settings` against a raw peer, which applies `fault` and resets.
fn listener_reports(
    settings: &str,
    fault: impl FnOnce(&mut RawPeer) -> Result<()>,
) -> Result<Finished> {
    let peers = Peers::new()?;
    let listener = peers.start_ready(&format!("listen {settings}"))?;
    let mut raw = RawPeer::connect(PORT)?;
    raw.start_as_initiator()?;
    fault(&mut raw)?;
    raw.reset()?;
    reports_the_end(orderly(listener)?)
}

/// Runs `connect` with `settings` against a raw peer, which applies `fault` and resets.
fn connector_reports(
    settings: &str,
    fault: impl FnOnce(&mut RawPeer) -> Result<()>,
) -> Result<Finished> {
    let peers = Peers::new()?;
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))?;
    let connector = peers.start(&format!("connect {settings}"))?;
    let mut raw = RawPeer::start_as_responder(&server)?;
    connector.wait_for("EVENT established", DEADLINE)?;
    fault(&mut raw)?;
    raw.reset()?;
    reports_the_end(orderly(connector)?)
}

fn fpdu(segment: &Frame) -> Vec<u8> {
    Fpdu::new(segment).bytes()
}

#[test]
fn before_the_request() -> Result<()> {
    listener_continues_after(|raw| raw.reset().map(|()| None))
}

#[test]
fn within_the_request() -> Result<()> {
    listener_continues_after(|mut raw| {
        raw.send(&REQUEST[..11])?;
        raw.reset().map(|()| None)
    })
}

#[test]
fn between_the_request_and_its_answer() -> Result<()> {
    let peers = Peers::new()?;
    let listener = peers.start_ready("listen hold=1 pause_ms=300")?;
    let mut raw = RawPeer::connect(PORT)?;
    raw.send(&REQUEST)?;
    listener.wait_for("EVENT request", DEADLINE)?;
    raw.reset()?;
    reports_the_end(orderly(listener)?)?;
    Ok(())
}

#[test]
fn instead_of_the_ready_to_receive_message() -> Result<()> {
    let peers = Peers::new()?;
    let listener = peers.start_ready("listen hold=1")?;
    let mut raw = RawPeer::connect(PORT)?;
    raw.send(&ENHANCED_REQUEST)?;
    let reply = raw.read(REPLY.len())?;
    ensure!(reply[..16] == REPLY[..16] && reply[17] == 2, "{reply:02x?}");
    raw.reset()?;
    orderly(listener)?
        .never_prints("EVENT established")?
        .prints("EVENT accept-error")?;
    Ok(())
}

#[test]
fn before_the_first_frame() -> Result<()> {
    listener_reports("hold=1", |_| Ok(())).map(drop)
}

#[test]
fn within_a_frame() -> Result<()> {
    connection_ends_after(|mut raw| {
        raw.send(&SEND_HELLO[..19])?;
        raw.reset()
    })
}

#[test]
fn while_the_consumer_sends() -> Result<()> {
    let peers = Peers::new()?;
    let listener = peers.start_ready("listen flood=1 messages=200 size=60000")?;
    let mut raw = RawPeer::connect(PORT)?;
    raw.start_as_initiator()?;
    raw.send(&SEND_HELLO)?;
    listener.wait_for("FLOODING", DEADLINE)?;
    raw.read(1)?;
    raw.reset()?;
    reports_the_end(orderly(listener)?)?.prints(" failed")?;
    Ok(())
}

#[test]
fn while_the_consumers_memory_is_read() -> Result<()> {
    let peers = Peers::new()?;
    let (listener, mut raw) = held_by_raw_peer(&peers)?;
    listener.wait_for("HOLDING", DEADLINE)?;
    let text = listener.text();
    let mut region = text
        .split("REGION ")
        .nth(1)
        .unwrap_or_default()
        .split_whitespace();
    let context = u32::from_str_radix(region.next().unwrap_or_default(), 16)?;
    let address = u64::from_str_radix(region.next().unwrap_or_default(), 16)?;
    for msn in 1..=2 {
        let read = Read {
            sink_stag: 1,
            sink_to: 0,
            len: 256 * 1024,
            source_stag: context,
            source_to: address,
        };
        raw.send(&fpdu(&read_request(msn, &read)))?;
    }
    let head = raw.read(4)?;
    ensure!(head[3] & 0xf == 2, "no Read Response: {head:02x?}");
    raw.reset()?;
    reports_the_end(orderly(listener)?)?.prints("FLUSHED 1")?;
    Ok(())
}

#[test]
fn while_the_consumer_waits_for_a_read() -> Result<()> {
    let finished = connector_reports("fetch=1 size=60000", |raw| {
        let request = raw.read(52)?;
        ensure!(request[3] & 0xf == 1, "no Read Request: {request:02x?}");
        let sink = u32::from_be_bytes([request[20], request[21], request[22], request[23]]);
        let to = request[24..32]
            .iter()
            .fold(0, |to, byte| to << 8 | u64::from(*byte));
        raw.send(&fpdu(&read_response(sink, to, &[0x77; 1000]).with("l", 0)))
    })?;
    finished.prints("REQUESTS FAILED 1")?;
    Ok(())
}

#[test]
fn after_the_peers_terminate() -> Result<()> {
    listener_reports("hold=1", |raw| raw.send(&fpdu(&terminate(1, 1, 0)))).map(drop)
}

#[test]
fn after_our_terminate() -> Result<()> {
    listener_reports("hold=1", |raw| {
        let mut frame = SEND_HELLO;
        frame[22] ^= 1;
        raw.send(&frame)?;
        raw.read_terminate().map(drop)
    })
    .map(drop)
}

#[test]
fn while_the_consumer_closes() -> Result<()> {
    listener_reports("close=1", |raw| raw.read_to_end().map(drop)).map(drop)
}

#[test]
fn while_the_connecting_consumer_closes() -> Result<()> {
    connector_reports("close=1", |raw| raw.read_to_end().map(drop)).map(drop)
}

#[test]
fn after_half_a_close() -> Result<()> {
    listener_reports("hold=1", |raw| raw.finish_sending()).map(drop)
}

#[test]
fn within_the_reply() -> Result<()> {
    connect_fails_after(|mut raw| {
        raw.send(&REPLY[..13])?;
        raw.reset().map(|()| None)
    })
}

#[test]
fn after_the_reply() -> Result<()> {
    connector_reports("hold=1", |_| Ok(())).map(drop)
}
