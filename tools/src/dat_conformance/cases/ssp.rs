//! Socket service points: a TCP connection becomes an RDMA connection, or stays a TCP connection.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dat_api::abi::*;
use dat_api::{
    ConnectError, ConnectFailure, ConnectionKind, Ep, EpState, Ssp, SspState, SspWaitError,
};

use crate::case::{Start, cases};
use crate::expect;
use crate::kit::Kit;
use crate::pattern;
use crate::side::Side;
use crate::verdict::Lacks;

cases! { pub(super) fn cases:
    "ssp/convert": "a TCP connection becomes an RDMA connection" => converts, waits, each way;
    "ssp/rejected": "both ends continue in streaming mode after a rejection" =>
        is_rejected, rejects, each way;
    "ssp/freed": "freeing a service point returns its socket" => keeps_streaming, frees, each way;
    "ssp/socket-down": "an event reports that the peer closed the socket" =>
        closes, sees_down, each way;
    "ssp/no-request": "an event reports that the peer sent other bytes than a request" =>
        sends_other_bytes, sees_down, each way;
    "ssp/reserved": "the endpoint is reserved, and released when the service point is freed" =>
        keeps_streaming, reserves, each way;
    "ssp/busy-endpoint": "an endpoint in use is refused, and its socket stays with the consumer" =>
        keeps_streaming, is_busy, each way;
    "ssp/no-rdma": "an attempt over a socket to a peer without RDMA fails" =>
        meets_other_protocol, answers_otherwise, each way;
    "ssp/timeout": "an attempt over a socket ends after its timeout" =>
        times_out, is_silent, each way;
    "ssp/timeout-zero": "an attempt over a socket with timeout 0 is refused" =>
        has_no_time, only_streams, each way;
}

/// The last message of the passive end in streaming mode.
const FINAL_MESSAGE: &[u8] = b"RDMA, please\n";

/// The objects of an adapter that has socket service points.
struct SspKit(Kit);

impl Start for SspKit {
    fn start(side: &mut Side<'_>) -> Result<Self> {
        let kit = Kit::open(side)?;
        let attrs = kit.ia.provider_attr()?.specific;
        let found = attrs.iter().any(|attr| attr.name == "DAT_IW_ATTR_SSP");
        ensure!(found, Lacks("the provider has no socket service points"));
        Ok(Self(kit))
    }
}

/// A TCP connection between the ends, over the adapter's network.
fn socket(kit: &Kit, side: &mut Side<'_>) -> Result<TcpStream> {
    let patience = Some(side.patience());
    let socket = if side.is_client {
        let (address, _) = side.receive_address()?;
        TcpStream::connect_timeout(&address, side.patience())?
    } else {
        let listener = TcpListener::bind((kit.address()?.ip(), 0))?;
        side.send_address(listener.local_addr()?, 0)?;
        listener.accept()?.0
    };
    socket.set_read_timeout(patience)?;
    Ok(socket)
}

/// Sends a text in streaming mode and receives the same text from the peer.
fn exchange_text(socket: &mut TcpStream) -> Result<()> {
    socket.write_all(b"still here")?;
    let mut text = [0; 10];
    socket.read_exact(&mut text).context("in streaming mode")?;
    ensure!(&text == b"still here", "{text:?}");
    Ok(())
}

fn returned(socket: Option<OwnedFd>) -> Result<TcpStream> {
    Ok(socket.context("the socket was not returned")?.into())
}

/// A TCP connection over which the final message was received.
fn final_socket(kit: &Kit, side: &mut Side<'_>) -> Result<TcpStream> {
    let mut socket = socket(kit, side)?;
    let mut text = vec![0; FINAL_MESSAGE.len()];
    socket.read_exact(&mut text).context("the final message")?;
    ensure!(text == FINAL_MESSAGE, "the final message differs");
    Ok(socket)
}

/// An endpoint, and a service point that has sent the final message over a TCP connection.
fn service(kit: &Kit, side: &mut Side<'_>) -> Result<(Ep, Ssp)> {
    let ep = kit.ep()?;
    let ssp = Ssp::create(socket(kit, side)?, &ep, &kit.requests, FINAL_MESSAGE)?;
    Ok((ep, ssp))
}

