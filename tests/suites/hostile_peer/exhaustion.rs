//! Attacks on limited resources of the victim (RFC 5042 section 6.4.1 and 6.4.2).

use anyhow::{Context, Result, bail, ensure};
use dat_api::{Event, Privileges, Region};
use stack_tests::frame_writer::{self, Fpdu, Read};
use stack_tests::raw::RawPeer;

use super::victim::{CROWDED_IA, DEADLINE, HALF_OPEN_MAX, IMPATIENT_IA, IRD, Victim};

/// Opens far more connections than the victim keeps. Their requests are never complete.
fn crowd(victim: &Victim, bytes: &[u8]) -> Result<Vec<RawPeer>> {
    (0..HALF_OPEN_MAX * 10)
        .map(|_| {
            let mut peer = RawPeer::connect(victim.port())?;
            peer.send(bytes)?;
            Ok(peer)
        })
        .collect()
}

/// All connection slots are in use, and no timeout frees a slot. A peer that sends a request is
/// still answered soon, and the connections that have waited longest are closed.
fn a_crowd_does_not_keep_others_out(bytes: &[u8]) -> Result<()> {
    let victim = Victim::on(CROWDED_IA)?;
    let mut crowd = crowd(&victim, bytes)?;
    drop(victim.stream().context("a peer among the crowd")?);
    for oldest in &mut crowd[..HALF_OPEN_MAX] {
        ensure!(oldest.read_to_end()?.is_empty());
    }
    victim.settle()?;
    victim.bystander_is_fine()?;
    drop(crowd);
    victim.no_descriptor_is_left()
}

#[test]
fn rfc5042_6_4_1_silent_connections_do_not_keep_others_out() -> Result<()> {
    a_crowd_does_not_keep_others_out(b"")
}

#[test]
fn rfc5042_6_4_1_half_requests_do_not_keep_others_out() -> Result<()> {
    a_crowd_does_not_keep_others_out(b"MPA ID Req")
}

#[test]
fn rfc5042_6_4_1_closed_connections_leak_no_resources() -> Result<()> {
    let victim = Victim::new()?;
    for round in 0..1000 {
        let peer = RawPeer::connect(victim.port())?;
        match round % 2 {
            0 => drop(peer),
            _ => peer.reset()?,
        }
    }
    drop(victim.stream()?);
    victim.settle()?;
    victim.bystander_is_fine()?;
    victim.no_descriptor_is_left()
}

#[test]
fn rfc5042_6_4_1_a_flood_of_terminates_leaks_no_resources() -> Result<()> {
    let victim = Victim::new()?;
    let terminate = frame_writer::terminate(0, 2, 7);
    for _ in 0..300 {
        let mut stream = victim.stream()?;
        let many = vec![terminate.clone(); 50];
        stream.send(&many)?;
        ensure!(stream.peer.read_segment()?.is_none(), "it was answered");
        stream.end(&victim)?;
    }
    victim.bystander_is_fine()?;
    victim.no_descriptor_is_left()
}

/// Sends more requests than the consumer's event queue holds; the consumer answers none of them.
#[test]
fn rfc5042_6_4_1_unanswered_requests_are_bounded() -> Result<()> {
    let victim = Victim::new()?;
    let room = victim.requests.qlen()? as usize;
    let mut refused = 0;
    let mut peers = Vec::new();
    for _ in 0..2 * room + 2 {
        let mut peer = RawPeer::connect(victim.port())?;
        peer.send(&frame_writer::request(b"").bytes())?;
        peers.push(peer);
    }
    // There was no room for the last requests, so their connections are closed.
    for peer in peers.iter_mut().skip(room + 1) {
        refused += usize::from(peer.read_to_end()?.is_empty());
    }
    ensure!(refused > 0, "none was refused");
    while let Some(event) = victim.requests.dequeue()? {
        ensure!(matches!(event, Event::ConnectionRequest(_)), "{event:?}");
    }
    drop(peers);
    victim.bystander_is_fine()?;
    victim.no_descriptor_is_left()
}

/// A peer that stops at any point of the set-up is disconnected after the configured time.
#[test]
fn rfc5042_6_4_2_resource_consumption_by_idle_ulps() -> Result<()> {
    let victim = Victim::on(IMPATIENT_IA)?;
    for bytes in [&b""[..], b"MPA ID Req Frame"] {
        let mut peer = RawPeer::connect(victim.port())?;
        peer.send(bytes)?;
        ensure!(peer.read_to_end()?.is_empty());
    }
    // In peer-to-peer mode the connection is not established before its first frame is received.
    let ep = victim.ep()?;
    let mut peer = RawPeer::connect(victim.port())?;
    let request = frame_writer::enhanced_request(4, 4, b"");
    let request = request.with("peer_to_peer", 1).with("rtr_write", 1);
    peer.send(&request.bytes())?;
    match victim.requests.wait(Some(DEADLINE))? {
        Some(Event::ConnectionRequest(request)) => request.accept(Some(&ep), b"")?,
        other => bail!("no connection request but {other:?}"),
    };
    peer.read(24)?;
    ensure!(peer.read_to_end()?.is_empty(), "it was kept");
    drop((peer, ep));
    victim.settle()?;
    victim.bystander_is_fine()?;
    victim.no_descriptor_is_left()
}

/// A peer that requests much data and reads nothing ties up a bounded amount of memory and delays
/// no other peer.
#[test]
fn rfc5042_6_4_1_a_peer_that_never_reads_its_read_responses() -> Result<()> {
    const LEN: usize = 16 << 20;
    let victim = Victim::new()?;
    let memory = Region::create(&victim.pz, LEN, Privileges::ALL)?;
    let region = memory.remote();
    let read = Read {
        len: region.len,
        source_stag: region.context,
        source_to: region.addr,
        ..Read::default()
    };
    let mut stream = victim.stream()?;
    let reads: Vec<_> = (1..=IRD as u32)
        .map(|msn| frame_writer::read_request(msn, &read))
        .collect();
    stream.send(&reads)?;
    // The requested data is being sent.
    stream.peer.read(2)?;
    for _ in 0..200 {
        victim.bystander_is_fine()?;
    }
    stream.end(&victim)?;
    victim.bystander_is_fine()?;
    victim.no_descriptor_is_left()
}

/// After a Terminate the victim discards the peer's bytes for a limited time, so that the Terminate
/// is not lost.
#[test]
fn rfc5042_6_4_1_a_peer_that_sends_after_its_terminate_is_disconnected() -> Result<()> {
    /// The number of bytes that the victim discards, plus the buffers of two sockets.
    const TAKEN_MAX: usize = 64 << 20;
    let victim = Victim::new()?;
    let mut stream = victim.stream()?;
    stream.send(&[frame_writer::write(0, 0, b"to nowhere")])?;
    let more = Fpdu::of(vec![0; 60_000]).bytes();
    let mut taken = 0;
    while stream.peer.send(&more).is_ok() {
        taken += more.len();
        ensure!(taken < TAKEN_MAX, "{taken} bytes were taken");
    }
    stream.end(&victim)?;
    victim.bystander_is_fine()
}
