//! Send and Receive: every length class, lists of segments, order.

use anyhow::{Result, ensure};

use crate::case::Case;
use crate::expect;
use crate::link::Link;
use crate::pattern;
use crate::side::Side;
use crate::verdict::Lacks;

const KIB: usize = 1024;

/// Lengths and their names: around segments of TCP over Ethernet, pages, and powers at which
/// counters and frames end.
pub(super) const LENGTHS: [(usize, &str); 16] = [
    (0, "0"),
    (1, "1"),
    (3, "3"),
    (64, "64"),
    (1447, "1447"),
    (1448, "1448"),
    (1449, "1449"),
    (4095, "4095"),
    (4096, "4096"),
    (4097, "4097"),
    (64 * KIB - 1, "64K-1"),
    (64 * KIB, "64K"),
    (64 * KIB + 1, "64K+1"),
    (1024 * KIB, "1M"),
    (1024 * KIB + 5, "1M+5"),
    (16 * 1024 * KIB, "16M"),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (len, name) in LENGTHS {
        let about = "a message arrives whole, in the receive posted for it";
        let case = Case::both(&format!("send/{name}"), about, sends, receives);
        cases.extend(case.sized(len).each_way());
    }
    cases
}

/// Refuses what the adapter says it cannot carry.
pub(super) fn fits(link: &Link, len: usize) -> Result<()> {
    let limit = link.kit.ia.attr()?.max_message_size as usize;
    ensure!(
        len <= limit,
        Lacks("the adapter carries no message of this length")
    );
    Ok(())
}

fn sends(side: &mut Side<'_>) -> Result<()> {
    let link = Link::make(side)?;
    let len = side.size;
    fits(&link, len)?;
    let region = link.kit.region(len.max(1))?;
    pattern::fill(&region, 0, len, 5)?;
    side.hear("posted")?;
    link.send(&region, 0, len, 1)?;
    let sent = expect::done(&link.kit.request, 1, side)?;
    ensure!(
        sent.ep == link.ep.id(),
        "the completion names another endpoint"
    );
    side.meet("over")
}

fn receives(side: &mut Side<'_>) -> Result<()> {
    const ROOM: usize = 7;
    let link = Link::make(side)?;
    let len = side.size;
    fits(&link, len)?;
    let region = link.kit.region(len + ROOM)?;
    link.recv(&region, 0, len + ROOM, u64::MAX - 1)?;
    side.say("posted", &[])?;
    let received = expect::done(&link.kit.recv, u64::MAX - 1, side)?;
    ensure!(
        received.transferred as usize == len,
        "{} bytes came",
        received.transferred
    );
    pattern::check(&region, 0, len, 5)?;
    pattern::untouched(&region, len, ROOM)?;
    expect::nothing(&link.kit.recv, side)?;
    side.meet("over")
}
