//! Shared receive queues.

use anyhow::{Context, Result, ensure};
use dat_api::abi::*;
use dat_api::{AsyncKind, CompletionFlags, ConnectionKind, Ep, Region, Srq};

use crate::case::cases;
use crate::expect;
use crate::kit::{Kit, attr};
use crate::link::offer;
use crate::pattern;
use crate::raw;
use crate::side::Side;

cases! { pub(super) fn cases:
    "srq/create": "a shared queue accepts as many receives as requested" => create;
    "srq/full": "a full shared queue refuses receives" => full;
    "srq/resize": "a shared queue that grows keeps its receives" => resize;
    "srq/in-use": "a shared queue with an endpoint is not freed" => in_use;
    "srq/endpoint-posts": "an endpoint with a shared queue refuses receives of its own" =>
        endpoint_posts;
    "srq/one": "messages use the receives of the shared queue in order" => sends, one;
    "srq/two": "two endpoints use receives of one shared queue" => sends_on_two, two;
    "srq/low-watermark": "one event reports that a shared queue has reached its low watermark" =>
        sends, runs_low;
    "srq/last": "an event reports that a disconnected endpoint has used its last shared receive" =>
        leaves, last;
    "srq/outlives": "receives stay in the shared queue when one of its endpoints is freed" =>
        leaves_and_sends, outlives;
}

/// The number of receives that a queue can hold.
const DEPTH: u32 = 8;
const LEN: usize = 256;

/// Creates a queue. The provider's attributes should state whether it supports shared queues, but
/// OFA's omit this.
fn queue(kit: &Kit) -> Result<Srq> {
    Ok(Srq::create(&kit.pz, DEPTH, 1)?)
}

fn fill(srq: &Srq, region: &Region, count: u64) -> Result<()> {
    for cookie in 0..count {
        srq.post_recv(&[region.segment(cookie as usize * LEN, LEN)?], cookie)?;
    }
    Ok(())
}

fn create(kit: Kit) -> Result<()> {
    let (srq, region) = (queue(&kit)?, kit.region(LEN * DEPTH as usize)?);
    ensure!(srq.query()?.max_recv_dtos >= DEPTH, "{:?}", srq.query()?);
    fill(&srq, &region, DEPTH.into())
}

fn full(kit: Kit) -> Result<()> {
    const MANY: u64 = 100_000;
    let (srq, region) = (queue(&kit)?, kit.region(LEN)?);
    for cookie in 0..MANY {
        let posted = srq.post_recv(&[region.segment(0, LEN)?], cookie);
        if posted.is_err() {
            let is_filled = cookie >= DEPTH.into();
            ensure!(is_filled, "only {cookie} of {DEPTH} receives were accepted");
            return expect::refused(posted, DAT_INSUFFICIENT_RESOURCES);
        }
    }
    anyhow::bail!("{MANY} receives were accepted, although {DEPTH} were requested")
}

fn resize(kit: Kit) -> Result<()> {
    let (srq, region) = (queue(&kit)?, kit.region(LEN * 32)?);
    fill(&srq, &region, DEPTH.into())?;
    srq.resize(32)?;
    ensure!(srq.query()?.max_recv_dtos >= 32, "{:?}", srq.query()?);
    fill(&srq, &region, 32 - u64::from(DEPTH))
}

fn ep(kit: &Kit, srq: &Srq) -> Result<Ep> {
    Ok(Ep::create_with_srq(
        &kit.pz,
        kit.evds(),
        srq,
        Some(&attr()),
    )?)
}

fn in_use(kit: Kit) -> Result<()> {
    let srq = queue(&kit)?;
    let _ep = ep(&kit, &srq)?;
    expect::refused(raw::srq_free(srq.as_raw()), DAT_INVALID_STATE)
}

fn endpoint_posts(kit: Kit) -> Result<()> {
    let (srq, region) = (queue(&kit)?, kit.region(LEN)?);
    let posted = ep(&kit, &srq)?.post_recv(&[region.segment(0, LEN)?], 1);
    expect::refused(posted, DAT_INVALID_STATE)
}

/// Connects an endpoint to the other end's service and waits until it is established.
fn connect(kit: &Kit, side: &mut Side<'_>) -> Result<Ep> {
    let ep = kit.ep()?;
    let (address, conn_qual) = side.receive_address()?;
    ep.start_connect(address, conn_qual, Some(side.patience()), &[])?;
    expect::connection_event(&ep, &kit.connect, &[ConnectionKind::Established], side)?;
    Ok(ep)
}

fn accept(kit: &Kit, ep: &Ep, side: &mut Side<'_>) -> Result<()> {
    let _psp = offer(side, kit)?;
    let request = expect::request(&kit.requests, side)?;
    request.accept(Some(ep), &[])?;
    expect::connection_event(ep, &kit.connect, &[ConnectionKind::Established], side)?;
    Ok(())
}

fn send(ep: &Ep, kit: &Kit, region: &Region, seed: u8, side: &Side<'_>) -> Result<()> {
    pattern::fill(region, 0, LEN, seed)?;
    let segment = [region.segment(0, LEN)?];
    ep.post_send(&segment, seed.into(), CompletionFlags::DEFAULT)?;
    expect::done(&kit.request, seed.into(), side).map(drop)
}

