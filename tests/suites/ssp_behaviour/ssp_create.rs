//! 3.1.1 `dat_iw_ssp_create`: the arguments that it accepts and refuses, and its one connection
//! request.

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Result, ensure};
use dat_api::abi::*;
use dat_api::{ConnectionKind, EpState, Evd, EvdFlags, Event, Ssp, SspState, SspWaitError};
use stack_tests::raw::{REQUEST, RawPeer};

use super::bench::{
    DEADLINE, Node, accept, connect, expect_bytes, failure, pair, refused, stream_both_ways,
    unconnected, unsupported_sockets,
};
use super::raw_calls::{
    cr_accept, cr_param, ep_modify, ep_param, next_arrival, next_event, ssp_create, ssp_free,
    ssp_query,
};

#[test]
fn a_request_at_the_last_byte_of_the_final_message_is_always_received() -> Result<()> {
    const FINAL_MESSAGE: &[u8] = b"rdma from here on\n";
    let node = Node::new()?;
    for _ in 0..50 {
        let (asker, socket) = pair()?;
        let asker = std::thread::spawn(move || -> Result<TcpStream> {
            expect_bytes(&asker, FINAL_MESSAGE)?;
            (&asker).write_all(&REQUEST)?;
            Ok(asker)
        });
        let ep = node.ep()?;
        let ssp = Ssp::create(socket, &ep, &node.requests, FINAL_MESSAGE)?;
        let request = ssp.wait_request(Some(DEADLINE))?;
        drop(asker.join().expect("the peer's thread does not panic")?);
        request.reject(b"")?;
    }
    Ok(())
}

#[test]
fn a_final_message_larger_than_the_socket_buffer_is_sent_completely() -> Result<()> {
    let node = Node::new()?;
    let message: Vec<u8> = (0..4 << 20).map(|i: u32| (i % 251) as u8).collect();
    let expected = message.clone();
    let (peer, socket) = pair()?;
    socket.set_nonblocking(true)?;
    let peer = std::thread::spawn(move || -> Result<TcpStream> {
        expect_bytes(&peer, &expected)?;
        (&peer).write_all(&REQUEST)?;
        Ok(peer)
    });
    let ep = node.ep()?;
    let ssp = Ssp::create(socket, &ep, &node.requests, &message)?;
    ssp.wait_request(Some(DEADLINE))?;
    peer.join().expect("the peer's thread does not panic")?;
    Ok(())
}

#[test]
fn without_a_final_message_nothing_is_sent() -> Result<()> {
    let (node, ep, peer, socket) = unconnected()?;
    let socket = node.arm(socket, &ep)?.free()?.expect("no request");
    TcpStream::from(socket).write_all(b"first")?;
    expect_bytes(&peer, b"first")
}

#[test]
fn a_second_request_on_the_socket_is_not_reported() -> Result<()> {
    let node = Node::new()?;
    let (mut peer, socket) = pair()?;
    peer.write_all(&[REQUEST, REQUEST].concat())?;
    let ep = node.ep()?;
    let ssp = node.arm(socket, &ep)?;
    let request = ssp.wait_request(Some(DEADLINE))?;
    ensure!(ssp.state()? == SspState::NonOperational);
    let socket = request.reject(b"")?.expect("the request has the socket");
    expect_bytes(&socket.into(), &REQUEST)?;
    ensure!(node.requests.dequeue()?.is_none(), "a second event");
    Ok(())
}

#[test]
fn an_unsupported_kind_of_socket_is_an_invalid_state() -> Result<()> {
    let node = Node::new()?;
    let ep = node.ep()?;
    for socket in unsupported_sockets()? {
        refused(
            Ssp::create(socket, &ep, &node.requests, b""),
            DAT_INVALID_STATE,
        )?;
    }
    ensure!(ep.state()? == EpState::Unconnected);
    Ok(())
}

#[test]
fn a_descriptor_that_is_no_socket_is_an_invalid_parameter() -> Result<()> {
    let node = Node::new()?;
    let ep = node.ep()?;
    let file = std::fs::File::open("/dev/null")?;
    refused(
        Ssp::create(file, &ep, &node.requests, b""),
        DAT_INVALID_PARAMETER,
    )?;
    for number in [-1, i32::MAX] {
        let code = ssp_create(
            node.ia.as_raw(),
            number,
            ep.as_raw(),
            node.requests.as_raw(),
        );
        ensure!(code.is_err_and(|code| code.is(DAT_INVALID_PARAMETER)));
    }
    ensure!(ep.state()? == EpState::Unconnected);
    Ok(())
}

