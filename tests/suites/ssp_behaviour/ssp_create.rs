//! 3.1.1 `dat_iw_ssp_create` and 3.1.3 `dat_iw_ssp_query`: the final message, a socket that is down
//! already, and calls of several threads.

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use anyhow::{Result, ensure};
use dat_api::abi::*;
use dat_api::{EpState, Evd, EvdFlags, Event, Ssp, SspState};
use stack_tests::raw::{RawPeer, request};
use stack_tests::until;

use super::bench::{DEADLINE, Node, accept, expect_bytes, pair};
use super::raw_calls::{ssp_create, ssp_free, ssp_query};

#[test]
fn a_request_at_the_last_byte_of_the_final_message_is_always_received() -> Result<()> {
    const FINAL_MESSAGE: &[u8] = b"rdma from here on\n";
    let node = Node::new()?;
    for _ in 0..50 {
        let (asker, socket) = pair()?;
        let asker = std::thread::spawn(move || -> Result<TcpStream> {
            expect_bytes(&asker, FINAL_MESSAGE)?;
            (&asker).write_all(&request())?;
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
        (&peer).write_all(&request())?;
        Ok(peer)
    });
    let ep = node.ep()?;
    let ssp = Ssp::create(socket, &ep, &node.requests, &message)?;
    ssp.wait_request(Some(DEADLINE))?;
    peer.join().expect("the peer's thread does not panic")?;
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
                    peer.write_all(&request())?;
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

#[test]
fn many_threads_may_query_while_the_socket_goes_down() -> Result<()> {
    let node = Node::new()?;
    let (ep, (peer, socket)) = (node.ep()?, pair()?);
    let (fd, evd) = (socket.as_raw_fd(), node.requests.as_raw());
    let ssp = ssp_create(node.ia.as_raw(), fd, ep.as_raw(), evd)
        .map_err(|code| anyhow::anyhow!("{code:?}"))?;
    // Handles are plain values that any thread may use, so the test passes this one as a number.
    let number = ssp.expose_provenance();
    std::thread::scope(|scope| {
        let watch = || -> Result<()> {
            let ssp = ptr::with_exposed_provenance_mut(number);
            let is_down = || -> Result<bool> {
                let param = ssp_query(ssp, DAT_IW_SSP_FIELD_ALL)
                    .map_err(|code| anyhow::anyhow!("{code:?}"))?;
                let is_down = param.ssp_state == DAT_IW_SSP_STATE_NON_OPERATIONAL;
                ensure!(is_down == (param.socket_id == -1), "half a change was seen");
                Ok(is_down)
            };
            until!(is_down()?, "it does not go down");
            Ok(())
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(watch)).collect();
        drop(peer);
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("the thread does not panic"))
    })?;
    ensure!(ssp_free(ssp).is_success());
    Ok(())
}