fn converts(SspKit(kit): SspKit, side: &mut Side<'_>) -> Result<()> {
    let (ep, region) = (kit.ep()?, kit.region(64)?);
    let socket = final_socket(&kit, side)?;
    let welcome = ep.connect_socket(socket, Some(side.patience()), b"hello")?;
    ensure!(welcome == b"welcome", "{welcome:?}");
    expect::in_state(&ep, EpState::Connected)?;
    pattern::fill(&region, 0, 64, 4)?;
    let segment = [region.segment(0, 64)?];
    ep.post_send(&segment, 1, dat_api::CompletionFlags::DEFAULT)?;
    expect::done(&kit.request, 1, side)?;
    side.barrier("over")
}

fn waits(SspKit(kit): SspKit, side: &mut Side<'_>) -> Result<()> {
    let (ep, region) = (kit.ep()?, kit.region(64)?);
    ep.post_recv(&[region.segment(0, 64)?], 1)?;
    let socket = socket(&kit, side)?;
    let peer = socket.peer_addr()?;
    let ssp = Ssp::create(socket, &ep, &kit.requests, FINAL_MESSAGE)?;
    let request = ssp.wait_request(Some(side.patience()))?;
    ensure!(request.private_data() == b"hello");
    ensure!(request.service_point() == ssp.id());
    ensure!(request.remote() == Some(peer), "{:?}", request.remote());
    expect::in_state(&ep, EpState::PassiveConnectionPending)?;
    request.accept(None, b"welcome")?;
    expect::connection_event(&ep, &kit.connect, &[ConnectionKind::Established], side)?;
    expect::done(&kit.recv, 1, side)?;
    pattern::check(&region, 0, 64, 4)?;
    side.barrier("over")
}

/// Checks that the attempt failed with one of these events and that the socket was returned.
fn failed(
    outcome: Result<Vec<u8>, ConnectError>,
    kinds: &[ConnectionKind],
) -> Result<(TcpStream, Vec<u8>)> {
    match outcome {
        Ok(_) => bail!("a connection was established"),
        Err(ConnectError {
            reason: ConnectFailure::Ended(kind),
            private_data,
            socket,
        }) if kinds.contains(&kind) => Ok((returned(socket)?, private_data)),
        Err(other) => Err(anyhow::Error::from(other).context(format!("not {kinds:?}"))),
    }
}

fn is_rejected(SspKit(kit): SspKit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let socket = final_socket(&kit, side)?;
    let outcome = ep.connect_socket(socket, Some(side.patience()), b"hello");
    let (mut socket, why) = failed(outcome, &[ConnectionKind::PeerRejected])?;
    ensure!(why == b"not now", "{why:?}");
    expect::in_state(&ep, EpState::Disconnected)?;
    exchange_text(&mut socket)?;
    side.barrier("over")
}

fn rejects(SspKit(kit): SspKit, side: &mut Side<'_>) -> Result<()> {
    let (ep, ssp) = service(&kit, side)?;
    let request = ssp.wait_request(Some(side.patience()))?;
    let mut socket = returned(request.reject(b"not now")?)?;
    expect::in_state(&ep, EpState::Unconnected)?;
    exchange_text(&mut socket)?;
    side.barrier("over")
}

fn frees(SspKit(kit): SspKit, side: &mut Side<'_>) -> Result<()> {
    let (ep, ssp) = service(&kit, side)?;
    let mut socket = returned(ssp.free()?)?;
    side.send("freed", &[])?;
    expect::in_state(&ep, EpState::Unconnected)?;
    exchange_text(&mut socket)?;
    side.barrier("over")
}

/// The end that waits for the last message of a service point and stays in streaming mode.
fn keeps_streaming(SspKit(kit): SspKit, side: &mut Side<'_>) -> Result<()> {
    let mut socket = final_socket(&kit, side)?;
    // Data that was received earlier would be taken for a request.
    side.receive("freed")?;
    exchange_text(&mut socket)?;
    side.barrier("over")
}

fn only_streams(SspKit(kit): SspKit, side: &mut Side<'_>) -> Result<()> {
    let mut socket = socket(&kit, side)?;
    exchange_text(&mut socket)?;
    side.barrier("over")
}

