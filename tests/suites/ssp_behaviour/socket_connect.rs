//! 3.1.4 `dat_iw_socket_connect`: the arguments that it accepts and refuses, and the ends of an
//! attempt.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use anyhow::{Result, ensure};
use dat_api::abi::*;
use dat_api::{ConnectionKind, Ep, EpAttr, EpState};
use nix::libc;
use stack_tests::not_run;
use stack_tests::raw::{REPLY, RawPeer};

use super::bench::{
    DEADLINE, IPV6_IA, Node, SHORT_DATA_IA, accept, connect, expect_bytes, failure, pair,
    pair_over, refused, stream_both_ways, unconnected, unsupported_sockets,
};
use super::raw_calls::{ep_create, ep_free, ep_modify, param_of, socket_connect};

/// A timeout that an idle machine does not reach before the request is sent.
const SHORTLY: Duration = Duration::from_millis(100);

const PRIVATE_DATA: &[u8] = b"attributes of mine";

/// Reads a complete Request from `peer` and returns its private data.
fn read_request(peer: &TcpStream) -> Result<Vec<u8>> {
    let mut head = [0; 20];
    (&mut &*peer).read_exact(&mut head)?;
    ensure!(head.starts_with(b"MPA ID Req Frame"), "{head:?}");
    let mut data = vec![0; usize::from(u16::from_be_bytes([head[18], head[19]]))];
    (&mut &*peer).read_exact(&mut data)?;
    // Revision 2 has four bytes of its own before the consumer's (RFC 6581 section 9.1).
    let own = if head[17] == 2 { 4 } else { 0 };
    Ok(data.split_off(own))
}

/// An attempt to connect, and the peer, which has received the Request and not answered.
fn asking(node: &Node, timeout: Option<Duration>) -> Result<(Ep, TcpStream)> {
    let (active, peer) = pair()?;
    let ep = node.ep()?;
    ep.start_connect_socket(active, timeout, b"")?;
    read_request(&peer)?;
    Ok((ep, peer))
}

#[test]
fn success_makes_the_endpoint_pending_and_sends_a_request_with_the_private_data() -> Result<()> {
    let (_node, ep, active, peer) = unconnected()?;
    ep.start_connect_socket(active, Some(DEADLINE), PRIVATE_DATA)?;
    ensure!(ep.state()? == EpState::ActiveConnectionPending);
    ensure!(read_request(&peer)? == PRIVATE_DATA);
    Ok(())
}

#[test]
fn acceptance_is_reported_and_connects_the_endpoint() -> Result<()> {
    let node = Node::new()?;
    let connected = connect(&node, pair()?)?;
    ensure!(connected.active.state()? == EpState::Connected);
    ensure!(connected.passive.state()? == EpState::Connected);
    ensure!(
        node.connections.dequeue()?.is_none(),
        "each side receives one event"
    );
    Ok(())
}

#[test]
fn the_endpoint_is_bound_to_the_sockets_port_which_the_peer_sees() -> Result<()> {
    let node = Node::new()?;
    let (active, passive) = pair()?;
    let (here, there) = (active.local_addr()?, active.peer_addr()?);
    let (asker, ep) = (node.ep()?, node.ep()?);
    let ssp = node.arm(passive, &ep)?;
    asker.start_connect_socket(active, Some(DEADLINE), b"")?;
    let pending = asker.query()?;
    ensure!(pending.local_port == u64::from(here.port()));
    let request = ssp.wait_request(Some(DEADLINE))?;
    ensure!(request.remote() == Some(here), "{:?}", request.remote());
    accept(request)?;
    asker.wait_established(Some(DEADLINE))?;
    let info = asker.query()?;
    ensure!(
        info.local == Some(here) && info.remote == Some(there),
        "{info:?}"
    );
    ensure!(info.local_port == u64::from(here.port()));
    ensure!(info.remote_port == u64::from(there.port()));
    Ok(())
}

