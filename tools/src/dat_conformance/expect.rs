//! Expectations: events that must be received, events that must not, and calls that must be
//! refused.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dat_api::abi::DatReturnType;
use dat_api::{
    AsyncError, BindCompletion, ConnectionEvent, ConnectionKind, Cr, DtoCompletion, DtoStatus, Ep,
    EpState, Evd, Event,
};

use crate::side::Side;

/// Waits for the next event of an EVD.
pub(crate) fn event(evd: &Evd, side: &Side<'_>) -> Result<Event> {
    let patience = side.patience();
    let event = evd.wait(Some(patience))?;
    event.with_context(|| format!("no event was received within {patience:?}"))
}

/// Waits for the next completion.
pub(crate) fn completion(evd: &Evd, side: &Side<'_>) -> Result<DtoCompletion> {
    match event(evd, side).context("waiting for a completion")? {
        Event::Dto(completion) => Ok(completion),
        other => bail!("{other:?} instead of a completion"),
    }
}

/// Waits for the next completion, which must be the success of the work with this cookie.
pub(crate) fn done(evd: &Evd, cookie: u64, side: &Side<'_>) -> Result<DtoCompletion> {
    with_status(evd, cookie, DtoStatus::Success, side)
}

/// Waits for the next completion, which must be that of the work with this cookie and have this
/// status.
pub(crate) fn with_status(
    evd: &Evd,
    cookie: u64,
    status: DtoStatus,
    side: &Side<'_>,
) -> Result<DtoCompletion> {
    let got = completion(evd, side).with_context(|| format!("work {cookie}"))?;
    ensure!(
        got.cookie == cookie && got.status == status,
        "work {} completed with {:?} instead of work {cookie} with {status:?}",
        got.cookie,
        got.status
    );
    Ok(got)
}

/// Checks that a completion is of work on this endpoint.
pub(crate) fn of_ep(completion: &DtoCompletion, ep: &Ep) -> Result<()> {
    let is_of_ep = completion.ep == ep.id();
    ensure!(is_of_ep, "the completion names another endpoint");
    Ok(())
}

/// Waits for the next event, which must be the completion of a bind.
pub(crate) fn bound(evd: &Evd, cookie: u64, side: &Side<'_>) -> Result<BindCompletion> {
    match event(evd, side).context("waiting for a bind")? {
        Event::Bind(bind) => {
            ensure!(
                bind.cookie == cookie && bind.status.is_success(),
                "bind {} completed with {:?} instead of bind {cookie}",
                bind.cookie,
                bind.status
            );
            Ok(bind)
        }
        other => bail!("{other:?} instead of a completed bind"),
    }
}

/// Waits for the next event, which must be a connection event of this endpoint.
pub(crate) fn any_connection_event(ep: &Ep, evd: &Evd, side: &Side<'_>) -> Result<ConnectionEvent> {
    match event(evd, side).context("waiting for a connection event")? {
        Event::Connection(event) => {
            ensure!(event.ep == ep.id(), "{event:?} names another endpoint");
            Ok(event)
        }
        other => bail!("{other:?} instead of a connection event"),
    }
}

/// Waits for the next connection event, which must be of one of these kinds. The endpoint must be
/// in the state that belongs to the event.
pub(crate) fn connection_event(
    ep: &Ep,
    evd: &Evd,
    kinds: &[ConnectionKind],
    side: &Side<'_>,
) -> Result<ConnectionEvent> {
    let event = any_connection_event(ep, evd, side)?;
    ensure!(
        kinds.contains(&event.kind),
        "{:?} instead of {kinds:?}",
        event.kind
    );
    let expected = match event.kind {
        ConnectionKind::Established => EpState::Connected,
        _ => EpState::Disconnected,
    };
    in_state(ep, expected)?;
    Ok(event)
}

/// Checks that the endpoint is in this state.
pub(crate) fn in_state(ep: &Ep, state: EpState) -> Result<()> {
    let is = ep.state()?;
    ensure!(is == state, "the endpoint is {is:?} instead of {state:?}");
    Ok(())
}

/// Waits for the next event, which must be a connection request.
pub(crate) fn request(evd: &Evd, side: &Side<'_>) -> Result<Cr> {
    match event(evd, side).context("waiting for a connection request")? {
        Event::ConnectionRequest(request) => Ok(request),
        other => bail!("{other:?} instead of a connection request"),
    }
}

/// Waits for the next event of the EVD of asynchronous errors.
pub(crate) fn async_error(evd: &Evd, side: &Side<'_>) -> Result<AsyncError> {
    match event(evd, side).context("waiting for an asynchronous event")? {
        Event::Async(error) => Ok(error),
        other => bail!("{other:?} instead of an asynchronous event"),
    }
}

/// Checks that no event is received.
pub(crate) fn nothing(evd: &Evd, side: &Side<'_>) -> Result<()> {
    match evd.wait(Some(side.quiet()))? {
        None => Ok(()),
        Some(event) => bail!("an unexpected event: {event:?}"),
    }
}

/// Checks that the call was refused with this type of `DAT_RETURN`.
pub(crate) fn refused<T>(
    result: Result<T, impl Into<anyhow::Error>>,
    expected: DatReturnType,
) -> Result<()> {
    refused_with(result, &[expected])
}

/// Checks that the call was refused with one of these types.
pub(crate) fn refused_with<T>(
    result: Result<T, impl Into<anyhow::Error>>,
    expected: &[DatReturnType],
) -> Result<()> {
    let names = || -> Vec<String> { expected.iter().map(|ty| name(*ty)).collect() };
    let error: anyhow::Error = match result {
        Ok(_) => bail!(
            "a call succeeded instead of returning {}",
            names().join(" or ")
        ),
        Err(error) => error.into(),
    };
    let is_expected = |error: &dat_api::Error| expected.iter().any(|ty| error.is(*ty));
    match error.downcast_ref::<dat_api::Error>() {
        Some(call) if is_expected(call) => Ok(()),
        // The caller recognises this error, which says that the provider does not have the call.
        Some(call) if call.is_unsupported() => Err(error),
        _ => Err(error.context(format!("not {}", names().join(" or ")))),
    }
}

fn name(ty: DatReturnType) -> String {
    match ty.name() {
        Some(name) => name.to_string_lossy().into_owned(),
        None => format!("{:#x}", ty.0),
    }
}

/// Checks that a wait took at least the expected time, and not much longer.
pub(crate) fn took(elapsed: Duration, expected: Duration, side: &Side<'_>) -> Result<()> {
    // The provider and the test read the clock at different points.
    let least = expected.saturating_sub(Duration::from_millis(2));
    ensure!(
        elapsed >= least && elapsed < expected + side.patience(),
        "{elapsed:?} passed instead of {expected:?}"
    );
    Ok(())
}

/// Checks that a waiter was woken, and did not sleep until its timeout.
pub(crate) fn woken(since: Instant, side: &Side<'_>) -> Result<()> {
    let is_woken = since.elapsed() < side.patience();
    ensure!(is_woken, "the waiter slept until its timeout");
    Ok(())
}
