use std::ptr;

use dat_abi::*;

use crate::ep::{Ep, EpParts};
use crate::evd::Evd;
use crate::fake_rnic::FakeRnic;
use crate::handle::{self, Kind};
use crate::harness::{Dat, SUCCESS, async_error, call, refused, succeed};
use crate::rnic::{AsyncEvent, RnicError, SrqToken};
use crate::scripted_rnic::{Bench, ScriptedRnic, pinned};
use crate::srq::Srq;

const GOOD: DatSrqAttr = DatSrqAttr {
    max_recv_dtos: 8,
    max_recv_iov: 2,
    low_watermark: 0,
};

fn create(dat: &Dat, pz: DatPzHandle, mut attr: DatSrqAttr) -> (u32, DatSrqHandle) {
    let mut srq = ptr::null_mut();
    let code = call!(dat, srq_create, dat.ia, pz, &raw mut attr, &raw mut srq);
    (code, srq)
}

#[test]
fn an_rnic_without_shared_receive_queues_has_no_such_model() {
    let dat = Dat::open();
    assert_eq!(create(&dat, dat.pz(), GOOD).0, 0x0009_0000);
    assert_eq!(dat.ia().provider_attr().srq_supported, DAT_FALSE);
}

#[test]
fn creation_checks_its_arguments() {
    let dat = Dat::open_with("srq=4");
    let (pz, mut attr, mut srq) = (dat.pz(), GOOD, ptr::null_mut());
    let attr = &raw mut attr;
    refused!(dat, srq_create, dat.ia, pz, ptr::null_mut(), &raw mut srq => 0x8006_0027);
    refused!(dat, srq_create, dat.ia, pz, attr, ptr::null_mut() => 0x8006_0028);
    for (max_recv_dtos, max_recv_iov) in [(0, 1), (-1, 1), (1025, 1), (1, 0), (1, 9)] {
        let attr = DatSrqAttr {
            max_recv_dtos,
            max_recv_iov,
            low_watermark: 0,
        };
        assert_eq!(create(&dat, pz, attr).0, 0x8006_0027);
    }
    for low_watermark in [-1, 9] {
        let attr = DatSrqAttr {
            low_watermark,
            ..GOOD
        };
        assert_eq!(create(&dat, pz, attr).0, 0x8006_0027);
    }
}

#[test]
fn protection_zone_of_another_ia_is_refused() {
    let (dat, other) = (Dat::open_with("srq=4"), Dat::open_with("srq=4"));
    assert_eq!(create(&dat, other.pz(), GOOD).0, 0x8005_000F);
}

#[test]
fn receives_are_taken_until_the_queue_is_full() {
    let dat = Dat::open_with("srq=4");
    let (_, srq) = create(&dat, dat.pz(), GOOD);
    let mut iov = [DatLmrTriplet::zeroed(); 3];
    let iov = iov.as_mut_ptr();
    let post = |count, iov| call!(dat, srq_post_recv, srq, count, iov, DatContext::from_u64(1));
    assert_eq!(post(-1, iov), 0x8006_0026);
    assert_eq!(post(3, iov), 0x8006_0026);
    assert_eq!(post(1, ptr::null_mut()), 0x8006_0027);
    for _ in 0..8 {
        assert_eq!(post(1, iov), SUCCESS);
    }
    assert_eq!(post(1, iov), 0x8003_0002);
}

#[test]
fn query_resize_and_watermark_answer_as_documented() {
    let dat = Dat::open_with("srq=4");
    let pz = dat.pz();
    let (_, srq) = create(&dat, pz, GOOD);
    let mut param = DatSrqParam::zeroed();
    succeed!(dat, srq_query, srq, DAT_SRQ_FIELD_ALL, &raw mut param);
    assert_eq!(param.srq_state, DAT_SRQ_STATE_OPERATIONAL);
    assert_eq!(param.pz_handle, pz);
    assert_eq!((param.max_recv_dtos, param.available_dto_count), (8, 0));
    assert_eq!(call!(dat, srq_query, srq, 1, ptr::null_mut()), 0x8006_0027);
    refused!(dat, srq_query, srq, 0x100, &raw mut param => 0x8006_0026);
    assert_eq!(param.outstanding_dto_count, 0);
    // The in-memory RNIC has no limits; an RNIC with limits is tested in the suites of the whole
    // stack.
    assert_eq!(call!(dat, srq_set_lw, srq, 1), 0x0009_0000);
    assert_eq!(call!(dat, srq_set_lw, srq, -1), 0x8006_0026);
    assert_eq!(call!(dat, srq_set_lw, srq, 9), 0x8006_0026);
}

#[test]
fn a_new_size_keeps_the_posted_receives() {
    let dat = Dat::open_with("srq=4");
    let (_, srq) = create(&dat, dat.pz(), GOOD);
    let mut iov = DatLmrTriplet::zeroed();
    let iov = &raw mut iov;
    let post = || call!(dat, srq_post_recv, srq, 1, iov, DatContext::from_u64(1));
    for _ in 0..8 {
        assert_eq!(post(), SUCCESS);
    }
    succeed!(dat, srq_resize, srq, 8);
    assert_eq!(call!(dat, srq_resize, srq, 0), 0x8007_0000);
    assert_eq!(call!(dat, srq_resize, srq, 7), 0x8007_0000);
    assert_eq!(call!(dat, srq_resize, srq, 1025), 0x8006_0026);
    assert_eq!(post(), 0x8003_0002);
    succeed!(dat, srq_resize, srq, 9);
    assert_eq!(post(), SUCCESS);
    let mut param = DatSrqParam::zeroed();
    succeed!(dat, srq_query, srq, 0, &raw mut param);
    assert_eq!((param.max_recv_dtos, param.available_dto_count), (9, 9));
}

