use super::*;
use crate::addr;
use crate::handle::pin_handle;
use crate::rnic::{ConnectionEvent, QpToken, Resource, RnicError};

fn rejected() -> ConnectionEvent {
    ConnectionEvent::PeerRejected {
        private_data: b"no".to_vec(),
    }
}

#[test]
fn a_new_endpoint_is_unconnected_and_has_its_queue_pair() {
    let (bench, ep) = Bench::with_ep();
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
    assert!(matches!(
        bench.script.calls()[..],
        [Call::CreateQp {
            cqs: (true, true),
            ..
        }]
    ));
}

#[test]
fn query_fills_every_member() {
    let (bench, ep) = Bench::with_ep();
    let param = ep.query();
    assert_eq!(param.pz_handle, bench.pz.handle().as_dat());
    assert_eq!(param.recv_evd_handle, bench.dto.handle().as_dat());
    assert_eq!(param.request_evd_handle, bench.dto.handle().as_dat());
    assert_eq!(param.connect_evd_handle, bench.conn.handle().as_dat());
    assert!(param.srq_handle.is_null());
    assert_eq!(param.ep_attr.max_recv_dtos, 16);
    assert!(!param.local_ia_address_ptr.is_null() && !param.remote_ia_address_ptr.is_null());
}

#[test]
fn each_evd_needs_the_flag_of_its_stream() {
    let bench = Bench::new();
    let wrong = |change: fn(&mut EpParts<_>, &Bench)| {
        let mut parts = bench.parts();
        change(&mut parts, &bench);
        Ep::create(&bench.ia, parts, None)
    };
    let connect = wrong(|p, b| p.connect_evd = Some(b.dto.clone()));
    assert_bad_handle(connect, DAT_INVALID_HANDLE_EVD_CONN);
    let recv = wrong(|p, b| p.recv_evd = Some(b.cr.clone()));
    assert_bad_handle(recv, DAT_INVALID_HANDLE_EVD_RECV);
    let request = wrong(|p, b| p.request_evd = Some(b.conn.clone()));
    assert_bad_handle(request, DAT_INVALID_HANDLE_EVD_REQUEST);
}

#[test]
fn a_queue_pair_is_not_made_of_parts_of_another_ia() {
    let (bench, other) = (Bench::new(), Bench::new());
    let wrong = |change: fn(&mut EpParts<_>, &Bench)| {
        let mut parts = bench.parts();
        change(&mut parts, &other);
        Ep::create(&bench.ia, parts, None)
    };
    let pz = wrong(|p, o| p.pz = Some(o.pz.clone()));
    assert_bad_handle(pz, DAT_INVALID_HANDLE_PZ);
    let recv = wrong(|p, o| p.recv_evd = Some(o.dto.clone()));
    assert_bad_handle(recv, DAT_INVALID_HANDLE_EVD_RECV);
    let mut parts = bench.parts();
    parts.connect_evd = Some(other.conn.clone());
    Ep::create(&bench.ia, parts, None).expect("the connection EVD may belong to any IA");
}

#[test]
fn a_refused_queue_pair_refuses_the_endpoint() {
    let bench = Bench::new();
    bench.refuse(RnicError::NoResources(Resource::QueuePair));
    let refused = Ep::create(&bench.ia, bench.parts(), None);
    assert_refused(refused, (DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEP));
    // No object is still in use.
    assert_eq!(bench.ia.child_count(Kind::Ep), 0);
    free_pz(bench.pz.handle()).unwrap();
}

#[test]
fn connect_uses_the_port_of_the_qualifier() {
    let (bench, ep) = Bench::with_ep();
    bench.script.calls();
    let conn_qual = 0x1_0000_0001;
    let args = ConnectArgs {
        conn_qual,
        private_data: b"hi",
        timeout_us: 5,
        ..connect_args()
    };
    ep.connect(&args).unwrap();
    assert_eq!(state(&ep), DAT_EP_STATE_ACTIVE_CONNECTION_PENDING);
    assert_eq!(ep.query().remote_port_qual, conn_qual);
    assert_eq!(
        bench.script.calls(),
        [Call::Connect {
            remote: ([127, 0, 0, 1], addr::port_of(conn_qual)).into(),
            timeout: Some(std::time::Duration::from_micros(5)),
            private_data: b"hi".to_vec(),
        }]
    );
}

