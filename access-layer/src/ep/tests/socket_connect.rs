//! One test for each sentence of the iWARP extensions, section 3.1.4 (`dat_iw_socket_connect`).

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::*;
use crate::addr;
use crate::consumer_socket::Owner;
use crate::handle::pin_handle;
use crate::rnic::{ConnectionEvent, QpToken, SocketFault};

fn args(socket: &impl AsRawFd) -> SocketConnectArgs<'static> {
    SocketConnectArgs {
        socket: socket.as_raw_fd(),
        timeout_us: DAT_TIMEOUT_INFINITE,
        private_data: b"",
    }
}

/// Returns a connected socket, and the listener that keeps it connected.
fn socket() -> (TcpStream, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (
        TcpStream::connect(listener.local_addr().unwrap()).unwrap(),
        listener,
    )
}

fn owner(ep: &TestEp) -> Option<Owner> {
    ep.lock().socket.as_ref().map(ConsumerSocket::owner)
}

/// Returns an endpoint that connects over a socket.
fn connecting(bench: &Bench, stream: &TcpStream) -> TestEp {
    let ep = bench.ep();
    ep.socket_connect(&args(stream)).unwrap();
    ep
}

/// A bench with an unconnected endpoint and a socket. The last value keeps the socket connected.
fn with_socket() -> (Bench, TestEp, (TcpStream, TcpListener)) {
    let (bench, ep) = Bench::with_ep();
    (bench, ep, socket())
}

/// A bench with an endpoint that connects over a socket. The last value keeps the socket connected.
fn connecting_over_socket() -> (Bench, TestEp, (TcpStream, TcpListener)) {
    let (bench, socket) = (Bench::new(), socket());
    let ep = connecting(&bench, &socket.0);
    (bench, ep, socket)
}

#[test]
fn on_success_the_endpoint_is_active_pending_and_owns_the_socket() {
    let (_bench, ep, _socket) = connecting_over_socket();
    assert_eq!(state(&ep), DAT_EP_STATE_ACTIVE_CONNECTION_PENDING);
    assert_eq!(owner(&ep), Some(Owner::Ep));
}

#[test]
fn private_data_and_timeout_are_passed_to_the_remote_side() {
    let (bench, ep, (stream, _listener)) = with_socket();
    bench.script.calls();
    let requested = SocketConnectArgs {
        timeout_us: 7,
        private_data: b"attrs",
        ..args(&stream)
    };
    ep.socket_connect(&requested).unwrap();
    assert_eq!(
        bench.script.calls(),
        [Call::ConnectSocket {
            socket: stream.as_raw_fd(),
            timeout: Some(Duration::from_micros(7)),
            private_data: b"attrs".to_vec(),
        }]
    );
}

#[test]
fn an_infinite_timeout_is_no_timeout() {
    let (bench, _ep, _socket) = connecting_over_socket();
    let calls = bench.script.calls();
    assert!(matches!(
        calls.last(),
        Some(Call::ConnectSocket { timeout: None, .. })
    ));
}

#[test]
fn the_endpoint_inherits_domain_type_protocol_address_and_port_of_the_socket() {
    let (_bench, ep, (stream, listener)) = connecting_over_socket();
    let param = ep.query();
    let tcp = (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP);
    assert_eq!(comm(&ep), tcp);
    let (own, peers) = (stream.local_addr().unwrap(), listener.local_addr().unwrap());
    assert_eq!(param.local_port_qual, u64::from(own.port()));
    assert_eq!(param.remote_port_qual, u64::from(peers.port()));
    // SAFETY: the endpoint is alive, so its addresses are valid.
    let (local, remote) = unsafe {
        (
            addr::read(param.local_ia_address_ptr),
            addr::read(param.remote_ia_address_ptr),
        )
    };
    assert_eq!((local.unwrap(), remote.unwrap()), (own, peers));
}

#[test]
fn acceptance_by_the_remote_consumer_is_established_and_connected() {
    let (bench, ep, _socket) = connecting_over_socket();
    bench.establish(&ep, b"");
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_eq!(state(&ep), DAT_EP_STATE_CONNECTED);
    assert_eq!(owner(&ep), Some(Owner::Ep));
}

