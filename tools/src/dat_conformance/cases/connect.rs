//! Connecting: the outcomes, and the events at each end.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dat_api::abi::*;
use dat_api::{Close, CompletionFlags, ConnectionKind, Ep, EpState};

use crate::case::{Case, cases};
use crate::expect;
use crate::kit::Kit;
use crate::link::{Link, listen, offer};
use crate::pattern;
use crate::side::Side;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = rows();
    for (size, name) in [
        (0, "0"),
        (1, "1"),
        (24, "24"),
        (48, "48"),
        (usize::MAX, "limit"),
    ] {
        let about = "private data of the connect and of the accept reach the other end";
        let name = format!("connect/private-data-{name}");
        cases.push(Case::both(&name, about, sends_data, answers).sized(size));
        let about = "private data of a rejection reaches the connecting end";
        let name = name.replace("connect/", "reject/");
        cases.push(Case::both(&name, about, sends_data_and_is_rejected, rejects_with).sized(size));
    }
    cases
}

cases! { fn rows:
    "connect/unreachable":
        "an attempt to connect to an address without a route is reported as a failure" =>
        unreachable;
    "connect/established":
        "both ends receive the event of the connection, and the peer's address" =>
        connects, accepts;
    "connect/nobody": "a connection request fails if no service point listens" =>
        finds_no_listener, listens_no_more;
    "connect/rejected": "a rejection is reported as one by the peer" => is_rejected, rejects;
    "connect/dropped": "a request that the consumer drops is rejected" =>
        is_rejected, drops_request;
    "connect/timeout": "an attempt to connect ends after its timeout" => times_out, never_answers;
    "connect/again": "an endpoint connects after a rejection and a reset" =>
        tries_again, rejects_once;
    "connect/cancelled": "an attempt to connect ends when it is disconnected" =>
        cancels, is_cancelled;
    "connect/duplicate": "a second endpoint connects to the peer of the first one" =>
        duplicates, accepts_twice;
    "connect/first-at-once":
        "a message sent right after the connection event is received, ten times" =>
        sends_at_once, receives_at_once;
    "connect/passive-first": "the accepting end may send first" => receives_first, sends_first;
    "connect/second-accept": "a connected endpoint cannot accept a second request" =>
        connects_twice, accepts_second;
    "connect/shared-evd": "two connections share their EVDs" => connects_two, accepts_two;
    "connect/too-much-accepted": "an accept with private data beyond the limit is refused" =>
        is_rejected, accepts_too_much;
}

const ESTABLISHED: &[ConnectionKind] = &[ConnectionKind::Established];

fn connects(link: Link, side: &mut Side<'_>) -> Result<()> {
    expect::in_state(&link.ep, EpState::Connected)?;
    let (peer, _) = side.receive_address()?;
    let info = link.ep.query()?;
    let remote = info.remote.context("the peer's address is not known")?;
    ensure!(
        remote.ip() == peer.ip(),
        "the peer is reported as {remote} instead of {peer}"
    );
    side.barrier("over")
}

fn accepts(link: Link, side: &mut Side<'_>) -> Result<()> {
    expect::in_state(&link.ep, EpState::Connected)?;
    side.send_address(link.kit.address()?, 0)?;
    side.barrier("over")
}

/// Starts to connect to the other end's service.
fn start(ep: &Ep, side: &mut Side<'_>, private_data: &[u8]) -> Result<()> {
    let (address, conn_qual) = side.receive_address()?;
    Ok(ep.start_connect(address, conn_qual, Some(side.patience()), private_data)?)
}

fn finds_no_listener(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    // A provider may retry for a part of the timeout, because a listener may be about to start.
    start(&ep, side, &[])?;
    expect::connection_event(&ep, &kit.connect, &[ConnectionKind::NonPeerRejected], side)?;
    side.barrier("over")
}

fn listens_no_more(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let psp = dat_api::Psp::create_any(&kit.ia, &kit.requests)?;
    let conn_qual = psp.conn_qual();
    psp.free()?;
    side.send_address(kit.address()?, conn_qual)?;
    side.barrier("over")
}