#[test]
fn established_reports_the_peers_private_data_and_the_addresses() {
    let (bench, ep) = Bench::with_ep();
    ep.connect(&connect_args()).unwrap();
    bench.establish(&ep, b"welcome");
    assert_eq!(state(&ep), DAT_EP_STATE_CONNECTED);
    let (number, data) = bench.next_connection();
    assert_eq!(number, DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_eq!(data.ep_handle, ep.handle().as_dat());
    assert_eq!(private_data(&data), b"welcome");
    assert_eq!(ep.query().local_port_qual, 815);
    // SAFETY: the endpoint is alive, so its address is valid.
    let remote = unsafe { addr::read(ep.query().remote_ia_address_ptr) };
    assert_eq!(remote.unwrap(), ([127, 0, 0, 1], 4711).into());
}

#[test]
fn private_data_stays_readable_after_the_disconnect() {
    let (bench, ep) = Bench::with_ep();
    ep.connect(&connect_args()).unwrap();
    bench.establish(&ep, b"welcome");
    bench.report(&ep, &ConnectionEvent::Disconnected);
    assert_eq!(private_data(&bench.next_connection().1), b"welcome");
}

#[test]
fn a_rejection_reports_the_peers_private_data() {
    let (bench, ep) = Bench::with_ep();
    ep.connect(&connect_args()).unwrap();
    bench.report(&ep, &rejected());
    assert_eq!(state(&ep), DAT_EP_STATE_DISCONNECTED);
    let (number, data) = bench.next_connection();
    assert_eq!(number, DAT_CONNECTION_EVENT_PEER_REJECTED);
    assert_eq!(private_data(&data), b"no");
}

#[test]
fn an_unread_event_loses_its_private_data_to_the_next_attempt() {
    let bench = Bench::new();
    let (ep, other) = (bench.ep(), bench.ep());
    for ep in [&ep, &other] {
        ep.connect(&connect_args()).unwrap();
        bench.report(ep, &rejected());
    }
    ep.reset().unwrap();
    ep.connect(&connect_args()).unwrap();
    let (number, data) = bench.next_connection();
    assert_eq!(number, DAT_CONNECTION_EVENT_PEER_REJECTED);
    assert_eq!(data.private_data_size, 0);
    assert!(data.private_data.is_null());
    // The event of another endpoint is unchanged.
    assert_eq!(private_data(&bench.next_connection().1), b"no");
    // The private data of the new attempt is delivered completely.
    bench.report(&ep, &rejected());
    assert_eq!(private_data(&bench.next_connection().1), b"no");
}

#[test]
fn connect_checks_in_the_order_that_consumers_expect() {
    let bench = Bench::new();
    let make = |change: fn(&mut EpParts<_>)| {
        let mut parts = bench.parts();
        change(&mut parts);
        let attr = DatEpAttr::zeroed();
        pinned::<Ep<ScriptedRnic>>(Ep::create(&bench.ia, parts, Some(&attr)).unwrap())
    };
    let zero = ConnectArgs {
        timeout_us: 0,
        ..connect_args()
    };
    let long = ConnectArgs {
        private_data: &[0; 65],
        ..connect_args()
    };
    let qos = ConnectArgs {
        qos: DAT_QOS_PREMIUM,
        ..connect_args()
    };
    let flags = ConnectArgs {
        flags: DAT_CONNECT_MULTIPATH_FLAG,
        ..connect_args()
    };

    let deaf = make(|p| p.connect_evd = None);
    assert_bad_handle(deaf.connect(&zero), DAT_INVALID_HANDLE_EVD_CONN);
    let bare = make(|p| p.pz = None);
    assert_bad_argument(bare.connect(&zero), DAT_INVALID_ARG4);
    assert_bad_argument(bare.connect(&long), DAT_INVALID_ARG5);
    let not_ready = (DAT_INVALID_STATE, DAT_INVALID_STATE_EP_NOTREADY);
    assert_eq!(code(bare.connect(&qos)), not_ready);
    let connected = bench.connected();
    assert_bad_state(connected.connect(&qos), DAT_INVALID_STATE_EP_CONNECTED);
    let ep = bench.ep();
    assert_refused(ep.connect(&qos), (DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE));
    let refused = ep.connect(&flags);
    assert_refused(refused, (DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE));
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
}

#[test]
fn an_endpoint_connects_without_evds_for_completions() {
    let bench = Bench::new();
    let cases = [(true, false), (false, true), (false, false)];
    for (recv, request) in cases {
        let evd = |has: bool| has.then(|| bench.dto.clone());
        let parts = EpParts {
            recv_evd: evd(recv),
            request_evd: evd(request),
            ..bench.parts()
        };
        let ep: TestEp = pinned(Ep::create(&bench.ia, parts, None).unwrap());
        ep.connect(&connect_args()).unwrap();
        bench.establish(&ep, b"");
        assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_ESTABLISHED);
        let created = bench
            .script
            .calls()
            .into_iter()
            .find_map(|call| match call {
                Call::CreateQp { attr, cqs } => {
                    Some((cqs, attr.send_wr_max > 0, attr.recv_wr_max > 0))
                }
                _ => None,
            });
        assert_eq!(created, Some(((request, recv), request, recv)));
    }
}

