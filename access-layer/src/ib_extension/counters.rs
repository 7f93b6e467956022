//! The operations "query counters" and "print counters".

use std::ffi::c_int;
use std::io::Write;

use dat_abi::*;

use crate::counters::{Counters, TRAFFIC_COUNT, TrafficCounters};
use crate::ep::Ep;
use crate::error::{DatError, DatResult};
use crate::evd::Evd;
use crate::handle::{self, Kind};
use crate::ia::Ia;
use crate::rnic::{Rnic, Traffic};
use crate::thunk::guard::{Out, arguments, pin};

/// Arguments of "query counters" after the handle.
#[repr(C)]
#[derive(Debug)]
struct QueryArgs {
    out: *mut u64,
    counter: c_int,
    reset: c_int,
}

/// Arguments of "print counters" after the handle.
#[repr(C)]
#[derive(Debug)]
struct PrintArgs {
    counter: c_int,
    reset: c_int,
}

unsafe extern "C" {
    fn access_read_query_counters(args: DatVaList, out: *mut QueryArgs);
    fn access_read_counter_type(args: DatVaList) -> DatIaCounterType;
    fn access_read_print_counters(args: DatVaList, out: *mut PrintArgs);
}

/// Implements `dat_ib_query_counters`: writes one counter, or all of them for the number that
/// stands for all counters.
///
/// # Safety
///
/// As for `iw_extension::handle`.
pub(crate) unsafe fn query<R: Rnic>(handle: DatHandle, va_list: DatVaList) -> DatResult {
    // SAFETY: the caller passes the va_list of this operation.
    let args = unsafe { arguments(access_read_query_counters, va_list) };
    // A call that fails resets nothing.
    let reset = args.reset != 0 && !args.out.is_null();
    let values = read::<R>(handle, args.counter, reset)?;
    if args.out.is_null() {
        return Err(DatError::invalid_arg(3));
    }
    for (index, (_, value)) in values.into_iter().enumerate() {
        Out::optional(args.out.wrapping_add(index)).write(value);
    }
    Ok(())
}

