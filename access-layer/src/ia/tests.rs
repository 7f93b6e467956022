use std::ffi::CStr;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use dat_abi::*;

use crate::evd::Evd;
use crate::fake_rnic::FakeRnic;
use crate::handle::{Kind, QUIESCENCE_LIMIT};
use crate::harness::{Dat, Pair, SUCCESS, async_error, call, refused, succeed, unique};
use crate::provider;
use crate::rnic::{AsyncEvent, RnicConfig};

fn close(dat: &Dat, flags: DatCloseFlags) -> u32 {
    call!(dat, ia_close, dat.ia, flags)
}

#[test]
fn opening_checks_its_arguments() {
    let dat = Dat::open();
    let name = dat.provider.device_name.cast_mut();
    let (mut ia, mut evd) = (ptr::null_mut(), ptr::null_mut());
    let open = |name, qlen, evd: *mut DatEvdHandle, ia: *mut DatIaHandle| {
        call!(dat, ia_open, name, qlen, evd, ia)
    };
    let unknown = c"no-such-ia".as_ptr().cast_mut();
    for name in [ptr::null_mut(), unknown] {
        assert_eq!(open(name, 8, &raw mut evd, &raw mut ia), 0x8006_0025);
    }
    assert_eq!(open(name, 8, ptr::null_mut(), &raw mut ia), 0x8006_0027);
    assert_eq!(open(name, 8, &raw mut evd, ptr::null_mut()), 0x8006_0028);
    assert_eq!(open(name, 0, &raw mut evd, &raw mut ia), 0x8006_0026);
    assert_eq!(open(name, -1, &raw mut evd, &raw mut ia), 0x8006_0026);
    let are_null = ia.is_null() && evd.is_null();
    assert!(are_null, "no result is written on failure");
}

#[test]
fn a_device_that_is_absent_is_an_invalid_name() {
    let ia_name = format!("absent{}", unique());
    let ia_params = "fail=eth9".to_owned();
    let config = RnicConfig {
        ia_name: ia_name.clone(),
        ia_params,
    };
    let provider = provider::announce::<FakeRnic>(config).get();
    let (mut ia, mut evd) = (ptr::null_mut(), ptr::null_mut());
    let open = provider.ia_open.unwrap();
    let name = provider.device_name.cast_mut();
    // SAFETY: the arguments are a C string and pointers to locals.
    let code = unsafe { open(name, 8, &raw mut evd, &raw mut ia) };
    assert_eq!(code.0, 0x8006_0025);
    assert!(ia.is_null() && evd.is_null());
}

#[test]
fn an_asynchronous_evd_can_be_shared_between_instances_of_a_device() {
    let dat = Dat::open();
    let (code, second, evd) = dat.try_open(0, dat.async_evd);
    assert_eq!((code, evd), (SUCCESS, dat.async_evd));
    succeed!(dat, ia_close, second, DAT_CLOSE_GRACEFUL_FLAG);
    for wrong in [
        dat.evd(DAT_EVD_DTO_FLAG),
        dat.ia,
        ptr::without_provenance_mut(2),
    ] {
        assert_eq!(dat.try_open(8, wrong).0, 0x8005_0018);
    }
    let other_ia = Dat::open();
    assert_eq!(dat.try_open(8, other_ia.async_evd).0, 0x8005_0018);
}

#[test]
fn an_instance_may_use_the_asynchronous_evd_of_another() {
    let dat = Dat::open();
    let (code, second, evd) = dat.try_open(8, DAT_EVD_ASYNC_EXISTS);
    assert_eq!((code, evd), (SUCCESS, DAT_EVD_OUT_OF_SCOPE));
    let mut async_evd = ptr::null_mut();
    let (none, no_provider) = (ptr::null_mut(), ptr::null_mut());
    let query = |ia, async_evd: *mut DatEvdHandle| {
        call!(dat, ia_query, ia, async_evd, 0, none, 0, no_provider)
    };
    assert_eq!(query(second, &raw mut async_evd), SUCCESS);
    assert_eq!(async_evd, DAT_EVD_OUT_OF_SCOPE);
    assert_eq!(query(dat.ia, &raw mut async_evd), SUCCESS);
    assert_eq!(async_evd, dat.async_evd);
    assert_eq!(query(dat.ia, ptr::null_mut()), SUCCESS);
    succeed!(dat, ia_close, second, DAT_CLOSE_GRACEFUL_FLAG);
}

