//! Protection: operations that one end does not permit fail at the other end, and the effects on
//! both ends.

use anyhow::{Context, Result, bail, ensure};
use dat_api::abi::*;
use dat_api::{
    Close, CompletionFlags, ConnectionKind, DtoStatus, EpState, Event, Privileges, Pz, Region,
    RemoteRegion,
};

use super::rdma::{receive_region, send_region};
use crate::case::cases;
use crate::expect;
use crate::link::Link;
use crate::pattern;
use crate::side::Side;

cases! { pub(super) fn cases:
    "protection/write-right": "a Write into memory without remote write privilege fails" =>
        write_fails(unchanged), offers(Privileges::REMOTE_READ), each way;
    "protection/read-right": "a Read of memory without remote read privilege fails" =>
        read_fails(unchanged), offers(Privileges::REMOTE_WRITE), each way;
    "protection/write-beyond": "a Write beyond the end of a region fails" =>
        write_fails(one_beyond_the_end), offers(Privileges::ALL), each way;
    "protection/read-beyond": "a Read beyond the end of a region fails" =>
        read_fails(|remote| remote.len += 1), offers(Privileges::ALL), each way;
    "protection/write-before": "a Write before the beginning of a region fails" =>
        write_fails(before_the_begin), offers(Privileges::ALL), each way;
    "protection/write-key": "a Write with a key that does not exist fails" =>
        write_fails(spoil_key), offers(Privileges::ALL), each way;
    "protection/read-key": "a Read with a key that does not exist fails" =>
        read_fails(spoil_key), offers(Privileges::ALL), each way;
    "protection/write-freed": "a Write with the key of a freed region fails" =>
        write_fails(unchanged), offers_freed, each way;
    "protection/read-freed": "a Read with the key of a freed region fails" =>
        read_fails(unchanged), offers_freed, each way;
    "protection/write-zone": "a Write into memory of another protection zone fails" =>
        write_fails(unchanged), offers_other_zone, each way;
    "protection/read-zone": "a Read of memory of another protection zone fails" =>
        read_fails(unchanged), offers_other_zone, each way;
    "protection/short-receive": "a message longer than its receive is an error" =>
        sends_long, receives_short, each way;
    "protection/no-receive": "a message without a receive waits for one or ends the connection" =>
        sends_unexpected, receives_late, each way;
    "protection/recv-right": "a receive into memory without local write privilege fails" =>
        sends_to_unwritable, receives_without_right;
    "protection/read-sink": "a Read into memory without local write privilege fails" =>
        reads_without_right, offers_quietly;
    "protection/local-beyond": "a Send from memory beyond the end of a region fails" =>
        sends_segment(|segment| segment.virtual_address += 1), receives_nothing;
    "protection/local-key": "a Send with a key that does not exist fails" =>
        sends_segment(|segment| segment.lmr_context ^= 0x5A5A_5A00), receives_nothing;
    "protection/flushes": "work posted after work that failed is flushed" =>
        fails_and_flushes, offers(Privileges::ALL);
    "protection/recovers": "both ends connect again after an error" => fails_and_recovers, recovers;
}

const LEN: usize = 4096;

/// The connection events after an error, at the end that caused the error.
const BROKEN: &[ConnectionKind] = &[ConnectionKind::Broken];

/// The connection events at the other end: its own transport detected the error, or the peer
/// disconnected.
const ENDED: &[ConnectionKind] = &[ConnectionKind::Broken, ConnectionKind::Disconnected];

fn offer_and_watch(
    link: &Link,
    region: &Region,
    remote: RemoteRegion,
    side: &mut Side<'_>,
) -> Result<()> {
    pattern::fill(region, 0, region.len(), 3)?;
    send_region(side, remote)?;
    expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
    pattern::check(region, 0, region.len(), 3)?;
    side.barrier("over")
}

fn offers(remote: Privileges) -> impl Fn(Link, &mut Side<'_>) -> Result<()> {
    move |link, side| {
        let region = link.kit.region_with(LEN, Privileges::LOCAL | remote)?;
        offer_and_watch(&link, &region, region.remote(), side)
    }
}

fn offers_freed(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(LEN)?;
    let remote = link.kit.region(LEN)?.remote();
    offer_and_watch(&link, &region, remote, side)
}

fn offers_other_zone(link: Link, side: &mut Side<'_>) -> Result<()> {
    let other = Pz::create(&link.kit.ia)?;
    let region = Region::create(&other, LEN, Privileges::ALL)?;
    offer_and_watch(&link, &region, region.remote(), side)
}