#[test]
fn a_failed_set_up_has_the_event_of_its_reason_and_returns_the_socket() {
    let rejected = ConnectionEvent::PeerRejected {
        private_data: Vec::new(),
    };
    let unreachable = DAT_CONNECTION_EVENT_UNREACHABLE;
    let all_other_reasons = DAT_CONNECTION_EVENT_NON_PEER_REJECTED;
    for (outcome, event) in [
        (rejected, DAT_CONNECTION_EVENT_PEER_REJECTED),
        (ConnectionEvent::NonPeerRejected, all_other_reasons),
        (ConnectionEvent::Broken, all_other_reasons),
        (ConnectionEvent::Disconnected, all_other_reasons),
        (ConnectionEvent::Unreachable, unreachable),
        (ConnectionEvent::TimedOut, DAT_CONNECTION_EVENT_TIMED_OUT),
    ] {
        let (bench, ep, _socket) = connecting_over_socket();
        bench.report(&ep, &outcome);
        assert_eq!(bench.conn_event(), event);
        assert_eq!(state(&ep), DAT_EP_STATE_DISCONNECTED);
        assert_eq!(owner(&ep), None, "disassociated from the endpoint");
    }
}

#[test]
fn a_timeout_of_zero_is_an_invalid_parameter_and_the_socket_stays_with_the_consumer() {
    let (bench, ep, (stream, _listener)) = with_socket();
    bench.script.calls();
    let requested = SocketConnectArgs {
        timeout_us: 0,
        ..args(&stream)
    };
    assert_bad_argument(ep.socket_connect(&requested), DAT_INVALID_ARG3);
    assert_eq!((state(&ep), owner(&ep)), (DAT_EP_STATE_UNCONNECTED, None));
    assert_eq!(bench.script.calls(), []);
}

#[test]
fn more_private_data_than_supported_is_an_invalid_parameter() {
    let (_bench, ep, (stream, _listener)) = with_socket();
    let requested = SocketConnectArgs {
        private_data: &[0; 65],
        ..args(&stream)
    };
    assert_eq!(code(ep.socket_connect(&requested)).0, DAT_INVALID_PARAMETER);
    let most = SocketConnectArgs {
        private_data: &[0; 64],
        ..args(&stream)
    };
    ep.socket_connect(&most).unwrap();
}

#[test]
fn an_endpoint_that_is_not_unconnected_is_an_invalid_state() {
    let bench = Bench::new();
    let (stream, _listener) = socket();
    let ep = bench.connected();
    let refused = ep.socket_connect(&args(&stream));
    assert_bad_state(refused, DAT_INVALID_STATE_EP_CONNECTED);
}

#[test]
fn an_endpoint_without_zone_or_with_an_evd_missing_is_an_invalid_state() {
    let bench = Bench::new();
    let (stream, _listener) = socket();
    let removals: [fn(&mut EpParts<_>); 4] = [
        |p| p.pz = None,
        |p| p.recv_evd = None,
        |p| p.request_evd = None,
        |p| p.connect_evd = None,
    ];
    for remove in removals {
        let mut parts = bench.parts();
        remove(&mut parts);
        let ep = Ep::create(&bench.ia, parts, Some(&DatEpAttr::zeroed())).unwrap();
        let ep = pinned::<Ep<ScriptedRnic>>(ep);
        let refused = code(ep.socket_connect(&args(&stream)));
        assert_eq!(refused, (DAT_INVALID_STATE, DAT_INVALID_STATE_EP_NOTREADY));
    }
}

#[test]
fn a_socket_that_is_unknown_or_not_routed_here_is_an_invalid_state() {
    for fault in [
        SocketFault::NotTcp,
        SocketFault::NotRouted,
        SocketFault::InUse,
    ] {
        let (bench, ep, (stream, _listener)) = with_socket();
        bench.script.fault(fault);
        let refused = code(ep.socket_connect(&args(&stream)));
        assert_eq!(refused.0, DAT_INVALID_STATE);
        assert_eq!((state(&ep), owner(&ep)), (DAT_EP_STATE_UNCONNECTED, None));
        let port = ep.query().remote_port_qual;
        assert_eq!(port, 0, "no address is inherited from the socket");
    }
}

#[test]
fn a_number_that_is_no_socket_is_an_invalid_parameter() {
    let (bench, ep) = Bench::with_ep();
    bench.script.fault(SocketFault::NotASocket);
    assert_eq!(code(ep.socket_connect(&args(&-1))).0, DAT_INVALID_PARAMETER);
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
}

#[test]
fn a_shortage_is_insufficient_resources() {
    let (bench, ep, (stream, _listener)) = with_socket();
    bench.script.fault(SocketFault::NoResources);
    let refused = code(ep.socket_connect(&args(&stream)));
    assert_eq!(refused.0, DAT_INSUFFICIENT_RESOURCES);
}

