use std::os::unix::thread::JoinHandleExt;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use dat_abi::*;

use crate::ep::Ep;
use crate::evd::Evd;
use crate::evd::wait::WakeOn;
use crate::fake_rnic::FakeRnic;
use crate::harness::{
    Dat, LONG_US, Pair, SUCCESS, async_error, call, dto, refused, software_word, succeed,
};
use crate::rnic::{AsyncEvent, CqToken};
use crate::scripted_rnic::{Bench, ScriptedRnic, pinned};

const THRESHOLD: DatCompletionFlags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
const DEFAULT: DatCompletionFlags = DAT_COMPLETION_DEFAULT_FLAG;

/// The flags of an EVD for software events that has no CQ, and of one that has.
const WITHOUT_AND_WITH_CQ: [DatEvdFlags; 2] = [
    DAT_EVD_SOFTWARE_FLAG,
    DAT_EVD_SOFTWARE_FLAG | DAT_EVD_DTO_FLAG,
];

fn param(dat: &Dat, evd: DatEvdHandle) -> DatEvdParam {
    let mut param = DatEvdParam::zeroed();
    succeed!(dat, evd_query, evd, DAT_EVD_FIELD_ALL, &raw mut param);
    param
}

/// Waits until a thread waits on the EVD. The only sign is that `dequeue` is refused.
fn await_waiter(dat: &Dat, evd: DatEvdHandle) {
    while dat.dequeue(evd).map(drop) != Err(0x8007_0000) {
        thread::yield_now();
    }
}

/// Waits until a waiter of the EVD has polled, found too little, and goes to sleep. Events that are
/// received before its first poll end its wait whether they wake waiters or not.
fn await_sleeper(evd: DatEvdHandle) {
    let evd = crate::handle::pin::<Evd<FakeRnic>>(evd).unwrap();
    while evd.counters().read(DCNT_EVD_WAIT_BLOCKED as usize, false) == 0 {
        thread::yield_now();
    }
}

/// Runs `action` while another thread waits for an event. Returns the result of the wait.
fn wait_during(dat: &Dat, evd: DatEvdHandle, action: impl FnOnce()) -> Result<(), (u32, i32)> {
    let word = evd.expose_provenance();
    thread::scope(|scope| {
        let wait = || dat.wait(ptr::with_exposed_provenance_mut(word), LONG_US, 1);
        let waiter = scope.spawn(move || wait().map(drop));
        await_waiter(dat, evd);
        action();
        waiter.join().unwrap()
    })
}

/// Returns the cookie of the first completion, and the number of remaining completions. Called on
/// another thread.
fn wait_for_cookie(dat: &Dat, evd: usize, threshold: i32) -> (u64, i32) {
    let evd = ptr::with_exposed_provenance_mut(evd);
    let (event, nmore) = dat.wait(evd, LONG_US, threshold).unwrap();
    (cookie(&event), nmore)
}

fn cookie(event: &DatEvent) -> u64 {
    dto(event).user_cookie.to_u64()
}

#[test]
fn creation_checks_its_arguments() {
    let dat = Dat::open_with("cqe_max=100");
    let null = ptr::null_mut();
    assert_eq!(dat.try_evd(0, null, DAT_EVD_DTO_FLAG), Err(0x8006_0026));
    assert_eq!(dat.try_evd(-1, null, DAT_EVD_DTO_FLAG), Err(0x8006_0026));
    assert_eq!(dat.try_evd(101, null, DAT_EVD_DTO_FLAG), Err(0x8003_0005));
    let bad = ptr::without_provenance_mut(3);
    assert_eq!(dat.try_evd(8, bad, DAT_EVD_DTO_FLAG), Err(0x8005_0013));
    let refused = dat.try_evd(8, dat.async_evd, DAT_EVD_DTO_FLAG);
    assert_eq!(refused, Err(0x8005_0013));
    let evd_out = ptr::null_mut();
    refused!(dat, evd_create, dat.ia, 8, null, DAT_EVD_DTO_FLAG, evd_out => 0x8006_0029);
    let mut evd = null;
    let (flags, out) = (DAT_EVD_DTO_FLAG, &raw mut evd);
    refused!(dat, evd_create, null, 8, null, flags, out => 0x8005_000B);
}

