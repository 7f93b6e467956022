//! 3.1.4 `dat_iw_socket_connect`: the ends of an attempt, and read depths.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Result, ensure};
use dat_api::{ConnectionKind, Ep, EpAttr};
use stack_tests::raw::{REPLY, RawPeer};

use super::bench::{DEADLINE, Node, failure, pair, stream_both_ways};

/// A timeout that an idle machine does not reach before the request is sent.
const SHORTLY: Duration = Duration::from_millis(100);

/// Reads a complete Request from `peer`.
fn read_request(peer: &TcpStream) -> Result<()> {
    let mut head = [0; 20];
    (&mut &*peer).read_exact(&mut head)?;
    ensure!(head.starts_with(b"MPA ID Req Frame"), "{head:?}");
    let mut data = vec![0; usize::from(u16::from_be_bytes([head[18], head[19]]))];
    Ok((&mut &*peer).read_exact(&mut data)?)
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
    let most = node.ia.attr()?.max_rdma_read_per_ep_in.min(128);
    for peers_depth in [None, Some(0), Some(1), Some(most)] {
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
