//! Memory windows.

use anyhow::{Result, ensure};
use dat_api::abi::*;
use dat_api::{ConnectionKind, DtoStatus, Lmr, Privileges, RemoteRegion, Rmr};

use super::rdma::{receive_region, send_region};
use crate::case::{Start, cases};
use crate::expect;
use crate::kit::Kit;
use crate::link::Link;
use crate::pattern;
use crate::side::Side;

/// Bytes of the region under each window.
const LEN: usize = 4096;
/// The offset at which the window begins, and its length.
const AT: usize = 256;
const WINDOW: usize = 512;

cases! { pub(super) fn cases:
    "rmr/create": "windows can be created and freed" => create;
    "rmr/bind-unconnected": "binding a window on an unconnected endpoint is refused" =>
        bind_unconnected;
    "rmr/write": "the peer writes through a window" => writes, binds_for_writing;
    "rmr/read": "the peer reads through a window" => reads, binds_for_reading;
    "rmr/read-only": "a Write through a read-only window fails" =>
        write_fails(0), binds_in_vain(READ);
    "rmr/bounds": "a Write beyond a window fails, although the region is longer" =>
        write_fails(1), binds_in_vain(WRITE);
    "rmr/unbound": "an unbound window permits no access" => write_fails(0), binds_and_unbinds;
    "rmr/unbound-twice": "a window can be unbound again after its region was freed" =>
        keeps_connected, unbinds_twice;
    "rmr/bound-again": "a window that is bound again has a new key" =>
        writes, binds_again;
    "rmr/old-key": "the previous key of a window is invalid after another bind" =>
        write_fails(0), binds_elsewhere;
    "rmr/region-in-use": "a region with a bound window is not freed" =>
        keeps_connected, frees_region;
    "rmr/freed": "a freed window permits no access" => write_fails(0), binds_and_frees;
    "rmr/for-endpoint": "a window created for an endpoint serves its peer" =>
        writes, binds_for_endpoint;
}

fn create(kit: Kit) -> Result<()> {
    let windows: Vec<Rmr> = (0..16)
        .map(|_| Rmr::create(&kit.pz))
        .collect::<dat_api::Result<_>>()?;
    drop(windows);
    Ok(())
}

fn bind_unconnected(kit: Kit) -> Result<()> {
    let (ep, region) = (kit.ep()?, kit.region(LEN)?);
    let window = Rmr::create(&kit.pz)?;
    let bound = window.bind(&ep, &region, 0, LEN, Privileges::ALL, 1);
    expect::refused(bound, DAT_INVALID_STATE)
}

/// The events that end a connection after an error.
const ENDED: &[ConnectionKind] = &[ConnectionKind::Broken, ConnectionKind::Disconnected];

/// The rights a window needs for the peer to write or to read.
const WRITE: Privileges = Privileges::REMOTE_WRITE;
const READ: Privileges = Privileges::REMOTE_READ;

/// The objects of the end that binds the window, in each case.
struct Binder {
    link: Link,
    region: dat_api::Region,
    window: Rmr,
}

impl Start for Binder {
    fn start(side: &mut Side<'_>) -> Result<Self> {
        let link = Link::start(side)?;
        let window = Rmr::create(&link.kit.pz)?;
        let region = link.kit.region(LEN)?;
        Ok(Self {
            link,
            region,
            window,
        })
    }
}

impl Binder {
    fn bind(&self, at: usize, rights: Privileges, side: &Side<'_>) -> Result<RemoteRegion> {
        let Self {
            link,
            region,
            window,
        } = self;
        let remote = window.bind(&link.ep, region, at, WINDOW, rights, 7)?;
        let bind = expect::bound(&link.kit.request, 7, side)?;
        ensure!(bind.rmr == window.id(), "the bind names another window");
        Ok(remote)
    }
}

fn post_write(link: &Link, remote: RemoteRegion) -> Result<()> {
    let region = link.kit.region(remote.len as usize)?;
    pattern::fill(&region, 0, region.len(), 9)?;
    link.write(&region, 0, remote, 1)
}

fn writes(link: Link, side: &mut Side<'_>) -> Result<()> {
    let remote = receive_region(side)?;
    post_write(&link, remote)?;
    expect::done(&link.kit.request, 1, side)?;
    // Data that was written is placed before a message that was sent after it.
    let note = link.kit.region(1)?;
    link.send(&note, 0, 1, 2)?;
    expect::done(&link.kit.request, 2, side)?;
    side.barrier("over")
}

fn is_written(binder: &Binder, remote: RemoteRegion, side: &mut Side<'_>) -> Result<()> {
    let Binder { link, region, .. } = binder;
    let note = link.kit.region(1)?;
    link.recv(&note, 0, 1, 3)?;
    send_region(side, remote)?;
    expect::done(&link.kit.recv, 3, side)?;
    pattern::untouched(region, 0, AT)?;
    pattern::check(region, AT, WINDOW, 9)?;
    pattern::untouched(region, AT + WINDOW, LEN - AT - WINDOW)?;
    side.barrier("over")
}