#[test]
fn streams_merge_as_declared_by_the_provider_attributes() {
    let dat = Dat::open();
    let streams = [0x001, 0x010, 0x020, 0x040, 0x080, 0x100];
    let table = dat.ia().provider_attr().evd_stream_merging_supported;
    for (row, first) in streams.iter().enumerate() {
        for (column, second) in streams.iter().enumerate() {
            let created = dat.try_evd(4, ptr::null_mut(), first | second);
            if table[row][column] == DAT_TRUE {
                assert!(created.is_ok(), "{first:#x} {second:#x}");
            } else {
                assert_eq!(created, Err(0x8006_0028), "{first:#x} {second:#x}");
            }
            let asynchronous = *first == 0x100 || *second == 0x100;
            let dto_and_connection = first | second == 0x060;
            let is_refused = table[row][column] == DAT_FALSE;
            assert_eq!(is_refused, asynchronous || dto_and_connection);
        }
    }
    assert!(dat.try_evd(4, ptr::null_mut(), 0).is_ok());
    let refused = dat.try_evd(4, ptr::null_mut(), DAT_EVD_DEFAULT_FLAG);
    assert_eq!(refused, Err(0x8006_0028));
    assert_eq!(dat.try_evd(4, ptr::null_mut(), 0x400), Err(0x8006_0028));
}

#[test]
fn query_returns_at_least_the_length_asked_for() {
    let dat = Dat::open();
    let evd = dat.evd_of_len(100, DAT_EVD_DTO_FLAG);
    let queried = param(&dat, evd);
    assert!(queried.evd_qlen >= 100);
    assert_eq!(queried.evd_flags, DAT_EVD_DTO_FLAG);
    let waitable = DAT_EVD_STATE_ENABLED | DAT_EVD_STATE_WAITABLE;
    assert_eq!(queried.evd_state, waitable);
    assert!(queried.cno_handle.is_null());
    assert_eq!(call!(dat, evd_query, evd, 1, ptr::null_mut()), 0x8006_0027);
}

#[test]
fn an_empty_evd_reports_it_with_the_class_bit_only_without_a_cq() {
    let dat = Dat::open();
    for (flags, code) in [
        (DAT_EVD_DTO_FLAG, 0x000D_0000),
        (DAT_EVD_RMR_BIND_FLAG, 0x000D_0000),
        (DAT_EVD_CONNECTION_FLAG, 0x800D_0000),
    ] {
        assert_eq!(dat.dequeue_code(dat.evd(flags)), code);
    }
    assert_eq!(dat.dequeue_code(dat.async_evd), 0x800D_0000);
    refused!(dat, evd_dequeue, dat.async_evd, ptr::null_mut() => 0x8006_0026);
}

#[test]
fn a_timeout_has_the_class_bit_except_on_a_cq_without_cno() {
    let dat = Dat::open();
    for timeout_us in [0, 1000] {
        let wait = |evd| dat.wait(evd, timeout_us, 1).map(drop);
        assert_eq!(wait(dat.evd(DAT_EVD_DTO_FLAG)), Err((0x000F_0000, 0)));
        assert_eq!(wait(dat.evd(DAT_EVD_SOFTWARE_FLAG)), Err((0x800F_0000, 0)));
        let with_cno = dat.try_evd(8, dat.cno(), DAT_EVD_DTO_FLAG).unwrap();
        assert_eq!(wait(with_cno), Err((0x800F_0000, 0)));
    }
}

#[test]
fn wait_checks_its_arguments() {
    let dat = Dat::open();
    let evd = dat.evd(DAT_EVD_SOFTWARE_FLAG);
    let (mut event, mut nmore) = (DatEvent::zeroed(), 0);
    let no_event = ptr::null_mut();
    refused!(dat, evd_wait, evd, 0, 1, no_event, &raw mut nmore => 0x8006_0028);
    refused!(dat, evd_wait, evd, 0, 1, &raw mut event, ptr::null_mut() => 0x8006_0029);
    for threshold in [0, -1, i32::MIN, i32::MAX, param(&dat, evd).evd_qlen + 1] {
        assert_eq!(dat.wait_code(evd, 0, threshold), (0x8006_0027, -1));
    }
    let most = param(&dat, evd).evd_qlen;
    assert_eq!(dat.wait_code(evd, 0, most), (0x800F_0000, 0));
}

