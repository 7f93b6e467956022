//! RDMA Write and Read: every length class, offsets, order.

use anyhow::{Context, Result, ensure};
use dat_api::abi::*;
use dat_api::{CompletionFlags, EpAttr, RemoteRegion};

use super::send::LENGTHS;
use crate::case::{Case, cases};
use crate::expect;
use crate::kit;
use crate::link::Link;
use crate::pattern;
use crate::side::Side;
use crate::verdict::Lacks;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (len, name) in LENGTHS {
        let about = "the named bytes of the peer's memory are written, and no others";
        let write = Case::both(&format!("write/{name}"), about, writes, is_written);
        let about = "the named bytes of the peer's memory are read, and no others";
        let read = Case::both(&format!("read/{name}"), about, reads, is_read);
        cases.extend(write.sized(len).each_way());
        cases.extend(read.sized(len).each_way());
    }
    cases.extend(rows());
    cases
}

cases! { fn rows:
    "write/gather": "a Write stores its segments one after another" => gathers, is_written_in_row;
    "write/many": "64 Writes store their data at the right addresses" =>
        writes_many, is_written_in_row;
    "write/order": "the data written before a Send is complete when the Send is received" =>
        writes_and_notifies, sees_in_order;
    "write/last-byte": "the last byte of a Write is stored last" =>
        writes_rounds, watches_last_byte;
    "write/both-ways": "both ends write at the same time" => writes_across, writes_across;
    "write/too-long": "a Write longer than its remote region is refused" =>
        writes_too_long, is_read;
    "read/scatter": "a Read fills its segments in order" => scatters, is_read;
    "read/outstanding": "several Reads are in progress at the same time" =>
        reads_in_pieces(4), is_read;
    "read/beyond-depth": "Reads beyond the permitted number in progress wait" =>
        reads_in_pieces(32), is_read;
    "read/both-ways": "both ends read at the same time" => reads_across, reads_across;
    "read/mixed": "Sends, Writes and Reads complete in the order of their posts" =>
        mixed(CompletionFlags::DEFAULT), takes_mixed;
    "read/fence": "a fenced Send starts after the earlier Reads have completed" =>
        mixed(CompletionFlags::BARRIER_FENCE), takes_mixed;
    "read/overtaken": "a Send posted after a Read completes after it" =>
        long_read(CompletionFlags::DEFAULT, None), takes_after_long_read;
    "read/suppressed": "a suppressed Read is complete when the Write posted after it completes" =>
        long_read(CompletionFlags::SUPPRESS, None), takes_after_long_read;
    "read/fenced-read": "a fenced Read waits for the earlier Read, and later work then continues" =>
        long_read(CompletionFlags::DEFAULT, Some(CompletionFlags::BARRIER_FENCE)),
        takes_after_long_read;
    "read/operation": "a completion names its operation" => names_operations, is_read;
    "read/own-memory": "data that a Read fetched can be written back" => echoes, is_echoed;
}

/// The bytes that stay untouched on either side of the memory that the peer may use.
const MARGIN: usize = 64;

pub(super) fn send_region(side: &mut Side<'_>, remote: RemoteRegion) -> Result<()> {
    side.send("region", &remote.to_bytes())
}

pub(super) fn receive_region(side: &mut Side<'_>) -> Result<RemoteRegion> {
    let bytes = side.receive("region")?;
    let bytes = bytes
        .first_chunk()
        .context("the description of a region is incomplete")?;
    Ok(RemoteRegion::from_bytes(bytes))
}

fn fits(link: &Link, len: usize) -> Result<()> {
    let limit = link.kit.ia.attr()?.max_rdma_size as usize;
    ensure!(
        len <= limit,
        Lacks("the adapter carries nothing of this length")
    );
    Ok(())
}

/// Sends a message that reports that everything before it has been done.
fn notify(link: &Link, side: &Side<'_>) -> Result<()> {
    let note = link.kit.region(1)?;
    link.send(&note, 0, 1, NOTICE)?;
    expect::done(&link.kit.request, NOTICE, side).map(drop)
}