fn binds_for_writing(binder: Binder, side: &mut Side<'_>) -> Result<()> {
    let remote = binder.bind(AT, WRITE, side)?;
    is_written(&binder, remote, side)
}

fn binds_for_endpoint(mut binder: Binder, side: &mut Side<'_>) -> Result<()> {
    binder.window = Rmr::create_for_ep(&binder.link.kit.pz)?;
    let remote = binder.bind(AT, WRITE, side)?;
    is_written(&binder, remote, side)
}

fn binds_again(binder: Binder, side: &mut Side<'_>) -> Result<()> {
    let first = binder.bind(2 * AT, WRITE, side)?;
    let second = binder.bind(AT, WRITE, side)?;
    ensure!(first.context != second.context, "the key is the same");
    is_written(&binder, second, side)
}

fn reads(link: Link, side: &mut Side<'_>) -> Result<()> {
    let remote = receive_region(side)?;
    let region = link.kit.region(WINDOW)?;
    link.read(&region, 0, remote, 1)?;
    expect::done(&link.kit.request, 1, side)?;
    pattern::check(&region, 0, WINDOW, 4)?;
    side.barrier("over")
}

fn binds_for_reading(binder: Binder, side: &mut Side<'_>) -> Result<()> {
    pattern::fill(&binder.region, AT, WINDOW, 4)?;
    let remote = binder.bind(AT, READ, side)?;
    send_region(side, remote)?;
    side.barrier("over")
}

/// A write that the window does not permit, of `more` bytes than were offered: it fails, or the
/// connection breaks after it.
fn write_fails(more: u32) -> impl Fn(Link, &mut Side<'_>) -> Result<()> {
    move |link, side| {
        let mut remote = receive_region(side)?;
        remote.len += more;
        post_write(&link, remote)?;
        let ended = expect::completion(&link.kit.request, side)?;
        // iWARP writes are not acknowledged, so the peer's objection is received later.
        let status = ended.status;
        let objected = matches!(status, DtoStatus::RemoteAccess | DtoStatus::Success);
        ensure!(objected, "the write ended as {status:?}");
        expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
        side.barrier("over")
    }
}

fn nothing_written(binder: &Binder, side: &mut Side<'_>) -> Result<()> {
    let link = &binder.link;
    expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
    pattern::untouched(&binder.region, 0, LEN)?;
    side.barrier("over")
}

fn binds_in_vain(rights: Privileges) -> impl Fn(Binder, &mut Side<'_>) -> Result<()> {
    move |binder, side| {
        let remote = binder.bind(AT, rights, side)?;
        send_region(side, remote)?;
        nothing_written(&binder, side)
    }
}

fn binds_and_unbinds(binder: Binder, side: &mut Side<'_>) -> Result<()> {
    let remote = binder.bind(AT, WRITE, side)?;
    binder.window.unbind(&binder.link.ep, 8)?;
    expect::bound(&binder.link.kit.request, 8, side)?;
    send_region(side, remote)?;
    nothing_written(&binder, side)
}

fn unbinds_twice(binder: Binder, side: &mut Side<'_>) -> Result<()> {
    binder.bind(AT, WRITE, side)?;
    let Binder {
        link,
        region,
        window,
    } = binder;
    window.unbind(&link.ep, 8)?;
    expect::bound(&link.kit.request, 8, side)?;
    drop(region);
    window.unbind(&link.ep, 9)?;
    expect::bound(&link.kit.request, 9, side)?;
    side.barrier("over")
}

fn binds_elsewhere(binder: Binder, side: &mut Side<'_>) -> Result<()> {
    let first = binder.bind(AT, WRITE, side)?;
    binder.bind(2 * AT, WRITE, side)?;
    send_region(side, first)?;
    nothing_written(&binder, side)
}

fn binds_and_frees(mut binder: Binder, side: &mut Side<'_>) -> Result<()> {
    let remote = binder.bind(AT, WRITE, side)?;
    binder.window = Rmr::create(&binder.link.kit.pz)?;
    send_region(side, remote)?;
    nothing_written(&binder, side)
}

fn keeps_connected(_link: Link, side: &mut Side<'_>) -> Result<()> {
    side.barrier("over")
}

fn frees_region(binder: Binder, side: &mut Side<'_>) -> Result<()> {
    binder.bind(AT, WRITE, side)?;
    let lmr: &Lmr = binder.region.lmr();
    expect::refused(crate::raw::lmr_free(lmr.as_raw()), DAT_INVALID_STATE)?;
    side.barrier("over")
}
