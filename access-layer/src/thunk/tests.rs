use std::ffi::CString;
use std::ptr;

use dat_abi::*;

use crate::cno::Cno;
use crate::evd::Evd;
use crate::fake_rnic::FakeRnic;
use crate::handle::Kind;
use crate::harness::{Dat, LONG_US, Pair, SUCCESS, call, refused, succeed};
use crate::srq::Srq;

fn null<T>() -> *mut T {
    ptr::null_mut()
}

/// Calls every slot whose first argument is a handle of one kind with `$bad` and otherwise valid
/// arguments. Each call must return its own `DAT_INVALID_HANDLE`.
macro_rules! expect_refusals {
    (
        $dat:expr, $bad:expr,
        $($code:literal: $($slot:ident($($arg:expr),* $(,)?)),+ $(,)?;)+
    ) => {$($(
        let code = call!($dat, $slot, $bad $(, $arg)*);
        assert_eq!(code, $code, "{} of {:p}", stringify!($slot), $bad);
    )+)+};
}

/// Calls every slot that takes a handle first, except the slots of the kind `skip`.
fn refuse_everywhere(dat: &Dat, bad: DatHandle, skip: Option<Kind>) {
    let (mut handle, mut word): (DatHandle, u64) = (null(), 0);
    let (handle, word) = (&raw mut handle, &raw mut word);
    let agent = DatOsWaitProxyAgent::zeroed();
    let cookie = DatContext::from_u64(0);
    let region = DatRegionDescription::zeroed();
    if skip != Some(Kind::Ia) {
        expect_refusals! { dat, bad,
            0x8005_000B: ia_query(null(), 0, null(), 0, null()), ia_close(0),
            cno_create(agent, handle), evd_create(8, null(), 0, handle), pz_create(handle),
            lmr_create(0, region, 8, null(), 0, 0, handle, null(), null(), null(), null()),
            ep_create(null(), null(), null(), null(), null(), handle),
            ep_create_with_srq(null(), null(), null(), null(), null(), null(), handle),
            srq_create(null(), null(), handle), psp_create(1, null(), 0, handle),
            psp_create_any(word, null(), 0, handle), rsp_create(1, null(), null(), handle),
            csp_create(null(), null(), null(), handle), cno_fd_create(null(), handle),
            lmr_sync_rdma_read(ptr::null(), 0), lmr_sync_rdma_write(ptr::null(), 0),
            ia_ha_related(null(), null());
        }
    }
    if skip != Some(Kind::Evd) {
        let (mut event, mut nmore) = (DatEvent::zeroed(), 0);
        let event = &raw mut event;
        expect_refusals! { dat, bad,
            0x8005_0015: evd_query(0, null()), evd_modify_cno(null()), evd_enable(), evd_disable(),
            evd_wait(0, 1, event, &raw mut nmore), evd_resize(9), evd_post_se(event),
            evd_dequeue(event), evd_free(), evd_set_unwaitable(), evd_clear_unwaitable();
        }
    }
    if skip != Some(Kind::Cno) {
        expect_refusals! { dat, bad,
            0x8005_0013: cno_modify_agent(agent), cno_query(0, null()), cno_free(),
            cno_trigger(handle);
            0x0005_0013: cno_wait(0, handle);
        }
    }
    if skip != Some(Kind::Ep) {
        refuse_as_ep(dat, bad, cookie);
    }
    if skip != Some(Kind::Pz) {
        expect_refusals! { dat, bad,
            0x8005_000F: pz_query(0, null()), pz_free(), rmr_create(handle),
            rmr_create_for_ep(handle);
        }
    }
    let triplet = ptr::null();
    expect_refusals! { dat, bad,
        0x8005_000D: lmr_query(0, null()), lmr_free();
        0x8005_000E: rmr_query(0, null()), rmr_free(),
        rmr_bind(null(), triplet, 0, 0, null(), cookie, 0, null());
        0x8005_0010: psp_query(0, null()), psp_free();
        0x8005_001A: csp_query(0, null()), csp_free();
        0x8005_0011: rsp_query(0, null()), rsp_free();
        0x8005_0012: cr_query(0, null()), cr_accept(null(), 0, ptr::null()),
        cr_reject(0, ptr::null()), cr_handoff(0);
        0x8005_0019: srq_free(), srq_post_recv(0, null(), cookie), srq_query(0, null()),
        srq_resize(9), srq_set_lw(9);
    }
    if skip.is_none() {
        let mut context = cookie;
        let mut kind = 0;
        expect_refusals! { dat, bad,
            0x8005_001B: set_consumer_context(cookie), get_consumer_context(&raw mut context),
            get_handle_type(&raw mut kind);
        }
    }
}

