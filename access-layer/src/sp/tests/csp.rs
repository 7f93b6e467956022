use std::net::SocketAddr;

use super::*;
use crate::rnic::RnicError;

const ANY_TCP: DatComm = DatComm {
    domain: 0,
    r#type: 0,
    protocol: 0,
};

fn csp(bench: &Bench, address: &str) -> DatResult<Pinned<Csp<ScriptedRnic>>> {
    let address: SocketAddr = address.parse().unwrap();
    let csp = Csp::create(&bench.ia, ANY_TCP, address, bench.cr.clone())?;
    Ok(handle::pin_handle(csp).unwrap())
}

fn address_of(csp: &Pinned<Csp<ScriptedRnic>>) -> SocketAddr {
    // SAFETY: the service point is alive, so its address is valid.
    unsafe { crate::addr::read(csp.query().address_ptr) }.unwrap()
}

#[test]
fn a_service_point_listens_on_the_port_of_its_address() {
    let bench = Bench::new();
    let csp = csp(&bench, "0.0.0.0:4712").unwrap();
    assert_eq!(bench.script.calls(), [Call::Listen { port: 4712 }]);
    assert_eq!(address_of(&csp).port(), 4712);
    assert_eq!(address_of(&csp).ip(), bench.ia.attr().address.ip());
}

#[test]
fn the_rnic_chooses_a_port_for_port_0() {
    let bench = Bench::new();
    assert_eq!(address_of(&csp(&bench, "0.0.0.0:0").unwrap()).port(), 49999);
}

#[test]
fn query_fills_every_member() {
    let bench = Bench::new();
    let comm = DatComm {
        domain: libc::AF_INET,
        r#type: libc::SOCK_STREAM,
        protocol: libc::IPPROTO_TCP,
    };
    let address = "0.0.0.0:4712".parse().unwrap();
    let csp = Csp::create(&bench.ia, comm, address, bench.cr.clone()).unwrap();
    let param = pinned::<Csp<ScriptedRnic>>(csp).query();
    // SAFETY: the service point is alive, so its communicator is valid.
    assert_eq!(unsafe { *param.comm }, comm);
    assert_eq!(param.evd_handle, bench.cr.handle().as_dat());
}

#[test]
fn creation_refuses_addresses_and_evds_that_do_not_fit() {
    let bench = Bench::new();
    for (domain, r#type, protocol) in [
        (libc::AF_INET6, 0, 0),
        (0, libc::SOCK_DGRAM, 0),
        (0, 0, libc::IPPROTO_UDP),
    ] {
        let comm = DatComm {
            domain,
            r#type,
            protocol,
        };
        let address = "0.0.0.0:4712".parse().unwrap();
        let refused = Csp::create(&bench.ia, comm, address, bench.cr.clone());
        assert_eq!(code(refused), (DAT_COMM_NOT_SUPPORTED, DAT_NO_SUBTYPE));
    }
    let unreachable = (DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_UNREACHABLE);
    assert_refused(csp(&bench, "192.0.2.77:4712"), unreachable);
    let address = "0.0.0.0:4712".parse().unwrap();
    let refused = Csp::create(&bench.ia, ANY_TCP, address, bench.dto.clone());
    assert_bad_handle(refused, DAT_INVALID_HANDLE_EVD_CR);
    assert!(bench.script.calls().is_empty());
}

#[test]
fn a_taken_port_is_in_use_and_no_object_remains() {
    let bench = Bench::new();
    bench.refuse(RnicError::AddressInUse);
    let refused = csp(&bench, "0.0.0.0:4712");
    assert_refused(refused, (DAT_PORT_IN_USE, DAT_NO_SUBTYPE));
    assert_eq!(bench.ia.child_count(Kind::Csp), 0);
    free_evd(bench.cr.handle()).unwrap();
}

#[test]
fn a_request_names_the_service_point_and_is_accepted_like_any_other() {
    let bench = Bench::new();
    let csp = csp(&bench, "0.0.0.0:4712").unwrap();
    bench.request(csp.handle(), 1, b"hello");
    let arrival = bench.arrival();
    assert_eq!(arrival.sp_handle.as_handle(), csp.handle().as_dat());
    let cr = cr_of(&arrival);
    assert_eq!(private_data(&cr), b"hello");
    let ep = bench.ep();
    accept_with(&cr, &ep, b"").unwrap();
    assert_eq!(state(&ep), DAT_EP_STATE_COMPLETION_PENDING);
}

#[test]
fn freeing_stops_listening_and_keeps_delivered_requests() {
    let bench = Bench::new();
    let csp = csp(&bench, "0.0.0.0:4712").unwrap();
    bench.request(csp.handle(), 1, b"");
    let cr = cr_of(&bench.arrival());
    bench.script.calls();
    Csp::free(&csp).unwrap();
    assert_eq!(bench.script.calls(), [Call::Unlisten]);
    assert_bad_handle(Csp::free(&csp), DAT_INVALID_HANDLE_CSP);
    Cr::reject(&cr, b"").unwrap();
}

#[test]
fn a_service_point_is_a_child_of_its_ia() {
    let bench = Bench::new();
    let _csp = csp(&bench, "0.0.0.0:4712").unwrap();
    assert_eq!(bench.ia.child_count(Kind::Csp), 1);
}