fn reserves(SspKit(kit): SspKit, side: &mut Side<'_>) -> Result<()> {
    let (ep, ssp) = service(&kit, side)?;
    expect::in_state(&ep, EpState::Reserved)?;
    ensure!(ssp.state()? == SspState::Operational, "{:?}", ssp.state()?);
    let mut socket = returned(ssp.free()?)?;
    side.send("freed", &[])?;
    expect::in_state(&ep, EpState::Unconnected)?;
    exchange_text(&mut socket)?;
    side.barrier("over")
}

fn is_busy(SspKit(kit): SspKit, side: &mut Side<'_>) -> Result<()> {
    let ep: Ep = kit.ep()?;
    let socket = socket(&kit, side)?;
    let other = TcpListener::bind((kit.address()?.ip(), 0))?;
    let spare = TcpStream::connect(other.local_addr()?)?;
    let ssp = Ssp::create(socket, &ep, &kit.requests, FINAL_MESSAGE)?;
    match Ssp::create(spare, &ep, &kit.requests, b"") {
        Ok(_) => bail!("one endpoint was accepted for two sockets"),
        Err(refused) => {
            expect::refused::<()>(Err(refused.error), DAT_INVALID_STATE)?;
            TcpStream::from(refused.socket).write_all(b"it still works")?;
        }
    }
    let mut socket = returned(ssp.free()?)?;
    side.send("freed", &[])?;
    exchange_text(&mut socket)?;
    side.barrier("over")
}

fn closes(SspKit(kit): SspKit, side: &mut Side<'_>) -> Result<()> {
    let socket = final_socket(&kit, side)?;
    drop(socket);
    side.barrier("over")
}

fn sends_other_bytes(SspKit(kit): SspKit, side: &mut Side<'_>) -> Result<()> {
    let mut socket = final_socket(&kit, side)?;
    socket.write_all(b"GET / HTTP/1.1\r\nHost: an.example\r\n\r\n")?;
    side.barrier("over")
}

fn sees_down(SspKit(kit): SspKit, side: &mut Side<'_>) -> Result<()> {
    let (ep, ssp) = service(&kit, side)?;
    match ssp.wait_request(Some(side.patience())) {
        Err(SspWaitError::SocketDown) => {}
        Err(other) => return Err(other.into()),
        Ok(_) => bail!("a request was received"),
    }
    ensure!(ssp.state()? == SspState::NonOperational);
    returned(ssp.free()?)?;
    expect::in_state(&ep, EpState::Unconnected)?;
    side.barrier("over")
}

fn meets_other_protocol(SspKit(kit): SspKit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let socket = socket(&kit, side)?;
    let outcome = ep.connect_socket(socket, Some(side.patience()), b"hello");
    failed(outcome, &[ConnectionKind::NonPeerRejected])?;
    side.barrier("over")
}

fn answers_otherwise(SspKit(kit): SspKit, side: &mut Side<'_>) -> Result<()> {
    let mut socket = socket(&kit, side)?;
    let mut received = [0; 16];
    socket.read_exact(&mut received)?;
    socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")?;
    side.barrier("over")
}

fn times_out(SspKit(kit): SspKit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let socket = socket(&kit, side)?;
    let outcome = ep.connect_socket(socket, Some(Duration::from_millis(300)), b"hello");
    failed(outcome, &[ConnectionKind::TimedOut])?;
    expect::in_state(&ep, EpState::Disconnected)?;
    side.barrier("over")
}

fn is_silent(SspKit(kit): SspKit, side: &mut Side<'_>) -> Result<()> {
    let socket = socket(&kit, side)?;
    side.barrier("over")?;
    drop(socket);
    Ok(())
}

fn has_no_time(SspKit(kit): SspKit, side: &mut Side<'_>) -> Result<()> {
    let ep = kit.ep()?;
    let socket = socket(&kit, side)?;
    match ep.start_connect_socket(socket, Some(Duration::ZERO), b"") {
        Ok(()) => bail!("an attempt with timeout 0 was accepted"),
        Err(refused) => {
            expect::refused::<()>(Err(refused.error), DAT_INVALID_PARAMETER)?;
            exchange_text(&mut TcpStream::from(refused.socket))?;
        }
    }
    expect::in_state(&ep, EpState::Unconnected)?;
    side.barrier("over")
}
