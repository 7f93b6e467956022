//! Service points and their connection requests.

use anyhow::{Context, Result, bail, ensure};
use dat_api::abi::*;
use dat_api::{Close, ConnectionKind, Csp, Ep, EpState, Psp, Rsp};

use crate::case::cases;
use crate::expect;
use crate::kit::Kit;
use crate::link::{listen, offer};
use crate::side::Side;

cases! { pub(super) fn cases:
    "psp/any": "each service point gets a connection qualifier of its own" => any;
    "psp/in-use": "a connection qualifier belongs to one service point" => in_use;
    "psp/again": "the qualifier of a freed service point can be used again" => again;
    "psp/wrong-evd": "connection requests need an EVD with the request flag" => wrong_evd;
    "rsp/release": "an endpoint is unconnected again after its service point is freed" => release;
    "rsp/busy": "an endpoint can be reserved by one service point only" => busy;
    "csp/address": "a query of a common service point returns its address" => csp_address;
    "csp/in-use": "an address belongs to one common service point" => csp_in_use;
    "psp/named": "a service point uses the qualifier that the consumer chose" => connects, named;
    "psp/freed-first": "a request outlives its service point" => connects, frees_first;
    "psp/several": "a service point accepts one peer after another" =>
        connects_thrice, accepts_thrice;
    "psp/origin": "a request reports the peer's address" => connects_and_sends_address, sees_origin;
    "psp/handoff": "a request can be handed to another service point" => connects, hands_off;
    "psp/handoff-to-process": "a request moves to another process of the host, or stays" =>
        connects_and_listens, hands_to_process;
    "rsp/accept": "accepting a request connects the reserved endpoint" => connects, rsp_accept;
    "rsp/once": "a reserved service point delivers one request" => connects_once, rsp_once;
    "rsp/reject": "a rejection releases the reserved endpoint" => is_rejected, rsp_reject;
    "csp/accept": "an endpoint connects to a common service point" =>
        connects_to_address, csp_accept;
}

fn any(kit: Kit) -> Result<()> {
    let psps: Vec<Psp> = (0..16)
        .map(|_| Psp::create_any(&kit.ia, &kit.requests))
        .collect::<dat_api::Result<_>>()?;
    let mut quals: Vec<u64> = psps.iter().map(Psp::conn_qual).collect();
    quals.sort_unstable();
    quals.dedup();
    ensure!(quals.len() == 16 && !quals.contains(&0), "{quals:?}");
    Ok(())
}

fn in_use(kit: Kit) -> Result<()> {
    let psp = Psp::create_any(&kit.ia, &kit.requests)?;
    let second = Psp::create(&kit.ia, psp.conn_qual(), &kit.requests);
    expect::refused(second, DAT_CONN_QUAL_IN_USE)
}

fn again(kit: Kit) -> Result<()> {
    let psp = Psp::create_any(&kit.ia, &kit.requests)?;
    let conn_qual = psp.conn_qual();
    psp.free()?;
    for _ in 0..3 {
        Psp::create(&kit.ia, conn_qual, &kit.requests)?.free()?;
    }
    Ok(())
}

fn wrong_evd(kit: Kit) -> Result<()> {
    expect::refused(Psp::create_any(&kit.ia, &kit.recv), DAT_INVALID_HANDLE)
}

/// A qualifier that is currently unused.
fn free_qualifier(kit: &Kit) -> Result<u64> {
    Ok(Psp::create_any(&kit.ia, &kit.requests)?.conn_qual())
}

fn release(kit: Kit) -> Result<()> {
    let ep = kit.ep()?;
    for _ in 0..3 {
        let rsp = Rsp::create(&ep, free_qualifier(&kit)?, &kit.requests)?;
        expect::in_state(&ep, EpState::Reserved)?;
        drop(rsp);
        expect::in_state(&ep, EpState::Unconnected)?;
    }
    Ok(())
}

fn busy(kit: Kit) -> Result<()> {
    let ep = kit.ep()?;
    let _rsp = Rsp::create(&ep, free_qualifier(&kit)?, &kit.requests)?;
    let second = Rsp::create(&ep, free_qualifier(&kit)?, &kit.requests);
    expect::refused(second.map(drop), DAT_INVALID_STATE)
}

fn csp_address(kit: Kit) -> Result<()> {
    let mut place = kit.address()?;
    place.set_port(0);
    let csp = Csp::create(&kit.ia, place, &kit.requests)?;
    let address = csp.address();
    let is_there = address.ip() == place.ip() && address.port() != 0;
    ensure!(is_there, "{address}");
    Ok(())
}