#[test]
fn software_events_are_in_order_and_nmore_counts_the_remaining_ones() {
    let dat = Dat::open();
    let evd = dat.evd(DAT_EVD_SOFTWARE_FLAG);
    for word in 1..=4 {
        assert_eq!(dat.post_software(evd, word), SUCCESS);
    }
    let (event, nmore) = dat.wait(evd, 0, 1).unwrap();
    assert_eq!((software_word(&event), nmore), (1, 3));
    assert_eq!(event.evd_handle, evd);
    let (event, nmore) = dat.wait(evd, LONG_US, 3).unwrap();
    assert_eq!((software_word(&event), nmore), (2, 2));
    assert_eq!(dat.wait_code(evd, 0, 3), (0x800F_0000, 2));
    assert_eq!(software_word(&dat.dequeue(evd).unwrap()), 3);
    assert_eq!(software_word(&dat.dequeue(evd).unwrap()), 4);
    assert_eq!(dat.dequeue_code(evd), 0x800D_0000);
}

#[test]
fn a_waiter_is_woken_when_the_threshold_is_reached() {
    let dat = Dat::open();
    let evd = dat.evd(DAT_EVD_SOFTWARE_FLAG);
    let word = evd.expose_provenance();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let evd = ptr::with_exposed_provenance_mut(word);
            let (event, nmore) = dat.wait(evd, DAT_TIMEOUT_INFINITE, 3).unwrap();
            (software_word(&event), nmore)
        });
        await_waiter(&dat, evd);
        for word in 1..=3 {
            assert!(!waiter.is_finished());
            assert_eq!(dat.post_software(evd, word), SUCCESS);
        }
        assert_eq!(waiter.join().unwrap(), (1, 2));
    });
}

#[test]
fn one_waiter_at_a_time_and_no_thread_dequeues_meanwhile() {
    let dat = Dat::open();
    for flags in WITHOUT_AND_WITH_CQ {
        let evd = dat.evd(flags);
        let ended = wait_during(&dat, evd, || {
            assert_eq!(dat.wait_code(evd, 0, 1), (0x8007_0000, -1));
            assert_eq!(call!(dat, evd_resize, evd, 100), 0x8007_0000);
            assert_eq!(dat.post_software(evd, 1), SUCCESS);
        });
        assert_eq!(ended, Ok(()));
    }
}

#[test]
fn an_unwaitable_evd_wakes_its_waiter_and_can_still_be_dequeued() {
    let dat = Dat::open();
    for flags in WITHOUT_AND_WITH_CQ {
        let evd = dat.evd(flags);
        let ended = wait_during(&dat, evd, || {
            succeed!(dat, evd_set_unwaitable, evd);
        });
        assert_eq!(ended, Err((0x8007_0000, -1)));
        assert_eq!(dat.wait_code(evd, 0, 1), (0x8007_0049, -1));
        let state = param(&dat, evd).evd_state;
        assert_eq!(state, DAT_EVD_STATE_ENABLED | DAT_EVD_STATE_UNWAITABLE);
        assert_eq!(dat.post_software(evd, 7), SUCCESS);
        assert_eq!(software_word(&dat.dequeue(evd).unwrap()), 7);
        succeed!(dat, evd_clear_unwaitable, evd);
        assert_eq!(dat.post_software(evd, 8), SUCCESS);
        assert!(dat.wait(evd, 0, 1).is_ok());
    }
}

#[test]
fn closing_the_ia_ends_a_wait() {
    let dat = Dat::open();
    for flags in [DAT_EVD_SOFTWARE_FLAG, DAT_EVD_DTO_FLAG] {
        let evd = dat.evd(flags);
        let ended = wait_during(&dat, evd, || {
            if flags == DAT_EVD_DTO_FLAG {
                succeed!(dat, ia_close, dat.ia, DAT_CLOSE_ABRUPT_FLAG);
            } else {
                succeed!(dat, evd_free, evd);
            }
        });
        assert_eq!(ended, Err((0x8001_0000, -1)));
        assert_eq!(dat.wait_code(evd, 0, 1), (0x8005_0015, -1));
    }
}