/// The remote end refuses a Write of the memory that `change` makes of the memory that it offered.
/// The Write fails or, where Writes are not acknowledged, the connection breaks after it.
fn write_fails(change: fn(&mut RemoteRegion)) -> impl Fn(Link, &mut Side<'_>) -> Result<()> {
    move |link, side| {
        let mut remote = receive_region(side)?;
        change(&mut remote);
        let region = link.kit.region(remote.len as usize)?;
        link.write(&region, 0, remote, 1)?;
        let status = expect::completion(&link.kit.request, side)?.status;
        let is_expected = matches!(status, DtoStatus::RemoteAccess | DtoStatus::Success);
        ensure!(is_expected, "the Write ended as {status:?}");
        expect::connection_event(&link.ep, &link.kit.connect, BROKEN, side)?;
        side.barrier("over")
    }
}

/// As `write_fails`, for a Read: it fails, and no data is placed.
fn read_fails(change: fn(&mut RemoteRegion)) -> impl Fn(Link, &mut Side<'_>) -> Result<()> {
    move |link, side| {
        let mut remote = receive_region(side)?;
        change(&mut remote);
        let region = link.kit.region(remote.len as usize)?;
        link.read(&region, 0, remote, 1)?;
        expect::with_status(&link.kit.request, 1, DtoStatus::RemoteAccess, side)?;
        expect::connection_event(&link.ep, &link.kit.connect, BROKEN, side)?;
        pattern::untouched(&region, 0, region.len())?;
        side.barrier("over")
    }
}

fn unchanged(_: &mut RemoteRegion) {}

fn spoil_key(remote: &mut RemoteRegion) {
    *remote = wrong_key(*remote);
}

/// Changes the key to one that the peer has not assigned: its keys are less than a million apart.
fn wrong_key(mut remote: RemoteRegion) -> RemoteRegion {
    remote.context ^= 0x5A5A_5A00;
    remote
}

/// Names the last 64 bytes and one after them: if a Write takes several frames, the frames that fit
/// may be placed.
fn one_beyond_the_end(remote: &mut RemoteRegion) {
    remote.addr += LEN as u64 - 63;
    remote.len = 64;
}

fn before_the_begin(remote: &mut RemoteRegion) {
    remote.addr -= 8;
    remote.len = 16;
}

fn sends_long(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(1000)?;
    side.receive("posted")?;
    link.send(&region, 0, 1000, 1)?;
    // A transport with acknowledgements reports the error in the completion. Another transport may
    // have completed the Send before the error.
    expect::completion(&link.kit.request, side)?;
    expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
    side.barrier("over")
}

fn receives_short(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(2000)?;
    link.recv(&region, 0, 999, 1)?;
    side.send("posted", &[])?;
    expect::with_status(&link.kit.recv, 1, DtoStatus::LocalLength, side)?;
    expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
    pattern::untouched(&region, 999, 1001)?;
    side.barrier("over")
}

/// Either the transport waits for the receive, or both ends receive the event that the connection
/// is over.
fn sends_unexpected(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(64)?;
    link.send(&region, 0, 64, 1)?;
    side.send("sent", &[])?;
    expect::completion(&link.kit.request, side)?;
    if side.receive("received")? == [0] {
        expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
    }
    side.barrier("over")
}

fn receives_late(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(64)?;
    side.receive("sent")?;
    std::thread::sleep(side.quiet());
    link.recv(&region, 0, 64, 1)?;
    let received = expect::completion(&link.kit.recv, side)?;
    let is_received = received.status.is_success();
    side.send("received", &[u8::from(is_received)])?;
    if !is_received {
        ensure!(received.status == DtoStatus::Flushed);
        expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
    }
    side.barrier("over")
}

fn sends_to_unwritable(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(64)?;
    if side.receive("posted")? == [0] {
        return side.barrier("over");
    }
    link.send(&region, 0, 64, 1)?;
    expect::completion(&link.kit.request, side)?;
    expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
    side.barrier("over")
}

/// The missing right is detected when the receive is posted, or when a message is received.
fn receives_without_right(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region_with(64, Privileges::LOCAL_READ)?;
    let posted = link.ep.post_recv(&[region.segment(0, 64)?], 1);
    side.send("posted", &[u8::from(posted.is_ok())])?;
    if posted.is_err() {
        expect::refused_with(posted, REFUSALS)?;
        return side.barrier("over");
    }
    expect::with_status(&link.kit.recv, 1, DtoStatus::LocalProtection, side)?;
    expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
    pattern::untouched(&region, 0, 64)?;
    side.barrier("over")
}

