//! Notification objects.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dat_api::abi::*;
use dat_api::{Cno, Evd, EvdFlags};

use crate::case::{Alone, Both, Case};
use crate::expect;
use crate::kit::Kit;
use crate::link::Link;
use crate::raw;
use crate::side::Side;

pub(super) fn cases() -> Vec<Case> {
    [Case::all_alone(ALONE), Case::all_both(BOTH)].concat()
}

const ALONE: &[Alone] = &[
    ("cno/timeout", "a wait ends when its time is over", timeout),
    (
        "cno/names",
        "a wait names the dispatcher that got something",
        names,
    ),
    ("cno/two", "two dispatchers trigger, each is named", two),
    ("cno/wakes", "an event wakes the waiter", wakes),
    (
        "cno/again",
        "after its events were taken, a dispatcher triggers again",
        again,
    ),
    (
        "cno/disabled",
        "a disabled dispatcher triggers nothing",
        disabled,
    ),
    (
        "cno/enabled",
        "what came meanwhile triggers when it is enabled",
        enabled,
    ),
    (
        "cno/detached",
        "a dispatcher without it triggers nothing",
        detached,
    ),
    (
        "cno/attached",
        "a dispatcher triggers what it is attached to later",
        attached,
    ),
    (
        "cno/in-use",
        "one that dispatchers refer to is not freed",
        in_use,
    ),
    (
        "cno/fd",
        "its descriptor is readable while something has triggered",
        fd,
    ),
];

const BOTH: &[Both] = &[("cno/receive", "a message triggers it", sends, waits)];

/// A notification object and a dispatcher that triggers it.
fn pair(side: &Side<'_>) -> Result<(Cno, Evd)> {
    let ia = side.open()?;
    let cno = Cno::create(&ia)?;
    let evd = Evd::create_with_cno(&ia, 16, EvdFlags::SOFTWARE, &cno)?;
    Ok((cno, evd))
}

fn names_it(cno: &Cno, evd: &Evd, side: &Side<'_>) -> Result<()> {
    let named = cno.wait(Some(side.patience()))?;
    let named = named.context("nothing triggered")?;
    ensure!(named == evd.id(), "another dispatcher is named");
    Ok(())
}

fn names_none(cno: &Cno, side: &Side<'_>) -> Result<()> {
    let named = cno.wait(Some(side.quiet()))?;
    ensure!(named.is_none(), "{named:?} is named and nothing happened");
    Ok(())
}

fn timeout(side: &mut Side<'_>) -> Result<()> {
    let (cno, _evd) = pair(side)?;
    let due = Duration::from_millis(30);
    let start = Instant::now();
    ensure!(cno.wait(Some(due))?.is_none(), "something triggered");
    expect::took(start.elapsed(), due, side)
}

fn names(side: &mut Side<'_>) -> Result<()> {
    let (cno, evd) = pair(side)?;
    evd.post_software(1)?;
    names_it(&cno, &evd, side)?;
    ensure!(evd.dequeue()?.is_some(), "the event is not there");
    names_none(&cno, side)
}

fn two(side: &mut Side<'_>) -> Result<()> {
    let (cno, first) = pair(side)?;
    let second = Evd::create_with_cno(first.ia(), 16, EvdFlags::SOFTWARE, &cno)?;
    first.post_software(1)?;
    second.post_software(2)?;
    let mut named = Vec::new();
    for evd in [&first, &second] {
        let next = cno.wait(Some(side.patience()))?;
        named.push(next.context("only one triggered")?);
        ensure!(evd.dequeue()?.is_some(), "an event is not there");
    }
    named.sort();
    let mut due = [first.id(), second.id()];
    due.sort();
    ensure!(named == due, "one dispatcher was named twice");
    Ok(())
}

fn wakes(side: &mut Side<'_>) -> Result<()> {
    let (cno, evd) = pair(side)?;
    let (patience, quiet) = (side.patience(), side.quiet());
    let start = Instant::now();
    let named = thread::scope(|scope| {
        let waiter = scope.spawn(|| cno.wait(Some(patience)));
        thread::sleep(quiet);
        evd.post_software(1)?;
        waiter
            .join()
            .map_err(|_| anyhow::anyhow!("the waiter panicked"))?
            .context("waiting")
    })?;
    ensure!(named == Some(evd.id()), "{named:?} is named");
    ensure!(
        start.elapsed() < patience,
        "the waiter slept to the end of its time"
    );
    Ok(())
}

