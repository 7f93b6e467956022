//! Notification objects.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dat_api::abi::*;
use dat_api::{Cno, Evd, EvdFlags};

use crate::case::{Start, cases};
use crate::expect;
use crate::kit::Kit;
use crate::link::Link;
use crate::raw;
use crate::side::Side;

cases! { pub(super) fn cases:
    "cno/timeout": "a wait ends after its timeout" => timeout;
    "cno/names": "a wait returns the EVD that received an event" => names;
    "cno/two": "two EVDs trigger, and each is returned" => two;
    "cno/wakes": "an event wakes the waiter" => wakes;
    "cno/again": "an EVD triggers again after its events were dequeued" => again;
    "cno/disabled": "a disabled EVD does not trigger" => disabled;
    "cno/enabled": "an EVD that received events while disabled triggers when it is enabled" =>
        enabled;
    "cno/detached": "an EVD that is attached to no CNO triggers none" => detached;
    "cno/attached": "an EVD triggers the CNO to which it is attached later" => attached;
    "cno/in-use": "a CNO with attached EVDs is not freed" => in_use;
    "cno/fd": "the descriptor of a CNO is readable after a trigger" => fd;
    "cno/receive": "a received message triggers the CNO" => sends, waits;
}

/// A CNO and an EVD that triggers it.
impl Start for (Cno, Evd) {
    fn start(side: &mut Side<'_>) -> Result<Self> {
        let ia = side.open()?;
        let cno = Cno::create(&ia)?;
        let evd = Evd::create_with_cno(&ia, 16, EvdFlags::SOFTWARE, &cno)?;
        Ok((cno, evd))
    }
}

fn names_it(cno: &Cno, evd: &Evd, side: &Side<'_>) -> Result<()> {
    let named = cno.wait(Some(side.patience()))?;
    let named = named.context("no EVD triggered")?;
    ensure!(named == evd.id(), "another EVD is returned");
    Ok(())
}

fn names_none(cno: &Cno, side: &Side<'_>) -> Result<()> {
    let named = cno.wait(Some(side.quiet()))?;
    ensure!(
        named.is_none(),
        "{named:?} is returned, but nothing triggered"
    );
    Ok(())
}

fn timeout((cno, _evd): (Cno, Evd), side: &mut Side<'_>) -> Result<()> {
    let due = Duration::from_millis(30);
    let start = Instant::now();
    ensure!(cno.wait(Some(due))?.is_none(), "an EVD triggered");
    expect::took(start.elapsed(), due, side)
}

fn names((cno, evd): (Cno, Evd), side: &mut Side<'_>) -> Result<()> {
    evd.post_software(1)?;
    names_it(&cno, &evd, side)?;
    ensure!(evd.dequeue()?.is_some(), "the event is missing");
    names_none(&cno, side)
}

fn two((cno, first): (Cno, Evd), side: &mut Side<'_>) -> Result<()> {
    let second = Evd::create_with_cno(first.ia(), 16, EvdFlags::SOFTWARE, &cno)?;
    first.post_software(1)?;
    second.post_software(2)?;
    let mut named = Vec::new();
    for evd in [&first, &second] {
        let next = cno.wait(Some(side.patience()))?;
        named.push(next.context("only one triggered")?);
        ensure!(evd.dequeue()?.is_some(), "an event is missing");
    }
    named.sort();
    let mut due = [first.id(), second.id()];
    due.sort();
    ensure!(named == due, "one EVD was returned twice");
    Ok(())
}

fn wakes((cno, evd): (Cno, Evd), side: &mut Side<'_>) -> Result<()> {
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
    ensure!(named == Some(evd.id()), "{named:?} is returned");
    expect::woken(start, side)
}

fn again((cno, evd): (Cno, Evd), side: &mut Side<'_>) -> Result<()> {
    for round in 0..5 {
        evd.post_software(round)?;
        names_it(&cno, &evd, side).with_context(|| format!("round {round}"))?;
        ensure!(evd.dequeue()?.is_some(), "the event is missing");
        ensure!(evd.dequeue()?.is_none(), "a second event is in the queue");
    }
    Ok(())
}

fn disabled((cno, evd): (Cno, Evd), side: &mut Side<'_>) -> Result<()> {
    evd.set_enabled(false)?;
    evd.post_software(1)?;
    names_none(&cno, side)?;
    ensure!(evd.dequeue()?.is_some(), "the event is missing");
    Ok(())
}

fn enabled((cno, evd): (Cno, Evd), side: &mut Side<'_>) -> Result<()> {
    evd.set_enabled(false)?;
    evd.post_software(1)?;
    evd.set_enabled(true)?;
    names_it(&cno, &evd, side)
}

fn detached((cno, evd): (Cno, Evd), side: &mut Side<'_>) -> Result<()> {
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

fn in_use((cno, _evd): (Cno, Evd)) -> Result<()> {
    expect::refused(raw::cno_free(cno.as_raw()), DAT_INVALID_STATE)
}

fn fd(side: &mut Side<'_>) -> Result<()> {
    let ia = side.open()?;
    let cno = Cno::create_with_fd(&ia)?;
    let evd = Evd::create_with_cno(&ia, 16, EvdFlags::SOFTWARE, &cno)?;
    let fd = cno.fd().context("the CNO has no descriptor")?;
    let is_quiet = !is_readable(fd);
    ensure!(is_quiet, "the descriptor is readable before a trigger");
    evd.post_software(1)?;
    ensure!(
        is_readable(fd),
        "the descriptor is not readable after a trigger"
    );
    let is_named = cno.take_trigger()? == Some(evd.id());
    ensure!(is_named, "another EVD is returned");
    ensure!(evd.dequeue()?.is_some(), "the event is missing");
    ensure!(cno.take_trigger()?.is_none(), "the EVD triggered twice");
    ensure!(
        !is_readable(fd),
        "the descriptor is readable after the last trigger was taken"
    );
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

fn sends(link: Link, side: &mut Side<'_>) -> Result<()> {
    let region = link.kit.region(64)?;
    side.receive("waiting")?;
    link.send(&region, 0, 64, 1)?;
    expect::done(&link.kit.request, 1, side)?;
    side.barrier("over")
}

fn waits(link: Link, side: &mut Side<'_>) -> Result<()> {
    let kit: &Kit = &link.kit;
    let cno = Cno::create(&kit.ia)?;
    let region = kit.region(64)?;
    link.recv(&region, 0, 64, 1)?;
    kit.recv.set_cno(Some(&cno))?;
    side.send("waiting", &[])?;
    names_it(&cno, &kit.recv, side)?;
    let event = kit.recv.dequeue()?;
    ensure!(event.is_some(), "the completion is missing");
    side.barrier("over")
}
