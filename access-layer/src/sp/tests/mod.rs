//! Tests of service points and connection requests with a scripted RNIC.

mod csp;
mod handoff;
mod psp;
mod rsp;
mod ssp;
mod undelivered;

use std::net::SocketAddr;

use super::*;
use crate::handle::{self, Kind, Pinned};
use crate::rnic::ConnectionEvent;
use crate::scripted_rnic::{
    Bench, Call, HERE, PARTS, PEER, ScriptedRnic, TestEp, assert_bad_argument, assert_bad_handle,
    assert_bad_state, assert_refused, bytes_at, code, free_evd, pinned,
};

type TestCr = Pinned<Cr<ScriptedRnic>>;

fn state(ep: &TestEp) -> DatEpState {
    ep.query().ep_state
}

fn cr_of(arrival: &DatCrArrivalEventData) -> TestCr {
    handle::pin(arrival.cr_handle).expect("the event names a live request")
}

fn private_data(cr: &TestCr) -> Vec<u8> {
    let param = cr.query();
    bytes_at(param.private_data, param.private_data_size)
}

/// Accepts a request with an endpoint of the consumer.
fn accept_with(cr: &TestCr, ep: &TestEp, private_data: &[u8]) -> DatResult {
    Cr::accept(cr, handle::pin_handle(ep.handle()), private_data)
}

fn ep_of(cr: &TestCr) -> TestEp {
    handle::pin(cr.query().local_ep_handle).expect("the request has an endpoint")
}

/// Sets the parts that a provider-created endpoint lacks.
fn equip(bench: &Bench, ep: &TestEp) {
    ep.modify(PARTS, &bench.param()).unwrap();
}

#[test]
fn evds_of_another_ia_are_refused() {
    let (bench, other) = (Bench::new(), Bench::new());
    let ep = bench.ep();
    bench.script.calls();
    let (ia, evd) = (&bench.ia, || other.cr.clone());
    let address = SocketAddr::new(bench.ia.attr().address.ip(), 0);
    let args = SspArgs {
        socket: 0,
        ep: handle::pin_handle(ep.handle()),
        evd: evd(),
        final_message: b"bytes",
    };
    let refusals = [
        code(Psp::create(ia, 5, evd(), DAT_PSP_CONSUMER_FLAG)),
        code(Psp::create_any(ia, evd(), DAT_PSP_CONSUMER_FLAG)),
        code(Csp::create(ia, DatComm::zeroed(), address, evd())),
        code(Rsp::create(ia, 5, &ep, evd())),
        code(Ssp::create(ia, args)),
    ];
    let no_evd = (DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_CR);
    assert_eq!(refusals, [no_evd; 5]);
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
    assert_eq!(bench.script.calls(), []);
    free_evd(other.cr.handle()).unwrap();
}

#[test]
fn endpoints_of_another_ia_are_refused() {
    let (bench, other) = (Bench::new(), Bench::new());
    let no_ep = (DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    let refused = Rsp::create(&bench.ia, 5, &other.ep(), bench.cr.clone());
    assert_refused(refused, no_ep);
    let args = SspArgs {
        socket: 0,
        ep: Some(other.ep()),
        evd: bench.cr.clone(),
        final_message: b"",
    };
    assert_eq!(code(Ssp::create(&bench.ia, args)), no_ep);
    let psp = Psp::create(&bench.ia, 5, bench.cr.clone(), DAT_PSP_CONSUMER_FLAG).unwrap();
    bench.request(psp, 1, b"");
    let refused = Cr::accept(&cr_of(&bench.arrival()), Some(other.ep()), b"");
    assert_refused(refused, no_ep);
    let left = bench.ia.child_count(Kind::Ssp) + bench.ia.child_count(Kind::Rsp);
    assert_eq!(left, 0);
}
