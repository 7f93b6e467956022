use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dat_abi::*;

use super::{BindArgs, Rmr};
use crate::ep::Ep;
use crate::harness::{Dat, LONG_US, Pair, SUCCESS, call, dto, refused, succeed};
use crate::lmr::{Lmr, LmrSpec};
use crate::pz::Pz;
use crate::scripted_rnic::{Bench, Call, ScriptedRnic, pinned};

const THRESHOLD: DatCompletionFlags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
const COOKIE: u64 = 0xC0FF_EE00_0000_0001;

fn rmr(pair: &Pair) -> DatRmrHandle {
    let mut rmr = ptr::null_mut();
    succeed!(pair.dat, rmr_create, pair.pz, &raw mut rmr);
    rmr
}

/// Two connected endpoints and an unbound window.
fn pair_with_window() -> (Pair, DatRmrHandle) {
    let pair = Pair::connected("mw=1", THRESHOLD);
    let rmr = rmr(&pair);
    (pair, rmr)
}

fn bind(
    pair: &Pair,
    rmr: DatRmrHandle,
    lmr: DatLmrHandle,
    triplet: DatLmrTriplet,
    flags: DatCompletionFlags,
) -> (u32, DatRmrContext) {
    let (ep, cookie) = (pair.ends[0].ep, DatContext::from_u64(COOKIE));
    let (all, va) = (DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA);
    let mut context = 0;
    let out = &raw mut context;
    let triplet = &raw const triplet;
    let code = call!(
        pair.dat, rmr_bind, rmr, lmr, triplet, all, va, ep, cookie, flags, out
    );
    (code, context)
}

/// Binds a window to the first eight bytes of the memory.
fn bind_begin(pair: &Pair, rmr: DatRmrHandle, flags: DatCompletionFlags) {
    let (code, _) = bind(pair, rmr, pair.lmr_handle, pair.triplet(0, 8), flags);
    assert_eq!(code, SUCCESS);
}

fn bind_event(pair: &Pair) -> DatRmrBindCompletionEventData {
    let (event, _) = pair.dat.wait(pair.ends[0].request, LONG_US, 1).unwrap();
    assert_eq!(event.event_number, DAT_RMR_BIND_COMPLETION_EVENT);
    // SAFETY: the event number selects this member.
    unsafe { event.event_data.rmr_completion_event_data }
}

fn write_through(pair: &Pair, context: DatRmrContext, len: u32) -> DatDtoCompletionStatus {
    let mut local = pair.triplet(0, len);
    let remote = DatRmrTriplet {
        virtual_address: pair.lmr.registered_address + 1024,
        segment_length: len,
        rmr_context: context,
    };
    let (ep, cookie) = (pair.ends[1].ep, DatContext::from_u64(1));
    let (dat, local, remote) = (&pair.dat, &raw mut local, &raw const remote);
    succeed!(dat, ep_post_rdma_write, ep, 1, local, cookie, remote, 0);
    dto(&pair.dat.wait(pair.ends[1].request, LONG_US, 1).unwrap().0).status
}

#[test]
fn without_windows_an_rmr_is_not_supported() {
    let dat = Dat::open();
    let (pz, mut rmr) = (dat.pz(), ptr::null_mut());
    assert_eq!(call!(dat, rmr_create, pz, &raw mut rmr), 0x0009_0000);
    assert_eq!(call!(dat, rmr_create, pz, ptr::null_mut()), 0x8006_0026);
}

#[test]
fn a_bound_window_exposes_its_part_only() {
    let (pair, rmr) = pair_with_window();
    let (code, context) = bind(&pair, rmr, pair.lmr_handle, pair.triplet(1024, 64), 0);
    assert_eq!(code, SUCCESS);
    let done = bind_event(&pair);
    assert_eq!((done.rmr_handle, done.user_cookie.to_u64()), (rmr, COOKIE));
    assert_eq!(done.status, DAT_RMR_BIND_SUCCESS);
    pair.memory[63].store(0x5A, Ordering::SeqCst);
    assert_eq!(write_through(&pair, context, 64), DAT_DTO_SUCCESS);
    assert_eq!(pair.memory[1024 + 63].load(Ordering::SeqCst), 0x5A);
    assert_eq!(write_through(&pair, context, 65), DAT_DTO_ERR_REMOTE_ACCESS);
}

