//! Many objects at the same time, and many one after another.

use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use dat_api::{Close, CompletionFlags, ConnectionKind, Ep, EpEvds, Evd, EvdFlags, Event};

use crate::case::{Case, cases};
use crate::expect;
use crate::kit::{Kit, attr};
use crate::leaks::Holdings;
use crate::link::{Link, offer};
use crate::pattern;
use crate::side::Side;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = rows();
    for (size, long) in [(20, false), (1000, true)] {
        let about = "connections that are made and ended leak nothing";
        let case = Case::both(&format!("many/cycles-{size}"), about, cycles, is_cycled);
        let case = case.sized(size);
        cases.push(if long { case.long() } else { case });
    }
    cases
}

cases! { fn rows:
    "many/endpoints": "64 connections exchange messages at the same time" =>
        connects_all, accepts_all;
    "many/threads": "two threads work on separate connections" => works_twice, works_twice;
    "many/one-endpoint": "two threads send on one connection" => sends_from_two, receives_from_two;
}

const CROWD: usize = 64;
const LEN: usize = 512;

/// EVDs for many endpoints.
fn evds(kit: &Kit) -> Result<[Evd; 3]> {
    let evd = |flags| Evd::create(&kit.ia, 4 * CROWD as u32, flags);
    Ok([
        evd(EvdFlags::DTO)?,
        evd(EvdFlags::DTO)?,
        evd(EvdFlags::CONNECTION)?,
    ])
}

fn crowd(kit: &Kit, [recv, request, connect]: &[Evd; 3]) -> Result<Vec<Ep>> {
    let evds = EpEvds {
        recv,
        request,
        connect,
    };
    let ep = |_| Ok(Ep::create(&kit.pz, evds, Some(&attr()))?);
    (0..CROWD).map(ep).collect()
}

fn connects_all(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let evds = evds(&kit)?;
    let eps = crowd(&kit, &evds)?;
    let (out, back) = (kit.region(LEN * CROWD)?, kit.region(LEN * CROWD)?);
    pattern::fill(&out, 0, out.len(), 1)?;
    for (index, ep) in eps.iter().enumerate() {
        ep.post_recv(&[back.segment(index * LEN, LEN)?], index as u64)?;
    }
    let (address, conn_qual) = side.receive_address()?;
    for ep in &eps {
        ep.start_connect(address, conn_qual, Some(side.limit), &[])?;
    }
    for ep in &eps {
        ep.wait_established(Some(side.patience()))?;
    }
    for (index, ep) in eps.iter().enumerate() {
        let segment = [out.segment(index * LEN, LEN)?];
        ep.post_send(&segment, index as u64, CompletionFlags::DEFAULT)?;
    }
    for (index, ep) in eps.iter().enumerate() {
        evds[0]
            .wait_completion(ep.id(), index as u64, Some(side.patience()))
            .with_context(|| format!("answer {index}"))?;
    }
    pattern::check(&back, 0, back.len(), 1)?;
    side.barrier("over")
}

fn accepts_all(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let evds = evds(&kit)?;
    let eps = crowd(&kit, &evds)?;
    let region = kit.region(LEN * CROWD)?;
    for (index, ep) in eps.iter().enumerate() {
        ep.post_recv(&[region.segment(index * LEN, LEN)?], index as u64)?;
    }
    let _psp = offer(side, &kit)?;
    for ep in &eps {
        expect::request(&kit.requests, side)?.accept(Some(ep), &[])?;
    }
    for ep in &eps {
        ep.wait_established(Some(side.patience()))?;
    }
    for _ in 0..CROWD {
        let received = expect::completion(&evds[0], side)?;
        ensure!(received.status.is_success(), "{:?}", received.status);
        let ep = eps.iter().find(|ep| ep.id() == received.ep);
        let ep = ep.context("a message on an unknown endpoint")?;
        let at = received.cookie as usize * LEN;
        ep.post_send(&[region.segment(at, LEN)?], 0, CompletionFlags::DEFAULT)?;
    }
    side.barrier("over")
}

/// The messages that each end of a thread's connection receives.
const ROUNDS: u64 = 30;

/// Answers messages on a connection that a thread owns. The client sends the first message.
fn exchange(kit: &Kit, ep: &Ep, is_client: bool, side: &Side<'_>) -> Result<()> {
    let (out, back) = (kit.region(LEN)?, kit.region(LEN)?);
    pattern::fill(&out, 0, LEN, 2)?;
    for round in 0..ROUNDS {
        expect::done(&kit.recv, round, side)?;
        let is_last = round + 1 == ROUNDS;
        if !is_last {
            ep.post_recv(&[back.segment(0, LEN)?], round + 1)?;
        }
        if !(is_last && is_client) {
            ep.post_send(&[out.segment(0, LEN)?], round, CompletionFlags::DEFAULT)?;
            expect::done(&kit.request, round, side)?;
        }
    }
    Ok(())
}

