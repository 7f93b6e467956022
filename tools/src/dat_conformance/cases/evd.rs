//! EVDs, fed by software events.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dat_api::abi::*;
use dat_api::{Evd, EvdFlags, Event, Ia};

use crate::case::{Start, cases};
use crate::expect;
use crate::kit::Kit;
use crate::raw;
use crate::side::Side;

cases! { pub(super) fn cases:
    "evd/empty": "dequeuing from an empty queue fails" => empty;
    "evd/timeout": "a wait ends after its timeout" => timeout;
    "evd/poll": "a wait with timeout 0 returns at once" => poll;
    "evd/software": "a software event carries its pointer" => software;
    "evd/order": "events are dequeued in the order in which they were posted" => order;
    "evd/nmore": "a wait returns the number of remaining events" => nmore;
    "evd/flag-needed": "software events need an EVD with the software flag" => flag_needed;
    "evd/qlen": "the queue is at least as long as requested" => qlen;
    "evd/qlen-zero": "a queue of length 0 is refused" => qlen_zero;
    "evd/qlen-limit": "a queue longer than the limit is refused" => qlen_limit;
    "evd/async-flag": "asynchronous events cannot share an EVD with other events" => async_flag;
    "evd/resize": "events stay in a queue that grows" => resize;
    "evd/resize-pending": "a queue cannot become shorter than its events need" => resize_pending;
    "evd/full": "a full queue refuses software events" => full;
    "evd/unwaitable": "an unwaitable EVD can be polled and not waited on" => unwaitable;
    "evd/unwaitable-wakes": "a waiter returns when its EVD becomes unwaitable" => unwaitable_wakes;
    "evd/threshold": "a wait for several events does not end with fewer" => threshold;
    "evd/threshold-limit": "a threshold longer than the queue is refused" => threshold_limit;
    "evd/threshold-zero": "a threshold of 0 is refused" => threshold_zero;
    "evd/wakes": "an event wakes the waiter" => wakes;
    "evd/one-waiter": "a second waiter is refused" => one_waiter;
    "evd/waiter-alone": "dequeuing is refused while a thread waits" => waiter_alone;
    "evd/in-use": "an EVD that an endpoint uses is not freed" => in_use;
    "evd/null-event": "a wait without memory for the event is refused" => null_event;
    "evd/unread": "an EVD with unread events can be freed" => unread;
    "evd/many": "64 EVDs exist at the same time" => many;
}

/// An EVD for software events.
impl Start for Evd {
    fn start(side: &mut Side<'_>) -> Result<Self> {
        Ok(Evd::create(&side.open()?, 16, EvdFlags::SOFTWARE)?)
    }
}

/// Waits for the next event, which must be a software event with this number.
fn expect_number(evd: &Evd, due: usize, side: &Side<'_>) -> Result<()> {
    match expect::event(evd, side)? {
        Event::Software(number) if number == due => Ok(()),
        other => bail!("{other:?} instead of software event {due}"),
    }
}

fn empty(kit: Kit) -> Result<()> {
    for (what, evd) in [
        ("transfers", &kit.recv),
        ("binds and requests", &kit.request),
        ("connections", &kit.connect),
        ("connection requests", &kit.requests),
    ] {
        let event = evd.dequeue().context(what)?;
        ensure!(event.is_none(), "{what}: {event:?} in a new queue");
    }
    Ok(())
}

fn timeout(evd: Evd, side: &mut Side<'_>) -> Result<()> {
    let due = Duration::from_millis(30);
    let start = Instant::now();
    let event = evd.wait(Some(due))?;
    ensure!(event.is_none(), "{event:?} in a new queue");
    expect::took(start.elapsed(), due, side)
}

fn poll(evd: Evd) -> Result<()> {
    let is_empty = evd.wait(Some(Duration::ZERO))?.is_none();
    ensure!(is_empty, "an event in a new queue");
    evd.post_software(3)?;
    match evd.wait(Some(Duration::ZERO))? {
        Some(Event::Software(3)) => Ok(()),
        other => bail!("{other:?} instead of the posted event"),
    }
}

fn software(evd: Evd, side: &mut Side<'_>) -> Result<()> {
    evd.post_software(usize::MAX - 7)?;
    expect_number(&evd, usize::MAX - 7, side)?;
    expect::nothing(&evd, side)
}

fn order(evd: Evd, side: &mut Side<'_>) -> Result<()> {
    (1..=16).try_for_each(|due| evd.post_software(due))?;
    (1..=16).try_for_each(|due| expect_number(&evd, due, side))
}