/// Messages of the cases with one endpoint.
const MESSAGES: u8 = 6;

fn sends(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let region = kit.region(LEN)?;
    let ep = connect(&kit, side)?;
    (0..MESSAGES).try_for_each(|seed| send(&ep, &kit, &region, seed, side))?;
    side.barrier("over")
}

fn receive(kit: &Kit, ep: &Ep, region: &Region, seed: u8, side: &Side<'_>) -> Result<u64> {
    let received = expect::completion(&kit.recv, side)?;
    ensure!(received.status.is_success(), "{:?}", received.status);
    expect::of_ep(&received, ep)?;
    ensure!(received.transferred as usize == LEN);
    pattern::check(region, received.cookie as usize * LEN, LEN, seed)?;
    Ok(received.cookie)
}

fn one(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (srq, region) = (queue(&kit)?, kit.region(LEN * DEPTH as usize)?);
    fill(&srq, &region, DEPTH.into())?;
    let ep = ep(&kit, &srq)?;
    accept(&kit, &ep, side)?;
    for seed in 0..MESSAGES {
        let cookie = receive(&kit, &ep, &region, seed, side)?;
        let is_next = cookie == u64::from(seed);
        ensure!(is_next, "message {seed} completed receive {cookie}");
    }
    side.barrier("over")
}

fn sends_on_two(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let region = kit.region(LEN)?;
    let (first, second) = (connect(&kit, side)?, connect(&kit, side)?);
    for seed in 0..3 {
        send(&first, &kit, &region, seed, side)?;
        side.receive("received")?;
        send(&second, &kit, &region, seed, side)?;
        side.receive("received")?;
    }
    side.barrier("over")
}

fn two(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (srq, region) = (queue(&kit)?, kit.region(LEN * DEPTH as usize)?);
    fill(&srq, &region, DEPTH.into())?;
    let (first, second) = (ep(&kit, &srq)?, ep(&kit, &srq)?);
    accept(&kit, &first, side)?;
    accept(&kit, &second, side)?;
    for seed in 0..3 {
        for ep in [&first, &second] {
            receive(&kit, ep, &region, seed, side)?;
            side.send("received", &[])?;
        }
    }
    side.barrier("over")
}

fn runs_low(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (srq, region) = (queue(&kit)?, kit.region(LEN * DEPTH as usize)?);
    fill(&srq, &region, DEPTH.into())?;
    let ep = ep(&kit, &srq)?;
    srq.set_low_watermark(4)?;
    accept(&kit, &ep, side)?;
    for seed in 0..MESSAGES {
        receive(&kit, &ep, &region, seed, side)?;
    }
    let events = kit.ia.async_evd();
    let event = expect::async_error(&events, side)?;
    let is_ours = event.object == srq.id();
    ensure!(is_ours, "{event:?} does not name the queue");
    expect::nothing(&events, side)?;
    side.barrier("over")
}

fn leaves(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let region = kit.region(LEN)?;
    let ep = connect(&kit, side)?;
    send(&ep, &kit, &region, 0, side)?;
    side.receive("received")?;
    drop(ep);
    side.barrier("over")
}

fn last(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (srq, region) = (queue(&kit)?, kit.region(LEN * DEPTH as usize)?);
    fill(&srq, &region, DEPTH.into())?;
    let ep = ep(&kit, &srq)?;
    accept(&kit, &ep, side)?;
    receive(&kit, &ep, &region, 0, side)?;
    side.send("received", &[])?;
    let ends = [ConnectionKind::Disconnected];
    expect::connection_event(&ep, &kit.connect, &ends, side)?;
    let event = expect::async_error(&kit.ia.async_evd(), side)?;
    let is_ours = event.kind == AsyncKind::EpBroken && event.object == ep.id();
    ensure!(is_ours, "{event:?}");
    side.barrier("over")
}

fn leaves_and_sends(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let region = kit.region(LEN)?;
    let (first, second) = (connect(&kit, side)?, connect(&kit, side)?);
    send(&first, &kit, &region, 0, side)?;
    side.receive("received")?;
    drop(first);
    side.receive("freed")?;
    for seed in 1..4 {
        send(&second, &kit, &region, seed, side)?;
    }
    side.barrier("over")
}

fn outlives(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (srq, region) = (queue(&kit)?, kit.region(LEN * DEPTH as usize)?);
    fill(&srq, &region, 4)?;
    let (first, second) = (ep(&kit, &srq)?, ep(&kit, &srq)?);
    accept(&kit, &first, side)?;
    accept(&kit, &second, side)?;
    receive(&kit, &first, &region, 0, side)?;
    side.send("received", &[])?;
    let ends = [ConnectionKind::Disconnected];
    expect::connection_event(&first, &kit.connect, &ends, side)?;
    drop(first);
    side.send("freed", &[])?;
    for seed in 1..4 {
        receive(&kit, &second, &region, seed, side).with_context(|| format!("message {seed}"))?;
    }
    side.barrier("over")
}