/// Makes two connections here and uses each on a thread of its own. The client sends first.
fn works_twice(side: &mut Side<'_>) -> Result<()> {
    let mut works = Vec::new();
    for _ in 0..2 {
        let kit = Kit::open(side)?;
        let (ep, region) = (kit.ep()?, kit.region(LEN)?);
        ep.post_recv(&[region.segment(0, LEN)?], 0)?;
        if side.is_client {
            let (address, conn_qual) = side.receive_address()?;
            ep.connect(address, conn_qual, Some(side.patience()), &[])?;
        } else {
            let _psp = offer(side, &kit)?;
            expect::request(&kit.requests, side)?.accept(Some(&ep), &[])?;
            ep.wait_established(Some(side.patience()))?;
        }
        works.push((kit, ep));
    }
    let (patience, is_client) = (side.patience(), side.is_client);
    thread::scope(|scope| {
        let threads: Vec<_> = works
            .iter()
            .map(|(kit, ep)| {
                scope.spawn(move || {
                    let alone = Side::of_thread(patience);
                    if is_client {
                        let first = kit.region(LEN)?;
                        ep.post_send(&[first.segment(0, LEN)?], 99, CompletionFlags::DEFAULT)?;
                        expect::done(&kit.request, 99, &alone)?;
                    }
                    exchange(kit, ep, is_client, &alone)
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        anyhow::Ok(())
    })?;
    side.barrier("over")
}

fn sends_from_two(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(8)?;
    side.receive("posted")?;
    let (ep, request) = (&link.ep, &link.kit.request);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|number: u64| {
                let region = &region;
                scope.spawn(move || {
                    for index in 0..10 {
                        let cookie = number << 32 | index;
                        let segment = [region.segment(0, 8)?];
                        ep.post_send(&segment, cookie, CompletionFlags::DEFAULT)?;
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        anyhow::Ok(())
    })?;
    let mut next = [0; 2];
    for _ in 0..20 {
        let sent = expect::completion(request, side)?;
        let due = &mut next[(sent.cookie >> 32) as usize];
        let is_next = sent.cookie & 0xffff == *due;
        ensure!(is_next, "the Sends of a thread completed out of order");
        *due += 1;
    }
    side.barrier("over")
}

fn receives_from_two(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(8)?;
    (0..20).try_for_each(|cookie| link.recv(&region, 0, 8, cookie))?;
    side.send("posted", &[])?;
    (0..20).try_for_each(|cookie| expect::done(&link.kit.recv, cookie, side).map(drop))?;
    side.barrier("over")
}

/// The number of rounds after which a provider has allocated the resources that all connections
/// share.
const SETTLED: usize = 4;

fn cycles(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (address, conn_qual) = side.receive_address()?;
    let mut before = Holdings::now();
    for round in 0..side.size {
        if round == SETTLED {
            before = Holdings::now();
        }
        let ep = kit.ep()?;
        ep.start_connect(address, conn_qual, Some(side.limit), &[])?;
        expect::connection_event(&ep, &kit.connect, &[ConnectionKind::Established], side)
            .with_context(|| format!("connection {round}"))?;
        ep.disconnect(Close::Abrupt)?;
        expect::connection_event(&ep, &kit.connect, &[ConnectionKind::Disconnected], side)?;
    }
    let left = Holdings::left_over(before, Holdings::default());
    ensure!(left.is_none(), "leaked while the adapter is open: {left}");
    side.barrier("over")
}

fn is_cycled(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let _psp = offer(side, &kit)?;
    let mut before = Holdings::now();
    for round in 0..side.size {
        if round == SETTLED {
            before = Holdings::now();
        }
        let ep = kit.ep()?;
        expect::request(&kit.requests, side)
            .with_context(|| format!("connection {round}"))?
            .accept(Some(&ep), &[])?;
        loop {
            match expect::event(&kit.connect, side)? {
                Event::Connection(event) if event.kind == ConnectionKind::Established => {}
                Event::Connection(_) => break,
                other => anyhow::bail!("{other:?} on connection {round}"),
            }
        }
    }
    let left = Holdings::left_over(before, Holdings::default());
    ensure!(left.is_none(), "leaked while the adapter is open: {left}");
    side.barrier("over")
}