#[test]
fn an_endpoint_is_unconnected_after_a_refused_connect() {
    let (bench, ep) = Bench::with_ep();
    bench.refuse(RnicError::NoResources(Resource::Descriptor));
    let refused = code(ep.connect(&connect_args()));
    assert_eq!(refused, (DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE));
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
    bench.no_conn_event();
}

#[test]
fn immediate_unreachability_is_success_and_an_event() {
    let (bench, ep) = Bench::with_ep();
    bench.refuse(RnicError::Os(std::io::Error::from_raw_os_error(
        libc::ENETUNREACH,
    )));
    ep.connect(&connect_args()).unwrap();
    assert_eq!(state(&ep), DAT_EP_STATE_DISCONNECTED);
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_UNREACHABLE);
}

#[test]
fn dup_connect_uses_the_address_of_the_other_endpoint() {
    let bench = Bench::new();
    let (dup, ep) = (bench.connected(), bench.ep());
    bench.script.calls();
    assert_bad_argument(ep.dup_connect(&dup, 0, b"", 0), DAT_INVALID_ARG3);
    ep.dup_connect(&dup, DAT_TIMEOUT_INFINITE, b"x", DAT_QOS_BEST_EFFORT)
        .unwrap();
    let to = dup.query().remote_port_qual;
    assert!(
        matches!(&bench.script.calls()[..], [Call::Connect { remote, private_data, .. }]
        if u64::from(remote.port()) == to && private_data == b"x")
    );
}

#[test]
fn dup_connect_needs_the_other_endpoint_connected() {
    let bench = Bench::new();
    let (dup, ep) = (bench.ep(), bench.ep());
    let refused = ep.dup_connect(&dup, 1, b"", 0);
    assert_bad_state(refused, DAT_INVALID_STATE_EP_UNCONNECTED);
    let elsewhere = Bench::new();
    let refused = ep.dup_connect(&elsewhere.connected(), 1, b"", 0);
    assert_bad_handle(refused, DAT_INVALID_HANDLE_EP);
}

#[test]
fn an_abrupt_disconnect_is_complete_on_return_and_causes_one_event() {
    let (bench, ep) = Bench::with_connected_ep();
    ep.disconnect(DAT_CLOSE_ABRUPT_FLAG).unwrap();
    assert_eq!(bench.script.calls(), [Call::Disconnect { abrupt: true }]);
    assert_eq!(state(&ep), DAT_EP_STATE_DISCONNECTED);
    bench.report(&ep, &ConnectionEvent::Disconnected);
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_DISCONNECTED);
    bench.no_conn_event();
}