#[test]
fn a_query_checks_masks_and_pointers_and_fills_whole_structures() {
    let dat = Dat::open();
    let mut ia = DatIaAttr::zeroed();
    let mut provider = DatProviderAttr::zeroed();
    let query = |ia_mask, ia: *mut DatIaAttr, provider_mask, provider: *mut DatProviderAttr| {
        let (own, mask, evd) = (dat.ia, provider_mask, ptr::null_mut());
        call!(dat, ia_query, own, evd, ia_mask, ia, mask, provider)
    };
    let (no_ia, no_provider) = (ptr::null_mut(), ptr::null_mut());
    assert_eq!(query(1 << 38, &raw mut ia, 0, no_provider), 0x8006_0027);
    assert_eq!(query(1, no_ia, 0, no_provider), 0x8006_0028);
    assert_eq!(query(0, no_ia, 1 << 31, &raw mut provider), 0x8006_0029);
    assert_eq!(query(0, no_ia, 1, no_provider), 0x8006_002A);
    // dtest requests one field and reads another.
    let code = query(1, &raw mut ia, 0x4000_0000, &raw mut provider);
    assert_eq!(code, SUCCESS);
    assert!(ia.max_eps > 0 && ia.max_evd_qlen > 0 && ia.max_message_size > 0);
    assert!(provider.num_provider_specific_attr > 0 && provider.max_private_data_size >= 56);
    // SAFETY: the call has filled the structure; the address is valid while the IA is open.
    assert_eq!(unsafe { *ia.ia_address_ptr }.sa_data[2..6], [127, 0, 0, 1]);
}

#[test]
fn a_graceful_close_is_refused_while_objects_other_than_cnos_exist() {
    let dat = Dat::open();
    assert_eq!(close(&dat, 2), 0x8006_0026);
    let pz = dat.pz();
    assert_eq!(close(&dat, DAT_CLOSE_GRACEFUL_FLAG), 0x8007_0050);
    succeed!(dat, pz_free, pz);
    let evd = dat.evd(DAT_EVD_CR_FLAG);
    assert_eq!(close(&dat, DAT_CLOSE_GRACEFUL_FLAG), 0x8007_0050);
    succeed!(dat, evd_free, evd);
    let cno = dat.cno();
    let closed = close(&dat, DAT_CLOSE_GRACEFUL_FLAG);
    assert_eq!(closed, SUCCESS, "CNOs do not count");
    assert_eq!(close(&dat, DAT_CLOSE_GRACEFUL_FLAG), 0x8005_000B);
    assert_eq!(call!(dat, cno_free, cno), 0x8005_0013);
    assert_eq!(dat.dequeue_code(dat.async_evd), 0x8005_0015);
}

#[test]
fn an_abrupt_close_ends_everything_connected_or_not() {
    let pair = Pair::connected("srq=1 mw=1", DAT_COMPLETION_EVD_THRESHOLD_FLAG);
    let dat = &pair.dat;
    for cookie in 0..5 {
        assert_eq!(pair.recv(0, cookie, 0), SUCCESS);
    }
    let (cno, rmr) = (dat.cno(), dat.rmr(pair.pz));
    succeed!(dat, evd_modify_cno, pair.ends[0].recv, cno);
    let srq = dat.srq(pair.pz);
    let ia = Arc::downgrade(&dat.ia().to_arc());
    for flags in [DAT_CLOSE_GRACEFUL_FLAG, DAT_CLOSE_ABRUPT_FLAG] {
        let expected = if flags == DAT_CLOSE_ABRUPT_FLAG {
            SUCCESS
        } else {
            0x8007_0050
        };
        assert_eq!(close(dat, flags), expected);
    }
    let is_gone = ia.upgrade().is_none();
    assert!(is_gone, "the RNIC is shut down when the close returns");
    for freed in [pair.pz, pair.ends[0].ep, pair.ends[1].recv, cno, rmr, srq] {
        let mut kind = 0;
        refused!(dat, get_handle_type, freed, &raw mut kind => 0x8005_001B);
    }
}

#[test]
fn an_instance_whose_evd_serves_another_ends_with_the_last_user() {
    let dat = Dat::open();
    let evd = dat.evd(DAT_EVD_CONNECTION_FLAG);
    let (code, second, _) = dat.try_open(8, ptr::null_mut());
    assert_eq!(code, SUCCESS);
    let (mut ep, null) = (ptr::null_mut(), ptr::null_mut());
    let mut attr = DatEpAttr::zeroed();
    let (attr, out) = (&raw mut attr, &raw mut ep);
    succeed!(dat, ep_create, second, null, null, null, evd, attr, out);
    assert_eq!(call!(dat, evd_free, evd), 0x8007_004A);
    let (first, start) = (Arc::downgrade(&dat.ia().to_arc()), Instant::now());
    assert_eq!(close(&dat, DAT_CLOSE_ABRUPT_FLAG), SUCCESS);
    assert!(start.elapsed() < QUIESCENCE_LIMIT, "no thread is in a call");
    assert!(first.upgrade().is_some());
    succeed!(dat, ep_free, ep);
    assert!(first.upgrade().is_none());
    succeed!(dat, ia_close, second, DAT_CLOSE_GRACEFUL_FLAG);
}

