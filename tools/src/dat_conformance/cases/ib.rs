//! The IB extension: immediate data, atomics, counters.

use anyhow::{Result, ensure};
use dat_api::abi::*;
use dat_api::{CompletionFlags, ConnectionKind, DtoStatus, Ia, Privileges, Region, RemoteRegion};

use super::rdma::{receive_region, send_region};
use crate::case::cases;
use crate::expect;
use crate::link::Link;
use crate::pattern;
use crate::side::Side;
use crate::verdict::Lacks;

cases! { pub(super) fn cases:
    "ib/counters": "the counters of an adapter count its operations" => counts;
    "ib/immediate": "the peer of a Write with immediate data receives a completion" =>
        writes, receives_immediate, each way;
    "ib/fetch-add": "a fetch-and-add adds to the word and returns the value before" =>
        adds, offers_number, each way;
    "ib/compare-swap": "a compare-and-swap replaces the word if it has the expected value" =>
        swaps, offers_number, each way;
    "ib/immediate-order": "immediate data arrives after the data written before it" =>
        writes_often, receives_immediate_often;
    "ib/immediate-empty": "immediate data can be sent without payload" =>
        writes_nothing, receives_immediate_alone;
    "ib/fetch-add-often": "no addition is lost when both ends add at the same time" =>
        adds_often, adds_often;
    "ib/atomic-right": "an atomic operation on memory without the privilege fails" =>
        adds_without_right, offers_without_right;
    "ib/atomic-unaligned": "an atomic operation on an unaligned word fails" =>
        adds_unaligned, offers_and_breaks;
}

/// Fails with [`Lacks`] unless the provider reports that it has this part of the extension.
fn has(ia: &Ia, name: &str, what: &'static str) -> Result<()> {
    let attrs = ia.provider_attr()?.specific;
    let found = attrs
        .iter()
        .any(|attr| attr.name == name && attr.value != "FALSE");
    ensure!(found, Lacks(what));
    Ok(())
}

fn has_immediate(link: &Link) -> Result<()> {
    has(
        &link.kit.ia,
        "DAT_IB_IMMED_DATA",
        "the provider has no immediate data",
    )
}

fn has_atomics(link: &Link) -> Result<()> {
    has(
        &link.kit.ia,
        "DAT_IB_FETCH_AND_ADD",
        "the provider has no atomic operations",
    )
}

fn counts(side: &mut Side<'_>) -> Result<()> {
    let ia = side.open()?;
    has(&ia, "DAT_COUNTERS", "the provider counts nothing")?;
    let before = ia.counters(false)?;
    let _pz = dat_api::Pz::create(&ia)?;
    let after = ia.counters(false)?;
    let made = DCNT_IA_PZ_CREATE as usize;
    ensure!(
        after[made] == before[made] + 1,
        "{} zones, then {}",
        before[made],
        after[made]
    );
    Ok(())
}

const LEN: usize = 2000;
const IMMEDIATE: u32 = 0xdead_beef;

fn writes(link: Link, side: &mut Side<'_>) -> Result<()> {
    has_immediate(&link)?;
    let region = link.kit.region(LEN)?;
    pattern::fill(&region, 0, LEN, 4)?;
    let remote = receive_region(side)?;
    write(&link, &region, LEN, remote, IMMEDIATE, side)?;
    side.barrier("over")
}

fn write(
    link: &Link,
    region: &Region,
    len: usize,
    remote: RemoteRegion,
    immediate: u32,
    side: &Side<'_>,
) -> Result<()> {
    let segment = [region.segment(0, len)?];
    let flags = CompletionFlags::DEFAULT;
    link.ep
        .post_rdma_write_immediate(&segment, remote, immediate, 1, flags)?;
    expect::done(&link.kit.request, 1, side).map(drop)
}

/// Checks that the next receive is completed by a Write of this length.
fn check_immediate(link: &Link, len: usize, immediate: u32, side: &Side<'_>) -> Result<()> {
    let received = expect::done(&link.kit.recv, 9, side)?;
    ensure!(received.immediate == Some(immediate));
    ensure!(received.transferred as usize == len);
    Ok(())
}

