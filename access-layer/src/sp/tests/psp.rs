use super::*;
use crate::rnic::{Resource, RnicError};

const QUALIFIER: u64 = 45248;

fn psp(bench: &Bench, flags: DatPspFlags) -> Pinned<Psp<ScriptedRnic>> {
    let psp = Psp::create(&bench.ia, QUALIFIER, bench.cr.clone(), flags).unwrap();
    bench.script.calls();
    handle::pin_handle(psp).unwrap()
}

/// A bench with a service point that has received a request.
fn requested(flags: DatPspFlags, number: u32, private_data: &[u8]) -> (Bench, TestCr) {
    let bench = Bench::new();
    bench.request(psp(&bench, flags).handle(), number, private_data);
    let cr = cr_of(&bench.arrival());
    (bench, cr)
}

#[test]
fn it_listens_on_the_port_of_its_qualifier() {
    let bench = Bench::new();
    Psp::create(&bench.ia, 0x1_0000, bench.cr.clone(), DAT_PSP_CONSUMER_FLAG).unwrap();
    let port = crate::addr::port_of(0x1_0000);
    assert_eq!(bench.script.calls(), [Call::Listen { port }]);
}

#[test]
fn creation_refuses_a_wrong_evd_flag_and_qualifier() {
    let bench = Bench::new();
    let create = |qualifier, evd, flags| Psp::create(&bench.ia, qualifier, evd, flags);
    let (dto, cr) = (|| bench.dto.clone(), || bench.cr.clone());
    assert_bad_handle(create(QUALIFIER, dto(), 0), DAT_INVALID_HANDLE_EVD_CR);
    assert_bad_argument(create(QUALIFIER, cr(), 2), DAT_INVALID_ARG4);
    assert_bad_argument(create(0, cr(), 0), DAT_INVALID_ARG2);
}

#[test]
fn a_taken_qualifier_is_in_use_and_no_object_remains() {
    let bench = Bench::new();
    for error in [
        RnicError::AddressInUse,
        RnicError::Os(std::io::ErrorKind::AddrInUse.into()),
    ] {
        bench.refuse(error);
        let cr = bench.cr.clone();
        let refused = Psp::create(&bench.ia, QUALIFIER, cr, DAT_PSP_CONSUMER_FLAG);
        assert_refused(refused, (DAT_CONN_QUAL_IN_USE, DAT_NO_SUBTYPE));
    }
    assert_eq!(bench.ia.child_count(Kind::Psp), 0);
    free_evd(bench.cr.handle()).unwrap();
}

#[test]
fn the_rnic_can_choose_a_free_qualifier() {
    let bench = Bench::new();
    let (psp, qualifier) =
        Psp::create_any(&bench.ia, bench.cr.clone(), DAT_PSP_CONSUMER_FLAG).unwrap();
    assert_eq!(qualifier, 49999);
    let psp = pinned::<Psp<ScriptedRnic>>(psp);
    assert_eq!(psp.query().conn_qual, 49999);
    bench.refuse(RnicError::AddressInUse);
    let refused = Psp::create_any(&bench.ia, bench.cr.clone(), DAT_PSP_CONSUMER_FLAG);
    assert_eq!(code(refused).0, DAT_CONN_QUAL_UNAVAILABLE);
}

#[test]
fn query_fills_every_member() {
    let bench = Bench::new();
    let param = psp(&bench, DAT_PSP_PROVIDER_FLAG).query();
    assert_eq!(param.conn_qual, QUALIFIER);
    assert_eq!(param.psp_flags, DAT_PSP_PROVIDER_FLAG);
    assert_eq!(param.evd_handle, bench.cr.handle().as_dat());
}

#[test]
fn a_request_carries_the_whole_qualifier() {
    let bench = Bench::new();
    let qualifier = 0x0AFF_AB1E_0000_0001;
    let (cr, flags) = (bench.cr.clone(), DAT_PSP_CONSUMER_FLAG);
    let psp = Psp::create(&bench.ia, qualifier, cr, flags).unwrap();
    bench.request(psp, 1, b"hello");
    let arrival = bench.arrival();
    assert_eq!(arrival.conn_qual, qualifier);
    assert_eq!(arrival.sp_handle.as_handle(), psp.as_dat());
    assert_eq!(arrival.local_ia_address_ptr, bench.ia.local_address());
    assert_eq!(arrival.truncate_flag, DAT_FALSE);
}