#[test]
fn software_events_need_the_flag_the_number_and_room() {
    let dat = Dat::open();
    let evd = dat.evd(DAT_EVD_CONNECTION_FLAG);
    assert_eq!(dat.post_software(evd, 1), 0x8006_0025);
    let evd = dat.evd_of_len(1, DAT_EVD_SOFTWARE_FLAG);
    assert_eq!(call!(dat, evd_post_se, evd, ptr::null()), 0x8006_0026);
    let event = DatEvent::zeroed();
    assert_eq!(call!(dat, evd_post_se, evd, &raw const event), 0x8006_0026);
    let room = param(&dat, evd).evd_qlen;
    for _ in 0..room {
        assert_eq!(dat.post_software(evd, 1), SUCCESS);
    }
    assert_eq!(dat.post_software(evd, 1), 0x800E_0000);
    let event = dat.dequeue(dat.async_evd).unwrap();
    assert_eq!(event.event_number, DAT_ASYNC_ERROR_EVD_OVERFLOW);
    let error = async_error(&event);
    assert_eq!(error.dat_handle, evd);
    assert_eq!(error.reason, DAT_EVD_OVERFLOW_ERROR);
    // The caller of the post has the error and nothing was lost, so the EVD continues to work.
    for _ in 0..room {
        assert_eq!(software_word(&dat.dequeue(evd).unwrap()), 1);
    }
}

#[test]
fn a_lost_event_is_reported_and_ends_the_evd() {
    let dat = Dat::open();
    let evd = dat.evd_of_len(1, DAT_EVD_CONNECTION_FLAG);
    let pinned = dat.pin::<Evd<FakeRnic>>(evd);
    let mut event = DatEvent::zeroed();
    event.event_number = DAT_CONNECTION_EVENT_DISCONNECTED;
    for _ in 0..=param(&dat, evd).evd_qlen {
        assert_eq!(dat.dequeue_code(dat.async_evd), 0x800D_0000);
        pinned.post(event);
    }
    let event = dat.dequeue(dat.async_evd).unwrap();
    assert_eq!(event.event_number, DAT_ASYNC_ERROR_EVD_OVERFLOW);
    assert_eq!(dat.dequeue_code(evd), 0x8007_0000);
    assert_eq!(dat.wait_code(evd, 0, 1), (0x8007_0000, -1));
    drop(pinned);
    succeed!(dat, evd_free, evd);
}

#[test]
fn an_overflow_of_the_cq_ends_a_wait() {
    let dat = Dat::open();
    let evd = dat.evd(DAT_EVD_DTO_FLAG);
    let ended = wait_during(&dat, evd, || {
        dat.ia()
            .rnic()
            .raise(AsyncEvent::CqOverflow(CqToken(evd.addr() as u64)));
    });
    assert_eq!(ended, Err((0x8007_0000, -1)));
    let (event, _) = dat.wait(dat.async_evd, LONG_US, 1).unwrap();
    assert_eq!(event.event_number, DAT_ASYNC_ERROR_EVD_OVERFLOW);
}

#[test]
fn events_of_freed_objects_are_harmless() {
    let dat = Dat::open();
    for word in [0, 1, dat.ia.addr() as u64, u64::MAX] {
        dat.ia().rnic().raise(AsyncEvent::CqOverflow(CqToken(word)));
    }
    dat.ia().rnic().settle();
    assert_eq!(dat.dequeue_code(dat.async_evd), 0x800D_0000);
}

#[test]
fn resizing_keeps_what_is_queued_and_refuses_what_does_not_fit() {
    let dat = Dat::open_with("cqe_max=200");
    let evd = dat.evd_of_len(100, DAT_EVD_SOFTWARE_FLAG);
    succeed!(dat, evd_resize, evd, 100);
    assert_eq!(call!(dat, evd_resize, evd, 201), 0x8006_0026);
    assert_eq!(call!(dat, evd_resize, evd, 0), 0x8006_0026);
    for word in 1..=20 {
        assert_eq!(dat.post_software(evd, word), SUCCESS);
    }
    assert_eq!(call!(dat, evd_resize, evd, 19), 0x8007_0000);
    succeed!(dat, evd_resize, evd, 20);
    assert_eq!(dat.post_software(evd, 21), 0x800E_0000);
    assert_eq!(param(&dat, evd).evd_qlen, 20);
    assert_eq!(software_word(&dat.dequeue(evd).unwrap()), 1);
}

#[test]
fn a_resized_evd_has_room_for_16_as_a_new_one_has() {
    let dat = Dat::open();
    for flags in WITHOUT_AND_WITH_CQ {
        let evd = dat.evd_of_len(100, flags);
        succeed!(dat, evd_resize, evd, 1);
        assert_eq!(param(&dat, evd).evd_qlen, 16);
        for word in 1..=16 {
            assert_eq!(dat.post_software(evd, word), SUCCESS, "event {word}");
        }
        assert_eq!(call!(dat, evd_resize, evd, 15), 0x8007_0000);
        succeed!(dat, evd_resize, evd, 16);
    }
}