fn receives_immediate(link: Link, side: &mut Side<'_>) -> Result<()> {
    has_immediate(&link)?;
    let (region, message) = (link.kit.region(LEN)?, link.kit.region(64)?);
    link.recv(&message, 0, 64, 9)?;
    send_region(side, region.remote())?;
    check_immediate(&link, LEN, IMMEDIATE, side)?;
    pattern::check(&region, 0, LEN, 4)?;
    pattern::untouched(&message, 0, 64)?;
    side.barrier("over")
}

fn writes_nothing(link: Link, side: &mut Side<'_>) -> Result<()> {
    has_immediate(&link)?;
    let region = link.kit.region(LEN)?;
    let remote = receive_region(side)?.slice(0, 0)?;
    write(&link, &region, 0, remote, 7, side)?;
    side.barrier("over")
}

fn receives_immediate_alone(link: Link, side: &mut Side<'_>) -> Result<()> {
    has_immediate(&link)?;
    let (region, message) = (link.kit.region(LEN)?, link.kit.region(64)?);
    link.recv(&message, 0, 64, 9)?;
    send_region(side, region.remote())?;
    check_immediate(&link, 0, 7, side)?;
    pattern::untouched(&region, 0, LEN)?;
    side.barrier("over")
}

const ROUNDS: u32 = 20;

fn writes_often(link: Link, side: &mut Side<'_>) -> Result<()> {
    has_immediate(&link)?;
    let region = link.kit.region(LEN)?;
    let remote = receive_region(side)?;
    for round in 0..ROUNDS {
        pattern::fill(&region, 0, LEN, round as u8)?;
        side.receive("posted")?;
        write(&link, &region, LEN, remote, round, side)?;
        side.receive("seen")?;
    }
    side.barrier("over")
}

fn receives_immediate_often(link: Link, side: &mut Side<'_>) -> Result<()> {
    has_immediate(&link)?;
    let (region, message) = (link.kit.region(LEN)?, link.kit.region(64)?);
    send_region(side, region.remote())?;
    for round in 0..ROUNDS {
        link.recv(&message, 0, 64, 9)?;
        side.send("posted", &[])?;
        check_immediate(&link, LEN, round, side)?;
        pattern::check(&region, 0, LEN, round as u8)?;
        side.send("seen", &[])?;
    }
    side.barrier("over")
}

fn atomic_region(link: &Link) -> Result<Region> {
    link.kit
        .region_with(64, Privileges::ALL | Privileges::REMOTE_ATOMIC)
}

fn number(region: &Region, at: usize) -> Result<u64> {
    let bytes = region.to_vec(at, 8)?;
    let bytes = bytes.first_chunk().copied().unwrap_or_default();
    Ok(u64::from_ne_bytes(bytes))
}

/// The initial value of the number that is offered, and its offset.
const BEGIN: u64 = 1 << 40 | 5;
const AT: usize = 16;

fn offers_number(link: Link, side: &mut Side<'_>) -> Result<()> {
    has_atomics(&link)?;
    let region = atomic_region(&link)?;
    region.write(AT, &BEGIN.to_ne_bytes())?;
    send_region(side, region.remote().slice(AT as u32, 8)?)?;
    let due = side.receive("number")?;
    ensure!(
        region.to_vec(AT, 8)? == due,
        "the number is {:#x}",
        number(&region, AT)?
    );
    pattern::untouched(&region, 0, AT)?;
    pattern::untouched(&region, AT + 8, 64 - AT - 8)?;
    side.barrier("over")
}

fn adds(link: Link, side: &mut Side<'_>) -> Result<()> {
    has_atomics(&link)?;
    let result = link.kit.region(8)?;
    let remote = receive_region(side)?;
    let flags = CompletionFlags::DEFAULT;
    link.ep
        .post_fetch_add(result.segment(0, 8)?, remote, 100, 1, flags)?;
    expect::done(&link.kit.request, 1, side)?;
    ensure!(number(&result, 0)? == BEGIN);
    side.send("number", &(BEGIN + 100).to_ne_bytes())?;
    side.barrier("over")
}