#[test]
fn invalid_handles_are_refused_one_by_one() -> Result<()> {
    let (node, ep, peer, socket) = unconnected()?;
    let (ia, evd) = (node.ia.as_raw(), node.requests.as_raw());
    let cases = [
        (ep.as_raw(), ep.as_raw(), evd, "ia"),
        (ia, evd, evd, "ep"),
        (ia, ep.as_raw(), DAT_HANDLE_NULL, "evd"),
        (
            ia,
            ep.as_raw(),
            node.transfers.as_raw(),
            "evd without the flag",
        ),
    ];
    for (ia, ep, evd, which) in cases {
        let code = ssp_create(ia, socket.as_raw_fd(), ep, evd);
        ensure!(
            code.is_err_and(|c| c.is(DAT_INVALID_HANDLE)),
            "{which}: {code:?}"
        );
    }
    ensure!(ep.state()? == EpState::Unconnected);
    stream_both_ways(&peer, &socket)
}

#[test]
fn an_endpoint_that_is_not_idle_is_an_invalid_state() -> Result<()> {
    let node = Node::new()?;
    let busy = connect(&node, pair()?)?;
    let (peer, socket) = pair()?;
    let socket = refused(
        Ssp::create(socket, &busy.passive, &node.requests, b""),
        DAT_INVALID_STATE,
    )?;
    stream_both_ways(&peer, &socket)?;

    let reserved = node.ep()?;
    let _ssp = node.arm(socket, &reserved)?;
    let (peer, socket) = pair()?;
    let socket = refused(
        Ssp::create(socket, &reserved, &node.requests, b""),
        DAT_INVALID_STATE,
    )?;
    stream_both_ways(&peer, &socket)
}

#[test]
fn a_null_endpoint_is_replaced_by_one_of_the_provider() -> Result<()> {
    let node = Node::new()?;
    let (active, socket) = pair()?;
    let evd = &node.requests;
    let fd = socket.as_raw_fd();
    let ssp = ssp_create(node.ia.as_raw(), fd, DAT_HANDLE_NULL, evd.as_raw()).unwrap();
    let ep = ssp_query(ssp, DAT_IW_SSP_FIELD_ALL).unwrap().ep_handle;
    ensure!(ep_param(ep).unwrap().ep_state == DAT_EP_STATE_RESERVED);

    let asker = node.ep()?;
    asker.start_connect_socket(active, Some(DEADLINE), b"")?;
    let cr = next_arrival(evd, DAT_CONNECTION_REQUEST_EVENT)?.cr_handle;
    ensure!(cr_param(cr).unwrap().local_ep_handle == ep);
    let given = DatEpParam {
        pz_handle: node.pz.as_raw(),
        recv_evd_handle: node.transfers.as_raw(),
        request_evd_handle: node.transfers.as_raw(),
        connect_evd_handle: node.connections.as_raw(),
        ..DatEpParam::zeroed()
    };
    let mask = DAT_EP_FIELD_PZ_HANDLE
        | DAT_EP_FIELD_RECV_EVD_HANDLE
        | DAT_EP_FIELD_REQUEST_EVD_HANDLE
        | DAT_EP_FIELD_CONNECT_EVD_HANDLE;
    ensure!(ep_modify(ep, mask, &given).is_success());
    ensure!(cr_accept(cr).is_success());
    for _both in 0..2 {
        next_event(&node.connections, DAT_CONNECTION_EVENT_ESTABLISHED)?;
    }
    ensure!(ep_param(ep).unwrap().ep_state == DAT_EP_STATE_CONNECTED);
    // The connection owns the number from now on.
    let _ = std::os::fd::IntoRawFd::into_raw_fd(socket);
    ensure!(ssp_free(ssp).is_success());
    ensure!(super::raw_calls::ep_free(ep).is_success());
    Ok(())
}