#[test]
fn an_evd_in_use_is_not_freed_and_a_freed_one_is_unknown() {
    let dat = Dat::open();
    let evd = dat.evd(DAT_EVD_CR_FLAG);
    let user = dat.pin::<Evd<FakeRnic>>(evd).add_user().unwrap();
    assert_eq!(call!(dat, evd_free, evd), 0x8007_004A);
    drop(user);
    succeed!(dat, evd_free, evd);
    assert_eq!(call!(dat, evd_free, evd), 0x8005_0015);
    assert_eq!(call!(dat, evd_free, dat.async_evd), 0x8007_004A);
}

#[test]
fn completions_carry_ep_cookie_length_and_operation() {
    let pair = Pair::connected("", THRESHOLD);
    assert_eq!(pair.recv(1, 0xAAAA_0000_0000_0001, DEFAULT), SUCCESS);
    pair.memory[63].store(0xA5, Ordering::SeqCst);
    assert_eq!(pair.send(0, u64::MAX, DEFAULT), SUCCESS);
    assert_eq!(pair.memory[2048 + 63].load(Ordering::SeqCst), 0xA5);
    let (event, nmore) = pair.dat.wait(pair.ends[0].request, LONG_US, 1).unwrap();
    let sent = dto(&event);
    assert_eq!((sent.user_cookie.to_u64(), nmore), (u64::MAX, 0));
    assert_eq!(sent.ep_handle, pair.ends[0].ep);
    assert_eq!((sent.status, sent.transfered_length), (DAT_DTO_SUCCESS, 64));
    assert_eq!(sent.operation, DAT_DTO_SEND);
    assert_eq!(event.evd_handle, pair.ends[0].request);
    let got = dto(&pair.dat.dequeue(pair.ends[1].recv).unwrap());
    assert_eq!(got.user_cookie.to_u64(), 0xAAAA_0000_0000_0001);
    assert_eq!(got.ep_handle, pair.ends[1].ep);
    assert_eq!(got.operation, DAT_DTO_RECEIVE);
}

#[test]
fn a_waiter_on_completions_is_woken_at_its_threshold() {
    let pair = Pair::connected("", THRESHOLD);
    let word = pair.ends[1].recv.expose_provenance();
    for cookie in 0..4 {
        assert_eq!(pair.recv(1, cookie, DEFAULT), SUCCESS);
    }
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait_for_cookie(&pair.dat, word, 3));
        await_waiter(&pair.dat, pair.ends[1].recv);
        for cookie in 0..3 {
            assert!(!waiter.is_finished());
            assert_eq!(pair.send(0, cookie, DEFAULT), SUCCESS);
        }
        assert_eq!(waiter.join().unwrap(), (0, 2));
    });
}

#[test]
fn an_unsignalled_completion_wakes_no_waiter_and_can_be_dequeued() {
    let pair = Pair::connected("", THRESHOLD);
    let (recv, word) = (pair.ends[1].recv, pair.ends[1].recv.expose_provenance());
    assert_eq!(pair.recv(1, 1, DAT_COMPLETION_UNSIGNALLED_FLAG), SUCCESS);
    assert_eq!(pair.recv(1, 2, DEFAULT), SUCCESS);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait_for_cookie(&pair.dat, word, 1));
        await_sleeper(recv);
        assert_eq!(pair.send(0, 1, DEFAULT), SUCCESS);
        // This is no proof, but with a waiter that wakes up wrongly the test nearly always fails
        // here.
        thread::sleep(Duration::from_millis(20));
        assert!(!waiter.is_finished());
        assert_eq!(pair.send(0, 2, DEFAULT), SUCCESS);
        assert_eq!(waiter.join().unwrap(), (1, 1));
    });
    assert_eq!(cookie(&pair.dat.dequeue(recv).unwrap()), 2);
}