fn swaps(link: Link, side: &mut Side<'_>) -> Result<()> {
    has_atomics(&link)?;
    let result = link.kit.region(8)?;
    let remote = receive_region(side)?;
    let flags = CompletionFlags::DEFAULT;
    for (cookie, words) in [(1, (BEGIN + 1, 1)), (2, (BEGIN, 77))] {
        link.ep
            .post_compare_swap(result.segment(0, 8)?, remote, words, cookie, flags)?;
        expect::done(&link.kit.request, cookie, side)?;
        ensure!(number(&result, 0)? == BEGIN);
    }
    side.send("number", &77_u64.to_ne_bytes())?;
    side.barrier("over")
}

/// Each end adds to the other end's number, both at the same time, and both numbers must be correct
/// at the end. For two initiators that add to one number, the client would need one more
/// connection, to itself.
fn adds_often(link: Link, side: &mut Side<'_>) -> Result<()> {
    const TIMES: u64 = 50;
    has_atomics(&link)?;
    let (region, result) = (atomic_region(&link)?, link.kit.region(8)?);
    send_region(side, region.remote().slice(0, 8)?)?;
    let remote = receive_region(side)?;
    for cookie in 0..TIMES {
        let sink = result.segment(0, 8)?;
        link.ep
            .post_fetch_add(sink, remote, 3, cookie, CompletionFlags::DEFAULT)?;
        expect::done(&link.kit.request, cookie, side)?;
        ensure!(
            number(&result, 0)? == 3 * cookie,
            "{} at {cookie}",
            number(&result, 0)?
        );
    }
    side.barrier("added")?;
    ensure!(
        number(&region, 0)? == 3 * TIMES,
        "{} at the end",
        number(&region, 0)?
    );
    side.barrier("over")
}

/// The connection events after one end broke the connection.
const ENDED: &[ConnectionKind] = &[ConnectionKind::Broken, ConnectionKind::Disconnected];

fn add_breaks(remote: RemoteRegion, link: &Link, side: &mut Side<'_>) -> Result<()> {
    let result = link.kit.region(8)?;
    let flags = CompletionFlags::DEFAULT;
    link.ep
        .post_fetch_add(result.segment(0, 8)?, remote, 1, 1, flags)?;
    add_is_broken(link, side)
}

fn add_is_broken(link: &Link, side: &mut Side<'_>) -> Result<()> {
    let status = expect::completion(&link.kit.request, side)?.status;
    let objected = [DtoStatus::RemoteAccess, DtoStatus::RemoteResponder];
    ensure!(objected.contains(&status), "it ended as {status:?}");
    expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
    side.barrier("over")
}

fn adds_without_right(link: Link, side: &mut Side<'_>) -> Result<()> {
    has_atomics(&link)?;
    let remote = receive_region(side)?;
    add_breaks(remote, &link, side)
}

fn offers_without_right(link: Link, side: &mut Side<'_>) -> Result<()> {
    has_atomics(&link)?;
    let region = link.kit.region(64)?;
    send_region(side, region.remote().slice(0, 8)?)?;
    expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
    pattern::untouched(&region, 0, 64)?;
    side.barrier("over")
}

/// The operation is refused here, or by the peer.
fn adds_unaligned(link: Link, side: &mut Side<'_>) -> Result<()> {
    has_atomics(&link)?;
    let mut remote = receive_region(side)?;
    remote.addr += 4;
    let result = link.kit.region(8)?;
    let flags = CompletionFlags::DEFAULT;
    let posted = link
        .ep
        .post_fetch_add(result.segment(0, 8)?, remote, 1, 1, flags);
    side.send("posted", &[u8::from(posted.is_ok())])?;
    if posted.is_err() {
        expect::refused_with(posted, &[DAT_LENGTH_ERROR, DAT_INVALID_PARAMETER])?;
        return side.barrier("over");
    }
    add_is_broken(&link, side)
}

fn offers_and_breaks(link: Link, side: &mut Side<'_>) -> Result<()> {
    has_atomics(&link)?;
    let region = atomic_region(&link)?;
    send_region(side, region.remote().slice(0, 8)?)?;
    if side.receive("posted")? == [1] {
        expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
    }
    pattern::untouched(&region, 0, 64)?;
    side.barrier("over")
}