#[test]
fn an_end_reported_during_the_disconnect_causes_one_event_too() {
    let (bench, ep) = Bench::with_connected_ep();
    bench.script.report_endings();
    ep.disconnect(DAT_CLOSE_ABRUPT_FLAG).unwrap();
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_DISCONNECTED);
    bench.no_conn_event();
}

#[test]
fn a_graceful_disconnect_waits_for_the_rnic() {
    let (bench, ep) = Bench::with_connected_ep();
    ep.disconnect(DAT_CLOSE_GRACEFUL_FLAG).unwrap();
    assert_eq!(bench.script.calls(), [Call::Disconnect { abrupt: false }]);
    assert_eq!(state(&ep), DAT_EP_STATE_DISCONNECT_PENDING);
    assert_bad_argument(ep.disconnect(DAT_CLOSE_GRACEFUL_FLAG), DAT_INVALID_ARG2);
    assert_bad_state(ep.reset(), DAT_INVALID_STATE_EP_DISCPENDING);
    bench.report(&ep, &ConnectionEvent::Broken);
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_DISCONNECTED);
    assert_eq!(state(&ep), DAT_EP_STATE_DISCONNECTED);
}

#[test]
fn an_abrupt_disconnect_cuts_a_graceful_one_short() {
    let (bench, ep) = Bench::with_connected_ep();
    ep.disconnect(DAT_CLOSE_GRACEFUL_FLAG).unwrap();
    ep.disconnect(DAT_CLOSE_ABRUPT_FLAG).unwrap();
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_DISCONNECTED);
    bench.report(&ep, &ConnectionEvent::Disconnected);
    bench.no_conn_event();
}

#[test]
fn a_disconnect_of_a_connecting_endpoint_ends_the_attempt() {
    let (bench, ep) = Bench::with_ep();
    ep.connect(&connect_args()).unwrap();
    ep.disconnect(DAT_CLOSE_GRACEFUL_FLAG).unwrap();
    assert_eq!(state(&ep), DAT_EP_STATE_DISCONNECTED);
    bench.report(&ep, &ConnectionEvent::NonPeerRejected);
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_DISCONNECTED);
    bench.no_conn_event();
}

#[test]
fn disconnect_refuses_unknown_flags() {
    let (_bench, ep) = Bench::with_ep();
    assert_bad_argument(ep.disconnect(7), DAT_INVALID_ARG2);
    let refused = ep.disconnect(DAT_CLOSE_ABRUPT_FLAG);
    assert_bad_state(refused, DAT_INVALID_STATE_EP_UNCONNECTED);
}

#[test]
fn disconnecting_a_disconnected_endpoint_succeeds_without_event() {
    let (bench, ep) = Bench::with_connected_ep();
    bench.report(&ep, &ConnectionEvent::Disconnected);
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_DISCONNECTED);
    ep.disconnect(DAT_CLOSE_ABRUPT_FLAG).unwrap();
    bench.no_conn_event();
    assert_eq!(bench.script.calls(), []);
}

#[test]
fn a_failed_work_request_breaks_the_connection() {
    let (bench, ep) = Bench::with_connected_ep();
    bench.report(&ep, &ConnectionEvent::Broken);
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_BROKEN);
    assert_eq!(state(&ep), DAT_EP_STATE_DISCONNECTED);
}

#[test]
fn a_disconnected_endpoint_connects_again_after_a_reset() {
    let (bench, ep) = Bench::with_connected_ep();
    ep.disconnect(DAT_CLOSE_ABRUPT_FLAG).unwrap();
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_DISCONNECTED);
    ep.reset().unwrap();
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
    assert!(bench.script.calls().contains(&Call::ResetQp));
    ep.connect(&connect_args()).unwrap();
    // The end of the old connection is reported late and must not end the new attempt.
    bench.report(&ep, &ConnectionEvent::Disconnected);
    bench.no_conn_event();
    bench.establish(&ep, b"");
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_ESTABLISHED);
}

#[test]
fn reset_of_an_unconnected_endpoint_does_nothing() {
    let (bench, ep) = Bench::with_ep();
    bench.script.calls();
    ep.reset().unwrap();
    assert_eq!(bench.script.calls(), []);
}