#[test]
fn endpoint_parameters_that_conflict_with_the_socket_are_an_invalid_parameter() {
    let (_bench, ep, (stream, _listener)) = with_socket();
    let comm = DatComm {
        domain: libc::AF_INET6,
        r#type: libc::SOCK_STREAM,
        protocol: 0,
    };
    ep.modify(
        DAT_EP_FIELD_COMM,
        &DatEpParam {
            comm,
            ..DatEpParam::zeroed()
        },
    )
    .unwrap();
    let refused = ep.socket_connect(&args(&stream));
    assert_bad_argument(refused, DAT_INVALID_ARG2);
    assert_eq!(state(&ep), DAT_EP_STATE_UNCONNECTED);
}

#[test]
fn disconnecting_or_destroying_the_endpoint_returns_the_socket_to_the_system() {
    let (bench, ep, _socket) = connecting_over_socket();
    bench.establish(&ep, b"");
    ep.disconnect(DAT_CLOSE_ABRUPT_FLAG).unwrap();
    assert_eq!(owner(&ep), None);

    let (stream, _listener) = socket();
    let ep = connecting(&bench, &stream);
    bench.establish(&ep, b"");
    Ep::free(&ep).unwrap();
    assert_eq!(owner(&ep), None);
}

#[test]
fn a_socket_that_is_not_connected_is_reported_by_an_event() {
    // "there is not requirement for the Provider to check if the socket provided is connected or
    // not as part of the successful return of the operation."
    let bench = Bench::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ep = bench.ep();
    ep.socket_connect(&args(&listener)).unwrap();
    bench.report(&ep, &ConnectionEvent::NonPeerRejected);
    assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
}

fn comm(ep: &TestEp) -> (i32, i32, i32) {
    let comm = ep.query().comm;
    (comm.domain, comm.r#type, comm.protocol)
}

#[test]
fn no_communicator_remains_after_a_refused_socket() {
    let (bench, ep) = Bench::with_ep();
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    datagrams.connect("127.0.0.1:9").unwrap();
    bench.script.fault(SocketFault::NotTcp);
    let refused = code(ep.socket_connect(&args(&datagrams)));
    assert_eq!(refused.0, DAT_INVALID_STATE);
    assert_eq!(comm(&ep), (0, 0, 0));
    let (stream, _listener) = socket();
    ep.socket_connect(&args(&stream)).unwrap();
    assert_eq!(comm(&ep).1, libc::SOCK_STREAM);
}

#[test]
fn after_a_reset_a_socket_of_another_family_is_accepted() {
    let (bench, ep) = Bench::with_ep();
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(address).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        ep.socket_connect(&args(&stream)).unwrap();
        bench.report(&ep, &ConnectionEvent::NonPeerRejected);
        assert_eq!(bench.conn_event(), DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
        ep.reset().unwrap();
        assert_eq!(comm(&ep), (0, 0, 0), "{address}");
    }
}

#[test]
fn the_consumers_own_communicator_stays() {
    let (bench, ep, (stream, _listener)) = with_socket();
    let mut requested = DatEpParam::zeroed();
    requested.comm = DatComm {
        domain: libc::AF_INET,
        r#type: libc::SOCK_STREAM,
        protocol: libc::IPPROTO_TCP,
    };
    ep.modify(DAT_EP_FIELD_COMM, &requested).unwrap();
    bench.script.fault(SocketFault::NotRouted);
    assert!(ep.socket_connect(&args(&stream)).is_err());
    assert_eq!(comm(&ep).0, libc::AF_INET);
}

#[test]
fn an_abrupt_disconnect_releases_no_socket_of_the_next_connection() {
    let bench = Bench::new();
    let ((first, _first), (second, _second)) = (socket(), socket());
    let ep = connecting(&bench, &first);
    bench.establish(&ep, b"");
    let (upcalls, socket) = (bench.upcalls.clone(), second.as_raw_fd());
    let same: TestEp = pin_handle(ep.handle()).unwrap();
    // Another thread of the consumer reads the event before the disconnect returns.
    bench.script.meanwhile(move |token| {
        upcalls.connection(QpToken(token), &ConnectionEvent::Disconnected);
        same.reset().unwrap();
        same.socket_connect(&args(&socket)).unwrap();
    });
    ep.disconnect(DAT_CLOSE_ABRUPT_FLAG).unwrap();
    assert_eq!(state(&ep), DAT_EP_STATE_ACTIVE_CONNECTION_PENDING);
    assert_eq!(owner(&ep), Some(Owner::Ep));
}