const NOTICE: u64 = 1 << 40;

/// Offers memory and waits for the message that reports its use.
fn offer(link: &Link, remote: RemoteRegion, side: &mut Side<'_>) -> Result<()> {
    let note = link.kit.region(1)?;
    link.recv(&note, 0, 1, NOTICE)?;
    send_region(side, remote)?;
    expect::done(&link.kit.recv, NOTICE, side).map(drop)
}

fn writes(link: Link, side: &mut Side<'_>) -> Result<()> {
    fits(&link, side.size)?;
    let region = link.kit.region(side.size.max(1))?;
    pattern::fill(&region, 0, side.size, 5)?;
    let remote = receive_region(side)?;
    link.write(&region, 0, remote, 1)?;
    expect::done(&link.kit.request, 1, side)?;
    notify(&link, side)?;
    side.barrier("over")
}

fn is_written(link: Link, side: &mut Side<'_>) -> Result<()> {
    fits(&link, side.size)?;
    let region = link.kit.region(side.size + 2 * MARGIN)?;
    let remote = region.remote().slice(MARGIN as u32, side.size as u32)?;
    offer(&link, remote, side)?;
    pattern::untouched(&region, 0, MARGIN)?;
    pattern::check(&region, MARGIN, side.size, 5)?;
    pattern::untouched(&region, MARGIN + side.size, MARGIN)?;
    side.barrier("over")
}

fn reads(link: Link, side: &mut Side<'_>) -> Result<()> {
    fits(&link, side.size)?;
    let region = link.kit.region(side.size + 2 * MARGIN)?;
    let remote = receive_region(side)?.slice(0, side.size as u32)?;
    link.read(&region, MARGIN, remote, 1)?;
    let done = expect::done(&link.kit.request, 1, side)?;
    ensure!(done.transferred as usize == side.size);
    pattern::untouched(&region, 0, MARGIN)?;
    pattern::check(&region, MARGIN, side.size, 5)?;
    pattern::untouched(&region, MARGIN + side.size, MARGIN)?;
    side.barrier("over")
}

/// The bytes that are offered to readers whose case names no length.
const OFFERED: usize = 8192;

/// The length of the memory to read: the case's size, if it has one.
fn offered(side: &Side<'_>) -> usize {
    if side.size == 0 { OFFERED } else { side.size }
}

fn is_read(link: Link, side: &mut Side<'_>) -> Result<()> {
    fits(&link, side.size)?;
    let len = offered(side);
    let region = link.kit.region(len)?;
    pattern::fill(&region, 0, len, 5)?;
    // A case without a length reads nothing of the memory that is offered.
    send_region(side, region.remote())?;
    side.barrier("over")
}

fn gathers(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(OFFERED)?;
    pattern::fill(&region, 0, OFFERED, 5)?;
    let remote = receive_region(side)?;
    let list = [(0, 1), (1, 4000), (4001, 0), (4001, OFFERED - 4001)];
    let list = list.map(|(at, len)| region.segment(at, len));
    let list: Vec<_> = list.into_iter().collect::<dat_api::Result<_>>()?;
    link.ep
        .post_rdma_write(&list, remote, 1, CompletionFlags::DEFAULT)?;
    expect::done(&link.kit.request, 1, side)?;
    notify(&link, side)?;
    side.barrier("over")
}

fn writes_many(link: Link, side: &mut Side<'_>) -> Result<()> {
    const PIECE: usize = OFFERED / 64;
    let region = link.kit.region(OFFERED)?;
    pattern::fill(&region, 0, OFFERED, 5)?;
    let remote = receive_region(side)?;
    // Reads half of the pieces at a time, in an order that differs from that of their offsets.
    for round in 0..2 {
        for index in 0..32 {
            let place = (index * 2 + round) * 29 % 64;
            let part = remote.slice((place * PIECE) as u32, PIECE as u32)?;
            link.write(&region, place * PIECE, part, index as u64)?;
        }
        (0..32).try_for_each(|index| expect::done(&link.kit.request, index, side).map(drop))?;
    }
    notify(&link, side)?;
    side.barrier("over")
}

