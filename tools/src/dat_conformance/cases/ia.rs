//! Interface adapters.

use anyhow::{Result, ensure};
use dat_api::abi::*;
use dat_api::{Ep, Evd, EvdFlags, Ia, Pz};

use crate::case::cases;
use crate::expect;
use crate::kit::Kit;
use crate::leaks::Holdings;
use crate::raw;
use crate::side::Side;

cases! { pub(super) fn cases:
    "ia/attributes": "the limits of the adapter are set and can be used" => attributes;
    "ia/address": "the adapter has an address to which peers can connect" => address;
    "ia/provider": "the provider reports its version and features" => provider;
    "ia/unknown": "opening a name that is not registered fails" => unknown;
    "ia/twice": "an adapter that was opened twice stays open after one close" => twice;
    "ia/eight": "an adapter can be opened eight times, and each opening has its own objects" =>
        eight;
    "ia/async-silent": "a new adapter has no asynchronous event" => async_silent;
    "ia/leaves-nothing": "opening and closing an adapter leaks nothing" => leaves_nothing;
    "ia/close-null": "closing a null handle is refused" => close_null;
    "ia/close-graceful": "an adapter without objects closes gracefully" => close_graceful;
    "ia/close-in-use": "a graceful close of an adapter with objects is refused" => close_in_use;
    "ia/close-abrupt": "an abrupt close destroys the adapter's objects" => close_abrupt;
    "ia/handle-types": "each handle has the type of its object" => handle_types;
    "ia/context": "the consumer's context is returned as it was set" => context;
}

fn attributes(side: &mut Side<'_>) -> Result<()> {
    let attr = side.open()?.attr()?;
    for (what, value, least) in [
        ("max_eps", attr.max_eps, 1),
        ("max_dto_per_ep", attr.max_dto_per_ep, 16),
        ("max_evds", attr.max_evds, 4),
        ("max_evd_qlen", attr.max_evd_qlen, 64),
        ("max_iov_segments_per_dto", attr.max_iov_segments_per_dto, 1),
        ("max_lmrs", attr.max_lmrs, 1),
        ("max_pzs", attr.max_pzs, 1),
        ("max_rdma_read_per_ep_in", attr.max_rdma_read_per_ep_in, 1),
        ("max_rdma_read_per_ep_out", attr.max_rdma_read_per_ep_out, 1),
    ] {
        ensure!(
            value >= least,
            "{what} is {value}, and no program can use less than {least}"
        );
    }
    for (what, len) in [
        ("max_message_size", attr.max_message_size),
        ("max_rdma_size", attr.max_rdma_size),
        ("max_lmr_block_size", attr.max_lmr_block_size),
    ] {
        ensure!(len >= 1 << 20, "{what} is {len}, less than 1 MiB");
    }
    Ok(())
}

fn address(kit: Kit) -> Result<()> {
    let address = kit.address()?;
    ensure!(!address.ip().is_unspecified(), "its address is {address}");
    Ok(())
}

fn provider(side: &mut Side<'_>) -> Result<()> {
    let attr = side.open()?.provider_attr()?;
    ensure!(!attr.name.is_empty(), "an attribute has no name");
    let version = attr.dapl_version;
    ensure!(version.0 == 2, "DAT version {version:?}");
    let has_room = attr.max_private_data_size > 0;
    ensure!(has_room, "the adapter accepts no private data");
    let table = attr.evd_stream_merging_supported;
    for (row, column) in (0..table.len()).flat_map(|row| (0..row).map(move |column| (row, column)))
    {
        let same = table[row][column] == table[column][row];
        ensure!(same, "streams {row} and {column} merge in one order only");
    }
    Ok(())
}

fn unknown(_: &mut Side<'_>) -> Result<()> {
    expect::refused(Ia::open("no-adapter-has-this-name"), DAT_PROVIDER_NOT_FOUND)
}

fn twice(side: &mut Side<'_>) -> Result<()> {
    let first = side.open()?;
    let second = side.open()?;
    let differ = first.as_raw() != second.as_raw();
    ensure!(differ, "both have the same handle");
    drop(first);
    let pz = Pz::create(&second)?;
    drop(pz);
    Ok(())
}

fn eight(side: &mut Side<'_>) -> Result<()> {
    let kits: Vec<Kit> = (0..8).map(|_| Kit::open(side)).collect::<Result<_>>()?;
    for kit in &kits {
        drop(kit.ep()?);
    }
    Ok(())
}

fn async_silent(side: &mut Side<'_>) -> Result<()> {
    expect::nothing(&side.open()?.async_evd(), side)
}

fn leaves_nothing(side: &mut Side<'_>) -> Result<()> {
    let left = Holdings::left_by_opening(side.ia_name)?;
    ensure!(left.is_none(), "leaked: {left}");
    Ok(())
}

fn close_null(_: &mut Side<'_>) -> Result<()> {
    expect::refused(
        raw::ia_close(DAT_HANDLE_NULL, DAT_CLOSE_ABRUPT_FLAG),
        DAT_INVALID_HANDLE,
    )
}

fn close_graceful(side: &mut Side<'_>) -> Result<()> {
    let ia = side.open()?;
    raw::ia_close(ia.as_raw(), DAT_CLOSE_GRACEFUL_FLAG)?;
    // The handle is closed already, so dropping must not close it again.
    std::mem::forget(ia);
    Ok(())
}

fn close_in_use(side: &mut Side<'_>) -> Result<()> {
    let ia = side.open()?;
    let pz = Pz::create(&ia)?;
    let closed = raw::ia_close(ia.as_raw(), DAT_CLOSE_GRACEFUL_FLAG);
    expect::refused(closed, DAT_INVALID_STATE)?;
    drop(pz);
    drop(Pz::create(&ia)?);
    Ok(())
}

fn close_abrupt(kit: Kit) -> Result<()> {
    let (ep, region) = (kit.ep()?, kit.region(4096)?);
    ep.post_recv(&[region.segment(0, 4096)?], 1)?;
    raw::ia_close(kit.ia.as_raw(), DAT_CLOSE_ABRUPT_FLAG)?;
    // All handles have been freed, so dropping must not free them again.
    std::mem::forget((kit, ep, region));
    Ok(())
}

fn handle_types(kit: Kit) -> Result<()> {
    let (ep, region) = (kit.ep()?, kit.region(64)?);
    for (what, handle, ty) in [
        ("the adapter", kit.ia.as_raw(), DAT_HANDLE_TYPE_IA),
        ("the zone", kit.pz.as_raw(), DAT_HANDLE_TYPE_PZ),
        ("the EVD", kit.recv.as_raw(), DAT_HANDLE_TYPE_EVD),
        ("the endpoint", ep.as_raw(), DAT_HANDLE_TYPE_EP),
        ("the region", region.lmr().as_raw(), DAT_HANDLE_TYPE_LMR),
    ] {
        let reported = raw::handle_type(handle)?;
        ensure!(reported == ty, "{what} is reported as type {reported}");
    }
    Ok(())
}

fn context(kit: Kit) -> Result<()> {
    let ep: Ep = kit.ep()?;
    let evd = Evd::create(&kit.ia, 8, EvdFlags::SOFTWARE)?;
    for handle in [kit.ia.as_raw(), kit.pz.as_raw(), evd.as_raw(), ep.as_raw()] {
        ensure!(raw::context(handle)? == 0, "a new object has a context");
        raw::set_context(handle, 0x1234_5678_9abc)?;
        ensure!(
            raw::context(handle)? == 0x1234_5678_9abc,
            "the context is not the one that was set"
        );
    }
    Ok(())
}
