//! Sockets that change from streaming mode to RDMA: made by the process, inherited, or passed over
//! a UNIX socket. A socket whose change fails is returned unchanged.
//!
//! Sources: iWARP Transport Specific Extensions for DAT 2.0, sections 2 and 3; RFC 5044 section
//! 7.1.

use std::io::IoSlice;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use stack_tests::raw::{REQUEST, RawPeer};
use stack_tests::{DEADLINE, Finished, NetSpace, PASSED_FD, Peers, not_over_devices, orderly};

const PORT: u16 = 7471;

/// The last streaming line of the passive side, sent by the call that arms the service point.
const LAST_STREAM_LINE: &[u8] = b"go rdma\n";

/// Checks the output of both ends after a successful conversion.
fn expect_converted(passive: Finished, active: Finished) -> Result<()> {
    passive
        .prints("PRIVATE private data of the request")?
        .prints("EVENT established")?
        .prints("DATA 10 messages, written area verified")?
        .prints("EVENT disconnected")?;
    active
        .prints("PRIVATE private data of the accept")?
        .prints("DATA 10 messages, write and read verified")?
        .prints("EVENT disconnected")?;
    Ok(())
}

/// Sends `fd` over `channel`. The receiving process gets a duplicate of the descriptor.
fn pass_over(channel: &UnixStream, fd: &OwnedFd) -> Result<()> {
    let fds = [fd.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&fds)];
    let payload = [IoSlice::new(b"!")];
    sendmsg::<()>(
        channel.as_raw_fd(),
        &payload,
        &rights,
        MsgFlags::empty(),
        None,
    )
    .context("passing a descriptor")?;
    Ok(())
}

/// Sends one line in each direction over a pair of streams, like programs that agree on RDMA.
fn negotiate(active: &TcpStream, passive: &TcpStream) -> Result<()> {
    let (mut active, mut passive) = (
        RawPeer::over(active.try_clone()?)?,
        RawPeer::over(passive.try_clone()?)?,
    );
    active.send(b"speak rdma?")?;
    ensure!(passive.read(11)? == b"speak rdma?");
    passive.send(b"gladly")?;
    ensure!(active.read(6)? == b"gladly");
    Ok(())
}

fn fd_source() -> String {
    format!("socket=fd:{PASSED_FD}")
}

#[test]
fn sockets_from_connect_and_accept_convert_after_streaming() -> Result<()> {
    let peers = Peers::new()?;
    let passive = peers.start("ssp socket=accept greet=1")?;
    peers.env.net.wait_for_listener(PORT, DEADLINE)?;
    let active = orderly(peers.start("upgrade socket=connect greet=1")?)?;
    let passive = orderly(passive)?.prints("GREETED may we use rdma?")?;
    expect_converted(passive, active.prints("GREETED go rdma")?)
}

#[test]
fn inherited_sockets_convert() -> Result<()> {
    let peers = Peers::new()?;
    let (active, passive) = RawPeer::pair()?;
    negotiate(&active, &passive)?;
    let passive = peers.start_with(&format!("ssp {}", fd_source()), passive.into())?;
    passive.wait_for("READY", DEADLINE)?;
    let active = peers.start_with(&format!("upgrade {}", fd_source()), active.into())?;
    let active = orderly(active)?;
    expect_converted(orderly(passive)?, active)
}

#[test]
fn sockets_passed_between_processes_convert() -> Result<()> {
    let peers = Peers::new()?;
    let (active, passive) = RawPeer::pair()?;
    negotiate(&active, &passive)?;
    let mut ends = Vec::new();
    for (role, stream) in [("ssp", passive), ("upgrade", active)] {
        let (ours, theirs) = UnixStream::pair()?;
        let args = format!("{role} socket=unix:{PASSED_FD}");
        ends.push(peers.start_with(&args, theirs.into())?);
        pass_over(&ours, &OwnedFd::from(stream))?;
    }
    let active = orderly(ends.remove(1))?;
    expect_converted(orderly(ends.remove(0))?, active)
}

#[test]
fn a_request_received_before_the_service_point_exists_is_delivered() -> Result<()> {
    let peers = Peers::new()?;
    let (active, passive) = RawPeer::pair()?;
    let active = peers.start_with(&format!("upgrade {}", fd_source()), active.into())?;
    // The Request is queued in the passive socket before any thread reads it.
    let mut peeked = [0; REQUEST.len()];
    while passive.peek(&mut peeked)? < peeked.len() {}
    let passive = peers.start_with(&format!("ssp {}", fd_source()), passive.into())?;
    let passive = orderly(passive)?;
    expect_converted(passive, orderly(active)?)
}

#[test]
fn the_sockets_are_closed_when_the_connection_ends() -> Result<()> {
    let peers = Peers::new()?;
    let (active, passive) = RawPeer::pair()?;
    let passive = peers.start_with(&format!("ssp {}", fd_source()), passive.into())?;
    let active = peers.start_with(&format!("upgrade {}", fd_source()), active.into())?;
    orderly(active)?.prints("SOCKET closed")?;
    orderly(passive)?.prints("SOCKET closed")?;
    Ok(())
}

#[test]
fn the_last_streaming_message_is_received_before_the_request_is_answered() -> Result<()> {
    if not_over_devices("the peer of this test has a socket only") {
        return Ok(());
    }
    let peers = Peers::new()?;
    let (raw, passive) = RawPeer::pair()?;
    let mut raw = RawPeer::over(raw)?;
    raw.send(b"may we?\n")?;
    let passive = peers.start_with(
        &format!("ssp {} greet=1 hold=1", fd_source()),
        passive.into(),
    )?;
    let line = raw.read(LAST_STREAM_LINE.len())?;
    ensure!(line == LAST_STREAM_LINE, "{line:?}");
    raw.start_as_initiator()?;
    passive.wait_for("HOLDING", DEADLINE)?;
    drop(raw);
    orderly(passive)?;
    Ok(())
}

#[test]
fn each_test_has_a_network_of_its_own_or_the_lock() -> Result<()> {
    let net = NetSpace::enter()?;
    let _listener = std::net::TcpListener::bind(("127.0.0.1", PORT))?;
    net.wait_for_listener(PORT, DEADLINE)
}