#[test]
fn the_request_event_has_service_point_endpoint_port_and_private_data() -> Result<()> {
    let node = Node::new()?;
    let (active, passive) = pair()?;
    let (here, there) = (passive.local_addr()?, passive.peer_addr()?);
    let (asker, ep) = (node.ep()?, node.ep()?);
    let ssp = node.arm(passive, &ep)?;
    ensure!(ep.state()? == EpState::Reserved);
    asker.start_connect_socket(active, Some(DEADLINE), b"who I am")?;
    let request = ssp.wait_request(Some(DEADLINE))?;
    ensure!(request.service_point() == ssp.id());
    ensure!(
        request
            .reserved_ep()
            .is_some_and(|reserved| reserved.id() == ep.id())
    );
    ensure!(request.conn_qual() == u64::from(here.port()));
    ensure!(request.remote() == Some(there));
    ensure!(request.private_data() == b"who I am" && !request.is_truncated());
    Ok(())
}

#[test]
fn a_request_moves_the_endpoint_on_and_takes_the_socket_from_the_service_point() -> Result<()> {
    let node = Node::new()?;
    let (mut peer, socket) = pair()?;
    let evd = &node.requests;
    let ep = node.ep()?;
    let ssp = ssp_create(
        node.ia.as_raw(),
        socket.as_raw_fd(),
        ep.as_raw(),
        evd.as_raw(),
    )
    .unwrap();
    let before = ssp_query(ssp, DAT_IW_SSP_FIELD_ALL).unwrap();
    ensure!(before.socket_id == socket.as_raw_fd());
    peer.write_all(&REQUEST)?;
    next_arrival(evd, DAT_CONNECTION_REQUEST_EVENT)?;
    ensure!(ep.state()? == EpState::PassiveConnectionPending);
    let after = ssp_query(ssp, DAT_IW_SSP_FIELD_ALL).unwrap();
    ensure!(after.ssp_state == DAT_IW_SSP_STATE_NON_OPERATIONAL);
    ensure!(after.socket_id == -1, "{}", after.socket_id);
    ensure!(ssp_free(ssp).is_success());
    Ok(())
}

#[test]
fn accepting_connects_the_original_endpoint_and_notifies_its_connect_evd() -> Result<()> {
    let node = Node::new()?;
    let (asker, ep, _ssp, request) = node.requested(b"")?;
    let accepted = request.accept(None, b"welcome")?;
    ensure!(accepted.id() == ep.id());
    ensure!(asker.wait_established(Some(DEADLINE))? == b"welcome");
    ep.wait_established(Some(DEADLINE))?;
    ensure!(ep.state()? == EpState::Connected);
    Ok(())
}

#[test]
fn a_request_may_be_answered_later_and_in_another_thread() -> Result<()> {
    let node = Node::new()?;
    let (asker, ep, _ssp, request) = node.requested(b"")?;
    ensure!(asker.state()? == EpState::ActiveConnectionPending);
    let answerer = std::thread::spawn(move || accept(request).map(drop));
    answerer.join().expect("the thread does not panic")?;
    asker.wait_established(Some(DEADLINE))?;
    ep.wait_established(Some(DEADLINE))?;
    Ok(())
}

#[test]
fn after_a_reject_the_same_endpoint_and_socket_serve_again() -> Result<()> {
    let node = Node::new()?;
    let (asker, ep, ssp, request) = node.requested(b"")?;
    let passive = request
        .reject(b"not yet")?
        .expect("the request has the socket");
    ensure!(ep.state()? == EpState::Unconnected);
    let (active, reason) = failure(&asker, ConnectionKind::PeerRejected)?;
    ensure!(reason == b"not yet");

    // The first service point still exists, but is not operational. A second one takes the socket.
    let again = node.arm(passive, &ep)?;
    ensure!(ssp.state()? == SspState::NonOperational);
    asker.reset()?;
    asker.start_connect_socket(active, Some(DEADLINE), b"")?;
    accept(again.wait_request(Some(DEADLINE))?)?;
    asker.wait_established(Some(DEADLINE))?;
    ep.wait_established(Some(DEADLINE))?;
    Ok(())
}

#[test]
fn a_rejected_endpoint_may_be_destroyed() -> Result<()> {
    let node = Node::new()?;
    let (mut peer, ep, ssp) = node.armed()?;
    peer.write_all(&REQUEST)?;
    ssp.wait_request(Some(DEADLINE))?.reject(b"")?;
    drop(ssp.free()?);
    let handle = ep.as_raw();
    drop(ep);
    ensure!(ep_param(handle).is_err_and(|code| code.is(DAT_INVALID_HANDLE)));
    Ok(())
}

