//! One test for each sentence of the iWARP extensions, sections 3.1.1 to 3.1.3.

use super::*;
use crate::rnic::{ListenToken, SocketFault};

const SOCKET: i32 = 17;

fn args<'a>(bench: &Bench, ep: Option<&TestEp>) -> SspArgs<'a, ScriptedRnic> {
    SspArgs {
        socket: SOCKET,
        ep: ep.and_then(|ep| handle::pin_handle(ep.handle())),
        evd: bench.cr.clone(),
        final_message: b"",
    }
}

fn create(bench: &Bench, ep: Option<&TestEp>, final_message: &[u8]) -> DatResult<Handle> {
    let args = SspArgs {
        final_message,
        ..args(bench, ep)
    };
    Ssp::create(&bench.ia, args)
}

fn ssp(bench: &Bench, ep: &TestEp) -> Pinned<Ssp<ScriptedRnic>> {
    let ssp = create(bench, Some(ep), b"").unwrap();
    bench.script.calls();
    handle::pin_handle(ssp).unwrap()
}

/// A service point that waits for a request.
fn armed() -> (Bench, TestEp, Pinned<Ssp<ScriptedRnic>>) {
    let (bench, ep) = Bench::with_ep();
    let ssp = ssp(&bench, &ep);
    (bench, ep, ssp)
}

fn is_operational(ssp: &Pinned<Ssp<ScriptedRnic>>) -> bool {
    ssp.query(DAT_IW_SSP_FIELD_ALL).unwrap().ssp_state == DAT_IW_SSP_STATE_OPERATIONAL
}

fn lose_socket(bench: &Bench, ssp: &Pinned<Ssp<ScriptedRnic>>) {
    bench
        .upcalls
        .socket_down(ListenToken(ssp.handle().as_token()));
}

/// Reads the next event, which must report that the socket of `ssp` is down.
fn expect_socket_down(bench: &Bench, ssp: Handle) {
    let event = bench.cr.dequeue().unwrap();
    assert_eq!(event.event_number, DAT_CONNECTION_EVENT_SOCKET_DOWN);
    assert_eq!(event.event_number, 0x8_0001);
    // SAFETY: this event uses this member.
    let data = unsafe { event.event_data.cr_arrival_event_data };
    assert_eq!(data.sp_handle.as_handle(), ssp.as_dat());
    assert!(data.cr_handle.is_null());
    assert_eq!(data.conn_qual, 0);
}

// 3.1.1 DAT_IW_SSP_CREATE

#[test]
fn create_takes_the_socket_and_reserves_the_endpoint() {
    let (bench, ep) = Bench::with_ep();
    bench.script.calls();
    let ssp = create(&bench, Some(&ep), b"").unwrap();
    assert_eq!(bench.script.calls(), [Call::Arm(SOCKET, Vec::new())]);
    assert_eq!(state(&ep), DAT_EP_STATE_RESERVED);
    assert!(is_operational(&handle::pin_handle(ssp).unwrap()));
}

#[test]
fn a_null_endpoint_makes_the_provider_associate_one() {
    let bench = Bench::new();
    let ssp = create(&bench, None, b"").unwrap();
    let ssp = pinned::<Ssp<ScriptedRnic>>(ssp);
    let ep = ssp.query(DAT_IW_SSP_FIELD_EP_HANDLE).unwrap().ep_handle;
    let ep = handle::pin::<Ep<ScriptedRnic>>(ep).unwrap();
    assert_eq!(state(&ep), DAT_EP_STATE_RESERVED);
    bench.request(ssp.handle(), 1, b"");
    let cr = cr_of(&bench.arrival());
    assert_eq!(ep_of(&cr).handle(), ep.handle());
    assert_eq!(state(&ep), DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING);
    equip(&bench, &ep);
    Cr::accept(&cr, None, b"").unwrap();
    bench.establish(&ep, b"");
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_ESTABLISHED);
}

