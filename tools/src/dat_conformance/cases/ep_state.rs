//! The calls that an endpoint accepts in each state, as a table.

use anyhow::{Context, Result, bail, ensure};
use dat_api::abi::*;
use dat_api::{Close, CompletionFlags, ConnectionKind, Cr, Ep, EpState, Psp, RemoteRegion, Rsp};

use crate::case::cases;
use crate::expect;
use crate::kit::Kit;
use crate::link::{Link, offer};
use crate::raw;
use crate::side::Side;

cases! { pub(super) fn cases:
    "ep-state/unconnected": "the calls that a new endpoint permits" => unconnected, does_nothing;
    "ep-state/reserved":
        "the calls that an endpoint permits while it is reserved by a service point" =>
        reserved, does_nothing;
    "ep-state/passive": "the calls that an endpoint permits while its request is unanswered" =>
        asks, passive;
    "ep-state/active": "the calls that an endpoint permits while it connects" =>
        active, leaves_unanswered;
    "ep-state/connected": "the calls that an endpoint permits while it is connected" =>
        connected, stays_connected;
    "ep-state/disconnected": "the calls that an endpoint permits after its connection" =>
        disconnected, stays_connected;
    "ep-state/walk": "an endpoint passes through its states in order" => walks, walks_along;
}

/// Calls that a state refuses, or accepts without a change of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Connect,
    Reserve,
    Disconnect,
    Reset,
    Free,
    Send,
    Write,
    Read,
    Recv,
    Modify,
}

use Call::*;

const ALL: [Call; 10] = [
    Connect, Reserve, Disconnect, Reset, Free, Send, Write, Read, Recv, Modify,
];

/// For each state the calls that it refuses, and those that succeed without a change of state.
/// Calls in neither list lead to another state.
const TABLE: &[(EpState, &[Call], &[Call])] = &[
    (
        EpState::Unconnected,
        &[Disconnect, Send, Write, Read],
        &[Reset, Recv, Modify],
    ),
    (
        EpState::Reserved,
        &[Connect, Reserve, Disconnect, Reset, Free, Send, Write, Read],
        &[Recv],
    ),
    (
        EpState::PassiveConnectionPending,
        &[
            Connect, Reserve, Disconnect, Reset, Free, Send, Write, Read, Modify,
        ],
        &[Recv],
    ),
    (
        EpState::ActiveConnectionPending,
        &[Connect, Reserve, Reset, Send, Write, Read, Modify],
        &[Recv],
    ),
    (
        EpState::Connected,
        &[Connect, Reserve, Reset, Modify],
        &[Recv],
    ),
    (
        EpState::Disconnected,
        &[Connect, Reserve, Modify],
        &[Disconnect, Recv, Send, Write, Read],
    ),
];

/// Makes every call of the table on an endpoint in `state`.
fn holds(ep: &Ep, kit: &Kit, state: EpState, side: &Side<'_>) -> Result<()> {
    expect::in_state(ep, state)?;
    let row = TABLE.iter().find(|row| row.0 == state);
    let (_, refused, taken) = row.context("a state that is not in the table")?;
    for call in ALL {
        let situation = || format!("{call:?} while {state:?}");
        if refused.contains(&call) {
            let result = make(call, ep, kit, side);
            expect::refused(result, DAT_INVALID_STATE).with_context(situation)?;
        } else if taken.contains(&call) {
            make(call, ep, kit, side).with_context(situation)?;
        }
        expect::in_state(ep, state).with_context(situation)?;
    }
    Ok(())
}

fn make(call: Call, ep: &Ep, kit: &Kit, side: &Side<'_>) -> Result<()> {
    let region = kit.region(64)?;
    let segment = [region.segment(0, 64)?];
    let remote = RemoteRegion {
        addr: 0,
        len: 64,
        context: 0,
    };
    let (flags, patience) = (CompletionFlags::DEFAULT, Some(side.patience()));
    match call {
        Connect => ep.start_connect(kit.address()?, 1, patience, &[])?,
        Reserve => drop(Rsp::create(ep, free_qualifier(kit)?, &kit.requests)?),
        Disconnect => ep.disconnect(Close::Abrupt)?,
        Reset => ep.reset()?,
        Free => raw::ep_free(ep.as_raw())?,
        Send => ep.post_send(&segment, 1, flags)?,
        Write => ep.post_rdma_write(&segment, remote, 2, flags)?,
        Read => ep.post_rdma_read(&segment, remote, 3, flags)?,
        Recv => ep.post_recv(&segment, 4)?,
        Modify => ep.set_attr(&crate::kit::attr())?,
    }
    Ok(())
}