fn nmore(evd: Evd, side: &mut Side<'_>) -> Result<()> {
    (1..=5).try_for_each(|due| evd.post_software(due))?;
    let waited = evd.wait_many(1, Some(side.patience()))?;
    let (_, left) = waited.context("no event, although five were posted")?;
    ensure!(
        left == 4,
        "{left} remaining events are reported instead of 4"
    );
    Ok(())
}

fn flag_needed(side: &mut Side<'_>) -> Result<()> {
    let evd = Evd::create(&side.open()?, 16, EvdFlags::DTO)?;
    expect::refused(evd.post_software(1), DAT_INVALID_PARAMETER)
}

fn qlen(ia: Ia) -> Result<()> {
    for requested in [1, 2, 100, 1000] {
        let granted = Evd::create(&ia, requested, EvdFlags::DTO)?.qlen()?;
        ensure!(
            granted >= requested,
            "{granted} entries instead of {requested}"
        );
    }
    Ok(())
}

fn qlen_zero(ia: Ia) -> Result<()> {
    for len in [0, -1] {
        let created = raw::evd_create(ia.as_raw(), len, DAT_EVD_SOFTWARE_FLAG);
        expect::refused(created, DAT_INVALID_PARAMETER)?;
    }
    Ok(())
}

fn qlen_limit(ia: Ia) -> Result<()> {
    let Some(over) = ia.attr()?.max_evd_qlen.checked_add(1) else {
        return Ok(());
    };
    let created = raw::evd_create(ia.as_raw(), over, DAT_EVD_DTO_FLAG);
    expect::refused(created, DAT_INSUFFICIENT_RESOURCES)
}

fn async_flag(ia: Ia) -> Result<()> {
    let flags = DAT_EVD_ASYNC_FLAG | DAT_EVD_SOFTWARE_FLAG;
    expect::refused(
        raw::evd_create(ia.as_raw(), 8, flags),
        DAT_INVALID_PARAMETER,
    )
}

fn resize(evd: Evd, side: &mut Side<'_>) -> Result<()> {
    (1..=10).try_for_each(|due| evd.post_software(due))?;
    evd.resize(200)?;
    ensure!(evd.qlen()? >= 200, "{} entries instead of 200", evd.qlen()?);
    (11..=200).try_for_each(|due| evd.post_software(due))?;
    (1..=200).try_for_each(|due| expect_number(&evd, due, side))
}

fn resize_pending(evd: Evd, side: &mut Side<'_>) -> Result<()> {
    (1..=10).try_for_each(|due| evd.post_software(due))?;
    expect::refused(evd.resize(4), DAT_INVALID_STATE)?;
    (1..=10).try_for_each(|due| expect_number(&evd, due, side))
}

fn full(evd: Evd) -> Result<()> {
    let room = evd.qlen()? as usize;
    (1..=room).try_for_each(|due| evd.post_software(due))?;
    expect::refused(evd.post_software(0), DAT_QUEUE_FULL)
}

fn unwaitable(evd: Evd, side: &mut Side<'_>) -> Result<()> {
    evd.set_waitable(false)?;
    evd.post_software(1)?;
    expect::refused(evd.wait(Some(side.patience())), DAT_INVALID_STATE)?;
    let is_there = evd.dequeue()?.is_some();
    ensure!(is_there, "an unwaitable queue cannot be polled");
    evd.set_waitable(true)?;
    evd.post_software(2)?;
    expect_number(&evd, 2, side)
}

/// Runs `meanwhile` while another thread waits on the EVD. Returns that thread's result.
fn with_waiter(
    evd: &Evd,
    side: &Side<'_>,
    meanwhile: impl FnOnce() -> Result<()>,
) -> Result<dat_api::Result<Option<Event>>> {
    let patience = side.patience();
    thread::scope(|scope| {
        let waiter = scope.spawn(move || evd.wait(Some(patience)));
        // This is long enough that the waiter usually sleeps. The results are the same if it does
        // not.
        thread::sleep(side.quiet());
        let outcome = meanwhile();
        let got = waiter
            .join()
            .map_err(|_| anyhow::anyhow!("the waiter panicked"));
        outcome?;
        got
    })
}

fn unwaitable_wakes(evd: Evd, side: &mut Side<'_>) -> Result<()> {
    let start = Instant::now();
    let got = with_waiter(&evd, side, || Ok(evd.set_waitable(false)?))?;
    expect::refused(got, DAT_INVALID_STATE)?;
    expect::woken(start, side)
}