#[test]
fn a_bind_ends_the_previous_context() {
    let (pair, rmr) = pair_with_window();
    let (_, first) = bind(&pair, rmr, pair.lmr_handle, pair.triplet(1024, 64), 0);
    let (_, second) = bind(&pair, rmr, pair.lmr_handle, pair.triplet(1024, 64), 0);
    bind_event(&pair);
    bind_event(&pair);
    assert_ne!(first, second);
    assert_eq!(write_through(&pair, second, 8), DAT_DTO_SUCCESS);
    assert_eq!(write_through(&pair, first, 8), DAT_DTO_ERR_REMOTE_ACCESS);
}

#[test]
fn query_returns_the_binding_if_any() {
    let (pair, rmr) = pair_with_window();
    let mut param = DatRmrParam::zeroed();
    let query = |mask, param: *mut DatRmrParam| call!(pair.dat, rmr_query, rmr, mask, param);
    assert_eq!(query(DAT_RMR_FIELD_PZ_HANDLE, &raw mut param), SUCCESS);
    assert_eq!((param.pz_handle, param.rmr_context), (pair.pz, 0));
    let refused = query(DAT_RMR_FIELD_LMR_TRIPLET, &raw mut param);
    assert_eq!(refused, 0x8006_0026);
    assert_eq!(query(0x80, &raw mut param), 0x8006_0026);
    assert_eq!(query(1, ptr::null_mut()), 0x8006_0027);
    let triplet = pair.triplet(8, 16);
    let (_, context) = bind(&pair, rmr, pair.lmr_handle, triplet, 0);
    assert_eq!(query(DAT_RMR_FIELD_ALL, &raw mut param), SUCCESS);
    assert_eq!((param.lmr_triplet, param.rmr_context), (triplet, context));
}

#[test]
fn a_region_with_windows_is_not_freed_until_they_are_unbound() {
    let pair = Pair::connected("mw=1", THRESHOLD);
    let lmr = pair.lmr_handle;
    let windows = [rmr(&pair), rmr(&pair)];
    for rmr in windows {
        bind_begin(&pair, rmr, 0);
    }
    assert_eq!(call!(pair.dat, lmr_free, lmr), 0x0007_0000);
    // For an unbind the region is ignored, and the context may be omitted.
    let none = pair.triplet(0, 0);
    let (ep, cookie) = (pair.ends[0].ep, DatContext::from_u64(0));
    let (null, out) = (ptr::null_mut(), ptr::null_mut());
    let none = &raw const none;
    succeed!(
        pair.dat, rmr_bind, windows[0], null, none, 0, 0, ep, cookie, 0, out
    );
    assert_eq!(call!(pair.dat, lmr_free, lmr), 0x0007_0000);
    succeed!(pair.dat, rmr_free, windows[1]);
    succeed!(pair.dat, lmr_free, lmr);
    assert_eq!(call!(pair.dat, rmr_free, windows[1]), 0x8005_000E);
}

#[test]
fn binds_outside_the_region_or_zone_are_refused() {
    let pair = Pair::connected("mw=1", THRESHOLD);
    let mine = rmr(&pair);
    let lmr = pair.lmr_handle;
    let good = pair.triplet(0, 8);
    let mut before = good;
    before.virtual_address -= 1;
    let mut wraps = good;
    wraps.virtual_address = u64::MAX;
    for outside in [pair.triplet(4090, 7), before, wraps] {
        assert_eq!(bind(&pair, mine, lmr, outside, 0).0, 0x8006_0026);
    }
    assert_eq!(bind(&pair, mine, ptr::null_mut(), good, 0).0, 0x8005_000D);
    let mut foreign = ptr::null_mut();
    succeed!(pair.dat, rmr_create, pair.dat.pz(), &raw mut foreign);
    assert_eq!(bind(&pair, foreign, lmr, good, 0).0, 0x8006_0028);
}

#[test]
fn a_suppressed_bind_has_no_event() {
    let (pair, rmr) = pair_with_window();
    let flags = DAT_COMPLETION_SUPPRESS_FLAG;
    bind_begin(&pair, rmr, flags);
    assert_eq!(pair.dat.dequeue_code(pair.ends[0].request), 0x000D_0000);
    succeed!(pair.dat, rmr_free, rmr);
}

#[test]
fn a_refused_bind_names_the_bad_argument() {
    let (pair, rmr) = pair_with_window();
    let (lmr, ep) = (pair.lmr_handle, pair.ends[0].ep);
    let (triplet, cookie) = (pair.triplet(0, 8), DatContext::from_u64(COOKIE));
    let (triplet, mut context) = (&raw const triplet, 0);
    let none = ptr::null_mut();
    for (privileges, va, flags, out, code) in [
        (0x80, DAT_VA_TYPE_VA, 0, &raw mut context, 0x8006_0028),
        (0, 2, 0, &raw mut context, 0x8006_0029),
        (0, DAT_VA_TYPE_ZB, 0x40, &raw mut context, 0x8006_002C),
        (0, DAT_VA_TYPE_VA, 0, none, 0x8006_002D),
        (0, DAT_VA_TYPE_ZB, 0, &raw mut context, SUCCESS),
    ] {
        let bound = call!(
            pair.dat, rmr_bind, rmr, lmr, triplet, privileges, va, ep, cookie, flags, out
        );
        assert_eq!(bound, code);
    }
    let null = ptr::null();
    refused!(pair.dat, rmr_bind, rmr, lmr, null, 0, 0, ep, cookie, 0, none => 0x8006_0027);
}