fn csp_in_use(kit: Kit) -> Result<()> {
    let mut place = kit.address()?;
    place.set_port(0);
    let csp = Csp::create(&kit.ia, place, &kit.requests)?;
    let second = Csp::create(&kit.ia, csp.address(), &kit.requests);
    expect::refused_with(second, &[DAT_CONN_QUAL_IN_USE, DAT_PORT_IN_USE])
}

fn connect_one(kit: &Kit, side: &mut Side<'_>) -> Result<Ep> {
    let ep = kit.ep()?;
    let (address, conn_qual) = side.receive_address()?;
    ep.start_connect(address, conn_qual, Some(side.patience()), b"hello")?;
    expect::connection_event(&ep, &kit.connect, &[ConnectionKind::Established], side)?;
    Ok(ep)
}

fn connects(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let _ep = connect_one(&kit, side)?;
    side.barrier("over")
}

/// Accepts and waits until the connection is established.
fn accept(request: dat_api::Cr, kit: &Kit, side: &Side<'_>) -> Result<Ep> {
    let ep = kit.ep()?;
    request.accept(Some(&ep), &[])?;
    expect::connection_event(&ep, &kit.connect, &[ConnectionKind::Established], side)?;
    Ok(ep)
}

fn named(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let conn_qual = free_qualifier(&kit)?;
    let psp = Psp::create(&kit.ia, conn_qual, &kit.requests)?;
    side.send_address(kit.address()?, conn_qual)?;
    let request = expect::request(&kit.requests, side)?;
    ensure!(request.conn_qual() == conn_qual, "another qualifier");
    ensure!(request.service_point() == psp.id(), "another service point");
    let _ep = accept(request, &kit, side)?;
    side.barrier("over")
}

fn frees_first(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (psp, request) = listen(side, &kit)?;
    psp.free()?;
    let _ep = accept(request, &kit, side)?;
    side.barrier("over")
}

fn connects_thrice(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (address, conn_qual) = side.receive_address()?;
    for _ in 0..3 {
        let ep = kit.ep()?;
        ep.start_connect(address, conn_qual, Some(side.patience()), &[])?;
        expect::connection_event(&ep, &kit.connect, &[ConnectionKind::Established], side)?;
        side.barrier("next")?;
        ep.disconnect(Close::Abrupt)?;
        expect::connection_event(&ep, &kit.connect, &[ConnectionKind::Disconnected], side)?;
    }
    Ok(())
}

fn accepts_thrice(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let _psp = offer(side, &kit)?;
    for _ in 0..3 {
        let request = expect::request(&kit.requests, side)?;
        let ep = accept(request, &kit, side)?;
        side.barrier("next")?;
        // Each connection is closed before the next one begins.
        ep.wait_disconnected(Some(side.patience()))?;
    }
    Ok(())
}

fn connects_and_sends_address(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let _ep = connect_one(&kit, side)?;
    side.send_address(kit.address()?, 0)?;
    side.barrier("over")
}

fn sees_origin(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (_psp, request) = listen(side, &kit)?;
    let origin = request
        .remote()
        .context("the request does not report the address of its origin")?;
    let _ep = accept(request, &kit, side)?;
    let (client, _) = side.receive_address()?;
    ensure!(origin.ip() == client.ip(), "{origin} instead of {client}");
    side.barrier("over")
}

fn hands_off(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let other = Psp::create_any(&kit.ia, &kit.requests)?;
    let (_psp, request) = listen(side, &kit)?;
    request.handoff(other.conn_qual())?;
    let request = expect::request(&kit.requests, side)?;
    ensure!(
        request.service_point() == other.id(),
        "the request is not at the other service point"
    );
    let is_kept = request.private_data().starts_with(b"hello");
    ensure!(is_kept, "the private data is lost");
    let _ep = accept(request, &kit, side)?;
    side.barrier("over")
}

