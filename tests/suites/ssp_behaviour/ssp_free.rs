//! 3.1.2 `dat_iw_ssp_free`: the owner of the socket and of the endpoint afterwards.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Result, ensure};
use dat_api::{ConnectionKind, EpState, Event, SspState};
use stack_tests::raw::request;
use stack_tests::until;

use super::bench::{DEADLINE, Node, failure, pair, stream_both_ways};
use super::raw_calls::ia_close;

#[test]
fn a_request_during_the_free_is_either_delivered_or_left_unread() -> Result<()> {
    let node = Node::new()?;
    let (mut reported, mut left) = (0, 0);
    for round in 0_u64..200 {
        let (mut peer, ep, ssp) = node.armed()?;
        peer.write_all(&request())?;
        // The delay spreads the free over the time that a request takes.
        (0..round * 50).for_each(|_| std::hint::spin_loop());
        match ssp.free()? {
            Some(socket) => {
                left += 1;
                ensure!(ep.state()? == EpState::Unconnected);
                ensure!(
                    node.requests.dequeue()?.is_none(),
                    "an event in addition to the socket"
                );
                expect_unanswered_or_rejected(&peer, &socket.into())?;
            }
            None => {
                reported += 1;
                ensure!(ep.state()? == EpState::PassiveConnectionPending);
                let Some(Event::ConnectionRequest(request)) = node.requests.dequeue()? else {
                    anyhow::bail!("the socket was closed without a request event");
                };
                let socket = request.reject(b"")?.expect("the request has a socket");
                expect_reject(&peer)?;
                stream_both_ways(&peer, &socket.into())?;
            }
        }
    }
    ensure!(reported + left == 200);
    Ok(())
}

/// Checks that the request is either still in the socket, or was read and rejected, and that the
/// stream is intact.
fn expect_unanswered_or_rejected(peer: &TcpStream, socket: &TcpStream) -> Result<()> {
    let mut front = vec![0; request().len()];
    socket.set_nonblocking(true)?;
    let there = match (&mut &*socket).read(&mut front) {
        Ok(len) => len,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(error.into()),
    };
    socket.set_nonblocking(false)?;
    if there == 0 {
        expect_reject(peer)?;
    } else {
        ensure!(front[..there] == request()[..there], "{front:?}");
    }
    stream_both_ways(peer, socket)
}

/// A Reply of 20 bytes with the reject flag.
fn expect_reject(mut peer: &TcpStream) -> Result<()> {
    let mut reply = [0; 20];
    peer.read_exact(&mut reply)?;
    ensure!(reply.starts_with(b"MPA ID Rep Frame"), "{reply:?}");
    ensure!(reply[16] & 0x20 != 0, "it accepts: {reply:?}");
    Ok(())
}

#[test]
fn an_unanswered_request_is_rejected() -> Result<()> {
    let node = Node::new()?;
    let (mut peer, _ep, ssp) = node.armed()?;
    peer.write_all(&request())?;
    let request = ssp.wait_request(Some(DEADLINE))?;
    drop(request);
    expect_reject(&peer)
}

#[test]
fn a_request_of_a_closed_adapter_is_rejected() -> Result<()> {
    let node = Node::new()?;
    let (mut peer, ep, ssp) = node.armed()?;
    peer.write_all(&request())?;
    until!(ssp.state()? == SspState::NonOperational, "no request");
    // The event has not been read; all open objects are freed with the adapter.
    ensure!(ia_close(&node.ia).is_success());
    std::mem::forget((ssp, ep, node));
    expect_reject(&peer)
}

#[test]
fn a_request_after_the_free_is_not_delivered() -> Result<()> {
    let node = Node::new()?;
    let (active, passive) = pair()?;
    let (asker, ep) = (node.ep()?, node.ep()?);
    let socket = node.arm(passive, &ep)?.free()?.expect("nobody asked");
    asker.start_connect_socket(active, Some(DEADLINE), b"")?;
    drop(socket);
    // The result is the same as without a listener (DAT 2.0 section 6.6.5).
    failure(&asker, ConnectionKind::NonPeerRejected)?;
    ensure!(
        node.requests.dequeue()?.is_none(),
        "an event without a cause"
    );
    Ok(())
}