#[test]
fn a_default_endpoint_inherits_domain_type_and_protocol() -> Result<()> {
    let (_node, ep, active, _peer) = unconnected()?;
    ep.start_connect_socket(active, Some(DEADLINE), b"")?;
    let comm = param_of(&ep)?.comm;
    ensure!((comm.domain, comm.r#type) == (libc::AF_INET, libc::SOCK_STREAM));
    ensure!(comm.protocol == libc::IPPROTO_TCP);
    Ok(())
}

#[test]
fn an_endpoint_whose_communicator_conflicts_is_an_invalid_parameter() -> Result<()> {
    let (_node, ep, active, peer) = unconnected()?;
    let mut param = DatEpParam::zeroed();
    param.comm.domain = libc::AF_INET6;
    param.comm.r#type = libc::SOCK_STREAM;
    param.comm.protocol = libc::IPPROTO_TCP;
    ensure!(ep_modify(ep.as_raw(), DAT_EP_FIELD_COMM, &param).is_success());
    let active = refused(
        ep.start_connect_socket(active, Some(DEADLINE), b""),
        DAT_INVALID_PARAMETER,
    )?;
    ensure!(ep.state()? == EpState::Unconnected);
    stream_both_ways(&active, &peer)
}

#[test]
fn a_timeout_of_zero_is_an_invalid_parameter_and_the_socket_stays() -> Result<()> {
    let (_node, ep, active, peer) = unconnected()?;
    let code = socket_connect(ep.as_raw(), active.as_raw_fd(), 0, 0, None);
    ensure!(code.is(DAT_INVALID_PARAMETER), "{code:?}");
    ensure!(ep.state()? == EpState::Unconnected);
    stream_both_ways(&active, &peer)?;
    // Endpoint and socket can both be used as before.
    ep.start_connect_socket(active, Some(DEADLINE), b"")?;
    read_request(&peer)?;
    Ok(())
}

#[test]
fn invalid_sizes_of_private_data_are_an_invalid_parameter() -> Result<()> {
    let (_node, ep, active, peer) = unconnected()?;
    let long = vec![0; 509];
    for (size, data) in [(-1, Some(&long[..])), (1, None), (509, Some(&long[..]))] {
        let code = socket_connect(ep.as_raw(), active.as_raw_fd(), 1_000_000, size, data);
        ensure!(code.is(DAT_INVALID_PARAMETER), "{size}: {code:?}");
    }
    ensure!(ep.state()? == EpState::Unconnected);
    stream_both_ways(&active, &peer)
}

#[test]
fn no_private_data_may_be_a_null_pointer() -> Result<()> {
    let (_node, ep, active, peer) = unconnected()?;
    let code = socket_connect(ep.as_raw(), active.as_raw_fd(), 10_000_000, 0, None);
    ensure!(code.is_success(), "{code:?}");
    ensure!(read_request(&peer)?.is_empty());
    Ok(())
}

#[test]
fn the_longest_private_data_is_received_completely() -> Result<()> {
    let node = Node::new()?;
    let longest: Vec<u8> = (0..508_u32).map(|i| i as u8).collect();
    let (asker, _ep, _ssp, request) = node.requested(&longest)?;
    ensure!(request.private_data() == longest && !request.is_truncated());
    request.accept(None, &longest)?;
    ensure!(asker.wait_established(Some(DEADLINE))? == longest);
    Ok(())
}

#[test]
fn a_remote_provider_with_a_lower_limit_truncates_and_reports_it() -> Result<()> {
    let (node, short) = (Node::new()?, Node::on(SHORT_DATA_IA)?);
    for len in [16, 17, 508] {
        let data: Vec<u8> = (0..len).map(|i: u32| i as u8).collect();
        let (active, passive) = pair()?;
        let (asker, ep) = (node.ep()?, short.ep()?);
        let ssp = short.arm(passive, &ep)?;
        asker.start_connect_socket(active, Some(DEADLINE), &data)?;
        let request = ssp.wait_request(Some(DEADLINE))?;
        ensure!(request.private_data() == &data[..16], "{len}");
        ensure!(request.is_truncated() == (len > 16), "{len}");
        accept(request)?;
        asker.wait_established(Some(DEADLINE))?;
    }
    Ok(())
}

#[test]
fn an_endpoint_that_is_not_unconnected_is_an_invalid_state() -> Result<()> {
    let node = Node::new()?;
    let busy = connect(&node, pair()?)?;
    let (active, peer) = pair()?;
    let result = busy
        .active
        .start_connect_socket(active, Some(DEADLINE), b"");
    let active = refused(result, DAT_INVALID_STATE)?;
    stream_both_ways(&active, &peer)
}

#[test]
fn an_endpoint_without_zone_or_evds_is_an_invalid_state() -> Result<()> {
    let node = Node::new()?;
    let (active, peer) = pair()?;
    let (pz, dto, conn) = (
        node.pz.as_raw(),
        node.transfers.as_raw(),
        node.connections.as_raw(),
    );
    let null = DAT_HANDLE_NULL;
    for (pz, evds) in [
        (null, [dto, dto, conn]),
        (pz, [null, dto, conn]),
        (pz, [dto, null, conn]),
        (pz, [dto, dto, null]),
    ] {
        let ep = ep_create(node.ia.as_raw(), pz, evds)
            .map_err(|code| anyhow::anyhow!("dat_ep_create: {code:?}"))?;
        let code = socket_connect(ep, active.as_raw_fd(), 1_000_000, 0, None);
        ensure!(code.is(DAT_INVALID_STATE), "{code:?}");
        ensure!(ep_free(ep).is_success());
    }
    stream_both_ways(&active, &peer)
}

#[test]
fn an_invalid_endpoint_is_an_invalid_handle() -> Result<()> {
    let node = Node::new()?;
    let (active, peer) = pair()?;
    for handle in [DAT_HANDLE_NULL, node.ia.as_raw(), node.requests.as_raw()] {
        let code = socket_connect(handle, active.as_raw_fd(), 1_000_000, 0, None);
        ensure!(code.is(DAT_INVALID_HANDLE), "{code:?}");
    }
    stream_both_ways(&active, &peer)
}

#[test]
fn an_unsupported_kind_of_socket_is_an_invalid_state() -> Result<()> {
    let node = Node::new()?;
    let ep = node.ep()?;
    for socket in unsupported_sockets()? {
        let result = ep.start_connect_socket(socket, Some(DEADLINE), b"");
        refused(result, DAT_INVALID_STATE)?;
    }
    let file = std::fs::File::open("/dev/null")?;
    let result = ep.start_connect_socket(file, Some(DEADLINE), b"");
    refused(result, DAT_INVALID_PARAMETER)?;
    ensure!(ep.state()? == EpState::Unconnected);
    Ok(())
}

#[test]
fn a_reject_is_reported_with_its_private_data_and_returns_both_sockets() -> Result<()> {
    let node = Node::new()?;
    let (asker, _ep, _ssp, request) = node.requested(b"")?;
    let passive = TcpStream::from(
        request
            .reject(b"why not")?
            .expect("the request has a socket"),
    );
    let (active, reason) = failure(&asker, ConnectionKind::PeerRejected)?;
    ensure!(reason == b"why not");
    stream_both_ways(&active, &passive)
}

#[test]
fn silence_is_timed_out_and_returns_the_socket() -> Result<()> {
    let node = Node::new()?;
    // On a busy machine the time may pass before the request is sent.
    for timeout in [SHORTLY, 30 * SHORTLY, DEADLINE / 2] {
        let (active, peer) = pair()?;
        let ep = node.ep()?;
        ep.start_connect_socket(active, Some(timeout), b"")?;
        let (active, _) = failure(&ep, ConnectionKind::TimedOut)?;
        peer.set_nonblocking(true)?;
        let is_sent = peer.peek(&mut [0]).is_ok();
        peer.set_nonblocking(false)?;
        if is_sent {
            read_request(&peer)?;
        }
        stream_both_ways(&active, &peer)?;
        if is_sent {
            return Ok(());
        }
    }
    anyhow::bail!("no request is sent in time")
}

#[test]
fn an_attempt_without_timeout_waits_until_it_is_answered() -> Result<()> {
    let node = Node::new()?;
    let (active, passive) = pair()?;
    let asker = node.ep()?;
    asker.start_connect_socket(active, None, b"")?;
    ensure!(node.connections.wait(Some(SHORTLY))?.is_none());
    let ep = node.ep()?;
    let ssp = node.arm(passive, &ep)?;
    accept(ssp.wait_request(Some(DEADLINE))?)?;
    asker.wait_established(Some(DEADLINE))?;
    Ok(())
}

#[test]
fn a_peer_that_closes_instead_is_non_peer_rejected() -> Result<()> {
    let node = Node::new()?;
    for reset in [false, true] {
        let (ep, peer) = asking(&node, Some(DEADLINE))?;
        if reset {
            RawPeer::over(peer)?.reset()?;
        } else {
            drop(peer);
        }
        failure(&ep, ConnectionKind::NonPeerRejected)?;
    }
    Ok(())
}

#[test]
fn a_peer_without_rdma_is_non_peer_rejected_and_served_in_streaming_mode() -> Result<()> {
    let node = Node::new()?;
    let (ep, peer) = asking(&node, Some(DEADLINE))?;
    (&peer).write_all(b"500 what was that?\n")?;
    let (active, _) = failure(&ep, ConnectionKind::NonPeerRejected)?;
    expect_bytes(&active, b"500 what was that?\n")?;
    stream_both_ways(&active, &peer)
}

#[test]
fn a_reply_that_breaks_off_is_non_peer_rejected() -> Result<()> {
    let node = Node::new()?;
    let (ep, peer) = asking(&node, Some(DEADLINE))?;
    (&peer).write_all(&REPLY[..10])?;
    drop(peer);
    failure(&ep, ConnectionKind::NonPeerRejected)?;
    Ok(())
}

#[test]
fn a_socket_that_is_not_connected_is_reported_by_an_event() -> Result<()> {
    let node = Node::new()?;
    let never = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    let (closed, peer) = pair()?;
    drop(peer);
    for socket in [OwnedFd::from(never), OwnedFd::from(closed)] {
        let ep = node.ep()?;
        ep.start_connect_socket(socket, Some(DEADLINE), b"")?;
        failure(&ep, ConnectionKind::NonPeerRejected)?;
    }
    Ok(())
}

#[test]
fn aborting_a_pending_attempt_returns_the_socket() -> Result<()> {
    let node = Node::new()?;
    let (ep, peer) = asking(&node, None)?;
    ep.disconnect(dat_api::Close::Abrupt)?;
    ep.wait_disconnected(Some(DEADLINE))?;
    let active = TcpStream::from(ep.take_socket().expect("no connection was made"));
    stream_both_ways(&active, &peer)
}

#[test]
fn read_depths_that_the_consumer_set_are_unchanged() -> Result<()> {
    let node = Node::new()?;
    for depth in [0, 3] {
        let attr = EpAttr {
            max_rdma_read_in: depth,
            max_rdma_read_out: depth,
            ..EpAttr::default()
        };
        let (active, passive) = pair()?;
        let (asker, ep) = (node.ep_with(&attr)?, node.ep_with(&attr)?);
        node.convert((&asker, active), (&ep, passive))?;
        for end in [&asker, &ep] {
            let attr = end.query()?.attr;
            ensure!((attr.max_rdma_read_in, attr.max_rdma_read_out) == (depth, depth));
        }
    }
    Ok(())
}

#[test]
fn default_read_depths_suit_every_peer() -> Result<()> {
    let node = Node::new()?;
    for peers_depth in [None, Some(0), Some(1), Some(128)] {
        for default_asks in [true, false] {
            let other = match peers_depth {
                None => node.ep()?,
                Some(depth) => node.ep_with(&EpAttr {
                    max_rdma_read_in: depth,
                    max_rdma_read_out: depth,
                    ..EpAttr::default()
                })?,
            };
            let default = node.ep()?;
            let (asker, ep) = if default_asks {
                (default, other)
            } else {
                (other, default)
            };
            let (active, passive) = pair()?;
            node.convert((&asker, active), (&ep, passive))?;
        }
    }
    Ok(())
}

#[test]
fn sockets_of_ipv6_convert_as_well() -> Result<()> {
    let Ok(listener) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else {
        not_run("this machine has no IPv6");
        return Ok(());
    };
    let node = Node::on(IPV6_IA)?;
    let sockets = pair_over(&listener)?;
    let here = sockets.0.local_addr()?;
    let connected = connect(&node, sockets)?;
    let info = connected.active.query()?;
    ensure!(
        info.local.map(|a: SocketAddr| a.ip()) == Some(here.ip()),
        "{info:?}"
    );
    ensure!(param_of(&connected.active)?.comm.domain == libc::AF_INET6);
    Ok(())
}
