//! Endpoints that are not connected.

use std::time::Duration;

use anyhow::{Result, ensure};
use dat_api::abi::*;
use dat_api::{Ep, EpAttr, EpState, Event};

use crate::case::cases;
use crate::expect;
use crate::kit::{Kit, attr};
use crate::raw;
use crate::side::Side;

cases! { pub(super) fn cases:
    "ep/new": "a new endpoint is unconnected and idle" => new;
    "ep/defaults": "an endpoint without attributes accepts work" => defaults;
    "ep/granted": "the attributes of an endpoint are at least those requested" => granted;
    "ep/too-much": "attributes beyond the adapter's limits are refused" => too_much;
    "ep/modify": "the attributes of an unconnected endpoint can be changed" => modify;
    "ep/many": "64 endpoints exist at the same time" => many;
    "ep/recv": "receives can be posted before the endpoint connects" => recv;
    "ep/recv-full": "posting more receives than requested fails when the queue is full" =>
        recv_full;
    "ep/recv-freed": "an endpoint with posted receives can be freed" => recv_freed;
    "ep/recv-iov": "a receive with more segments than the limit is refused" => recv_iov;
    "ep/reset-keeps": "a reset keeps the receives of an unconnected endpoint" => reset_keeps;
    "ep/no-zone": "an endpoint without a protection zone cannot connect" => no_zone;
    "ep/timeout-zero": "an attempt to connect with timeout 0 is refused" => timeout_zero;
    "ep/private-data-limit": "private data beyond the limit is refused" => private_data_limit;
    "ep/freed-zone": "an endpoint with a freed protection zone is refused" => freed_zone;
    "ep/freed": "the handle of a freed endpoint is invalid" => freed;
    "ep/wrong-evd": "connection events need an EVD with the connection flag" => wrong_evd;
}

fn new(kit: Kit) -> Result<()> {
    let ep = kit.ep()?;
    let status = ep.status()?;
    ensure!(status.state == EpState::Unconnected, "{status:?}");
    ensure!(status.recv_idle && status.request_idle, "{status:?}");
    Ok(())
}

fn defaults(kit: Kit) -> Result<()> {
    let attr = Ep::create(&kit.pz, kit.evds(), None)?.query()?.attr;
    let is_usable = attr.max_recv_dtos >= 1 && attr.max_request_dtos >= 1;
    ensure!(is_usable, "{attr:?}");
    // dapltest posts lists of four without checking the limit.
    let has_lists = attr.max_recv_iov >= 4 && attr.max_request_iov >= 4;
    ensure!(has_lists, "{attr:?}");
    Ok(())
}

fn granted(kit: Kit) -> Result<()> {
    let asked = attr();
    let got = kit.ep_with(&asked)?.query()?.attr;
    let sizes = |attr: &EpAttr| {
        [
            ("max_recv_dtos", attr.max_recv_dtos),
            ("max_request_dtos", attr.max_request_dtos),
            ("max_recv_iov", attr.max_recv_iov),
            ("max_request_iov", attr.max_request_iov),
            ("max_rdma_read_in", attr.max_rdma_read_in),
            ("max_rdma_read_out", attr.max_rdma_read_out),
        ]
    };
    for ((what, asked), (_, got)) in sizes(&asked).into_iter().zip(sizes(&got)) {
        ensure!(got >= asked, "{what} is {got} instead of {asked}");
    }
    Ok(())
}

type Field = fn(&mut EpAttr) -> &mut i32;

fn too_much(kit: Kit) -> Result<()> {
    let limits = kit.ia.attr()?;
    let (dtos, segments) = (limits.max_dto_per_ep, limits.max_iov_segments_per_dto);
    let exceed: [(i32, Field); 3] = [
        (dtos, |attr| &mut attr.max_recv_dtos),
        (dtos, |attr| &mut attr.max_request_dtos),
        (segments, |attr| &mut attr.max_recv_iov),
    ];
    for (limit, field) in exceed.into_iter().filter(|(limit, _)| *limit < i32::MAX) {
        let mut asked = attr();
        *field(&mut asked) = limit + 1;
        expect::refused(kit.ep_with(&asked), DAT_INVALID_PARAMETER)?;
    }
    Ok(())
}

fn modify(kit: Kit) -> Result<()> {
    let ep = kit.ep()?;
    let asked = EpAttr {
        max_recv_dtos: 64,
        max_request_dtos: 48,
        ..attr()
    };
    ep.set_attr(&asked)?;
    let got = ep.query()?.attr;
    let is_granted = got.max_recv_dtos >= 64 && got.max_request_dtos >= 48;
    ensure!(is_granted, "{got:?}");
    Ok(())
}

