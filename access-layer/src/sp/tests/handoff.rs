//! Tests of `dat_cr_handoff`: from one service point to another of the same IA, and to another
//! process.

use super::*;
use crate::rnic::RnicError;

fn psp(bench: &Bench, qualifier: u64) -> Handle {
    let (cr, flags) = (bench.cr.clone(), DAT_PSP_CONSUMER_FLAG);
    Psp::create(&bench.ia, qualifier, cr, flags).unwrap()
}

#[test]
fn the_other_service_point_receives_a_new_request() {
    let bench = Bench::new();
    let (first, second) = (psp(&bench, 1001), psp(&bench, 1002));
    bench.request(first, 7, b"hand me off");
    let cr = cr_of(&bench.arrival());
    let dead = cr.handle();
    Psp::handoff(&cr, 1002).unwrap();
    drop(cr);
    assert!(handle::pin_handle::<Cr<ScriptedRnic>>(dead).is_none());
    let arrival = bench.arrival();
    assert_eq!(arrival.sp_handle.as_handle(), second.as_dat());
    assert_eq!(arrival.conn_qual, 1002);
    let cr = cr_of(&arrival);
    assert_eq!(private_data(&cr), b"hand me off");
    assert_eq!(cr.query().remote_port_qual, u64::from(PEER.1));
    bench.script.calls();
    Cr::reject(&cr, b"").unwrap();
    assert_eq!(bench.script.calls(), [Call::Reject(7, Vec::new())]);
}

#[test]
fn a_handoff_to_no_service_point_keeps_the_request() {
    let bench = Bench::new();
    bench.request(psp(&bench, 1001), 7, b"");
    let cr = cr_of(&bench.arrival());
    bench
        .script
        .refuse(RnicError::InvalidArgument("no such service"));
    assert_bad_argument(Psp::handoff(&cr, 1002), DAT_INVALID_ARG2);
    bench.script.refuse(RnicError::NotPermitted("another user"));
    assert_eq!(code(Psp::handoff(&cr, 1002)).0, DAT_PRIVILEGES_VIOLATION);
    Cr::accept(&cr, Some(bench.ep()), b"").unwrap();
    assert_bad_handle(Psp::handoff(&cr, 1001), DAT_INVALID_HANDLE_CR);
}

#[test]
fn the_endpoint_of_a_reserved_service_point_is_free_again() {
    let (bench, ep) = Bench::with_ep();
    let rsp = Rsp::create(&bench.ia, 1001, &ep, bench.cr.clone()).unwrap();
    psp(&bench, 1002);
    bench.request(rsp, 7, b"");
    let cr = cr_of(&bench.arrival());
    assert_eq!(state(&ep), DAT_EP_STATE_PASSIVE_CONNECTION_PENDING);
    Psp::handoff(&cr, 1002).unwrap();
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
    Cr::accept(&cr_of(&bench.arrival()), Some(ep), b"").unwrap();
}

#[test]
fn another_process_receives_the_request_and_the_endpoint_is_free_again() {
    let (bench, ep) = Bench::with_ep();
    let rsp = Rsp::create(&bench.ia, 1001, &ep, bench.cr.clone()).unwrap();
    bench.request(rsp, 7, b"hand me off");
    let cr = cr_of(&bench.arrival());
    bench.script.calls();
    Psp::handoff(&cr, 1002).unwrap();
    let call = Call::HandOff(7, 1002, b"hand me off".to_vec());
    assert_eq!(bench.script.calls(), [call]);
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
    assert_bad_handle(Psp::handoff(&cr, 1002), DAT_INVALID_HANDLE_CR);
}

#[test]
fn a_freed_service_point_takes_no_requests() {
    let bench = Bench::new();
    bench.request(psp(&bench, 1001), 7, b"");
    let cr = cr_of(&bench.arrival());
    let second = psp(&bench, 1002);
    Psp::free(&pinned::<Psp<ScriptedRnic>>(second)).unwrap();
    bench
        .script
        .refuse(RnicError::InvalidArgument("no such service"));
    assert_eq!(code(Psp::handoff(&cr, 1002)).0, DAT_INVALID_PARAMETER);
}