fn refuse_as_ep(dat: &Dat, bad: DatHandle, cookie: DatContext) {
    let address = dat.ia().local_address();
    let mut remote = DatRmrTriplet::zeroed();
    let remote = &raw mut remote;
    expect_refusals! { dat, bad,
        0x8005_000C: ep_query(0, null()), ep_modify(0, null()),
        ep_connect(address, 1, LONG_US, 0, ptr::null(), 0, 0),
        ep_dup_connect(null(), LONG_US, 0, ptr::null(), 0), ep_disconnect(0),
        ep_common_connect(address, LONG_US, 0, ptr::null()),
        ep_post_send(0, null(), cookie, 0), ep_post_recv(0, null(), cookie, 0),
        ep_post_rdma_read(0, null(), cookie, remote, 0),
        ep_post_rdma_write(0, null(), cookie, remote, 0),
        ep_post_send_with_invalidate(0, null(), cookie, 0, 0, 0),
        ep_post_rdma_read_to_rmr(remote, cookie, remote, 0),
        ep_get_status(null(), null(), null()), ep_free(), ep_reset(),
        ep_recv_query(null(), null()), ep_set_watermark(0, 0);
    }
}

#[test]
fn null_and_invented_handles_are_refused_by_every_entry() {
    let dat = Dat::open();
    for word in [
        0,
        1,
        2,
        3,
        8,
        0x1000,
        0xDEAD_BEEF_0000,
        usize::MAX - 7,
        usize::MAX,
    ] {
        refuse_everywhere(&dat, ptr::without_provenance_mut(word), None);
    }
}

#[test]
fn own_memory_that_is_no_handle_is_refused_by_every_entry() {
    let dat = Dat::open();
    let mut local = [0_u64; 32];
    refuse_everywhere(&dat, local.as_mut_ptr().cast(), None);
    let evd = dat.evd(DAT_EVD_DTO_FLAG);
    for distance in [1, 4, 7, 128, 136, 144, 152, 160, 168, 176, 184] {
        refuse_everywhere(&dat, evd.wrapping_byte_add(distance), None);
        refuse_everywhere(&dat, evd.wrapping_byte_sub(distance), None);
    }
}

#[test]
fn handles_of_another_kind_are_refused_by_every_entry() {
    let dat = Dat::open();
    let pz = dat.pz();
    refuse_everywhere(&dat, dat.ia, Some(Kind::Ia));
    refuse_everywhere(&dat, dat.async_evd, Some(Kind::Evd));
    refuse_everywhere(&dat, dat.cno(), Some(Kind::Cno));
    refuse_everywhere(&dat, pz, Some(Kind::Pz));
}

#[test]
fn freed_handles_are_refused_by_every_entry() {
    let dat = Dat::open();
    let (pz, evd, cno) = (dat.pz(), dat.evd(0), dat.cno());
    succeed!(dat, pz_free, pz);
    succeed!(dat, evd_free, evd);
    succeed!(dat, cno_free, cno);
    let (code, ia, _) = dat.try_open(8, ptr::null_mut());
    assert_eq!(code, SUCCESS);
    succeed!(dat, ia_close, ia, DAT_CLOSE_GRACEFUL_FLAG);
    for freed in [pz, evd, cno, ia] {
        refuse_everywhere(&dat, freed, None);
    }
}

#[test]
fn handles_among_the_other_arguments_are_checked() {
    let dat = Dat::open();
    let bad: DatHandle = ptr::without_provenance_mut(0x1000);
    let (pz, evd) = (dat.pz(), dat.evd(DAT_EVD_DTO_FLAG));
    let mut out: DatHandle = null();
    let out = &raw mut out;
    let region = DatRegionDescription::zeroed();
    let none = null::<u32>();
    let none64 = null::<u64>();
    let code = call!(
        dat, lmr_create, dat.ia, 0, region, 8, bad, 0, 0, out, none, none, none64, none64
    );
    assert_eq!(code, 0x8005_000F);
    let (ia, attr) = (dat.ia, ptr::null());
    let create = |pz, recv, request, connect| {
        call!(dat, ep_create, ia, pz, recv, request, connect, attr, out)
    };
    assert_eq!(create(bad, null(), null(), null()), 0x8005_000F);
    assert_eq!(create(pz, bad, null(), null()), 0x8005_0016);
    assert_eq!(create(pz, null(), bad, null()), 0x8005_0015);
    assert_eq!(create(pz, null(), null(), bad), 0x8005_0017);
    assert_eq!(call!(dat, evd_modify_cno, evd, bad), 0x8005_0013);
    assert_eq!(call!(dat, psp_create, dat.ia, 1, bad, 0, out), 0x8005_0014);
    assert_eq!(call!(dat, psp_create, dat.ia, 1, evd, 0, out), 0x8005_0014);
    refused!(dat, rsp_create, dat.ia, 1, bad, evd, out => 0x8005_000C);
    let mut attr = DatSrqAttr::zeroed();
    refused!(dat, srq_create, dat.ia, bad, &raw mut attr, out => 0x8005_000F);
}