#[test]
fn a_waiter_sees_completions_pulled_while_another_endpoint_was_freed() {
    let pair = Pair::connected("", DEFAULT);
    let evd = crate::handle::pin::<Evd<FakeRnic>>(pair.ends[1].recv).unwrap();
    let other = crate::handle::pin::<Ep<FakeRnic>>(pair.ends[0].ep).unwrap();
    assert_eq!(pair.recv(1, 7, DEFAULT), SUCCESS);
    let ticket = evd.lock().state.on_begin_wait().unwrap();
    assert!(evd.poll(1, ticket, WakeOn::NewEvent).unwrap().is_none());
    assert_eq!(pair.send(0, 1, DEFAULT), SUCCESS);
    evd.forget_ep(other.handle());
    let woken = evd.poll(1, ticket, WakeOn::NewEvent).unwrap().unwrap();
    assert_eq!(cookie(&woken.event), 7);
    evd.lock().state.on_end_wait();
}

#[test]
fn a_solicited_waiter_is_woken_by_solicited_sends_only() {
    let pair = Pair::connected("", DAT_COMPLETION_SOLICITED_WAIT_FLAG);
    let (recv, word) = (pair.ends[1].recv, pair.ends[1].recv.expose_provenance());
    assert_eq!(pair.dat.wait_code(recv, 0, 2), (0x8006_0027, -1));
    for cookie in 1..=2 {
        assert_eq!(pair.recv(1, cookie, DEFAULT), SUCCESS);
    }
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait_for_cookie(&pair.dat, word, 1));
        await_sleeper(recv);
        assert_eq!(pair.send(0, 1, DEFAULT), SUCCESS);
        thread::sleep(Duration::from_millis(20));
        assert!(!waiter.is_finished());
        assert_eq!(pair.send(0, 2, DAT_COMPLETION_SOLICITED_WAIT_FLAG), SUCCESS);
        assert_eq!(waiter.join().unwrap(), (1, 1));
    });
}

/// Some devices show only by their event that a message was solicited.
#[test]
fn a_solicited_message_that_was_polled_before_its_event_ends_the_wait() {
    let pair = Pair::connected("", DAT_COMPLETION_SOLICITED_WAIT_FLAG);
    let evd = crate::handle::pin::<Evd<FakeRnic>>(pair.ends[1].recv).unwrap();
    assert_eq!(pair.recv(1, 7, DEFAULT), SUCCESS);
    let ticket = evd.lock().state.on_begin_wait().unwrap();
    assert_eq!(pair.send(0, 1, DEFAULT), SUCCESS);
    assert!(evd.poll(1, ticket, WakeOn::NewEvent).unwrap().is_none());
    assert_eq!(evd.lock().count(), 1, "the message was received");
    evd.on_cq_ready();
    let woken = evd.poll(1, ticket, WakeOn::NewEvent).unwrap().unwrap();
    assert_eq!(cookie(&woken.event), 7);
    evd.lock().state.on_end_wait();
}

#[test]
fn an_evd_without_threshold_flag_refuses_thresholds() {
    let pair = Pair::connected("", DEFAULT);
    let recv = pair.ends[1].recv;
    assert_eq!(pair.dat.wait_code(recv, 0, 2), (0x8006_0027, -1));
    assert_eq!(pair.dat.wait_code(recv, 0, 1), (0x000F_0000, 0));
    // The EP of the request EVD requested thresholds.
    let request = pair.ends[1].request;
    assert_eq!(pair.dat.wait_code(request, 0, 2), (0x000F_0000, 0));
}

#[test]
fn many_completions_are_in_order_for_every_call() {
    let pair = Pair::connected("", THRESHOLD);
    let recv = pair.ends[1].recv;
    let mut next = 0;
    for round in 0..20 {
        for cookie in 0..60 {
            assert_eq!(pair.recv(1, round * 60 + cookie, DEFAULT), SUCCESS);
            assert_eq!(pair.send(0, cookie, DAT_COMPLETION_SUPPRESS_FLAG), SUCCESS);
        }
        // A wait with a threshold pulls everything out of the CQ; a dequeue takes one batch at a
        // time.
        let (event, nmore) = pair.dat.wait(recv, LONG_US, 40).unwrap();
        assert_eq!(nmore, 59);
        assert_eq!(cookie(&event), next);
        for due in next + 1..next + 60 {
            assert_eq!(cookie(&pair.dat.dequeue(recv).unwrap()), due);
        }
        next += 60;
    }
    assert_eq!(pair.dat.dequeue_code(recv), 0x000D_0000);
    assert_eq!(pair.dat.dequeue_code(pair.ends[0].request), 0x000D_0000);
}

