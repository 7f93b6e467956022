//! Completion flags and thresholds of EVDs that connections feed.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use dat_api::abi::*;
use dat_api::{CompletionFlags, DtoStatus, EpAttr, Event};

use super::rdma::{receive_region, send_region};
use crate::case::cases;
use crate::expect;
use crate::kit;
use crate::link::Link;
use crate::side::Side;

cases! { pub(super) fn cases:
    "flags/suppress": "a suppressed Send that succeeds has no completion event" =>
        suppresses, receives;
    "flags/suppress-slots": "completed suppressed work frees its entries in the queue" =>
        suppresses_many, receives_many;
    "flags/suppress-failed": "a suppressed Send that fails has a completion event" =>
        suppresses_failing, leaves;
    "flags/suppress-write": "suppressed Writes and Reads that succeed have no completion event" =>
        suppresses_rdma, offers;
    "flags/unsignalled": "an unsignalled completion does not wake the waiter" =>
        unsignalled, receives;
    "flags/threshold": "a wait for several messages does not end with fewer" =>
        sends_in_time, waits_for_three;
    "flags/solicited": "a message with solicited wait wakes a waiter for solicited events" =>
        solicits, sleeps_until_solicited;
}

fn receives(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(8)?;
    (0..2).try_for_each(|cookie| link.recv(&region, 0, 8, cookie))?;
    side.send("posted", &[])?;
    (0..2).try_for_each(|cookie| expect::done(&link.kit.recv, cookie, side).map(drop))?;
    side.barrier("over")
}

fn suppresses(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(8)?;
    side.receive("posted")?;
    link.send_flagged(&region, CompletionFlags::SUPPRESS)?;
    link.send(&region, 0, 8, 2)?;
    expect::done(&link.kit.request, 2, side)?;
    expect::nothing(&link.kit.request, side)?;
    side.barrier("over")
}

/// Far more messages than the queue can hold at once.
const MANY: u64 = 320;
/// One message in this many is signalled.
const SIGNAL_INTERVAL: u64 = 16;

fn suppresses_many(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(8)?;
    for cookie in 1..=MANY {
        if cookie % SIGNAL_INTERVAL == 1 {
            side.receive("posted")?;
        }
        let last = cookie % SIGNAL_INTERVAL == 0;
        let flags = if last {
            CompletionFlags::DEFAULT
        } else {
            CompletionFlags::SUPPRESS
        };
        let posted = link.ep.post_send(&[region.segment(0, 8)?], cookie, flags);
        posted.with_context(|| format!("Send {cookie}"))?;
        if last {
            expect::done(&link.kit.request, cookie, side)?;
        }
    }
    side.barrier("over")
}

fn receives_many(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(8)?;
    for _ in 0..MANY / SIGNAL_INTERVAL {
        (0..SIGNAL_INTERVAL).try_for_each(|cookie| link.recv(&region, 0, 8, cookie))?;
        side.send("posted", &[])?;
        (0..SIGNAL_INTERVAL)
            .try_for_each(|cookie| expect::done(&link.kit.recv, cookie, side).map(drop))?;
    }
    side.barrier("over")
}

fn suppresses_failing(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(8)?;
    side.receive("left")?;
    link.ep.wait_disconnected(Some(side.patience()))?;
    link.send_flagged(&region, CompletionFlags::SUPPRESS)?;
    expect::with_status(&link.kit.request, 1, DtoStatus::Flushed, side)?;
    side.barrier("over")
}

fn leaves(link: Link, side: &mut Side<'_>) -> Result<()> {
    link.ep.disconnect(dat_api::Close::Abrupt)?;
    link.ep.wait_disconnected(Some(side.patience()))?;
    side.send("left", &[])?;
    side.barrier("over")
}

