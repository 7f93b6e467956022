use super::*;
use crate::rnic::RnicError;

const QUALIFIER: u64 = 0x0AFF_AB1E;

fn rsp(bench: &Bench, ep: &TestEp) -> Pinned<Rsp<ScriptedRnic>> {
    let rsp = Rsp::create(&bench.ia, QUALIFIER, ep, bench.cr.clone()).unwrap();
    bench.script.calls();
    handle::pin_handle(rsp).unwrap()
}

#[test]
fn creation_reserves_the_endpoint() {
    let (bench, ep) = Bench::with_ep();
    let rsp = rsp(&bench, &ep);
    assert_eq!(state(&ep), DAT_EP_STATE_RESERVED);
    let param = rsp.query();
    assert_eq!(param.conn_qual, QUALIFIER);
    assert_eq!(param.ep_handle, ep.handle().as_dat());
    assert_eq!(param.evd_handle, bench.cr.handle().as_dat());
}

#[test]
fn creation_needs_an_unconnected_endpoint_and_an_evd_for_requests() {
    let bench = Bench::new();
    let busy = bench.connected();
    let refused = Rsp::create(&bench.ia, QUALIFIER, &busy, bench.cr.clone());
    assert_bad_state(refused, DAT_INVALID_STATE_EP_CONNECTED);
    let ep = bench.ep();
    let refused = Rsp::create(&bench.ia, QUALIFIER, &ep, bench.dto.clone());
    assert_bad_handle(refused, DAT_INVALID_HANDLE_EVD_CR);
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
}

#[test]
fn a_failed_creation_releases_the_endpoint() {
    let (bench, ep) = Bench::with_ep();
    bench.refuse(RnicError::AddressInUse);
    let refused = code(Rsp::create(&bench.ia, QUALIFIER, &ep, bench.cr.clone()));
    assert_eq!(refused.0, DAT_CONN_QUAL_IN_USE);
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
    assert_eq!(bench.ia.child_count(Kind::Rsp), 0);
}

#[test]
fn the_request_names_the_endpoint_and_the_service_closes() {
    let (bench, ep) = Bench::with_ep();
    let rsp = rsp(&bench, &ep);
    bench.request(rsp.handle(), 1, b"pd");
    assert_eq!(bench.script.calls(), [Call::Unlisten]);
    let arrival = bench.arrival();
    assert_eq!(arrival.sp_handle.as_handle(), rsp.handle().as_dat());
    assert_eq!(arrival.conn_qual, QUALIFIER);
    assert_eq!(ep_of(&cr_of(&arrival)).handle(), ep.handle());
    assert_eq!(state(&ep), DAT_EP_STATE_PASSIVE_CONNECTION_PENDING);
    bench.request(rsp.handle(), 2, b"");
    assert_eq!(bench.script.calls(), [Call::DropRequest { request: 2 }]);
    assert!(bench.cr.dequeue().is_err());
}

#[test]
fn accept_takes_the_reserved_endpoint_and_no_other() {
    let (bench, ep) = Bench::with_ep();
    let rsp = rsp(&bench, &ep);
    bench.request(rsp.handle(), 1, b"");
    let cr = cr_of(&bench.arrival());
    let no_ep = (DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    assert_eq!(code(Cr::accept(&cr, Some(bench.ep()), b"")), no_ep);
    Cr::accept(&cr, None, b"").unwrap();
    bench.establish(&ep, b"");
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_ESTABLISHED);
    Rsp::free(&rsp).unwrap();
    assert_eq!(state(&ep), DAT_EP_STATE_CONNECTED);
}

#[test]
fn reject_releases_the_endpoint() {
    let (bench, ep) = Bench::with_ep();
    let rsp = rsp(&bench, &ep);
    bench.request(rsp.handle(), 1, b"");
    Cr::reject(&cr_of(&bench.arrival()), b"").unwrap();
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
}

#[test]
fn free_before_the_request_releases_the_endpoint() {
    let (bench, ep) = Bench::with_ep();
    let rsp = rsp(&bench, &ep);
    assert_bad_state(Ep::free(&ep), DAT_INVALID_STATE_EP_RESERVED);
    Rsp::free(&rsp).unwrap();
    assert_eq!(bench.script.calls(), [Call::Unlisten]);
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
    assert_bad_handle(Rsp::free(&rsp), DAT_INVALID_HANDLE_RSP);
    free_evd(bench.cr.handle()).unwrap();
}

#[test]
fn free_after_the_request_keeps_the_request() {
    let (bench, ep) = Bench::with_ep();
    let rsp = rsp(&bench, &ep);
    bench.request(rsp.handle(), 1, b"");
    Rsp::free(&rsp).unwrap();
    assert_eq!(state(&ep), DAT_EP_STATE_PASSIVE_CONNECTION_PENDING);
    Cr::accept(&cr_of(&bench.arrival()), None, b"").unwrap();
}

#[test]
fn the_request_may_precede_the_return_of_listen() {
    let (bench, ep) = Bench::with_ep();
    let script = bench.script.clone();
    let request_source = bench.request_source();
    bench.script.calls();
    script.meanwhile(move |token| request_source.request(token, 1));
    let rsp = Rsp::create(&bench.ia, QUALIFIER, &ep, bench.cr.clone()).unwrap();
    assert_eq!(bench.arrival().sp_handle.as_handle(), rsp.as_dat());
    // The listener that is created too late is dropped at once.
    assert!(bench.script.calls().contains(&Call::Unlisten));
}
