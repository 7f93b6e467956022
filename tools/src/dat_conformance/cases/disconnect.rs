//! Disconnecting, and its effects on posted work.

use anyhow::{Context, Result, ensure};
use dat_api::{Close, ConnectionKind, DtoStatus, EpState};

use crate::case::cases;
use crate::expect;
use crate::link::Link;
use crate::pattern;
use crate::side::Side;

cases! { pub(super) fn cases:
    "disconnect/abrupt": "each end receives one disconnect event after an abrupt disconnect" =>
        ends(Close::Abrupt), is_notified_once, each way;
    "disconnect/graceful": "each end receives one disconnect event after a graceful disconnect" =>
        ends(Close::Graceful), is_notified_once, each way;
    "disconnect/graceful-finishes":
        "a graceful disconnect delivers the messages posted before it" =>
        sends_and_disconnects, receives_all, each way;
    "disconnect/flushes": "posted receives are flushed when the peer disconnects" =>
        disconnects_when_posted, flushes, each way;
    "disconnect/flushes-here": "posted receives of the end that disconnects are flushed" =>
        disconnects_with_receives, has_no_receives, each way;
    "disconnect/freed": "freeing an endpoint ends its connection" =>
        frees, is_notified_once, each way;
    "disconnect/closed": "closing an adapter ends its connections" =>
        closes, is_notified_once, each way;
    "disconnect/both": "both ends disconnect at the same time and receive one event each" =>
        disconnects_too, disconnects_too;
    "disconnect/twice": "a second disconnect has no effect" => twice, is_notified_once;
    "disconnect/reuse": "an endpoint connects again after a reset" => uses_again, is_used_again;
    "disconnect/late-work": "work posted after the disconnection is flushed" =>
        posts_late, is_notified_once;
}

const ENDED: &[ConnectionKind] = &[ConnectionKind::Disconnected];

/// Checks that exactly one disconnect event is delivered.
fn ends_once(link: &Link, side: &Side<'_>) -> Result<()> {
    expect::connection_event(&link.ep, &link.kit.connect, ENDED, side)?;
    expect::nothing(&link.kit.connect, side)
}

fn ends(how: Close) -> impl Fn(Link, &mut Side<'_>) -> Result<()> {
    move |link, side| {
        side.barrier("connected")?;
        link.ep.disconnect(how)?;
        ends_once(&link, side)?;
        side.barrier("over")
    }
}

fn is_notified_once(link: Link, side: &mut Side<'_>) -> Result<()> {
    side.barrier("connected")?;
    ends_once(&link, side)?;
    side.barrier("over")
}

fn frees(Link { ep, kit }: Link, side: &mut Side<'_>) -> Result<()> {
    side.barrier("connected")?;
    drop(ep);
    side.barrier("over")?;
    drop(kit);
    Ok(())
}

fn closes(link: Link, side: &mut Side<'_>) -> Result<()> {
    side.barrier("connected")?;
    crate::raw::ia_close(link.kit.ia.as_raw(), dat_api::abi::DAT_CLOSE_ABRUPT_FLAG)?;
    // All handles have been freed, so dropping must not free them again.
    std::mem::forget(link);
    side.barrier("over")
}

fn disconnects_too(link: Link, side: &mut Side<'_>) -> Result<()> {
    side.barrier("connected")?;
    // The other end may have disconnected first; then there is nothing to disconnect.
    link.ep.disconnect(Close::Abrupt)?;
    ends_once(&link, side)?;
    side.barrier("over")?;
    link.ep.reset()?;
    expect::in_state(&link.ep, EpState::Unconnected)
}

fn twice(link: Link, side: &mut Side<'_>) -> Result<()> {
    side.barrier("connected")?;
    link.ep.disconnect(Close::Abrupt)?;
    link.ep.disconnect(Close::Abrupt)?;
    ends_once(&link, side)?;
    link.ep.disconnect(Close::Abrupt)?;
    expect::nothing(&link.kit.connect, side)?;
    side.barrier("over")
}

/// The messages that are in flight when the sender disconnects.
const MESSAGES: u64 = 16;
const LEN: usize = 3000;