#[test]
fn a_bind_reports_window_and_cookie_of_a_freed_window() {
    let pair = Pair::connected("mw=1", THRESHOLD);
    let (first, second) = (rmr(&pair), rmr(&pair));
    bind_begin(&pair, first, 0);
    succeed!(pair.dat, rmr_free, first);
    bind_begin(&pair, second, 0);
    for rmr in [first, second] {
        let done = bind_event(&pair);
        assert_eq!((done.rmr_handle, done.user_cookie.to_u64()), (rmr, COOKIE));
    }
    assert_eq!(pair.dat.ia().binds().len(), 0);
}

#[test]
fn a_freed_endpoint_has_no_binds() {
    let (pair, rmr) = pair_with_window();
    for flags in [0, DAT_COMPLETION_SUPPRESS_FLAG] {
        bind_begin(&pair, rmr, flags);
    }
    succeed!(pair.dat, ep_free, pair.ends[0].ep);
    assert_eq!(pair.dat.ia().binds().len(), 0);
}

#[test]
fn suppressed_binds_do_not_pile_up() {
    let (pair, rmr) = pair_with_window();
    let suppress = DAT_COMPLETION_SUPPRESS_FLAG;
    for _ in 0..2000 {
        bind_begin(&pair, rmr, suppress);
    }
    // The limit is the capacity of the queue pair and the EVD, with a margin.
    assert!(pair.dat.ia().binds().len() < 500);
    bind_begin(&pair, rmr, 0);
    assert_eq!(bind_event(&pair).user_cookie.to_u64(), COOKIE);
    let pending = pair.dat.ia().binds().len();
    assert_eq!(pending, 0, "all earlier binds have ended");
}

#[test]
fn of_two_binds_at_once_the_one_that_was_posted_last_is_the_binding() {
    let bench = Bench::new();
    let pz = pinned::<Pz<ScriptedRnic>>(bench.pz.handle());
    let spec = LmrSpec {
        mem_type: DAT_MEM_TYPE_VIRTUAL,
        region: DatRegionDescription {
            for_va: ptr::without_provenance_mut(0x1000),
        },
        len: 64,
        privileges: DAT_MEM_PRIV_ALL_FLAG,
        va_type: DAT_VA_TYPE_VA,
    };
    let lmr = Lmr::create(&bench.ia, &pz, spec).unwrap().handle();
    let (ep, rmr) = (bench.connected().handle(), Rmr::create(&pz).unwrap());
    let bind = move |len| {
        let rmr = pinned::<Rmr<ScriptedRnic>>(rmr);
        let ep = pinned::<Ep<ScriptedRnic>>(ep);
        let lmr = pinned::<Lmr<ScriptedRnic>>(lmr);
        let args = BindArgs {
            triplet: DatLmrTriplet {
                virtual_address: 0x1000,
                segment_length: len,
                lmr_context: 1,
            },
            privileges: DAT_MEM_PRIV_ALL_FLAG,
            va_type: DAT_VA_TYPE_VA,
            cookie: 0,
            flags: 0,
        };
        rmr.bind(Some(&lmr), &ep, &args).unwrap()
    };
    let second = Arc::new(Mutex::new(None));
    let thread = second.clone();
    // The first bind was posted, and its call has not returned.
    bench.script.meanwhile(move |_| {
        let other = std::thread::spawn(move || bind(2));
        // A bind that does not wait for the first one ends within this time.
        for _ in 0..100 {
            if other.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        *thread.lock().unwrap() = Some(other);
    });
    assert_eq!(bind(1), 1);
    let second = second.lock().unwrap().take().unwrap();
    assert_eq!(second.join().unwrap(), 2);
    let posted = bench.script.calls();
    assert_eq!(posted, [Call::Bind { rkey: 1 }, Call::Bind { rkey: 2 }]);
    let rmr = pinned::<Rmr<ScriptedRnic>>(rmr);
    assert_eq!(rmr.query(DAT_RMR_FIELD_ALL).unwrap().rmr_context, 2);
}