#[test]
fn the_final_message_is_passed_when_arming() {
    let (bench, ep) = Bench::with_ep();
    bench.script.calls();
    create(&bench, Some(&ep), b"go rdma").unwrap();
    let armed = Call::Arm(SOCKET, b"go rdma".to_vec());
    assert_eq!(bench.script.calls(), [armed]);
}

#[test]
fn an_ssp_generates_at_most_one_connection_request() {
    let (bench, _ep, ssp) = armed();
    bench.request(ssp.handle(), 1, b"");
    bench.request(ssp.handle(), 2, b"");
    lose_socket(&bench, &ssp);
    bench.arrival();
    assert!(bench.cr.dequeue().is_err());
    assert_eq!(bench.script.calls(), [Call::DropRequest { request: 2 }]);
}

#[test]
fn a_socket_unknown_or_not_routed_here_is_an_invalid_state() {
    for fault in [
        SocketFault::NotTcp,
        SocketFault::NotRouted,
        SocketFault::InUse,
    ] {
        let (bench, ep) = Bench::with_ep();
        bench.script.fault(fault);
        let refused = code(create(&bench, Some(&ep), b""));
        assert_eq!(refused.0, DAT_INVALID_STATE);
        assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
        assert_eq!(bench.ia.child_count(Kind::Ssp), 0);
        assert!(bench.cr.dequeue().is_err(), "a refused call posts no event");
    }
}

#[test]
fn a_disconnected_socket_makes_it_non_operational_and_is_reported() {
    let (bench, _ep, ssp) = armed();
    lose_socket(&bench, &ssp);
    assert!(!is_operational(&ssp));
    expect_socket_down(&bench, ssp.handle());
    lose_socket(&bench, &ssp);
    assert!(bench.cr.dequeue().is_err(), "reported once");
}

#[test]
fn a_socket_that_is_down_already_is_reported_too() {
    let (bench, ep) = Bench::with_ep();
    let upcalls = bench.upcalls.clone();
    bench
        .script
        .meanwhile(move |token| upcalls.socket_down(ListenToken(token)));
    let ssp = create(&bench, Some(&ep), b"x").unwrap();
    expect_socket_down(&bench, ssp);
    assert!(!is_operational(&handle::pin_handle(ssp).unwrap()));
}

#[test]
fn a_final_message_that_is_not_sent_whole_is_an_invalid_state() {
    let (bench, ep) = Bench::with_ep();
    bench.script.calls();
    bench.script.fault(SocketFault::FinalMessage);
    let refused = code(create(&bench, Some(&ep), b"x"));
    assert_eq!(refused, (DAT_INVALID_STATE, DAT_NO_SUBTYPE));
    assert!(bench.cr.dequeue().is_err(), "no event reports it too");
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
    assert_eq!(bench.ia.child_count(Kind::Ssp), 0);
}

#[test]
fn events_may_precede_the_return_of_create() {
    let (bench, ep) = Bench::with_ep();
    let upcalls = bench.upcalls.clone();
    let lose = move |token| upcalls.socket_down(ListenToken(token));
    bench.script.meanwhile(lose);
    let ssp = create(&bench, Some(&ep), b"").unwrap();
    expect_socket_down(&bench, ssp);
    assert!(!is_operational(&handle::pin_handle(ssp).unwrap()));
}

#[test]
fn an_evd_that_takes_no_requests_is_an_invalid_handle() {
    let (bench, ep) = Bench::with_ep();
    let args = SspArgs {
        evd: bench.dto.clone(),
        ..args(&bench, Some(&ep))
    };
    assert_bad_handle(Ssp::create(&bench.ia, args), DAT_INVALID_HANDLE_EVD_CR);
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
}