/// Waits for SOCKET_DOWN on a service point, which must then be unusable.
fn expect_down(node: &Node, ssp: &Ssp) -> Result<()> {
    match node.requests.wait(Some(DEADLINE))? {
        Some(Event::SocketDown(sp)) => ensure!(sp == ssp.id()),
        other => anyhow::bail!("{other:?}"),
    }
    ensure!(ssp.state()? == SspState::NonOperational);
    ensure!(ssp.ep().state()? == EpState::Reserved, "until it is freed");
    Ok(())
}

#[test]
fn a_disconnected_socket_is_reported_in_the_service_points_evd() -> Result<()> {
    let node = Node::new()?;
    for reset in [false, true] {
        let (peer, ep, ssp) = node.armed()?;
        if reset {
            RawPeer::over(peer)?.reset()?;
        } else {
            drop(peer);
        }
        expect_down(&node, &ssp)?;
        ensure!(ssp.free()?.is_some(), "the consumer closes the socket");
        ensure!(ep.state()? == EpState::Unconnected);
    }
    ensure!(
        node.requests.dequeue()?.is_none(),
        "each service point receives one event"
    );
    Ok(())
}

#[test]
fn a_socket_that_was_disconnected_before_is_also_reported() -> Result<()> {
    let node = Node::new()?;
    let (peer, closed) = pair()?;
    drop(peer);
    let (peer, reset) = pair()?;
    RawPeer::over(peer)?.reset()?;
    let never = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    for (socket, final_message) in [
        (OwnedFd::from(closed), &b""[..]),
        (OwnedFd::from(reset), b"anybody there?"),
        (OwnedFd::from(never), b""),
    ] {
        let ep = node.ep()?;
        let ssp = Ssp::create(socket, &ep, &node.requests, final_message)?;
        expect_down(&node, &ssp)?;
    }
    Ok(())
}

#[test]
fn bytes_that_are_no_request_end_the_wait_and_stay_for_the_streaming_reader() -> Result<()> {
    let node = Node::new()?;
    let (mut peer, _ep, ssp) = node.armed()?;
    peer.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    ensure!(matches!(
        ssp.wait_request(Some(DEADLINE)),
        Err(SspWaitError::SocketDown)
    ));
    let socket = TcpStream::from(ssp.free()?.expect("it is the consumer's again"));
    expect_bytes(&socket, b"GET / HTTP/1.0\r\n\r\n")?;
    stream_both_ways(&peer, &socket)
}

#[test]
fn a_non_operational_service_point_takes_no_request() -> Result<()> {
    let node = Node::new()?;
    let (mut peer, socket) = pair()?;
    peer.write_all(b"not yet")?;
    let ep = node.ep()?;
    let ssp = node.arm(socket, &ep)?;
    expect_down(&node, &ssp)?;
    // From now on only the consumer reads received bytes.
    peer.write_all(&REQUEST)?;
    let socket = TcpStream::from(ssp.free()?.expect("it is the consumer's again"));
    expect_bytes(&socket, b"not yet")?;
    ensure!(node.requests.dequeue()?.is_none());
    // A new service point on the same socket can use the unread request.
    let another = node.arm(socket, &ep)?;
    another.wait_request(Some(DEADLINE))?;
    Ok(())
}

#[test]
fn many_threads_may_create_query_and_free_at_once() -> Result<()> {
    let node = Node::new()?;
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            // An EVD has one waiter at a time.
            let requests = Evd::create(&node.ia, 4, EvdFlags::CONNECTION_REQUEST)?;
            for round in 0..20 {
                let (mut peer, socket) = pair()?;
                let ep = node.ep()?;
                let ssp = Ssp::create(socket, &ep, &requests, b"")?;
                if round % 2 == 0 {
                    peer.write_all(&REQUEST)?;
                    ssp.wait_request(Some(DEADLINE))?.reject(b"")?;
                    ensure!(ssp.state()? == SspState::NonOperational);
                } else {
                    ensure!(ssp.state()? == SspState::Operational);
                    ensure!(ssp.free()?.is_some());
                }
            }
            Ok(())
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("the thread does not panic"))
    })
}