#[test]
fn kinds_and_contexts_are_those_of_the_object() {
    let pair = Pair::connected("srq=1 mw=1", 0);
    let dat = &pair.dat;
    let (rmr, requests) = (dat.rmr(pair.pz), dat.evd(DAT_EVD_CR_FLAG));
    let srq = dat.srq(pair.pz);
    assert_eq!(dat.pin::<Srq<FakeRnic>>(srq).handle().as_dat(), srq);
    let objects = [
        (dat.ia, DAT_HANDLE_TYPE_IA),
        (dat.async_evd, DAT_HANDLE_TYPE_EVD),
        (dat.cno(), DAT_HANDLE_TYPE_CNO),
        (pair.pz, DAT_HANDLE_TYPE_PZ),
        (pair.ends[0].ep, DAT_HANDLE_TYPE_EP),
        (srq, DAT_HANDLE_TYPE_SRQ),
        (pair.lmr_handle, DAT_HANDLE_TYPE_LMR),
        (rmr, DAT_HANDLE_TYPE_RMR),
        (dat.psp(requests).0, DAT_HANDLE_TYPE_PSP),
    ];
    for (handle, expected) in objects {
        let mut kind = 99;
        succeed!(dat, get_handle_type, handle, &raw mut kind);
        assert_eq!(kind, expected);
        let mut context = DatContext::from_u64(1);
        succeed!(dat, get_consumer_context, handle, &raw mut context);
        assert_eq!(context.to_u64(), 0);
        let cookie = DatContext::from_u64(u64::MAX - u64::from(kind));
        succeed!(dat, set_consumer_context, handle, cookie);
        succeed!(dat, get_consumer_context, handle, &raw mut context);
        assert_eq!(context, cookie);
        refused!(dat, get_consumer_context, handle, ptr::null_mut() => 0x8006_0026);
        refused!(dat, get_handle_type, handle, ptr::null_mut() => 0x8006_0026);
    }
}

#[test]
fn objects_begin_with_the_address_of_their_provider() {
    let dat = Dat::open();
    for handle in [
        dat.ia,
        dat.async_evd,
        dat.pz(),
        dat.cno(),
        dat.evd(DAT_EVD_CR_FLAG),
    ] {
        // SAFETY: a live handle is the address of a word.
        let word = unsafe { handle.cast::<*const DatProvider>().read() };
        assert!(ptr::eq(word, dat.provider));
    }
    let handle = dat.pin::<Evd<FakeRnic>>(dat.async_evd).handle().as_dat();
    assert_eq!(handle, dat.async_evd);
    let ia = dat.pin::<Cno<FakeRnic>>(dat.cno()).query().ia_handle;
    assert_eq!(ia, dat.ia);
}

#[test]
fn no_slot_of_the_table_is_empty() {
    let dat = Dat::open();
    let words = size_of::<DatProvider>() / size_of::<usize>();
    let table = ptr::from_ref(dat.provider).cast::<usize>();
    for word in 2..words {
        // SAFETY: the address is inside the table, which consists of words.
        assert_ne!(unsafe { table.add(word).read() }, 0, "slot {}", word * 8);
    }
    // SAFETY: the table contains a C string that is never freed.
    let name = unsafe { std::ffi::CStr::from_ptr(dat.provider.device_name) };
    assert_eq!(name, CString::new(dat.name.clone()).unwrap().as_c_str());
}

#[test]
fn no_adapter_replaces_another() {
    let dat = Dat::open();
    let mut answer = 7;
    let name = dat.provider.device_name.cast_mut();
    let related = |name, answer| call!(dat, ia_ha_related, dat.ia, name, answer);
    assert_eq!(related(name, &raw mut answer), SUCCESS);
    assert_eq!(answer, DAT_FALSE);
    assert_eq!(dat.ia().provider_attr().ha_supported, DAT_FALSE);
    assert_eq!(related(null(), &raw mut answer), 0x8006_0026);
    assert_eq!(related(name, null()), 0x8006_0027);
}

#[test]
fn an_endpoint_can_be_modified_any_number_of_times() {
    let dat = Dat::open();
    let end = dat.end(dat.pz(), DAT_COMPLETION_EVD_THRESHOLD_FLAG);
    let mut param = DatEpParam::zeroed();
    for round in 0..200 {
        // Each change replaces the queue pair.
        param.ep_attr.max_recv_dtos = 16 + round % 2;
        let mask = DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS;
        let code = call!(dat, ep_modify, end.ep, mask, &raw const param);
        assert_eq!(code, SUCCESS, "{round}");
    }
}