#[test]
fn children_are_added_and_removed() {
    let dat = Dat::open();
    let ia = dat.ia();
    assert_eq!(ia.child_count(Kind::Pz), 0);
    assert_eq!(ia.child_count(Kind::Evd), 1);
    let pz = dat.pz();
    assert_eq!(ia.child_count(Kind::Pz), 1);
    succeed!(dat, pz_free, pz);
    assert_eq!(ia.child_count(Kind::Pz), 0);
}

#[test]
fn the_loss_of_the_device_is_reported_with_the_ia() {
    let dat = Dat::open();
    dat.ia().rnic().raise(AsyncEvent::DeviceFatal);
    dat.ia().rnic().settle();
    let event = dat.dequeue(dat.async_evd).unwrap();
    assert_eq!(event.event_number, DAT_ASYNC_ERROR_IA_CATASTROPHIC);
    let error = async_error(&event);
    assert_eq!(error.dat_handle, dat.ia);
}

#[test]
fn events_of_a_thousand_endpoints_fit_into_the_shortest_asynchronous_evd() {
    let dat = Dat::open();
    for _ in 0..1_000 {
        dat.ia().rnic().raise(AsyncEvent::DeviceFatal);
    }
    dat.ia().rnic().settle();
    for read in 0..1_000 {
        let event = dat.dequeue(dat.async_evd);
        assert!(event.is_ok(), "after {read}: {event:x?}");
    }
}

#[test]
fn an_asynchronous_evd_has_the_requested_length_up_to_the_limit() {
    for (requested, expected) in [(8, 1024), (5000, 5000), (i32::MAX, 6000)] {
        let dat = Dat::open_with("cqe_max=6000");
        let (code, _, evd) = dat.try_open(requested, ptr::null_mut());
        assert_eq!(code, SUCCESS);
        assert_eq!(dat.pin::<Evd<FakeRnic>>(evd).qlen(), expected);
    }
}

#[test]
fn named_attributes_are_pairs_of_strings() {
    let dat = Dat::open();
    let provider = dat.ia().provider_attr().to_owned();
    let count = usize::try_from(provider.num_provider_specific_attr).unwrap();
    // SAFETY: the IA is open, and the array has `count` entries.
    let array = unsafe { std::slice::from_raw_parts(provider.provider_specific_attr, count) };
    let value = |name: &str| {
        // SAFETY: names and values are C strings that live as long as the IA is open.
        let text = |text| unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
        let mut found = array.iter().filter(|attr| text(attr.name) == name);
        let value = found.next().map(|attr| text(attr.value));
        assert!(found.next().is_none(), "{name} twice");
        value
    };
    for (name, expected) in [
        ("DAT_IB_RDMA_READ", "TRUE"),
        ("DAT_RS_VERSION", env!("CARGO_PKG_VERSION")),
        ("DAT_IB_TRANSPORT_MTU", "4096"),
        ("DAT_IB_DEVICE_NAME", "fake0"),
        ("DAT_EXTENSION_INTERFACE", "TRUE"),
        ("DAT_EXTENSION_VERSION", "2.0.1"),
        ("DAT_COUNTERS", "TRUE"),
        ("DAT_IB_FETCH_AND_ADD", "TRUE"),
        ("DAT_IB_CMP_AND_SWAP", "TRUE"),
        ("DAT_IB_IMMED_DATA", "TRUE"),
        ("DAT_IW_ATTR_SSP", "TRUE"),
    ] {
        assert_eq!(value(name).as_deref(), Some(expected), "{name}");
    }
    assert_eq!(value("DAT_IB_UD"), None);
}

#[test]
fn the_attributes_form_the_registration_key() {
    let dat = Dat::open();
    let provider = *dat.ia().provider_attr();
    let (major, minor) = (provider.dapl_version_major, provider.dapl_version_minor);
    assert_eq!((major, minor, provider.is_thread_safe), (2, 0, DAT_FALSE));
    let extension = dat.ia().ia_attr().extension_supported;
    let version = dat.ia().ia_attr().extension_version;
    assert_eq!((extension, version), (DAT_EXTENSION_IB, 209));
}