/// A qualifier that currently has no listener.
fn free_qualifier(kit: &Kit) -> Result<u64> {
    Ok(Psp::create_any(&kit.ia, &kit.requests)?.conn_qual())
}

fn does_nothing(_: &mut Side<'_>) -> Result<()> {
    Ok(())
}

fn unconnected(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    holds(&kit.ep()?, &kit, EpState::Unconnected, side)
}

fn reserved(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let rsp = Rsp::create(&ep, free_qualifier(&kit)?, &kit.requests)?;
    holds(&ep, &kit, EpState::Reserved, side)?;
    drop(rsp);
    expect::in_state(&ep, EpState::Unconnected)
}

/// The client of an endpoint that waits at a reserved service point.
fn asks(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let (address, conn_qual) = side.receive_address()?;
    ep.start_connect(address, conn_qual, Some(side.patience()), &[])?;
    let event = expect::any_connection_event(&ep, &kit.connect, side)?;
    let kind = event.kind;
    ensure!(kind == ConnectionKind::PeerRejected, "{kind:?}");
    side.barrier("over")
}

fn passive(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let conn_qual = free_qualifier(&kit)?;
    let _rsp = Rsp::create(&ep, conn_qual, &kit.requests)?;
    side.send_address(kit.address()?, conn_qual)?;
    let request: Cr = expect::request(&kit.requests, side)?;
    holds(&ep, &kit, EpState::PassiveConnectionPending, side)?;
    request.reject(&[])?;
    expect::in_state(&ep, EpState::Unconnected)?;
    side.barrier("over")
}

fn active(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let (address, conn_qual) = side.receive_address()?;
    ep.start_connect(address, conn_qual, Some(side.limit), &[])?;
    side.receive("asked")?;
    holds(&ep, &kit, EpState::ActiveConnectionPending, side)?;
    ep.disconnect(Close::Abrupt)?;
    let ends = [ConnectionKind::Disconnected];
    expect::connection_event(&ep, &kit.connect, &ends, side)?;
    side.barrier("over")
}

fn leaves_unanswered(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let _psp = offer(side, &kit)?;
    let request = expect::request(&kit.requests, side)?;
    side.send("asked", &[])?;
    side.barrier("over")?;
    // The client has closed, and a rejection that cannot be delivered is no fault.
    drop(request);
    Ok(())
}

fn connected(link: Link, side: &mut Side<'_>) -> Result<()> {
    holds(&link.ep, &link.kit, EpState::Connected, side)?;
    side.barrier("over")
}

fn stays_connected(link: Link, side: &mut Side<'_>) -> Result<()> {
    side.barrier("over")?;
    drop(link);
    Ok(())
}

fn disconnected(link: Link, side: &mut Side<'_>) -> Result<()> {
    link.ep.disconnect(Close::Abrupt)?;
    link.ep.wait_disconnected(Some(side.patience()))?;
    holds(&link.ep, &link.kit, EpState::Disconnected, side)?;
    side.barrier("over")
}

fn walks(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    expect::in_state(&ep, EpState::Unconnected)?;
    let (address, conn_qual) = side.receive_address()?;
    ep.start_connect(address, conn_qual, Some(side.patience()), &[])?;
    side.receive("asked")?;
    expect::in_state(&ep, EpState::ActiveConnectionPending)?;
    side.send("accept", &[])?;
    expect::connection_event(&ep, &kit.connect, &[ConnectionKind::Established], side)?;
    ep.disconnect(Close::Abrupt)?;
    expect::connection_event(&ep, &kit.connect, &[ConnectionKind::Disconnected], side)?;
    ep.reset()?;
    expect::in_state(&ep, EpState::Unconnected)?;
    side.barrier("over")
}

fn walks_along(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let _psp = offer(side, &kit)?;
    let request = expect::request(&kit.requests, side)?;
    side.send("asked", &[])?;
    side.receive("accept")?;
    request.accept(Some(&ep), &[])?;
    let state = ep.state()?;
    if !matches!(
        state,
        EpState::CompletionPending
            | EpState::Connected
            | EpState::DisconnectPending
            | EpState::Disconnected
    ) {
        bail!("the endpoint is {state:?} after the accept");
    }
    // The other end may disconnect before the handshake is complete here.
    let kind = ep.wait_established(Some(side.patience()));
    if kind.is_ok() {
        let kind = ep.wait_disconnected(Some(side.patience()))?;
        ensure!(kind == ConnectionKind::Disconnected, "{kind:?}");
    }
    expect::in_state(&ep, EpState::Disconnected)?;
    side.barrier("over")
}