#[test]
fn several_threads_dequeue_each_event_once() {
    let dat = Dat::open();
    let evd = dat.evd_of_len(4096, DAT_EVD_SOFTWARE_FLAG);
    let word = evd.expose_provenance();
    let taken = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let evd = ptr::with_exposed_provenance_mut(word);
                while taken.load(Ordering::SeqCst) < 3000 {
                    if dat.dequeue(evd).is_ok() {
                        taken.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        for word in 0..3000 {
            assert_eq!(dat.post_software(evd, word), SUCCESS);
        }
    });
    assert_eq!(taken.into_inner(), 3000);
    assert_eq!(dat.dequeue_code(evd), 0x800D_0000);
}

#[test]
fn waiting_and_interrupting_race_without_a_lost_wake_up() {
    let dat = Dat::open();
    let evd = dat.evd(DAT_EVD_SOFTWARE_FLAG | DAT_EVD_DTO_FLAG);
    let word = evd.expose_provenance();
    for round in 0..200 {
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let evd = ptr::with_exposed_provenance_mut(word);
                dat.wait(evd, LONG_US, 1)
                    .map(drop)
                    .map_err(|(code, _)| code)
            });
            if round % 2 == 0 {
                succeed!(dat, evd_set_unwaitable, evd);
                let result = waiter.join().unwrap();
                let is_interrupted = matches!(result, Err(0x8007_0000 | 0x8007_0049));
                assert!(is_interrupted, "{result:x?}");
                succeed!(dat, evd_clear_unwaitable, evd);
            } else {
                assert_eq!(dat.post_software(evd, 1), SUCCESS);
                assert_eq!(waiter.join().unwrap(), Ok(()));
            }
        });
    }
}

#[test]
fn an_event_after_the_last_poll_of_a_waiter_triggers_the_cno() {
    let dat = Dat::open();
    let cno = dat.cno();
    let evd = dat.try_evd(8, cno, DAT_EVD_SOFTWARE_FLAG).unwrap();
    for took in [true, false] {
        let waiter = dat.pin::<Evd<FakeRnic>>(evd);
        let (ticket, threshold) = waiter.begin_wait(1).unwrap();
        assert!(matches!(
            waiter.poll(threshold, ticket, WakeOn::Any),
            Ok(None)
        ));
        assert_eq!(dat.post_software(evd, 1), SUCCESS);
        waiter.end_wait(took);
        drop(waiter);
        let triggered = dat.cno_wait(cno, 0);
        assert_eq!(triggered.is_ok(), !took, "took: {took}");
        assert_eq!(software_word(&dat.dequeue(evd).unwrap()), 1);
    }
}

#[test]
fn no_completions_remain_of_a_freed_ep() {
    let pair = Pair::connected("", THRESHOLD);
    for cookie in 0..5 {
        assert_eq!(pair.recv(1, cookie, DEFAULT), SUCCESS);
    }
    assert_eq!(pair.send(0, 1, DEFAULT), SUCCESS);
    succeed!(pair.dat, ep_free, pair.ends[1].ep);
    assert_eq!(pair.dat.dequeue_code(pair.ends[1].recv), 0x000D_0000);
    succeed!(pair.dat, evd_free, pair.ends[1].recv);
    // The other side keeps its own completion.
    assert!(pair.dat.dequeue(pair.ends[0].request).is_ok());
}

/// Returns the number of overflows of `evd` that the asynchronous EVD reports.
fn overflows(dat: &Dat, evd: DatEvdHandle) -> usize {
    let events = std::iter::from_fn(|| dat.dequeue(dat.async_evd).ok());
    let overflows = events.map(|event| {
        assert_eq!(event.event_number, DAT_ASYNC_ERROR_EVD_OVERFLOW);
        let error = async_error(&event);
        assert_eq!(error.dat_handle, evd);
    });
    overflows.count()
}

#[test]
fn an_overflow_is_reported_once_until_there_is_room_again() {
    let dat = Dat::open();
    let evd = dat.evd_of_len(1, DAT_EVD_SOFTWARE_FLAG);
    while dat.post_software(evd, 1) == SUCCESS {}
    // More events than an asynchronous EVD holds.
    for _ in 0..5000 {
        assert_eq!(dat.post_software(evd, 1), 0x800E_0000);
    }
    assert_eq!(overflows(&dat, evd), 1);
    let takes: [fn(&Dat, DatEvdHandle); 2] = [
        |dat, evd| assert!(dat.dequeue(evd).is_ok()),
        |dat, evd| assert!(dat.wait(evd, 0, 1).is_ok()),
    ];
    for take in takes {
        take(&dat, evd);
        assert_eq!(dat.post_software(evd, 2), SUCCESS);
        for _ in 0..3 {
            assert_eq!(dat.post_software(evd, 3), 0x800E_0000);
        }
        assert_eq!(overflows(&dat, evd), 1);
    }
    // The loss of events is reported once, regardless of earlier reports.
    let pinned = dat.pin::<Evd<FakeRnic>>(evd);
    for _ in 0..3 {
        pinned.on_cq_overflow();
    }
    assert_eq!(overflows(&dat, evd), 1);
}