/// The errors with which a post may be refused if the rights of its memory do not permit it.
const REFUSALS: &[DatReturnType] = &[
    DAT_PRIVILEGES_VIOLATION,
    DAT_PROTECTION_VIOLATION,
    DAT_INVALID_PARAMETER,
];

/// The work is refused at once, or it fails and breaks the connection.
fn fails_locally(posted: dat_api::Result<()>, link: &Link, side: &Side<'_>) -> Result<()> {
    if posted.is_err() {
        return expect::refused_with(posted, REFUSALS);
    }
    let ended = expect::completion(&link.kit.request, side)?;
    let status = ended.status;
    let local = [DtoStatus::LocalProtection, DtoStatus::LocalLength];
    ensure!(local.contains(&status), "the work ended as {status:?}");
    expect::connection_event(&link.ep, &link.kit.connect, BROKEN, side)?;
    Ok(())
}

fn reads_without_right(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region_with(64, Privileges::LOCAL_READ)?;
    let remote = receive_region(side)?;
    let segment = [region.segment(0, 64)?];
    let posted = link
        .ep
        .post_rdma_read(&segment, remote, 1, CompletionFlags::DEFAULT);
    fails_locally(posted, &link, side)?;
    pattern::untouched(&region, 0, 64)?;
    side.barrier("over")
}

fn offers_quietly(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(64)?;
    pattern::fill(&region, 0, 64, 3)?;
    send_region(side, region.remote())?;
    side.barrier("over")
}

fn sends_segment(spoil: fn(&mut DatLmrTriplet)) -> impl Fn(Link, &mut Side<'_>) -> Result<()> {
    move |link, side| {
        let region = link.kit.region(LEN)?;
        side.receive("posted")?;
        let mut segment = region.segment(0, LEN)?.to_raw();
        spoil(&mut segment);
        let posted = crate::raw::post_send(&link.ep, segment, 1);
        fails_locally(posted, &link, side)?;
        side.barrier("over")
    }
}

/// Checks that a message whose post was refused is not received.
pub(super) fn receives_nothing(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(LEN)?;
    link.recv(&region, 0, LEN, 1)?;
    side.send("posted", &[])?;
    side.barrier("over")?;
    match link.kit.recv.dequeue()? {
        Some(Event::Dto(completion)) if completion.status.is_success() => {
            bail!("a message was received")
        }
        _ => Ok(()),
    }
}

fn fails_and_flushes(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(64)?;
    let remote = wrong_key(receive_region(side)?).slice(0, 64)?;
    let segment = [region.segment(0, 64)?];
    (10..14).try_for_each(|cookie| link.recv(&region, 0, 64, cookie))?;
    for cookie in 1..=3 {
        link.ep
            .post_rdma_read(&segment, remote, cookie, CompletionFlags::DEFAULT)?;
    }
    expect::with_status(&link.kit.request, 1, DtoStatus::RemoteAccess, side)?;
    expect::with_status(&link.kit.request, 2, DtoStatus::Flushed, side)?;
    expect::with_status(&link.kit.request, 3, DtoStatus::Flushed, side)?;
    for cookie in 10..14 {
        expect::with_status(&link.kit.recv, cookie, DtoStatus::Flushed, side)?;
    }
    expect::connection_event(&link.ep, &link.kit.connect, BROKEN, side)?;
    side.barrier("over")
}

fn fails_and_recovers(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(64)?;
    let remote = wrong_key(receive_region(side)?).slice(0, 64)?;
    link.read(&region, 0, remote, 1)?;
    expect::with_status(&link.kit.request, 1, DtoStatus::RemoteAccess, side)?;
    expect::connection_event(&link.ep, &link.kit.connect, BROKEN, side)?;
    link.ep.reset()?;
    link.connect_again(side).context("connecting again")?;
    link.send(&region, 0, 64, 2)?;
    expect::done(&link.kit.request, 2, side)?;
    side.barrier("over")
}

fn recovers(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(LEN)?;
    send_region(side, region.remote())?;
    expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
    // The connection is already closed, and disconnecting it again is no error.
    link.ep.disconnect(Close::Abrupt)?;
    link.ep.reset()?;
    expect::in_state(&link.ep, EpState::Unconnected)?;
    link.recv(&region, 0, LEN, 2)?;
    link.accept_again(side)?;
    expect::done(&link.kit.recv, 2, side)?;
    side.barrier("over")
}