fn is_rejected(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    start(&ep, side, &[])?;
    expect::connection_event(&ep, &kit.connect, &[ConnectionKind::PeerRejected], side)?;
    side.barrier("over")
}

fn rejects(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (_psp, request) = listen(side, &kit)?;
    request.reject(&[])?;
    side.barrier("over")
}

fn drops_request(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    drop(listen(side, &kit)?);
    side.barrier("over")
}

fn accepts_too_much(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let limit = usize::try_from(kit.ia.provider_attr()?.max_private_data_size)?;
    let (_psp, request) = listen(side, &kit)?;
    match request.accept(Some(&ep), &vec![1; limit + 1]) {
        Ok(_) => bail!("the accept succeeded"),
        Err(refused) => {
            expect::refused::<()>(Err(refused.error), DAT_INVALID_PARAMETER)?;
            refused.request.reject(&[])?;
        }
    }
    expect::in_state(&ep, EpState::Unconnected)?;
    side.barrier("over")
}

fn times_out(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let (address, conn_qual) = side.receive_address()?;
    let (start, due) = (Instant::now(), Duration::from_millis(400));
    ep.start_connect(address, conn_qual, Some(due), &[])?;
    expect::connection_event(&ep, &kit.connect, &[ConnectionKind::TimedOut], side)?;
    expect::took(start.elapsed(), due, side)?;
    side.barrier("over")
}

fn never_answers(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let asked = listen(side, &kit)?;
    side.barrier("over")?;
    drop(asked);
    Ok(())
}

fn unreachable(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    // The prefix is reserved for documentation (RFC 5737), so no host has the address.
    let nowhere = "203.0.113.77:0".parse()?;
    ep.start_connect(nowhere, 7777, Some(Duration::from_millis(700)), &[])?;
    // A router on the way may answer for the address.
    let kinds = [
        ConnectionKind::Unreachable,
        ConnectionKind::TimedOut,
        ConnectionKind::NonPeerRejected,
    ];
    expect::connection_event(&ep, &kit.connect, &kinds, side)?;
    Ok(())
}

fn tries_again(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let (address, conn_qual) = side.receive_address()?;
    let patience = Some(side.patience());
    ep.start_connect(address, conn_qual, patience, &[])?;
    expect::connection_event(&ep, &kit.connect, &[ConnectionKind::PeerRejected], side)?;
    ep.reset()?;
    ep.start_connect(address, conn_qual, patience, &[])?;
    expect::connection_event(&ep, &kit.connect, ESTABLISHED, side)?;
    side.barrier("over")
}

fn rejects_once(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let (_psp, request) = listen(side, &kit)?;
    request.reject(&[])?;
    expect::request(&kit.requests, side)?.accept(Some(&ep), &[])?;
    expect::connection_event(&ep, &kit.connect, ESTABLISHED, side)?;
    side.barrier("over")
}

fn cancels(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    start(&ep, side, &[])?;
    side.receive("asked")?;
    ep.disconnect(Close::Abrupt)?;
    expect::connection_event(&ep, &kit.connect, &[ConnectionKind::Disconnected], side)?;
    side.send("gone", &[])?;
    expect::nothing(&kit.connect, side)?;
    side.barrier("over")
}

/// The accept of a request whose peer has disconnected is refused, or its connection does not last.
fn is_cancelled(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let (_psp, request) = listen(side, &kit)?;
    side.send("asked", &[])?;
    side.receive("gone")?;
    match request.accept(Some(&ep), &[]) {
        Ok(_) => loop {
            let kind = expect::any_connection_event(&ep, &kit.connect, side)?.kind;
            if kind != ConnectionKind::Established {
                expect::in_state(&ep, EpState::Disconnected)?;
                break;
            }
        },
        Err(refused) => drop(refused.request),
    }
    side.barrier("over")
}

fn duplicates(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (first, second) = (kit.ep()?, kit.ep()?);
    start(&first, side, &[])?;
    expect::connection_event(&first, &kit.connect, ESTABLISHED, side)?;
    second.start_dup_connect(&first, Some(side.patience()), b"twin")?;
    expect::connection_event(&second, &kit.connect, ESTABLISHED, side)?;
    side.barrier("over")
}