fn many(kit: Kit) -> Result<()> {
    let eps: Vec<Ep> = (0..64).map(|_| kit.ep()).collect::<Result<_>>()?;
    for ep in &eps {
        expect::in_state(ep, EpState::Unconnected)?;
    }
    Ok(())
}

fn recv(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (ep, region) = (kit.ep()?, kit.region(64)?);
    for cookie in 0..32 {
        ep.post_recv(&[region.segment(0, 64)?], cookie)?;
    }
    expect::in_state(&ep, EpState::Unconnected)?;
    expect::nothing(&kit.recv, side)
}

fn recv_full(kit: Kit) -> Result<()> {
    /// A number of receives beyond any sensible limit; a provider may allow more than was asked
    /// for.
    const MANY: u64 = 100_000;
    let (ep, region) = (kit.ep()?, kit.region(64)?);
    for cookie in 0..MANY {
        let posted = ep.post_recv(&[region.segment(0, 64)?], cookie);
        if posted.is_err() {
            ensure!(cookie >= 32, "only {cookie} of 32 receives were accepted");
            return expect::refused(posted, DAT_INSUFFICIENT_RESOURCES);
        }
    }
    anyhow::bail!("{MANY} receives were accepted, although 32 were requested")
}

fn recv_freed(kit: Kit) -> Result<()> {
    let (ep, region) = (kit.ep()?, kit.region(64)?);
    for cookie in 0..8 {
        ep.post_recv(&[region.segment(0, 64)?], cookie)?;
    }
    drop(ep);
    // The provider may choose whether it reports the receives as flushed.
    while let Some(event) = kit.recv.dequeue()? {
        let Event::Dto(completion) = event else {
            anyhow::bail!("{event:?} after the endpoint was freed");
        };
        ensure!(!completion.status.is_success(), "a receive was filled");
    }
    Ok(())
}

fn recv_iov(kit: Kit) -> Result<()> {
    let (ep, region) = (kit.ep()?, kit.region(64)?);
    let limit = ep.query()?.attr.max_recv_iov;
    let limit = usize::try_from(limit)?.max(kit.ia.attr()?.max_iov_segments_per_dto.try_into()?);
    let list = vec![region.segment(0, 1)?; limit + 1];
    expect::refused(ep.post_recv(&list, 1), DAT_INVALID_PARAMETER)
}

fn reset_keeps(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let (ep, region) = (kit.ep()?, kit.region(64)?);
    ep.post_recv(&[region.segment(0, 64)?], 1)?;
    ep.reset()?;
    expect::in_state(&ep, EpState::Unconnected)?;
    expect::nothing(&kit.recv, side)
}

fn no_zone(kit: Kit) -> Result<()> {
    let connected = raw::connect_without_zone(&kit, kit.address()?);
    expect::refused(connected, DAT_INVALID_STATE)
}

fn timeout_zero(kit: Kit) -> Result<()> {
    let ep = kit.ep()?;
    let started = ep.start_connect(kit.address()?, 1, Some(Duration::ZERO), &[]);
    expect::refused(started, DAT_INVALID_PARAMETER)?;
    expect::in_state(&ep, EpState::Unconnected)
}

fn private_data_limit(kit: Kit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let limit = usize::try_from(kit.ia.provider_attr()?.max_private_data_size)?;
    let data = vec![1; limit + 1];
    let started = ep.start_connect(kit.address()?, 1, Some(side.patience()), &data);
    expect::refused(started, DAT_INVALID_PARAMETER)?;
    expect::in_state(&ep, EpState::Unconnected)
}

fn freed_zone(kit: Kit) -> Result<()> {
    let freed = dat_api::Pz::create(&kit.ia)?.as_raw();
    expect::refused(
        raw::ep_create(&kit, freed, kit.connect.as_raw()),
        DAT_INVALID_HANDLE,
    )
}

fn freed(kit: Kit) -> Result<()> {
    let freed = kit.ep()?.as_raw();
    expect::refused(raw::ep_free(freed), DAT_INVALID_HANDLE)
}

fn wrong_evd(kit: Kit) -> Result<()> {
    let created = raw::ep_create(&kit, kit.pz.as_raw(), kit.recv.as_raw());
    expect::refused(created, DAT_INVALID_HANDLE)
}