fn is_written_in_row(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(OFFERED)?;
    offer(&link, region.remote(), side)?;
    pattern::check(&region, 0, OFFERED, 5)?;
    side.barrier("over")
}

/// The number of rounds of the cases that detect bytes that overtake others.
const ROUNDS: u8 = 30;

fn writes_and_notifies(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(OFFERED)?;
    let note = link.kit.region(1)?;
    let remote = receive_region(side)?;
    for round in 1..=ROUNDS {
        pattern::fill(&region, 0, OFFERED, round)?;
        side.receive("posted")?;
        let segment = [region.segment(0, OFFERED)?];
        link.ep
            .post_rdma_write(&segment, remote, 1, CompletionFlags::SUPPRESS)?;
        link.send(&note, 0, 1, 2)?;
        expect::done(&link.kit.request, 2, side)?;
        side.receive("seen")?;
    }
    side.barrier("over")
}

fn sees_in_order(link: Link, side: &mut Side<'_>) -> Result<()> {
    let (region, note) = (link.kit.region(OFFERED)?, link.kit.region(1)?);
    send_region(side, region.remote())?;
    for round in 1..=ROUNDS {
        link.recv(&note, 0, 1, 1)?;
        side.send("posted", &[])?;
        expect::done(&link.kit.recv, 1, side)?;
        let checked = pattern::check(&region, 0, OFFERED, round);
        checked.with_context(|| format!("round {round}"))?;
        side.send("seen", &[])?;
    }
    side.barrier("over")
}

fn writes_rounds(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(OFFERED)?;
    let remote = receive_region(side)?;
    for round in 1..=ROUNDS {
        region.write(0, &[round; OFFERED])?;
        link.write(&region, 0, remote, 1)?;
        expect::done(&link.kit.request, 1, side)?;
        side.receive("seen")?;
    }
    side.barrier("over")
}

fn watches_last_byte(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(OFFERED)?;
    send_region(side, region.remote())?;
    for round in 1..=ROUNDS {
        // A program that watches memory also polls its EVD, at intervals.
        while region.load(OFFERED - 1)? != round {
            let is_alive = link.kit.connect.dequeue()?.is_none();
            ensure!(is_alive, "the connection ended");
            ensure!(link.kit.recv.dequeue()?.is_none(), "a message was received");
        }
        let whole = region.to_vec(0, OFFERED)?;
        let is_whole = whole.iter().all(|byte| *byte == round);
        ensure!(is_whole, "the last byte overtook others");
        side.send("seen", &[])?;
    }
    side.barrier("over")
}

fn writes_across(link: Link, side: &mut Side<'_>) -> Result<()> {
    const LEN: usize = 300_000;
    let (ours, theirs) = (link.kit.region(LEN)?, link.kit.region(LEN)?);
    let (seed, other) = (u8::from(side.is_client), u8::from(!side.is_client));
    pattern::fill(&ours, 0, LEN, seed)?;
    let note = link.kit.region(1)?;
    link.recv(&note, 0, 1, NOTICE)?;
    send_region(side, theirs.remote())?;
    let remote = receive_region(side)?;
    link.write(&ours, 0, remote, 1)?;
    expect::done(&link.kit.request, 1, side)?;
    notify(&link, side)?;
    expect::done(&link.kit.recv, NOTICE, side)?;
    pattern::check(&theirs, 0, LEN, other)?;
    side.barrier("over")
}

fn writes_too_long(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(OFFERED)?;
    let remote = receive_region(side)?.slice(0, 100)?;
    let segment = [region.segment(0, 101)?];
    let flags = CompletionFlags::DEFAULT;
    let written = link.ep.post_rdma_write(&segment, remote, 1, flags);
    expect::refused(written, DAT_LENGTH_ERROR)?;
    side.barrier("over")
}

