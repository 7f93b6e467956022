//! Keys that the peer invalidates. The windows are bound to one endpoint: devices that distinguish
//! the kinds of windows let a peer invalidate only these.

use anyhow::{Result, ensure};
use dat_api::abi::*;
use dat_api::{CompletionFlags, ConnectionKind, DtoStatus, Privileges, RemoteRegion, Rmr};

use super::rdma::{receive_region, send_region};
use crate::case::cases;
use crate::expect;
use crate::link::Link;
use crate::pattern;
use crate::raw;
use crate::side::Side;

cases! { pub(super) fn cases:
    "invalidate/reported": "the receiver's completion names the window that the peer invalidated" =>
        invalidates, is_notified;
    "invalidate/closed": "an invalidated window permits no access" =>
        invalidates_and_writes, stays_closed;
    "invalidate/bound-again": "an invalidated window can be bound again" =>
        invalidates, binds_again;
    "invalidate/wrong-key": "invalidating a key that does not exist is an error" =>
        invalidates_wrong, is_broken;
    "invalidate/read-to-window": "a Read stores its data through a window" =>
        reads_to_window, offers;
}

const LEN: usize = 512;

fn bind(
    link: &Link,
    window: &Rmr,
    region: &dat_api::Region,
    side: &Side<'_>,
) -> Result<RemoteRegion> {
    let rights = Privileges::REMOTE_READ | Privileges::REMOTE_WRITE;
    let remote = window.bind(&link.ep, region, 0, LEN, rights, 7)?;
    expect::bound(&link.kit.request, 7, side)?;
    Ok(remote)
}

fn send(link: &Link, key: u32, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(LEN)?;
    pattern::fill(&region, 0, LEN, 4)?;
    let segment = [region.segment(0, LEN)?];
    let flags = CompletionFlags::DEFAULT;
    link.ep.post_send_with_invalidate(&segment, key, 1, flags)?;
    expect::done(&link.kit.request, 1, side).map(drop)
}

fn invalidates(link: Link, side: &mut Side<'_>) -> Result<()> {
    let remote = receive_region(side)?;
    send(&link, remote.context, side)?;
    side.barrier("over")
}

/// Binds a window, sends its key, and receives the message that invalidates the key.
fn bind_and_lose(link: &Link, window: &Rmr, side: &mut Side<'_>) -> Result<()> {
    let (region, message) = (link.kit.region(LEN)?, link.kit.region(LEN)?);
    let remote = bind(link, window, &region, side)?;
    link.recv(&message, 0, LEN, 1)?;
    send_region(side, remote)?;
    let received = expect::done(&link.kit.recv, 1, side)?;
    let operation = received.operation;
    ensure!(operation == DAT_DTO_RECEIVE_WITH_INVALIDATE);
    ensure!(received.invalidated == Some(remote.context));
    pattern::check(&message, 0, LEN, 4)
}

fn is_notified(link: Link, side: &mut Side<'_>) -> Result<()> {
    let window = Rmr::create_for_ep(&link.kit.pz)?;
    bind_and_lose(&link, &window, side)?;
    side.barrier("over")
}

fn binds_again(link: Link, side: &mut Side<'_>) -> Result<()> {
    let window = Rmr::create_for_ep(&link.kit.pz)?;
    bind_and_lose(&link, &window, side)?;
    let region = link.kit.region(LEN)?;
    bind(&link, &window, &region, side)?;
    side.barrier("over")
}

/// The connection events after one end broke the connection.
const ENDED: &[ConnectionKind] = &[ConnectionKind::Broken, ConnectionKind::Disconnected];

fn invalidates_and_writes(link: Link, side: &mut Side<'_>) -> Result<()> {
    let remote = receive_region(side)?;
    send(&link, remote.context, side)?;
    let region = link.kit.region(LEN)?;
    link.write(&region, 0, remote, 2)?;
    let status = expect::completion(&link.kit.request, side)?.status;
    let is_allowed = matches!(status, DtoStatus::RemoteAccess | DtoStatus::Success);
    ensure!(is_allowed, "the Write ended as {status:?}");
    expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
    side.barrier("over")
}

fn stays_closed(link: Link, side: &mut Side<'_>) -> Result<()> {
    let window = Rmr::create_for_ep(&link.kit.pz)?;
    bind_and_lose(&link, &window, side)?;
    expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
    side.barrier("over")
}

fn invalidates_wrong(link: Link, side: &mut Side<'_>) -> Result<()> {
    side.receive("posted")?;
    let region = link.kit.region(LEN)?;
    let segment = [region.segment(0, LEN)?];
    let flags = CompletionFlags::DEFAULT;
    link.ep
        .post_send_with_invalidate(&segment, 0x5A5A_5A00, 1, flags)?;
    expect::completion(&link.kit.request, side)?;
    expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
    side.barrier("over")
}

fn is_broken(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(LEN)?;
    link.recv(&region, 0, LEN, 1)?;
    side.send("posted", &[])?;
    let received = expect::completion(&link.kit.recv, side)?;
    ensure!(
        !received.status.is_success(),
        "the message was received, although the key does not exist"
    );
    expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
    side.barrier("over")
}

fn reads_to_window(link: Link, side: &mut Side<'_>) -> Result<()> {
    let remote = receive_region(side)?;
    let (window, region) = (Rmr::create_for_ep(&link.kit.pz)?, link.kit.region(LEN)?);
    let sink = bind(&link, &window, &region, side)?;
    raw::post_read_to_window(&link.ep, sink, remote, 2)?;
    expect::done(&link.kit.request, 2, side)?;
    pattern::check(&region, 0, LEN, 4)?;
    side.barrier("over")
}

fn offers(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(LEN)?;
    pattern::fill(&region, 0, LEN, 4)?;
    send_region(side, region.remote())?;
    side.barrier("over")
}