#[test]
fn an_endpoint_is_disconnected_after_a_failed_reset() {
    let (bench, ep) = Bench::with_connected_ep();
    bench.report(&ep, &ConnectionEvent::Disconnected);
    bench.refuse(RnicError::InvalidState("busy"));
    assert_eq!(code(ep.reset()).0, DAT_INVALID_STATE);
    assert_eq!(state(&ep), DAT_EP_STATE_DISCONNECTED);
}

#[test]
fn free_disconnects_first_and_releases_all_parts() {
    let (bench, ep) = Bench::with_connected_ep();
    Ep::free(&ep).unwrap();
    assert_eq!(bench.script.calls(), [Call::Disconnect { abrupt: true }]);
    let handle = ep.handle();
    drop(ep);
    assert_eq!(bench.script.calls(), [Call::DropQp]);
    assert!(pin_handle::<Ep<ScriptedRnic>>(handle).is_none());
    assert_eq!(bench.ia.child_count(Kind::Ep), 0);
    free_pz(bench.pz.handle()).unwrap();
    free_evd(bench.conn.handle()).unwrap();
}

#[test]
fn nothing_begins_on_an_endpoint_that_is_being_freed() {
    let (_bench, ep) = Bench::with_ep();
    Ep::free(&ep).unwrap();
    let dead = (DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    assert_eq!(code(ep.reset()), dead);
    assert_eq!(code(ep.disconnect(DAT_CLOSE_ABRUPT_FLAG)), dead);
    assert_eq!(code(Ep::free(&ep)), dead);
}

#[test]
fn events_of_a_freed_endpoint_are_harmless() {
    let (bench, ep) = Bench::with_connected_ep();
    let token = QpToken(ep.handle().as_token());
    Ep::free(&ep).unwrap();
    drop(ep);
    bench.upcalls.connection(token, &ConnectionEvent::Broken);
    bench
        .upcalls
        .connection(QpToken(0xDEAD_BEEF), &ConnectionEvent::Broken);
    bench.no_conn_event();
}

#[test]
fn a_disconnect_that_overtakes_the_connect_takes_effect() {
    let (bench, ep) = Bench::with_ep();
    bench.script.calls();
    let other = pinned::<Ep<ScriptedRnic>>(ep.handle());
    let disconnect = move |_| other.disconnect(DAT_CLOSE_ABRUPT_FLAG).unwrap();
    bench.script.meanwhile(disconnect);
    ep.connect(&connect_args()).unwrap();
    let calls = bench.script.calls();
    let disconnects = calls
        .iter()
        .filter(|c| matches!(c, Call::Disconnect { .. }));
    // The consumer's disconnect found no connection to end, so the connect makes a second one.
    assert_eq!(disconnects.count(), 2);
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_DISCONNECTED);
    bench.report(&ep, &ConnectionEvent::Disconnected);
    bench.no_conn_event();
}

#[test]
fn events_may_overtake_the_return_of_the_connect() {
    let (bench, ep) = Bench::with_ep();
    let upcalls = bench.upcalls.clone();
    bench.script.meanwhile(move |token| {
        upcalls.connection(QpToken(token), &ConnectionEvent::NonPeerRejected)
    });
    ep.connect(&connect_args()).unwrap();
    assert_eq!(state(&ep), DAT_EP_STATE_DISCONNECTED);
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
}

#[test]
fn status_is_idle_when_nothing_is_pending() {
    let (bench, ep) = Bench::with_ep();
    let idle = EpStatus {
        state: 0,
        recv_idle: true,
        request_idle: true,
    };
    assert_eq!(ep.status(), idle);
    bench.script.set_pending(1, 0);
    let receives = EpStatus {
        recv_idle: false,
        ..idle
    };
    assert_eq!(ep.status(), receives);
    bench.script.set_pending(0, 1);
    let requests = EpStatus {
        request_idle: false,
        ..idle
    };
    assert_eq!(ep.status(), requests);
}