#[test]
fn a_request_reports_peer_and_private_data() {
    let (_bench, cr) = requested(DAT_PSP_CONSUMER_FLAG, 1, b"hello");
    assert_eq!(private_data(&cr), b"hello");
    let param = cr.query();
    assert_eq!(param.remote_port_qual, u64::from(PEER.1));
    // SAFETY: the request is not answered, so its address is valid.
    let remote = unsafe { crate::addr::read(param.remote_ia_address_ptr) };
    assert_eq!(remote.unwrap(), PEER.into());
    assert!(param.local_ep_handle.is_null());
}

#[test]
fn accept_with_an_endpoint_connects_it() {
    let (bench, cr) = requested(DAT_PSP_CONSUMER_FLAG, 3, b"");
    let ep = bench.ep();
    bench.script.calls();
    accept_with(&cr, &ep, b"welcome").unwrap();
    let accepted = Call::Accept(3, b"welcome".to_vec());
    assert_eq!(bench.script.calls(), [accepted]);
    assert_eq!(state(&ep), DAT_EP_STATE_COMPLETION_PENDING);
    assert_eq!(ep.query().remote_port_qual, u64::from(PEER.1));
    bench.establish(&ep, b"");
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_eq!(state(&ep), DAT_EP_STATE_CONNECTED);
}

#[test]
fn private_data_of_a_request_may_be_changed_and_sent_back() {
    let (bench, cr) = requested(DAT_PSP_CONSUMER_FLAG, 3, b"abc");
    let ep = bench.ep();
    let param = cr.query();
    // SAFETY: the consumer owns these three bytes until the accept returns.
    let back = unsafe {
        param.private_data.cast::<u8>().write(b'x');
        std::slice::from_raw_parts(param.private_data.cast::<u8>(), 3)
    };
    accept_with(&cr, &ep, back).unwrap();
    let accepted = Call::Accept(3, b"xbc".to_vec());
    assert_eq!(bench.script.calls().last(), Some(&accepted));
}

#[test]
fn an_answered_request_is_invalid() {
    let (bench, cr) = requested(DAT_PSP_CONSUMER_FLAG, 1, b"");
    let ep = bench.ep();
    accept_with(&cr, &ep, b"").unwrap();
    let dead = (DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR);
    assert_eq!(code(Cr::reject(&cr, b"")), dead);
    let handle = cr.handle();
    drop(cr);
    assert!(handle::pin_handle::<Cr<ScriptedRnic>>(handle).is_none());
    assert_eq!(bench.ia.child_count(Kind::Cr), 0);
}

#[test]
fn reject_passes_private_data_to_the_peer() {
    let (bench, cr) = requested(DAT_PSP_CONSUMER_FLAG, 2, b"");
    Cr::reject(&cr, b"no").unwrap();
    let rejected = Call::Reject(2, b"no".to_vec());
    assert_eq!(bench.script.calls(), [rejected]);
    assert_eq!(bench.ia.child_count(Kind::Cr), 0);
}