#[test]
fn an_invalid_socket_is_an_invalid_parameter() {
    let (bench, ep) = Bench::with_ep();
    bench.script.fault(SocketFault::NotASocket);
    let refused = code(create(&bench, Some(&ep), b""));
    assert_eq!(refused.0, DAT_INVALID_PARAMETER);
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
}

#[test]
fn a_shortage_is_insufficient_resources_and_no_endpoint_remains() {
    let bench = Bench::new();
    bench.script.fault(SocketFault::NoResources);
    let refused = code(create(&bench, None, b""));
    assert_eq!(refused.0, DAT_INSUFFICIENT_RESOURCES);
    assert_eq!(bench.ia.child_count(Kind::Ep), 0);
}

#[test]
fn an_endpoint_that_is_not_idle_is_an_invalid_state() {
    let (bench, ep) = Bench::with_connected_ep();
    let refused = create(&bench, Some(&ep), b"");
    assert_bad_state(refused, DAT_INVALID_STATE_EP_CONNECTED);
    assert_eq!(bench.script.calls(), [], "the socket was not touched");
}

// 3.1.1.1 USAGE

#[test]
fn the_request_event_has_request_endpoint_and_the_sockets_port() {
    let (bench, ep, ssp) = armed();
    bench.request(ssp.handle(), 1, b"pd");
    let arrival = bench.arrival();
    assert_eq!(arrival.sp_handle.as_handle(), ssp.handle().as_dat());
    assert_eq!(arrival.conn_qual, u64::from(HERE.1));
    let cr = cr_of(&arrival);
    assert_eq!(cr.query().local_ep_handle, ep.handle().as_dat());
    assert_eq!(private_data(&cr), b"pd");
}

#[test]
fn a_request_moves_endpoint_service_point_and_socket_on() {
    let (bench, ep, ssp) = armed();
    bench.request(ssp.handle(), 1, b"");
    assert_eq!(state(&ep), DAT_EP_STATE_PASSIVE_CONNECTION_PENDING);
    assert!(!is_operational(&ssp));
    assert_eq!(ssp.query(DAT_IW_SSP_FIELD_SOCKET_ID).unwrap().socket_id, -1);
}

#[test]
fn if_accepted_the_endpoint_is_connected_and_the_consumer_notified() {
    let (bench, ep, ssp) = armed();
    bench.request(ssp.handle(), 1, b"");
    Cr::accept(&cr_of(&bench.arrival()), None, b"yes").unwrap();
    assert_eq!(state(&ep), DAT_EP_STATE_COMPLETION_PENDING);
    bench.establish(&ep, b"");
    assert_eq!(state(&ep), DAT_EP_STATE_CONNECTED);
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_ESTABLISHED);
    bench.no_conn_event();
}

#[test]
fn if_rejected_the_endpoint_is_unconnected_and_may_be_reused_or_destroyed() {
    let (bench, ep) = Bench::with_ep();
    let first = ssp(&bench, &ep);
    bench.request(first.handle(), 1, b"");
    Cr::reject(&cr_of(&bench.arrival()), b"").unwrap();
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
    let again = ssp(&bench, &ep);
    Ssp::free(&again).unwrap();
    Ep::free(&ep).unwrap();
}

// 1.2: a request is redirected to another process.

#[test]
fn a_request_that_is_handed_off_leaves_the_endpoint_to_the_consumer() {
    let (bench, ep, ssp) = armed();
    bench.request(ssp.handle(), 1, b"");
    let cr = cr_of(&bench.arrival());
    bench.script.calls();
    Psp::handoff(&cr, 1002).unwrap();
    let call = Call::HandOff(1, 1002, Vec::new());
    assert_eq!(bench.script.calls(), [call]);
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
    assert_eq!(ssp.query(DAT_IW_SSP_FIELD_SOCKET_ID).unwrap().socket_id, -1);
}

// 3.1.1.3 MODEL IMPLICATIONS