#[test]
fn queries_of_pending_requests_make_progress() {
    let (bench, ep) = Bench::with_ep();
    let drives = bench.script.drives();
    ep.status();
    assert_eq!(bench.script.drives(), drives + 1);
    ep.recv_query().unwrap();
    assert_eq!(bench.script.drives(), drives + 2);
}

#[test]
fn common_connect_uses_the_port_of_the_address() {
    let (bench, ep) = Bench::with_ep();
    let to = |port| ([127, 0, 0, 1], port).into();
    let malformed = (DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED);
    assert_refused(ep.common_connect(to(0), 1, b""), malformed);
    assert_bad_argument(ep.common_connect(to(4712), 0, b""), DAT_INVALID_ARG3);
    let too_long = vec![0; bench.ia.attr().private_data_len_max as usize + 1];
    assert_bad_argument(ep.common_connect(to(4712), 1, &too_long), DAT_INVALID_ARG4);
    bench.script.calls();
    ep.common_connect(to(4712), DAT_TIMEOUT_INFINITE, b"x")
        .unwrap();
    assert_eq!(state(&ep), DAT_EP_STATE_ACTIVE_CONNECTION_PENDING);
    assert!(
        matches!(&bench.script.calls()[..], [Call::Connect { remote, private_data, .. }]
        if *remote == to(4712) && private_data == b"x")
    );
    assert_eq!(ep.query().remote_port_qual, 4712);
    let refused = ep.common_connect(to(4712), 1, b"");
    assert_bad_state(refused, DAT_INVALID_STATE_EP_ACTCONNPENDING);
}

#[test]
fn the_receives_that_an_endpoint_holds_can_be_queried() {
    let (bench, ep) = Bench::with_ep();
    assert_eq!(ep.recv_query(), Ok((0, 0)));
    bench.script.set_pending(3, 1);
    assert_eq!(ep.recv_query(), Ok((3, 3)));
}

#[test]
fn watermarks_are_for_endpoints_with_a_shared_receive_queue() {
    let (_bench, ep) = Bench::with_ep();
    let refused = (DAT_INVALID_STATE, DAT_INVALID_STATE_EP_RECV_WATERMARK);
    assert_eq!(code(ep.set_watermark(1, DAT_WATERMARK_INFINITE)), refused);
    let no_mark = |argument| (DAT_INVALID_PARAMETER, argument);
    assert_eq!(code(ep.set_watermark(-2, 1)), no_mark(DAT_INVALID_ARG2));
    assert_eq!(code(ep.set_watermark(1, -2)), no_mark(DAT_INVALID_ARG3));
}

#[test]
fn the_soft_watermark_of_the_attributes_is_in_force_from_the_beginning() {
    let bench = Bench::new();
    let marks = |calls: Vec<Call>| -> Vec<_> {
        let marks = calls.into_iter().filter_map(|call| match call {
            Call::Watermarks { soft, hard } => Some((soft, hard)),
            _ => None,
        });
        marks.collect()
    };
    let parts = |shared: bool| EpParts {
        srq: shared.then(|| bench.srq()),
        ..bench.parts()
    };
    let attr = |srq_soft_hw| DatEpAttr {
        srq_soft_hw,
        ..DatEpAttr::zeroed()
    };
    for (shared, soft, expected) in [
        (true, 5, vec![(Some(5), None)]),
        (true, 0, vec![]),
        (true, DAT_HW_DEFAULT, vec![]),
        (false, 5, vec![]),
    ] {
        Ep::create(&bench.ia, parts(shared), Some(&attr(soft))).unwrap();
        assert_eq!(marks(bench.script.calls()), expected, "{shared} {soft}");
    }
    let ep = Ep::create(&bench.ia, parts(true), None).unwrap();
    let ep = pinned::<Ep<ScriptedRnic>>(ep);
    ep.set_watermark(2, 7).unwrap();
    assert_eq!(ep.query().ep_attr.srq_soft_hw, 2);
    let param = DatEpParam {
        ep_attr: attr(3),
        ..DatEpParam::zeroed()
    };
    ep.modify(DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW, &param).unwrap();
    let expected = [(Some(2), Some(7)), (Some(3), Some(7))];
    assert_eq!(marks(bench.script.calls()), expected);
}