fn accepts_twice(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (first, second) = (kit.ep()?, kit.ep()?);
    let (_psp, request) = listen(side, &kit)?;
    request.accept(Some(&first), &[])?;
    expect::connection_event(&first, &kit.connect, ESTABLISHED, side)?;
    let request = expect::request(&kit.requests, side)?;
    let data = request.private_data();
    ensure!(data.starts_with(b"twin"), "{data:?}");
    request.accept(Some(&second), &[])?;
    expect::connection_event(&second, &kit.connect, ESTABLISHED, side)?;
    side.barrier("over")
}

/// The number of connections of the following case. A provider that loses a first message loses it
/// only occasionally.
const TRIES: u64 = 10;

fn sends_at_once(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let region = kit.region(64)?;
    let (address, conn_qual) = side.receive_address()?;
    for cookie in 0..TRIES {
        let ep = kit.ep()?;
        ep.start_connect(address, conn_qual, Some(side.patience()), &[])?;
        expect::connection_event(&ep, &kit.connect, ESTABLISHED, side)?;
        ep.post_send(&[region.segment(0, 64)?], cookie, CompletionFlags::DEFAULT)?;
        expect::done(&kit.request, cookie, side)?;
        side.barrier("next")?;
        ep.disconnect(Close::Abrupt)?;
        ep.wait_disconnected(Some(side.patience()))?;
    }
    Ok(())
}

fn receives_at_once(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let region = kit.region(64)?;
    let _psp = offer(side, &kit)?;
    for cookie in 0..TRIES {
        let ep = kit.ep()?;
        ep.post_recv(&[region.segment(0, 64)?], cookie)?;
        expect::request(&kit.requests, side)?.accept(Some(&ep), &[])?;
        expect::done(&kit.recv, cookie, side).with_context(|| format!("try {cookie}"))?;
        expect::connection_event(&ep, &kit.connect, ESTABLISHED, side)?;
        side.barrier("next")?;
        ep.wait_disconnected(Some(side.patience()))?;
    }
    Ok(())
}

fn receives_first(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (ep, region) = (kit.ep()?, kit.region(64)?);
    ep.post_recv(&[region.segment(0, 64)?], 1)?;
    start(&ep, side, &[])?;
    expect::connection_event(&ep, &kit.connect, ESTABLISHED, side)?;
    expect::done(&kit.recv, 1, side)?;
    pattern::check(&region, 0, 64, 3)?;
    side.barrier("over")
}

fn sends_first(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (ep, region) = (kit.ep()?, kit.region(64)?);
    pattern::fill(&region, 0, 64, 3)?;
    let (_psp, request) = listen(side, &kit)?;
    request.accept(Some(&ep), &[])?;
    expect::connection_event(&ep, &kit.connect, ESTABLISHED, side)?;
    ep.post_send(&[region.segment(0, 64)?], 1, CompletionFlags::DEFAULT)?;
    expect::done(&kit.request, 1, side)?;
    side.barrier("over")
}

fn connects_twice(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (first, second) = (kit.ep()?, kit.ep()?);
    let (address, conn_qual) = side.receive_address()?;
    let patience = Some(side.patience());
    first.start_connect(address, conn_qual, patience, &[])?;
    expect::connection_event(&first, &kit.connect, ESTABLISHED, side)?;
    second.start_connect(address, conn_qual, patience, &[])?;
    expect::connection_event(&second, &kit.connect, &[ConnectionKind::PeerRejected], side)?;
    expect::in_state(&first, EpState::Connected)?;
    side.barrier("over")
}

fn accepts_second(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let (_psp, request) = listen(side, &kit)?;
    request.accept(Some(&ep), &[])?;
    expect::connection_event(&ep, &kit.connect, ESTABLISHED, side)?;
    let second = expect::request(&kit.requests, side)?;
    match second.accept(Some(&ep), &[]) {
        Ok(_) => bail!("a connected endpoint accepted"),
        Err(refused) => {
            expect::refused::<()>(Err(refused.error), DAT_INVALID_STATE)?;
            refused.request.reject(&[])?;
        }
    }
    expect::in_state(&ep, EpState::Connected)?;
    side.barrier("over")
}