fn suppresses_rdma(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(64)?;
    let remote = receive_region(side)?;
    let segment = [region.segment(0, 64)?];
    let suppress = CompletionFlags::SUPPRESS;
    link.ep.post_rdma_write(&segment, remote, 1, suppress)?;
    link.ep.post_rdma_read(&segment, remote, 2, suppress)?;
    link.ep
        .post_rdma_read(&segment, remote, 3, CompletionFlags::DEFAULT)?;
    expect::done(&link.kit.request, 3, side)?;
    expect::nothing(&link.kit.request, side)?;
    side.barrier("over")
}

fn offers(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(64)?;
    send_region(side, region.remote())?;
    side.barrier("over")
}

/// The attributes of an endpoint with these completion flags for requests and receives.
fn attr_with(request: u32, recv: u32) -> EpAttr {
    EpAttr {
        request_completion_flags: request,
        recv_completion_flags: recv,
        ..kit::attr()
    }
}

fn unsignalled(side: &mut Side<'_>) -> Result<()> {
    let attr = attr_with(DAT_COMPLETION_UNSIGNALLED_FLAG, 0);
    let link = Link::make_with(side, &attr)?;
    let region = link.kit.region(8)?;
    side.receive("posted")?;
    link.send_flagged(&region, CompletionFlags::UNSIGNALLED)?;
    link.send(&region, 0, 8, 2)?;
    // The signalled completion wakes the waiter, and then both are in the queue, in order.
    expect::done(&link.kit.request, 1, side)?;
    expect::done(&link.kit.request, 2, side)?;
    side.barrier("over")
}

fn sends_in_time(side: &mut Side<'_>) -> Result<()> {
    let link = Link::make_with(side, &attr_with(0, DAT_COMPLETION_EVD_THRESHOLD_FLAG))?;
    let region = link.kit.region(8)?;
    side.receive("posted")?;
    link.send(&region, 0, 8, 1)?;
    link.send(&region, 0, 8, 2)?;
    expect::done(&link.kit.request, 1, side)?;
    expect::done(&link.kit.request, 2, side)?;
    side.send("two", &[])?;
    side.receive("third")?;
    link.send(&region, 0, 8, 3)?;
    expect::done(&link.kit.request, 3, side)?;
    side.barrier("over")
}

fn waits_for_three(side: &mut Side<'_>) -> Result<()> {
    let link = Link::make_with(side, &attr_with(0, DAT_COMPLETION_EVD_THRESHOLD_FLAG))?;
    let region = link.kit.region(8)?;
    (1..=3).try_for_each(|cookie| link.recv(&region, 0, 8, cookie))?;
    side.send("posted", &[])?;
    side.receive("two")?;
    let early = link.kit.recv.wait_many(3, Some(side.quiet()))?;
    ensure!(early.is_none(), "{early:?} after two of three events");
    side.send("third", &[])?;
    let waited = link.kit.recv.wait_many(3, Some(side.patience()))?;
    let (event, left) = waited.context("three messages do not end a wait for three")?;
    let oldest = matches!(event, Event::Dto(completion) if completion.cookie == 1);
    ensure!(oldest && left == 2, "{event:?}, and {left} left");
    expect::done(&link.kit.recv, 2, side)?;
    expect::done(&link.kit.recv, 3, side)?;
    side.barrier("over")
}

fn solicits(side: &mut Side<'_>) -> Result<()> {
    let link = Link::make_with(side, &attr_with(0, DAT_COMPLETION_SOLICITED_WAIT_FLAG))?;
    let region = link.kit.region(8)?;
    side.receive("posted")?;
    std::thread::sleep(side.quiet());
    link.send_flagged(&region, CompletionFlags::SOLICITED_WAIT)?;
    expect::done(&link.kit.request, 1, side)?;
    side.barrier("over")
}

fn sleeps_until_solicited(side: &mut Side<'_>) -> Result<()> {
    let link = Link::make_with(side, &attr_with(0, DAT_COMPLETION_SOLICITED_WAIT_FLAG))?;
    let region = link.kit.region(8)?;
    link.recv(&region, 0, 8, 1)?;
    side.send("posted", &[])?;
    let start = Instant::now();
    expect::done(&link.kit.recv, 1, side)?;
    expect::woken(start, side)?;
    side.barrier("over")
}
