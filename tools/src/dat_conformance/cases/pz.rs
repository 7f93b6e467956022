//! Protection zones.

use anyhow::Result;
use dat_api::abi::*;
use dat_api::{CompletionFlags, Privileges, Pz, Region};

use super::protection::receives_nothing;
use crate::case::cases;
use crate::expect;
use crate::kit::Kit;
use crate::link::Link;
use crate::raw;
use crate::side::Side;

cases! { pub(super) fn cases:
    "pz/many": "64 protection zones exist at the same time" => many;
    "pz/in-use-by-region": "a zone with a region is not freed" => in_use_by_region;
    "pz/in-use-by-endpoint": "a zone with an endpoint is not freed" => in_use_by_endpoint;
    "pz/freed": "the handle of a freed zone is invalid" => freed;
    "pz/other-zone": "an endpoint cannot access memory of another zone" =>
        sends_from_other_zone, receives_nothing;
}

/// A length above the limit up to which a device copies the caller's memory without checking its
/// key.
const LEN: usize = 4096;

fn many(kit: Kit) -> Result<()> {
    let zones: Vec<Pz> = (0..64)
        .map(|_| Pz::create(&kit.ia))
        .collect::<dat_api::Result<_>>()?;
    for zone in &zones {
        drop(Region::create(zone, 64, Privileges::ALL)?);
    }
    Ok(())
}

fn in_use_by_region(kit: Kit) -> Result<()> {
    let _region = kit.region(64)?;
    expect::refused(raw::pz_free(kit.pz.as_raw()), DAT_INVALID_STATE)
}

fn in_use_by_endpoint(kit: Kit) -> Result<()> {
    let _ep = kit.ep()?;
    expect::refused(raw::pz_free(kit.pz.as_raw()), DAT_INVALID_STATE)
}

fn freed(kit: Kit) -> Result<()> {
    let handle = Pz::create(&kit.ia)?.as_raw();
    expect::refused(raw::pz_free(handle), DAT_INVALID_HANDLE)
}

/// The post is refused, or the work fails and breaks the connection.
fn sends_from_other_zone(link: Link, side: &mut Side<'_>) -> Result<()> {
    let other = Pz::create(&link.kit.ia)?;
    let region = Region::create(&other, LEN, Privileges::ALL)?;
    side.receive("posted")?;
    let posted = link
        .ep
        .post_send(&[region.segment(0, LEN)?], 1, CompletionFlags::DEFAULT);
    match posted {
        Ok(()) => {
            let ended = expect::completion(&link.kit.request, side)?;
            anyhow::ensure!(
                !ended.status.is_success(),
                "a message was sent from memory of another zone"
            );
        }
        refused => expect::refused_with(
            refused,
            &[
                DAT_PROTECTION_VIOLATION,
                DAT_PRIVILEGES_VIOLATION,
                DAT_INVALID_PARAMETER,
            ],
        )?,
    }
    side.barrier("over")
}
