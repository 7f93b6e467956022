//! Local memory regions.

use std::ptr::NonNull;

use anyhow::{Context, Result, ensure};
use dat_api::abi::*;
use dat_api::{Lmr, Privileges, Region};

use crate::case::cases;
use crate::expect;
use crate::kit::Kit;
use crate::raw;

cases! { pub(super) fn cases:
    "lmr/lengths": "memory of every length can be registered" => lengths;
    "lmr/none": "registering no bytes is refused" => none;
    "lmr/unaligned": "a region may begin at any address" => unaligned;
    "lmr/privileges": "every set of privileges is granted" => privileges;
    "lmr/twice": "the same memory can be registered twice, with different keys" => twice;
    "lmr/untouched": "256 MiB that were never accessed can be registered" => untouched;
    "lmr/many": "256 regions exist at the same time" => many;
    "lmr/query": "a query returns the address, length and privileges of a region" => query;
    "lmr/freed": "the handle of a freed region is invalid" => freed;
    "lmr/sync": "a region can be synchronised" => sync;
    "lmr/no-such-memory": "an unknown memory type is refused" => no_such_memory;
}

fn lengths(kit: Kit) -> Result<()> {
    for len in [1, 2, 4095, 4096, 4097, 1 << 20, (1 << 24) + 1] {
        let region = kit.region(len)?;
        ensure!(region.remote().len as usize == len, "{:?}", region.remote());
    }
    Ok(())
}

fn none(kit: Kit) -> Result<()> {
    let created = raw::lmr_create(&kit, DAT_MEM_TYPE_VIRTUAL, 0);
    expect::refused(created, DAT_LENGTH_ERROR)
}

fn unaligned(kit: Kit) -> Result<()> {
    let mut memory = [0_u8; 64];
    for offset in 1..9 {
        let (_, part) = memory.split_at_mut(offset);
        let at = NonNull::from(part).cast();
        // SAFETY: the memory outlives the registration, and no work is posted.
        let lmr = unsafe { Lmr::register(&kit.pz, at, 33, Privileges::ALL) }?;
        let is_there = lmr.remote().addr == at.addr().get() as u64;
        ensure!(is_there, "it begins elsewhere");
    }
    Ok(())
}

fn privileges(kit: Kit) -> Result<()> {
    let (read, write) = (Privileges::LOCAL_READ, Privileges::LOCAL_WRITE);
    for rights in [
        Privileges::NONE,
        read,
        write,
        read | write,
        read | Privileges::REMOTE_READ,
        read | write | Privileges::REMOTE_READ,
        read | write | Privileges::REMOTE_WRITE,
        Privileges::ALL,
    ] {
        drop(kit.region_with(64, rights)?);
    }
    Ok(())
}

fn twice(kit: Kit) -> Result<()> {
    let region = kit.region(4096)?;
    let at = NonNull::new(region.as_ptr()).context("memory has an address")?;
    // SAFETY: the region outlives the second registration, and no work is posted.
    let second = unsafe { Lmr::register(&kit.pz, at, 4096, Privileges::ALL) }?;
    let (first, second) = (region.remote(), second.remote());
    ensure!(first.addr == second.addr, "the second begins elsewhere");
    ensure!(
        first.context != second.context,
        "both have the key {:#x}",
        first.context
    );
    Ok(())
}

fn untouched(kit: Kit) -> Result<()> {
    drop(kit.region(256 << 20)?);
    Ok(())
}

fn many(kit: Kit) -> Result<()> {
    let regions: Vec<Region> = (0..256).map(|_| kit.region(64)).collect::<Result<_>>()?;
    let mut keys: Vec<u32> = regions
        .iter()
        .map(|region| region.remote().context)
        .collect();
    keys.sort_unstable();
    keys.dedup();
    ensure!(
        keys.len() == regions.len(),
        "{} keys for 256 regions",
        keys.len()
    );
    Ok(())
}

fn query(kit: Kit) -> Result<()> {
    let region = kit.region_with(5000, Privileges::LOCAL)?;
    let param = raw::lmr_query(region.lmr().as_raw())?;
    let begin = region.as_ptr().addr() as u64;
    let is_covered = param.registered_address <= begin;
    ensure!(is_covered, "it begins after the memory");
    let end = param.registered_address + param.registered_size;
    ensure!(end >= begin + 5000, "it ends before the memory");
    ensure!(param.length == 5000, "it is {} long", param.length);
    ensure!(param.mem_priv == Privileges::LOCAL.bits());
    ensure!(param.pz_handle == kit.pz.as_raw(), "another zone");
    Ok(())
}

fn freed(kit: Kit) -> Result<()> {
    let handle = kit.region(64)?.lmr().as_raw();
    expect::refused(raw::lmr_query(handle), DAT_INVALID_HANDLE)
}

fn sync(kit: Kit) -> Result<()> {
    let region = kit.region(4096)?;
    let segment = region.segment(16, 128)?.to_raw();
    raw::lmr_sync(kit.ia.as_raw(), &segment)
}

fn no_such_memory(kit: Kit) -> Result<()> {
    expect::refused(raw::lmr_create(&kit, 99, 64), DAT_INVALID_PARAMETER)
}