/// Implements `dat_ib_print_counters`: prints the counters with their names to standard output.
///
/// # Safety
///
/// As for `iw_extension::handle`.
pub(crate) unsafe fn print<R: Rnic>(handle: DatHandle, va_list: DatVaList) -> DatResult {
    let mut args = PrintArgs {
        counter: 0,
        reset: 0,
    };
    // SAFETY: the caller passes the va_list of this operation, and the structure has the same
    // layout in C.
    unsafe { access_read_print_counters(va_list, &raw mut args) };
    let mut text = String::new();
    let reset = args.reset != 0;
    let mut named = read::<R>(handle, args.counter, reset)?;
    if is_all(handle, args.counter) {
        named.extend(read_traffic::<R>(handle, DCNT_RS_ALL_COUNTERS, reset)?);
    }
    for (name, value) in named {
        text.push_str(&format!("{name:<28} {value}\n"));
    }
    // A closed standard output is not an error of this call.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

/// Implements `dat_ib_start_counter`: sets a family of an IA's counters to 0 and starts it.
///
/// # Safety
///
/// As for `iw_extension::handle`.
pub(crate) unsafe fn start<R: Rnic>(ia: DatHandle, va_list: DatVaList) -> DatResult {
    // SAFETY: the caller passes the va_list of this operation, whose one argument is an integer.
    let family = unsafe { access_read_counter_type(va_list) };
    let ia = pin::<Ia<R>>(ia, DAT_INVALID_HANDLE_IA)?;
    let known = ia.counters().on_start(family);
    known.ok_or(DatError::invalid_arg(2))
}

/// Implements `dat_ib_stop_counter`: stops a family of an IA's counters.
///
/// # Safety
///
/// As for `iw_extension::handle`.
pub(crate) unsafe fn stop<R: Rnic>(ia: DatHandle, va_list: DatVaList) -> DatResult {
    // SAFETY: the caller passes the va_list of this operation, whose one argument is an integer.
    let family = unsafe { access_read_counter_type(va_list) };
    let ia = pin::<Ia<R>>(ia, DAT_INVALID_HANDLE_IA)?;
    let known = ia.counters().on_stop(family);
    known.ok_or(DatError::invalid_arg(2))
}

type Named = Vec<(&'static str, u64)>;

/// Returns true if `counter` is the number of all counters of an IA or an endpoint.
fn is_all(handle: DatHandle, counter: c_int) -> bool {
    let all = match handle::kind_of(handle) {
        Some(Kind::Ia) => DCNT_IA_ALL_COUNTERS,
        Some(Kind::Ep) => DCNT_EP_ALL_COUNTERS,
        _ => return false,
    };
    u32::try_from(counter) == Ok(all)
}

/// Reads counters that only dat-rs has, of an IA or an endpoint.
fn read_traffic<R: Rnic>(handle: DatHandle, counter: u32, reset: bool) -> DatResult<Named> {
    let invalid = DAT_INVALID_HANDLE1;
    match handle::kind_of(handle) {
        Some(Kind::Ia) => {
            let ia = pin::<Ia<R>>(handle, invalid)?;
            let traffic = Ep::<R>::traffic_of(&ia);
            choose_traffic(ia.traffic_counters(), &traffic, counter, reset)
        }
        Some(Kind::Ep) => {
            let ep = pin::<Ep<R>>(handle, invalid)?;
            let traffic = ep.traffic().unwrap_or_default();
            choose_traffic(ep.traffic_counters(), &traffic, counter, reset)
        }
        Some(Kind::Evd) => Err(DatError::invalid_arg(2)),
        Some(_) => Err(DatError::invalid_arg(1)),
        None => Err(DatError::invalid_handle(invalid)),
    }
}

fn choose_traffic(
    counters: &TrafficCounters,
    traffic: &Traffic,
    counter: u32,
    reset: bool,
) -> DatResult<Named> {
    let chosen = match counter.checked_sub(DCNT_RS_TCP_SENT).map(|at| at as usize) {
        Some(TRAFFIC_COUNT) => 0..TRAFFIC_COUNT,
        Some(one) if one < TRAFFIC_COUNT => one..one + 1,
        _ => return Err(DatError::invalid_arg(2)),
    };
    let figures = counters.read(traffic, reset.then_some(chosen.clone()));
    Ok(chosen
        .map(|index| (DAT_RS_COUNTER_NAMES[index], figures[index]))
        .collect())
}

fn read<R: Rnic>(handle: DatHandle, counter: c_int, reset: bool) -> DatResult<Named> {
    let invalid = DAT_INVALID_HANDLE1;
    if let Some(counter) = u32::try_from(counter)
        .ok()
        .filter(|it| *it >= DCNT_RS_TCP_SENT)
    {
        return read_traffic::<R>(handle, counter, reset);
    }
    match handle::kind_of(handle) {
        Some(Kind::Ia) => {
            let ia = pin::<Ia<R>>(handle, invalid)?;
            choose(ia.counters().all(), DAT_IA_COUNTER_NAMES, counter, reset)
        }
        Some(Kind::Ep) => {
            let ep = pin::<Ep<R>>(handle, invalid)?;
            choose(ep.counters(), DAT_EP_COUNTER_NAMES, counter, reset)
        }
        Some(Kind::Evd) => {
            let evd = pin::<Evd<R>>(handle, invalid)?;
            choose(evd.counters(), DAT_EVD_COUNTER_NAMES, counter, reset)
        }
        Some(_) => Err(DatError::invalid_arg(1)),
        None => Err(DatError::invalid_handle(invalid)),
    }
}

/// Returns the counter of this number; all counters for the number after the last.
fn choose<const N: usize>(
    counters: &Counters<N>,
    names: &[&'static str],
    counter: c_int,
    reset: bool,
) -> DatResult<Named> {
    let chosen = match usize::try_from(counter) {
        Ok(all) if all == N => 0..N,
        Ok(one) if one < N => one..one + 1,
        _ => return Err(DatError::invalid_arg(2)),
    };
    Ok(chosen
        .map(|index| (names[index], counters.read(index, reset)))
        .collect())
}