#[test]
fn a_queue_in_use_is_not_freed_and_keeps_its_zone() {
    let dat = Dat::open_with("srq=4");
    let pz = dat.pz();
    let (_, srq) = create(&dat, pz, GOOD);
    let user = dat.pin::<Srq<FakeRnic>>(srq).add_user().unwrap();
    assert_eq!(call!(dat, srq_free, srq), 0x8007_0057);
    drop(user);
    assert_eq!(call!(dat, pz_free, pz), 0x8007_0053);
    succeed!(dat, srq_free, srq);
    assert_eq!(call!(dat, srq_free, srq), 0x8005_0019);
    succeed!(dat, pz_free, pz);
}

/// Delivers an upcall of the RNIC for a queue. Returns the number and the reason of the resulting
/// event, which concerns the queue.
fn reported(
    dat: &Dat,
    srq: DatSrqHandle,
    event: fn(SrqToken) -> AsyncEvent,
) -> Option<(DatEventNumber, DatAsyncErrorReason)> {
    dat.ia().rnic().raise(event(SrqToken(srq.addr() as u64)));
    dat.ia().rnic().settle();
    let event = dat.dequeue(dat.async_evd).ok()?;
    let error = async_error(&event);
    assert_eq!(error.dat_handle, srq);
    Some((event.event_number, error.reason))
}

#[test]
fn the_low_watermark_is_reported() {
    let dat = Dat::open_with("srq=4");
    let (_, srq) = create(&dat, dat.pz(), GOOD);
    let expected = (DAT_ASYNC_ERROR_EP_BROKEN, DAT_SRQ_LOW_WATERMARK_EVENT);
    assert_eq!(reported(&dat, srq, AsyncEvent::SrqLimit), Some(expected));
}

#[test]
fn the_low_watermark_of_a_new_queue_is_reported_although_it_is_reached_at_once() {
    let bench = Bench::new();
    let own = bench.ia.own_async_evd().unwrap();
    let events = pinned::<Evd<ScriptedRnic>>(own);
    let pz = handle::pin_handle(bench.pz.handle()).unwrap();
    let attr = DatSrqAttr {
        low_watermark: 4,
        ..GOOD
    };
    let srq = Srq::create(&bench.ia, &pz, &attr).unwrap();
    let event = events.dequeue().unwrap();
    let error = async_error(&event);
    assert_eq!(error.dat_handle, srq.as_dat());
    assert_eq!(error.reason, DAT_SRQ_LOW_WATERMARK_EVENT);
    bench.refuse(RnicError::NotSupported("limits"));
    assert!(Srq::create(&bench.ia, &pz, &attr).is_err());
    assert_eq!(bench.ia.child_count(Kind::Srq), 1, "a queue is left");
}

#[test]
fn a_failed_queue_is_reported_once_and_refuses_work() {
    let dat = Dat::open_with("srq=4");
    let (_, srq) = create(&dat, dat.pz(), GOOD);
    let expected = (DAT_ASYNC_ERROR_EP_BROKEN, DAT_SRQ_TRANSFER_TO_ERROR);
    assert_eq!(reported(&dat, srq, AsyncEvent::SrqFailed), Some(expected));
    assert_eq!(reported(&dat, srq, AsyncEvent::SrqFailed), None);
    let mut param = DatSrqParam::zeroed();
    let query = call!(dat, srq_query, srq, DAT_SRQ_FIELD_ALL, &raw mut param);
    assert_eq!((query, param.srq_state), (SUCCESS, DAT_SRQ_STATE_ERROR));
    let mut iov = DatLmrTriplet::zeroed();
    let iov = &raw mut iov;
    let cookie = DatContext::from_u64(1);
    assert_eq!(call!(dat, srq_post_recv, srq, 1, iov, cookie), 0x8007_0056);
    assert_eq!(call!(dat, srq_resize, srq, 9), 0x8007_0056);
    assert_eq!(call!(dat, srq_set_lw, srq, 1), 0x8007_0056);
    let user = dat.pin::<Srq<FakeRnic>>(srq).add_user();
    let refused = user.unwrap_err().code().0;
    assert_eq!(refused, 0x8007_0056, "used by an endpoint");
    succeed!(dat, srq_free, srq);
}

#[test]
fn receives_held_by_endpoints_are_outstanding() {
    let bench = Bench::new();
    let ep = |srq| {
        let parts = EpParts {
            srq,
            ..bench.parts()
        };
        Ep::create(&bench.ia, parts, None).unwrap()
    };
    let (shared, other) = (bench.srq(), bench.srq());
    for _ in 0..2 {
        ep(Some(shared.clone()));
    }
    ep(None);
    assert_eq!(Ep::outstanding_of(&shared), 0);
    bench.script.set_pending(3, 1);
    assert_eq!(Ep::outstanding_of(&shared), 6);
    assert_eq!(Ep::outstanding_of(&other), 0);
}