fn again(side: &mut Side<'_>) -> Result<()> {
    let (cno, evd) = pair(side)?;
    for round in 0..5 {
        evd.post_software(round)?;
        names_it(&cno, &evd, side).with_context(|| format!("round {round}"))?;
        ensure!(evd.dequeue()?.is_some(), "the event is not there");
        ensure!(evd.dequeue()?.is_none(), "another event is there");
    }
    Ok(())
}

fn disabled(side: &mut Side<'_>) -> Result<()> {
    let (cno, evd) = pair(side)?;
    evd.set_enabled(false)?;
    evd.post_software(1)?;
    names_none(&cno, side)?;
    ensure!(evd.dequeue()?.is_some(), "the event is not there");
    Ok(())
}

fn enabled(side: &mut Side<'_>) -> Result<()> {
    let (cno, evd) = pair(side)?;
    evd.set_enabled(false)?;
    evd.post_software(1)?;
    evd.set_enabled(true)?;
    names_it(&cno, &evd, side)
}

fn detached(side: &mut Side<'_>) -> Result<()> {
    let (cno, evd) = pair(side)?;
    evd.set_cno(None)?;
    evd.post_software(1)?;
    names_none(&cno, side)
}

fn attached(side: &mut Side<'_>) -> Result<()> {
    let ia = side.open()?;
    let (cno, evd) = (Cno::create(&ia)?, Evd::create(&ia, 16, EvdFlags::SOFTWARE)?);
    evd.set_cno(Some(&cno))?;
    evd.post_software(1)?;
    names_it(&cno, &evd, side)
}

fn in_use(side: &mut Side<'_>) -> Result<()> {
    let (cno, _evd) = pair(side)?;
    expect::refused(raw::cno_free(cno.as_raw()), DAT_INVALID_STATE)
}

fn fd(side: &mut Side<'_>) -> Result<()> {
    let ia = side.open()?;
    let cno = Cno::create_with_fd(&ia)?;
    let evd = Evd::create_with_cno(&ia, 16, EvdFlags::SOFTWARE, &cno)?;
    let fd = cno.fd().context("it has no descriptor")?;
    ensure!(!is_readable(fd), "nothing has triggered and it is readable");
    evd.post_software(1)?;
    ensure!(
        is_readable(fd),
        "something has triggered and it is not readable"
    );
    ensure!(
        cno.take_trigger()? == Some(evd.id()),
        "another dispatcher is named"
    );
    ensure!(evd.dequeue()?.is_some(), "the event is not there");
    ensure!(cno.take_trigger()?.is_none(), "it triggered twice");
    ensure!(!is_readable(fd), "everything was taken and it is readable");
    Ok(())
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut asked = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one structure is readable and writable for the call, and its descriptor is open.
    let found = unsafe { libc::poll(&raw mut asked, 1, 0) };
    found > 0 && asked.revents & libc::POLLIN != 0
}

fn sends(side: &mut Side<'_>) -> Result<()> {
    let link = Link::make(side)?;
    let region = link.kit.region(64)?;
    side.receive("waiting")?;
    link.send(&region, 0, 64, 1)?;
    expect::done(&link.kit.request, 1, side)?;
    side.meet("over")
}

fn waits(side: &mut Side<'_>) -> Result<()> {
    let link = Link::make(side)?;
    let kit: &Kit = &link.kit;
    let cno = Cno::create(&kit.ia)?;
    let region = kit.region(64)?;
    link.recv(&region, 0, 64, 1)?;
    kit.recv.set_cno(Some(&cno))?;
    side.send("waiting", &[])?;
    names_it(&cno, &kit.recv, side)?;
    let event = kit.recv.dequeue()?;
    ensure!(event.is_some(), "the completion is not there");
    side.meet("over")
}