extern "C" fn do_nothing(_signal: libc::c_int) {}

/// Runs a signal handler that does nothing on `thread`.
fn interrupt<T>(thread: &thread::JoinHandle<T>) {
    // SAFETY: the handler only returns; the thread is not joined yet.
    unsafe {
        libc::signal(
            libc::SIGUSR2,
            do_nothing as extern "C" fn(libc::c_int) as libc::sighandler_t,
        );
        libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR2);
    }
}

#[test]
fn a_signal_handler_ends_a_wait_for_completions_and_no_other() {
    const BOTH: DatEvdFlags = DAT_EVD_DTO_FLAG | DAT_EVD_SOFTWARE_FLAG;
    let dat = std::sync::Arc::new(Dat::open());
    let with_cno = dat.try_evd(64, dat.cno(), BOTH).unwrap();
    for (evd, ends) in [
        (dat.evd(BOTH), true),
        (with_cno, false),
        (dat.evd(DAT_EVD_SOFTWARE_FLAG), false),
    ] {
        let (word, shared) = (evd.expose_provenance(), dat.clone());
        let waiter = thread::spawn(move || {
            let evd = ptr::with_exposed_provenance_mut(word);
            shared.wait(evd, LONG_US, 1).map(drop)
        });
        await_waiter(&dat, evd);
        // A signal before the thread sleeps is not noticed.
        let (interrupts, pause_ms) = if ends { (6000, 10) } else { (500, 0) };
        for _ in 0..interrupts {
            if waiter.is_finished() {
                break;
            }
            interrupt(&waiter);
            thread::sleep(Duration::from_millis(pause_ms));
        }
        assert_eq!(waiter.is_finished(), ends);
        if !ends {
            assert_eq!(dat.post_software(evd, 1), SUCCESS);
        }
        let expected = if ends { Err((0x0013_0000, -1)) } else { Ok(()) };
        assert_eq!(waiter.join().unwrap(), expected);
        // The EVD works as before.
        assert_eq!(dat.post_software(evd, 2), SUCCESS);
        assert!(dat.wait(evd, 0, 1).is_ok());
    }
}

#[test]
fn polling_any_evd_makes_progress() {
    let bench = Bench::new();
    let own = bench.ia.own_async_evd().unwrap();
    let asynchronous = pinned::<Evd<ScriptedRnic>>(own).to_arc();
    for evd in [&bench.dto, &bench.conn, &bench.cr, &asynchronous] {
        let before = bench.script.drives();
        assert!(evd.dequeue().is_err());
        assert_eq!(bench.script.drives(), before + 1, "{:?}", evd.handle());
        assert!(evd.wait(0, 1).is_err());
        assert_eq!(bench.script.drives(), before + 2, "{:?}", evd.handle());
    }
}

#[test]
fn a_receive_keeps_its_place_until_its_event_is_taken() {
    let pair = Pair::connected("", THRESHOLD);
    let post_64 = || (0..64).for_each(|cookie| assert_eq!(pair.recv(1, cookie, DEFAULT), SUCCESS));
    let is_full = || pair.recv(1, 99, DEFAULT) == 0x8003_0002;
    post_64();
    (0..64).for_each(|cookie| assert_eq!(pair.send(0, cookie, DEFAULT), SUCCESS));
    assert!(is_full(), "all have completed");
    let evd = pair.ends[1].recv;
    assert!(pair.dat.wait(evd, LONG_US, 1).is_ok());
    assert_eq!(pair.recv(1, 64, DEFAULT), SUCCESS, "one was taken");
    assert!(is_full(), "the wait has pulled all completions");
    (0..63).for_each(|_| assert!(pair.dat.dequeue(evd).is_ok()));
    (0..63).for_each(|_| assert_eq!(pair.recv(1, 0, DEFAULT), SUCCESS));
    assert!(is_full());
}