fn threshold(evd: Evd, side: &mut Side<'_>) -> Result<()> {
    evd.post_software(1)?;
    evd.post_software(2)?;
    let early = evd.wait_many(3, Some(side.quiet()))?;
    ensure!(early.is_none(), "{early:?} after two of three events");
    evd.post_software(3)?;
    let (event, left) = evd
        .wait_many(3, Some(side.patience()))?
        .context("three events do not end a wait for three")?;
    let is_oldest = matches!(event, Event::Software(1));
    ensure!(is_oldest, "{event:?} is not the oldest");
    ensure!(
        left == 2,
        "{left} remaining events are reported instead of 2"
    );
    Ok(())
}

fn threshold_limit(evd: Evd) -> Result<()> {
    let over = evd.qlen()? + 1;
    expect::refused(
        evd.wait_many(over, Some(Duration::ZERO)),
        DAT_INVALID_PARAMETER,
    )
}

fn threshold_zero(evd: Evd) -> Result<()> {
    expect::refused(
        evd.wait_many(0, Some(Duration::ZERO)),
        DAT_INVALID_PARAMETER,
    )
}

fn wakes(evd: Evd, side: &mut Side<'_>) -> Result<()> {
    let start = Instant::now();
    let got = with_waiter(&evd, side, || Ok(evd.post_software(9)?))??;
    let is_posted = matches!(got, Some(Event::Software(9)));
    ensure!(is_posted, "the waiter got {got:?}");
    expect::woken(start, side)
}

fn one_waiter(evd: Evd, side: &mut Side<'_>) -> Result<()> {
    let patience = side.patience();
    // Either thread may be the second one. The refusal ends its wait, and its software event ends
    // the wait of the other.
    let wait = || {
        let got = evd.wait(Some(patience));
        if got.is_err() {
            evd.post_software(1)?;
        }
        Ok(got)
    };
    let results: Vec<Result<_>> = thread::scope(|scope| {
        let waiters = [scope.spawn(wait), scope.spawn(wait)];
        waiters.map(joined).into()
    });
    let results: Vec<_> = results.into_iter().collect::<Result<_>>()?;
    let (refused, ended): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_err);
    ensure!(refused.len() < 2, "both waiters are refused: {refused:?}");
    for got in refused {
        expect::refused(got, DAT_INVALID_STATE)?;
    }
    match &ended[..] {
        [Ok(Some(Event::Software(1)))] => Ok(()),
        _ => bail!("the waiters that were not refused got {ended:?}"),
    }
}

/// Returns the result of a thread, whose panic is a failure.
fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread
        .join()
        .map_err(|_| anyhow::anyhow!("a waiter panicked"))?
}

fn waiter_alone(evd: Evd, side: &mut Side<'_>) -> Result<()> {
    let patience = side.patience();
    let (taken, got) = thread::scope(|scope| {
        let waiter = scope.spawn(|| Ok(evd.wait(Some(patience))));
        // The queue is empty until the other thread waits, and the call is refused from then on.
        let mut taken = evd.dequeue();
        while matches!(taken, Ok(None)) && !waiter.is_finished() {
            thread::yield_now();
            taken = evd.dequeue();
        }
        evd.post_software(1)?;
        Ok::<_, anyhow::Error>((taken, joined(waiter)?))
    })?;
    expect::refused(taken, DAT_INVALID_STATE)?;
    match got {
        Ok(Some(Event::Software(1))) => Ok(()),
        other => bail!("the waiter got {other:?}"),
    }
}

fn in_use(kit: Kit) -> Result<()> {
    let _ep = kit.ep()?;
    for evd in [&kit.recv, &kit.request, &kit.connect] {
        expect::refused(raw::evd_free(evd.as_raw()), DAT_INVALID_STATE)?;
    }
    Ok(())
}

fn null_event(evd: Evd) -> Result<()> {
    expect::refused(raw::evd_wait_nowhere(evd.as_raw()), DAT_INVALID_PARAMETER)
}

fn unread(ia: Ia) -> Result<()> {
    let evd = Evd::create(&ia, 16, EvdFlags::SOFTWARE)?;
    (1..=16).try_for_each(|due| evd.post_software(due))?;
    drop(evd);
    // The close fails if the EVD was not freed.
    raw::ia_close(ia.as_raw(), DAT_CLOSE_GRACEFUL_FLAG)?;
    std::mem::forget(ia);
    Ok(())
}

fn many(ia: Ia, side: &mut Side<'_>) -> Result<()> {
    let flags = EvdFlags::SOFTWARE | EvdFlags::CONNECTION_REQUEST;
    let evds: Vec<Evd> = (0..64)
        .map(|_| Evd::create(&ia, 8, flags))
        .collect::<dat_api::Result<_>>()?;
    for (due, evd) in evds.iter().enumerate() {
        evd.post_software(due)?;
    }
    evds.iter()
        .enumerate()
        .try_for_each(|(due, evd)| expect_number(evd, due, side))
}