#[test]
fn a_non_operational_ssp_is_not_used_and_another_may_take_its_socket() {
    let (bench, ep) = Bench::with_ep();
    let first = ssp(&bench, &ep);
    lose_socket(&bench, &first);
    expect_socket_down(&bench, first.handle());
    bench.request(first.handle(), 1, b"");
    assert_eq!(bench.script.calls(), [Call::DropRequest { request: 1 }]);
    Ssp::free(&first).unwrap();
    assert!(is_operational(&ssp(&bench, &ep)));
}

// 3.1.2 DAT_IW_SSP_FREE

#[test]
fn free_returns_socket_and_endpoint_to_the_consumer() {
    let (bench, ep, ssp) = armed();
    Ssp::free(&ssp).unwrap();
    assert_eq!(bench.script.calls(), [Call::Disarm]);
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
    Ep::free(&ep).unwrap();
    free_evd(bench.cr.handle()).unwrap();
}

#[test]
fn free_of_a_non_operational_ssp_returns_no_socket() {
    let (bench, ep, ssp) = armed();
    lose_socket(&bench, &ssp);
    Ssp::free(&ssp).unwrap();
    assert_eq!(bench.script.calls(), []);
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
}

#[test]
fn free_has_no_effect_on_an_earlier_request() {
    let (bench, ep, ssp) = armed();
    bench.request(ssp.handle(), 1, b"");
    Ssp::free(&ssp).unwrap();
    assert_eq!(bench.script.calls(), []);
    assert_eq!(state(&ep), DAT_EP_STATE_PASSIVE_CONNECTION_PENDING);
    Cr::accept(&cr_of(&bench.arrival()), None, b"").unwrap();
    bench.establish(&ep, b"");
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_ESTABLISHED);
}

#[test]
fn a_request_in_progress_at_the_free_is_rejected_without_local_notification() {
    let (bench, ep, ssp) = armed();
    Ssp::free(&ssp).unwrap();
    bench.script.calls();
    // The upcall found the service point before it was freed, so it is still pinned here.
    let handle = ssp.handle();
    bench.request(handle, 1, b"");
    assert_eq!(bench.script.calls(), [Call::DropRequest { request: 1 }]);
    assert!(bench.cr.dequeue().is_err());
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
}

#[test]
fn free_destroys_the_providers_endpoint_if_no_request_took_it() {
    let bench = Bench::new();
    let ssp = create(&bench, None, b"").unwrap();
    Ssp::free(&pinned::<Ssp<ScriptedRnic>>(ssp)).unwrap();
    assert_eq!(bench.ia.child_count(Kind::Ep), 0);
}

#[test]
fn a_freed_handle_is_invalid() {
    let (_bench, _ep, ssp) = armed();
    Ssp::free(&ssp).unwrap();
    assert_eq!(code(Ssp::free(&ssp)).0, DAT_INVALID_HANDLE);
    let handle = ssp.handle();
    drop(ssp);
    assert!(handle::pin_handle::<Ssp<ScriptedRnic>>(handle).is_none());
}

// 3.1.3 DAT_IW_SSP_QUERY

#[test]
fn query_returns_every_member() {
    let (bench, ep) = Bench::with_ep();
    let param = ssp(&bench, &ep).query(DAT_IW_SSP_FIELD_SSP_STATE).unwrap();
    assert_eq!(param.socket_id, SOCKET);
    assert_eq!(param.evd_handle, bench.cr.handle().as_dat());
    assert_eq!(param.ep_handle, ep.handle().as_dat());
    assert_eq!(param.ssp_state, DAT_IW_SSP_STATE_OPERATIONAL);
    assert!(!param.ia_handle.is_null());
}

#[test]
fn an_invalid_mask_is_an_invalid_parameter() {
    let (_bench, _ep, ssp) = armed();
    assert_bad_argument(ssp.query(0x20), DAT_INVALID_ARG2);
    assert_bad_argument(ssp.query(0x3F), DAT_INVALID_ARG2);
}