fn scatters(side: &mut Side<'_>) -> Result<()> {
    let attr = EpAttr {
        max_rdma_read_iov: 3,
        ..kit::attr()
    };
    let link = match Link::make_with(side, &attr) {
        Err(error) if link_refused(&error) => return Err(Lacks("Reads fill one segment").into()),
        made => made?,
    };
    let region = link.kit.region(OFFERED)?;
    let remote = receive_region(side)?;
    let list = [
        region.segment(5000, 3000)?,
        region.segment(0, 1)?,
        region.segment(8, 4000)?,
    ];
    let remote = remote.slice(0, 7001)?;
    link.ep
        .post_rdma_read(&list, remote, 1, CompletionFlags::DEFAULT)?;
    expect::done(&link.kit.request, 1, side)?;
    let mut whole = region.to_vec(5000, 3000)?;
    whole.extend(region.to_vec(0, 1)?);
    whole.extend(region.to_vec(8, 4000)?);
    ensure!(whole == pattern::bytes(5, 7001), "the pieces differ");
    side.barrier("over")
}

/// Returns true if the endpoint was refused because of its attributes.
fn link_refused(error: &anyhow::Error) -> bool {
    let call = error.downcast_ref::<dat_api::Error>();
    call.is_some_and(|call| call.is(DAT_INVALID_PARAMETER))
}

/// Reads the offered memory in pieces, all of which are posted before the first completes.
fn reads_in_pieces(pieces: usize) -> impl Fn(Link, &mut Side<'_>) -> Result<()> {
    move |link, side| {
        let region = link.kit.region(OFFERED)?;
        let remote = receive_region(side)?;
        let piece = OFFERED / pieces;
        for index in 0..pieces {
            let part = remote.slice((index * piece) as u32, piece as u32)?;
            link.read(&region, index * piece, part, index as u64)?;
        }
        for index in 0..pieces {
            expect::done(&link.kit.request, index as u64, side)?;
            pattern::check(&region, 0, 1, 5)?;
        }
        pattern::check(&region, 0, OFFERED, 5)?;
        side.barrier("over")
    }
}

fn reads_across(link: Link, side: &mut Side<'_>) -> Result<()> {
    const LEN: usize = 300_000;
    let (ours, theirs) = (link.kit.region(LEN)?, link.kit.region(LEN)?);
    let (seed, other) = (u8::from(side.is_client), u8::from(!side.is_client));
    pattern::fill(&ours, 0, LEN, seed)?;
    send_region(side, ours.remote())?;
    let remote = receive_region(side)?;
    link.read(&theirs, 0, remote, 1)?;
    expect::done(&link.kit.request, 1, side)?;
    pattern::check(&theirs, 0, LEN, other)?;
    side.barrier("over")
}

/// Posts a Read, a Write and a Send; if fenced, the Send carries the data that was read.
fn mixed(send: CompletionFlags) -> impl Fn(Link, &mut Side<'_>) -> Result<()> {
    move |link, side| {
        let (got, out) = (link.kit.region(1000)?, link.kit.region(1000)?);
        pattern::fill(&out, 0, 1000, 6)?;
        let remote = receive_region(side)?;
        let (first, second) = (remote.slice(0, 1000)?, remote.slice(1000, 1000)?);
        let fenced = send != CompletionFlags::DEFAULT;
        link.read(&got, 0, first, 1)?;
        link.write(&out, 0, second, 2)?;
        let source = if fenced { &got } else { &out };
        link.ep.post_send(&[source.segment(0, 1000)?], 3, send)?;
        link.read(&got, 0, second, 4)?;
        (1..=4).try_for_each(|cookie| expect::done(&link.kit.request, cookie, side).map(drop))?;
        pattern::check(&got, 0, 1000, 6).context("the Read after the Write")?;
        side.send("sent", &[if fenced { 5 } else { 6 }])?;
        side.barrier("over")
    }
}