fn sends_and_disconnects(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(LEN)?;
    pattern::fill(&region, 0, LEN, 6)?;
    side.receive("posted")?;
    for cookie in 0..MESSAGES {
        link.send(&region, 0, LEN, cookie)?;
    }
    link.ep.disconnect(Close::Graceful)?;
    for cookie in 0..MESSAGES {
        expect::done(&link.kit.request, cookie, side)?;
    }
    ends_once(&link, side)?;
    side.barrier("over")
}

fn receives_all(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(LEN * MESSAGES as usize)?;
    for cookie in 0..MESSAGES {
        link.recv(&region, cookie as usize * LEN, LEN, cookie)?;
    }
    side.send("posted", &[])?;
    for cookie in 0..MESSAGES {
        expect::done(&link.kit.recv, cookie, side)?;
        pattern::check(&region, cookie as usize * LEN, LEN, 6)?;
    }
    ends_once(&link, side)?;
    side.barrier("over")
}

/// Posts receives that no message completes.
fn posts_receives(link: &Link) -> Result<()> {
    let region = link.kit.region(64)?;
    (1..=5).try_for_each(|cookie| link.recv(&region, 0, 64, cookie))
}

fn all_flushed(link: &Link, side: &Side<'_>) -> Result<()> {
    for cookie in 1..=5 {
        expect::with_status(&link.kit.recv, cookie, DtoStatus::Flushed, side)?;
    }
    expect::nothing(&link.kit.recv, side)
}

fn disconnects_when_posted(link: Link, side: &mut Side<'_>) -> Result<()> {
    side.receive("posted")?;
    link.ep.disconnect(Close::Abrupt)?;
    ends_once(&link, side)?;
    side.barrier("over")
}

fn flushes(link: Link, side: &mut Side<'_>) -> Result<()> {
    posts_receives(&link)?;
    side.send("posted", &[])?;
    all_flushed(&link, side)?;
    ends_once(&link, side)?;
    side.barrier("over")
}

fn disconnects_with_receives(link: Link, side: &mut Side<'_>) -> Result<()> {
    posts_receives(&link)?;
    side.receive("connected")?;
    link.ep.disconnect(Close::Abrupt)?;
    all_flushed(&link, side)?;
    ends_once(&link, side)?;
    side.barrier("over")
}

fn has_no_receives(link: Link, side: &mut Side<'_>) -> Result<()> {
    side.send("connected", &[])?;
    ends_once(&link, side)?;
    side.barrier("over")
}

fn posts_late(link: Link, side: &mut Side<'_>) -> Result<()> {
    side.barrier("connected")?;
    link.ep.disconnect(Close::Abrupt)?;
    ends_once(&link, side)?;
    let region = link.kit.region(64)?;
    link.recv(&region, 0, 64, 1)?;
    link.send(&region, 0, 64, 2)?;
    expect::with_status(&link.kit.recv, 1, DtoStatus::Flushed, side)?;
    expect::with_status(&link.kit.request, 2, DtoStatus::Flushed, side)?;
    side.barrier("over")
}

/// The number of times that an endpoint is used again.
const TIMES: usize = 3;

fn uses_again(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(64)?;
    pattern::fill(&region, 0, 64, 8)?;
    for round in 0..TIMES {
        link.ep.disconnect(Close::Abrupt)?;
        ends_once(&link, side)?;
        link.ep.reset()?;
        let connected = link.connect_again(side);
        connected.with_context(|| format!("round {round}"))?;
        link.send(&region, 0, 64, 1)?;
        expect::done(&link.kit.request, 1, side)?;
        side.barrier("round")?;
    }
    Ok(())
}

fn is_used_again(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(64)?;
    for round in 0..TIMES {
        ends_once(&link, side)?;
        link.ep.reset()?;
        link.recv(&region, 0, 64, 1)?;
        let accepted = link.accept_again(side);
        accepted.with_context(|| format!("round {round}"))?;
        let received = expect::done(&link.kit.recv, 1, side)?;
        ensure!(received.transferred == 64, "{} bytes", received.transferred);
        side.barrier("round")?;
    }
    Ok(())
}