/// The requester's process also listens, and may receive its own request.
fn connects_and_listens(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let psp = Psp::create_any(&kit.ia, &kit.requests)?;
    side.send_address(kit.address()?, psp.conn_qual())?;
    let ep = kit.ep()?;
    let (address, conn_qual) = side.receive_address()?;
    ep.start_connect(address, conn_qual, Some(side.patience()), b"hello")?;
    let mut accepted = None;
    if side.receive("handoff")? == b"moved" {
        let request = expect::request(&kit.requests, side)?;
        let (sp, qual) = (request.service_point(), request.conn_qual());
        let is_here = sp == psp.id() && qual == psp.conn_qual();
        ensure!(is_here, "the request is not at the service point");
        let is_kept = request.private_data().starts_with(b"hello");
        ensure!(is_kept, "the private data is lost");
        accepted = Some(request.accept(Some(&kit.ep()?), &[])?);
    }
    for ep in accepted.iter().chain([&ep]) {
        ep.wait_established(Some(side.patience()))?;
    }
    side.barrier("over")
}

fn hands_to_process(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (requester, conn_qual) = side.receive_address()?;
    let (_psp, request) = listen(side, &kit)?;
    let mut kept = Some(request);
    // A qualifier names a service of this host.
    if requester.ip() == kit.address()?.ip()
        && let Some(request) = kept.take()
        && let Err(refused) = request.handoff(conn_qual)
    {
        kept = Some(*refused.request);
        expect::refused(Err::<(), _>(refused.error), DAT_INVALID_PARAMETER)?;
    }
    let moved: &[u8] = if kept.is_none() { b"moved" } else { b"stays" };
    side.send("handoff", moved)?;
    let _ep = kept
        .map(|request| accept(request, &kit, side))
        .transpose()?;
    side.barrier("over")
}

fn reserve(kit: &Kit, side: &mut Side<'_>) -> Result<(Ep, Rsp)> {
    let ep = kit.ep()?;
    let conn_qual = free_qualifier(kit)?;
    let rsp = Rsp::create(&ep, conn_qual, &kit.requests)?;
    side.send_address(kit.address()?, conn_qual)?;
    Ok((ep, rsp))
}

fn rsp_accept(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (ep, rsp) = reserve(&kit, side)?;
    let request = expect::request(&kit.requests, side)?;
    ensure!(request.service_point() == rsp.id(), "another service point");
    expect::in_state(&ep, EpState::PassiveConnectionPending)?;
    request.accept(None, &[])?;
    expect::connection_event(&ep, &kit.connect, &[ConnectionKind::Established], side)?;
    drop(rsp);
    expect::in_state(&ep, EpState::Connected)?;
    side.barrier("over")
}

fn connects_once(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (address, conn_qual) = side.receive_address()?;
    let (first, second) = (kit.ep()?, kit.ep()?);
    let patience = Some(side.patience());
    first.start_connect(address, conn_qual, patience, &[])?;
    expect::connection_event(&first, &kit.connect, &[ConnectionKind::Established], side)?;
    second.start_connect(address, conn_qual, patience, &[])?;
    expect::connection_event(
        &second,
        &kit.connect,
        &[ConnectionKind::NonPeerRejected],
        side,
    )?;
    side.barrier("over")
}

fn rsp_once(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (ep, _rsp) = reserve(&kit, side)?;
    expect::request(&kit.requests, side)?.accept(None, &[])?;
    expect::connection_event(&ep, &kit.connect, &[ConnectionKind::Established], side)?;
    side.barrier("over")?;
    if let Some(event) = kit.requests.dequeue()? {
        bail!("{event:?} at a service point whose request was already delivered");
    }
    Ok(())
}

fn is_rejected(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let (address, conn_qual) = side.receive_address()?;
    ep.start_connect(address, conn_qual, Some(side.patience()), &[])?;
    expect::connection_event(&ep, &kit.connect, &[ConnectionKind::PeerRejected], side)?;
    side.barrier("over")
}

fn rsp_reject(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (ep, _rsp) = reserve(&kit, side)?;
    expect::request(&kit.requests, side)?.reject(&[])?;
    expect::in_state(&ep, EpState::Unconnected)?;
    side.barrier("over")
}

fn connects_to_address(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let (address, _) = side.receive_address()?;
    ep.start_common_connect(address, Some(side.patience()), b"hello")?;
    expect::connection_event(&ep, &kit.connect, &[ConnectionKind::Established], side)?;
    side.barrier("over")
}

fn csp_accept(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let mut place = kit.address()?;
    place.set_port(0);
    let csp = Csp::create(&kit.ia, place, &kit.requests)?;
    side.send_address(csp.address(), 0)?;
    let request = expect::request(&kit.requests, side)?;
    ensure!(request.service_point() == csp.id(), "another service point");
    let is_kept = request.private_data().starts_with(b"hello");
    ensure!(is_kept, "the private data is lost");
    let _ep = accept(request, &kit, side)?;
    side.barrier("over")
}