#[test]
fn a_refused_accept_keeps_the_request() {
    let (bench, cr) = requested(DAT_PSP_CONSUMER_FLAG, 1, b"");
    let no_ep = (DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    assert_eq!(code(Cr::accept(&cr, None, b"")), no_ep);
    let bare = Ep::create(&bench.ia, crate::ep::EpParts::none(), None).unwrap();
    assert_eq!(code(Cr::accept(&cr, handle::pin_handle(bare), b"")), no_ep);
    let busy = bench.connected();
    let refused = accept_with(&cr, &busy, b"").unwrap_err();
    let code = refused.code().0;
    assert_eq!(code, 0x0007_0000, "without class bit and subtype");
    let good = bench.ep();
    let too_long = accept_with(&cr, &good, &[0; 65]);
    assert_bad_argument(too_long, DAT_INVALID_ARG3);
    accept_with(&cr, &good, &[0; 64]).unwrap();
}

#[test]
fn an_accept_that_the_rnic_refuses_ends_the_request_and_frees_the_endpoint() {
    let (bench, cr) = requested(DAT_PSP_CONSUMER_FLAG, 1, b"");
    let ep = bench.ep();
    bench.refuse(RnicError::NoResources(Resource::Memory));
    let refused = code(accept_with(&cr, &ep, b""));
    assert_eq!(refused.0, DAT_INSUFFICIENT_RESOURCES);
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
    assert_eq!(bench.ia.child_count(Kind::Cr), 0);
}

#[test]
fn a_peer_that_vanishes_is_an_accept_completion_error() {
    let (bench, cr) = requested(DAT_PSP_CONSUMER_FLAG, 1, b"");
    let ep = bench.ep();
    accept_with(&cr, &ep, b"").unwrap();
    bench.report(&ep, &ConnectionEvent::AcceptFailed);
    let event = bench.conn_event();
    assert_eq!(event, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR);
    assert_eq!(state(&ep), DAT_EP_STATE_DISCONNECTED);
}

#[test]
fn a_provider_service_point_creates_a_tentative_endpoint() {
    let (bench, cr) = requested(DAT_PSP_PROVIDER_FLAG, 1, b"");
    let ep = ep_of(&cr);
    assert_eq!(state(&ep), DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING);
    assert_bad_state(Ep::free(&ep), DAT_INVALID_STATE_EP_TENTCONNPENDING);
    let no_ep = (DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    let refused = code(Cr::accept(&cr, Some(bench.ep()), b""));
    assert_eq!(refused, no_ep, "it has one");
    let refused = code(Cr::accept(&cr, None, b""));
    assert_eq!(refused, no_ep, "the endpoint lacks zone and EVDs");
    equip(&bench, &ep);
    Cr::accept(&cr, None, b"").unwrap();
    bench.establish(&ep, b"");
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_ESTABLISHED);
    Ep::free(&ep).unwrap();
}

#[test]
fn rejecting_destroys_the_providers_endpoint() {
    let (bench, cr) = requested(DAT_PSP_PROVIDER_FLAG, 1, b"");
    Cr::reject(&cr, b"").unwrap();
    assert_eq!(bench.ia.child_count(Kind::Ep), 0);
}

#[test]
fn a_refused_accept_destroys_the_providers_endpoint() {
    let (bench, cr) = requested(DAT_PSP_PROVIDER_FLAG, 1, b"");
    equip(&bench, &ep_of(&cr));
    bench.refuse(RnicError::NoResources(Resource::Memory));
    assert!(Cr::accept(&cr, None, b"").is_err());
    assert_eq!(bench.ia.child_count(Kind::Ep), 0);
}

#[test]
fn free_stops_listening_and_keeps_requests() {
    let bench = Bench::new();
    let psp = psp(&bench, DAT_PSP_CONSUMER_FLAG);
    bench.request(psp.handle(), 1, b"");
    Psp::free(&psp).unwrap();
    assert_eq!(bench.script.calls(), [Call::Unlisten]);
    assert_bad_handle(Psp::free(&psp), DAT_INVALID_HANDLE_PSP);
    let ep = bench.ep();
    accept_with(&cr_of(&bench.arrival()), &ep, b"").unwrap();
    // The EVD is no longer in use.
    free_evd(bench.cr.handle()).unwrap();
}

#[test]
fn requests_for_a_freed_service_point_are_dropped() {
    let bench = Bench::new();
    let psp = psp(&bench, DAT_PSP_CONSUMER_FLAG);
    let handle = psp.handle();
    Psp::free(&psp).unwrap();
    bench.script.calls();
    bench.request(handle, 1, b"");
    drop(psp);
    bench.request(handle, 2, b"");
    bench.request(bench.dto.handle(), 3, b"");
    let dropped = |request| Call::DropRequest { request };
    assert_eq!(bench.script.calls(), [dropped(1), dropped(2), dropped(3)]);
    assert!(bench.cr.dequeue().is_err());
}

#[test]
fn an_abrupt_close_refuses_waiting_requests() {
    let bench = Bench::new();
    bench.request(psp(&bench, DAT_PSP_CONSUMER_FLAG).handle(), 9, b"");
    bench.script.calls();
    let Bench {
        ia,
        script,
        pz,
        dto,
        conn,
        cr,
        ..
    } = bench;
    let pinned = pinned::<Ia<ScriptedRnic>>(ia.handle());
    drop((ia, pz, dto, conn, cr));
    Ia::close(pinned, DAT_CLOSE_ABRUPT_FLAG).unwrap();
    let calls = script.calls();
    assert!(calls.contains(&Call::Unlisten) && calls.contains(&Call::DropRequest { request: 9 }));
}

#[test]
fn the_provider_s_endpoint_can_be_equipped_step_by_step() {
    let (bench, cr) = requested(DAT_PSP_PROVIDER_FLAG, 1, b"");
    let ep = ep_of(&cr);
    let param = bench.param();
    for mask in [
        DAT_EP_FIELD_CONNECT_EVD_HANDLE,
        DAT_EP_FIELD_PZ_HANDLE,
        DAT_EP_FIELD_REQUEST_EVD_HANDLE,
        DAT_EP_FIELD_RECV_EVD_HANDLE,
    ] {
        ep.modify(mask, &param)
            .unwrap_or_else(|error| panic!("{mask:#x}: {error}"));
    }
    let attr = ep.query().ep_attr;
    assert_eq!((attr.max_recv_dtos, attr.max_request_dtos), (16, 16));
    assert_eq!((attr.max_recv_iov, attr.max_request_iov), (4, 4));
    Cr::accept(&cr, None, b"").unwrap();
}