fn connects_two(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (first, second) = (kit.ep()?, kit.ep()?);
    let (address, conn_qual) = side.receive_address()?;
    let patience = Some(side.patience());
    first.start_connect(address, conn_qual, patience, &[1])?;
    second.start_connect(address, conn_qual, patience, &[2])?;
    both_established(&first, &second, &kit, patience)?;
    side.barrier("over")
}

fn accepts_two(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (first, second) = (kit.ep()?, kit.ep()?);
    let _psp = offer(side, &kit)?;
    for ep in [&first, &second] {
        expect::request(&kit.requests, side)?.accept(Some(ep), &[])?;
    }
    let patience = Some(side.patience());
    first.wait_established(patience)?;
    second.wait_established(patience)?;
    side.barrier("over")
}

fn both_established(first: &Ep, second: &Ep, kit: &Kit, patience: Option<Duration>) -> Result<()> {
    // Each wait consumes its own endpoint's event and not the other endpoint's.
    second.wait_established(patience)?;
    first.wait_established(patience)?;
    ensure!(kit.connect.dequeue()?.is_none(), "a third connection event");
    Ok(())
}

/// The length of the private data that a case sends: its size, limited to what both ends support.
fn length(side: &mut Side<'_>, kit: &Kit) -> Result<usize> {
    let ours = usize::try_from(kit.ia.provider_attr()?.max_private_data_size)?;
    side.send("limit", &u64::try_from(ours)?.to_be_bytes())?;
    let theirs = side.receive("limit")?;
    let theirs = theirs.first_chunk().context("a number is incomplete")?;
    let limit = ours.min(usize::try_from(u64::from_be_bytes(*theirs))?);
    Ok(side.size.min(limit))
}

/// Checks that the received data is the sent data. Providers whose transport carries only buffers
/// of one length may append zeros.
fn same_data(received: &[u8], seed: u8, len: usize) -> Result<()> {
    ensure!(received.len() >= len, "{} bytes of {len}", received.len());
    let (data, rest) = received.split_at(len);
    ensure!(data == pattern::bytes(seed, len), "the bytes differ");
    ensure!(
        rest.iter().all(|byte| *byte == 0),
        "{} bytes more than {len}",
        rest.len()
    );
    Ok(())
}

fn sends_data(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let len = length(side, &kit)?;
    start(&ep, side, &pattern::bytes(1, len))?;
    let event = expect::connection_event(&ep, &kit.connect, ESTABLISHED, side)?;
    same_data(&event.private_data, 2, len).context("of the accept")?;
    side.barrier("over")
}

fn answers(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let len = length(side, &kit)?;
    let (psp, request) = listen(side, &kit)?;
    same_data(request.private_data(), 1, len).context("of the connect")?;
    let is_whole = !request.is_truncated();
    ensure!(is_whole, "the private data is reported as truncated");
    ensure!(request.conn_qual() == psp.conn_qual(), "another qualifier");
    ensure!(request.service_point() == psp.id(), "another service point");
    request.accept(Some(&ep), &pattern::bytes(2, len))?;
    let event = expect::connection_event(&ep, &kit.connect, ESTABLISHED, side)?;
    let is_empty = event.private_data.is_empty();
    ensure!(is_empty, "private data at the accepting end");
    side.barrier("over")
}

fn sends_data_and_is_rejected(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let len = length(side, &kit)?;
    start(&ep, side, &pattern::bytes(1, len))?;
    let event = expect::connection_event(&ep, &kit.connect, &[ConnectionKind::PeerRejected], side)?;
    same_data(&event.private_data, 2, len).context("of the rejection")?;
    side.barrier("over")
}

fn rejects_with(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let len = length(side, &kit)?;
    let (_psp, request) = listen(side, &kit)?;
    same_data(request.private_data(), 1, len).context("of the connect")?;
    request.reject(&pattern::bytes(2, len))?;
    side.barrier("over")
}