fn takes_mixed(link: Link, side: &mut Side<'_>) -> Result<()> {
    let (region, message) = (link.kit.region(2000)?, link.kit.region(1000)?);
    pattern::fill(&region, 0, 1000, 5)?;
    link.recv(&message, 0, 1000, 1)?;
    send_region(side, region.remote())?;
    expect::done(&link.kit.recv, 1, side)?;
    let seed = side.receive("sent")?;
    pattern::check(&message, 0, 1000, seed[0]).context("the message")?;
    pattern::check(&region, 1000, 1000, 6).context("what was written")?;
    side.barrier("over")
}

/// The length of a Read that is not answered before the work posted after it has been sent.
const LONG: usize = 1 << 20;
/// The length of a Write or Send after it.
const SHORT: usize = 100;

/// Posts a long Read, optionally another Read of the same memory, and then a Write and a Send.
fn long_read(
    first: CompletionFlags,
    again: Option<CompletionFlags>,
) -> impl Fn(Link, &mut Side<'_>) -> Result<()> {
    move |link, side| {
        let (got, out) = (link.kit.region(LONG)?, link.kit.region(SHORT)?);
        pattern::fill(&out, 0, SHORT, 6)?;
        let remote = receive_region(side)?;
        let source = remote.slice(0, LONG as u32)?;
        let mut due = Vec::new();
        for (cookie, flags) in [(1, Some(first)), (2, again)] {
            let Some(flags) = flags else { continue };
            let segment = [got.segment(0, LONG)?];
            link.ep.post_rdma_read(&segment, source, cookie, flags)?;
            if flags != CompletionFlags::SUPPRESS {
                due.push(cookie);
            }
        }
        link.write(&out, 0, remote.slice(LONG as u32, SHORT as u32)?, 3)?;
        link.send(&out, 0, SHORT, 4)?;
        due.extend([3, 4]);
        for cookie in due {
            expect::done(&link.kit.request, cookie, side)?;
            let read = pattern::check(&got, 0, LONG, 5);
            read.with_context(|| format!("what was read, at the completion of {cookie}"))?;
        }
        side.barrier("over")
    }
}

fn takes_after_long_read(link: Link, side: &mut Side<'_>) -> Result<()> {
    let (region, message) = (link.kit.region(LONG + SHORT)?, link.kit.region(SHORT)?);
    pattern::fill(&region, 0, LONG, 5)?;
    link.recv(&message, 0, SHORT, 1)?;
    send_region(side, region.remote())?;
    expect::done(&link.kit.recv, 1, side)?;
    pattern::check(&message, 0, SHORT, 6).context("the message")?;
    pattern::check(&region, LONG, SHORT, 6).context("what was written")?;
    side.barrier("over")
}

fn names_operations(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(64)?;
    let remote = receive_region(side)?.slice(0, 64)?;
    link.write(&region, 0, remote, 1)?;
    let done = expect::done(&link.kit.request, 1, side)?;
    let named = done.operation == DAT_DTO_RDMA_WRITE && done.transferred == 64;
    ensure!(named, "a Write of 64 bytes is {done:?}");
    link.read(&region, 0, remote, 2)?;
    let done = expect::done(&link.kit.request, 2, side)?;
    let named = done.operation == DAT_DTO_RDMA_READ && done.transferred == 64;
    ensure!(named, "a Read of 64 bytes is {done:?}");
    side.barrier("over")
}

fn echoes(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(4096)?;
    let remote = receive_region(side)?;
    link.read(&region, 0, remote.slice(0, 4096)?, 1)?;
    expect::done(&link.kit.request, 1, side)?;
    link.write(&region, 0, remote.slice(4096, 4096)?, 2)?;
    expect::done(&link.kit.request, 2, side)?;
    notify(&link, side)?;
    side.barrier("over")
}

fn is_echoed(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(OFFERED)?;
    pattern::fill(&region, 0, 4096, 5)?;
    offer(&link, region.remote(), side)?;
    pattern::check(&region, 4096, 4096, 5)?;
    side.barrier("over")
}
