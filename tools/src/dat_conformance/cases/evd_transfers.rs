//! EVDs, fed by transfers.

use anyhow::{Context, Result, ensure};
use dat_api::{AsyncKind, CompletionFlags, Ep, EpEvds, Evd, EvdFlags, Region};

use crate::case::{Start, cases};
use crate::expect;
use crate::kit::{Kit, attr};
use crate::link::offer;
use crate::pattern;
use crate::side::Side;

cases! { pub(super) fn cases:
    "evd/resize-transfers": "completions stay in a queue that grows, and more fit" =>
        sends, grows;
    "evd/overflow": "a completion that does not fit is reported" => sends_all, overflows;
}

/// The number of messages; each has a receive.
const MESSAGES: usize = 32;
/// The initial queue length of the EVD of the receives. Devices round it up, at most to
/// twice the value.
const QLEN: u32 = 4;
/// The number of messages before the queue grows.
const FIRST: usize = 3;
const LEN: usize = 16;

/// Connects, and sends the messages in two parts, each when the peer is ready for it.
fn sends(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (ep, region) = (kit.ep()?, kit.region(MESSAGES * LEN)?);
    pattern::fill(&region, 0, region.len(), 3)?;
    let (address, conn_qual) = side.receive_address()?;
    ep.connect(address, conn_qual, Some(side.patience()), &[])?;
    for part in [0..FIRST, FIRST..MESSAGES] {
        side.receive("ready")?;
        for index in part {
            let segment = region.segment(index * LEN, LEN)?;
            ep.post_send(&[segment], index as u64, CompletionFlags::DEFAULT)?;
            expect::done(&kit.request, index as u64, side)?;
        }
        side.send("sent", &[])?;
    }
    side.barrier("over")
}

/// Sends all messages and does not wait for their completions: a message for whose completion the
/// peer's queue has no room may end the connection.
fn sends_all(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (ep, region) = (kit.ep()?, kit.region(MESSAGES * LEN)?);
    let (address, conn_qual) = side.receive_address()?;
    ep.connect(address, conn_qual, Some(side.patience()), &[])?;
    side.receive("ready")?;
    for index in 0..MESSAGES {
        let segment = region.segment(index * LEN, LEN)?;
        let posted = ep.post_send(&[segment], index as u64, CompletionFlags::DEFAULT);
        if index <= 2 * QLEN as usize {
            posted.with_context(|| format!("message {index}"))?;
        }
    }
    side.barrier("over")
}

/// The end with the small EVD.
struct Receiver {
    kit: Kit,
    small: Evd,
    ep: Ep,
    region: Region,
}

impl Start for Receiver {
    /// Posts a receive for each message, and connects.
    fn start(side: &mut Side<'_>) -> Result<Self> {
        let kit = Kit::open(side)?;
        let small = Evd::create(&kit.ia, QLEN, EvdFlags::DTO)?;
        let evds = EpEvds {
            recv: &small,
            ..kit.evds()
        };
        let ep = Ep::create(&kit.pz, evds, Some(&attr()))?;
        let region = kit.region(MESSAGES * LEN)?;
        for index in 0..MESSAGES {
            ep.post_recv(&[region.segment(index * LEN, LEN)?], index as u64)?;
        }
        let _psp = offer(side, &kit)?;
        expect::request(&kit.requests, side)?.accept(Some(&ep), &[])?;
        ep.wait_established(Some(side.patience()))?;
        side.send("ready", &[])?;
        Ok(Self {
            kit,
            small,
            ep,
            region,
        })
    }
}

fn grows(receiver: Receiver, side: &mut Side<'_>) -> Result<()> {
    let Receiver { kit, small, .. } = &receiver;
    side.receive("sent")?;
    small.resize(2 * MESSAGES as u32)?;
    let room = small.qlen()? as usize;
    let least = 2 * MESSAGES;
    ensure!(room >= least, "{room} entries instead of {least}");
    side.send("ready", &[])?;
    side.receive("sent")?;
    for index in 0..MESSAGES {
        let done = expect::done(small, index as u64, side)?;
        let is_ours = done.ep == receiver.ep.id();
        ensure!(is_ours, "{done:?} names another endpoint");
    }
    pattern::check(&receiver.region, 0, MESSAGES * LEN, 3)?;
    expect::nothing(&kit.ia.async_evd(), side)?;
    side.barrier("over")
}

fn overflows(receiver: Receiver, side: &mut Side<'_>) -> Result<()> {
    let event = expect::async_error(&receiver.kit.ia.async_evd(), side)?;
    let is_overflow = event.kind == AsyncKind::EvdOverflow;
    ensure!(is_overflow, "{event:?} is not an overflow event");
    let is_ours = event.object == receiver.small.id();
    ensure!(is_ours, "{event:?} names another object");
    side.barrier("over")
}
