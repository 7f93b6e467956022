//! The socket itself while a connection uses it, and when the connection ends (3.1.1.3, 3.1.4.3).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dat_api::abi::DAT_INVALID_STATE;
use dat_api::{ConnectionKind, Ep, Ssp};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use socket2::SockRef;
use stack_tests::raw::{REPLY, REQUEST, RawPeer, request};
use stack_tests::{NetSpace, adapter_address, available, device, not_over_devices, not_run, until};

use super::bench::{
    DEADLINE, Node, accept, connect, expect_bytes, failure, identity, pair, pair_over, refused,
    stream_both_ways,
};

/// Options that a consumer may have chosen, as the system reports them.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    keepalive: bool,
    keepalive_time: Duration,
    tos: u32,
    recv_buffer: usize,
    send_buffer: usize,
    user_timeout: Option<Duration>,
    linger: Option<Duration>,
    flags: i32,
}

impl Options {
    fn of(socket: &TcpStream) -> Result<Self> {
        let options = SockRef::from(socket);
        Ok(Self {
            keepalive: options.keepalive()?,
            keepalive_time: options.tcp_keepalive_time()?,
            tos: options.tos_v4()?,
            recv_buffer: options.recv_buffer_size()?,
            send_buffer: options.send_buffer_size()?,
            user_timeout: options.tcp_user_timeout()?,
            linger: options.linger()?,
            flags: fcntl(socket.as_fd(), FcntlArg::F_GETFL)?,
        })
    }
}

/// Sets options to values that are not defaults.
fn choose(socket: &TcpStream, nonblocking: bool) -> Result<()> {
    let options = SockRef::from(socket);
    options.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(Duration::from_secs(77)))?;
    options.set_tos_v4(0x28)?;
    options.set_recv_buffer_size(50_000)?;
    options.set_send_buffer_size(60_000)?;
    options.set_tcp_user_timeout(Some(Duration::from_secs(99)))?;
    socket.set_nonblocking(nonblocking)?;
    Ok(())
}

#[test]
fn tcp_options_are_kept_and_nagle_is_off() -> Result<()> {
    let node = Node::new()?;
    for nonblocking in [false, true] {
        let (active, passive) = pair()?;
        let mut watched = Vec::new();
        for socket in [&active, &passive] {
            choose(socket, nonblocking)?;
            ensure!(!socket.nodelay()?);
            watched.push((socket.try_clone()?, Options::of(socket)?));
        }
        let connected = connect(&node, (active, passive))?;
        for (socket, chosen) in &watched {
            ensure!(Options::of(socket)? == *chosen, "{chosen:?} changed");
            ensure!(socket.nodelay()?, "Nagle is on");
            let flags = OFlag::from_bits_retain(chosen.flags);
            ensure!(flags.contains(OFlag::O_NONBLOCK) == nonblocking);
        }
        drop(connected);
    }
    Ok(())
}

#[test]
fn a_returned_socket_has_its_original_options() -> Result<()> {
    let node = Node::new()?;
    let (active, passive) = pair()?;
    choose(&active, false)?;
    let before = (Options::of(&active)?, active.nodelay()?);
    let ep = node.ep()?;
    let ssp = node.arm(active, &ep)?;
    let active = TcpStream::from(ssp.free()?.context("nobody asked")?);
    ensure!((Options::of(&active)?, active.nodelay()?) == before);
    stream_both_ways(&active, &passive)
}

#[test]
fn options_that_would_stall_rdma_are_set_aside_while_the_provider_has_the_socket() -> Result<()> {
    let node = Node::new()?;
    let (active, passive) = pair()?;
    let (asker, ep) = (node.ep()?, node.ep()?);
    // A receiver that announces at most 64 KiB at once, and a sender that delays short segments.
    for socket in [&active, &passive] {
        set_int(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 65_536)?;
        SockRef::from(socket).set_tcp_cork(true)?;
    }
    let ssp = node.arm(passive, &ep)?;
    asker.start_connect_socket(active, Some(DEADLINE), b"")?;
    let request = ssp.wait_request(Some(DEADLINE))?;
    let passive = TcpStream::from(request.reject(b"")?.context("the request has no socket")?);
    let (active, _) = failure(&asker, ConnectionKind::PeerRejected)?;
    for socket in [&active, &passive] {
        ensure!(get_int(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT)? == 65_536);
        ensure!(SockRef::from(socket).tcp_cork()?);
    }
    asker.reset()?;
    node.convert((&asker, active), (&node.ep()?, passive))
}

fn set_int(socket: &TcpStream, level: i32, name: i32, value: i32) -> Result<()> {
    // SAFETY: the value is an int in this frame and its length is passed.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    ensure!(done == 0, "{}", std::io::Error::last_os_error());
    Ok(())
}

fn get_int(socket: &TcpStream, level: i32, name: i32) -> Result<i32> {
    let (mut value, mut len) = (0, size_of::<i32>() as libc::socklen_t);
    // SAFETY: value and length are in this frame and agree.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    ensure!(done == 0, "{}", std::io::Error::last_os_error());
    Ok(value)
}

#[test]
fn the_connection_runs_over_the_very_socket_and_its_route() -> Result<()> {
    let node = Node::new()?;
    let (active, passive) = pair()?;
    let (watched, peer) = (active.try_clone()?, passive.try_clone()?);
    let addresses = (watched.local_addr()?, watched.peer_addr()?);
    let _connected = connect(&node, (active, passive))?;
    ensure!((watched.local_addr()?, watched.peer_addr()?) == addresses);
    ensure!((peer.peer_addr()?, peer.local_addr()?) == addresses);
    Ok(())
}

/// The reason why a raw peer cannot be connected over a device.
const NO_RAW_DEVICE: &str = "the peer of this test has a socket only";

#[test]
fn a_connection_whose_socket_has_ended_ends_and_releases_its_sockets() -> Result<()> {
    let node = Node::new()?;
    let (active, passive) = pair()?;
    let numbers = [active.as_raw_fd(), passive.as_raw_fd()];
    let before = numbers.map(identity);
    let socket = passive.try_clone()?;
    let (asker, ep) = connect(&node, (active, passive))?;
    // Nothing but the socket shows that the peer has died.
    socket.shutdown(std::net::Shutdown::Both)?;
    drop(socket);
    asker.wait_disconnected(Some(DEADLINE))?;
    ep.wait_disconnected(Some(DEADLINE))?;
    until!(
        numbers
            .iter()
            .zip(&before)
            .all(|(number, before)| identity(*number) != *before),
        "the sockets are not released"
    );
    Ok(())
}

/// A Request of revision 2 that asks to send the first FPDU itself as a Write of zero bytes, with
/// depths of 1 (RFC 6581 section 9.1).
const PEER_TO_PEER_REQUEST: [u8; 24] = *b"MPA ID Req Frame\x50\x02\x00\x04\x80\x01\x80\x01";

#[test]
fn an_accept_that_the_peer_does_not_complete_returns_the_socket() -> Result<()> {
    let node = Node::new()?;
    // The peer ends, or its consumer streams again.
    for bytes in [None, Some(b"never mind")] {
        let (mut peer, passive) = pair()?;
        let ep = node.ep()?;
        let ssp = node.arm(passive, &ep)?;
        // A device's connection is never established by the Reply alone.
        match device() {
            Some(_) => peer.write_all(&request())?,
            None => peer.write_all(&PEER_TO_PEER_REQUEST)?,
        }
        accept(ssp.wait_request(Some(DEADLINE))?)?;
        let mut reply = [0; 20];
        peer.read_exact(&mut reply)?;
        ensure!(reply.starts_with(b"MPA ID Rep Frame"), "{reply:?}");
        let mut rest = vec![0; usize::from(u16::from_be_bytes([reply[18], reply[19]]))];
        peer.read_exact(&mut rest)?;
        match bytes {
            Some(bytes) if device().is_some() => peer.write_all(bytes)?,
            _ => peer.shutdown(std::net::Shutdown::Write)?,
        }
        let (socket, _) = failure(&ep, ConnectionKind::AcceptCompletionError)?;
        if let Some(bytes) = bytes.filter(|_| device().is_some()) {
            expect_bytes(&socket, bytes)?;
        }
    }
    Ok(())
}

/// A connection whose active end is a raw peer.
fn connected_to_raw(
    node: &Node,
    (active, passive): (TcpStream, TcpStream),
) -> Result<(RawPeer, Ep)> {
    let ep = node.ep()?;
    let ssp = node.arm(passive, &ep)?;
    let mut peer = RawPeer::over(active)?;
    peer.send(&REQUEST)?;
    accept(ssp.wait_request(Some(DEADLINE))?)?;
    peer.read(REPLY.len())?;
    ep.wait_established(Some(DEADLINE))?;
    Ok((peer, ep))
}

#[test]
fn a_broken_connection_releases_its_socket_promptly() -> Result<()> {
    if not_over_devices(NO_RAW_DEVICE) {
        return Ok(());
    }
    let node = Node::new()?;
    for reset in [false, true] {
        let (active, passive) = pair()?;
        let number = passive.as_raw_fd();
        let before = identity(number);
        let (peer, ep) = connected_to_raw(&node, (active, passive))?;
        if reset {
            peer.reset()?;
        } else {
            drop(peer);
        }
        ep.wait_disconnected(Some(DEADLINE))?;
        until!(identity(number) != before, "the socket is not released");
    }
    Ok(())
}

#[test]
fn the_peer_of_a_destroyed_endpoint_sees_the_end_of_the_stream() -> Result<()> {
    if not_over_devices(NO_RAW_DEVICE) {
        return Ok(());
    }
    let node = Node::new()?;
    let (mut peer, ep) = connected_to_raw(&node, pair()?)?;
    drop(ep);
    ensure!(peer.read_to_end()?.is_empty());
    Ok(())
}

/// An address of this machine outside of the loopback network, if it has one.
fn outside_loopback() -> Result<Option<std::net::Ipv4Addr>> {
    if let NetSpace::Own = NetSpace::enter()? {
        let done = std::process::Command::new("ip")
            .args(["address", "add", "192.0.2.1/32", "dev", "lo"])
            .status();
        if done.is_ok_and(|status| status.success()) {
            return Ok(Some(std::net::Ipv4Addr::new(192, 0, 2, 1)));
        }
    }
    Ok(nix::ifaddrs::getifaddrs()?
        .filter_map(|interface| interface.address?.as_sockaddr_in().map(|a| a.ip()))
        .find(|address| !address.is_loopback()))
}

#[test]
fn a_socket_that_is_not_routed_through_the_adapter_is_an_invalid_state_and_stays() -> Result<()> {
    let node = Node::new()?;
    let address = available!(
        outside_loopback()?,
        "every address of this machine is on the loopback interface"
    );
    let listener = std::net::TcpListener::bind((address, 0))?;
    let (active, passive) = pair_over(&listener)?;
    let ep = node.ep()?;
    let result = Ssp::create(passive, &ep, &node.requests, b"");
    let passive = refused(result, DAT_INVALID_STATE)?;
    let result = ep.start_connect_socket(active, Some(DEADLINE), b"");
    let active = refused(result, DAT_INVALID_STATE)?;
    ensure!(ep.state()? == dat_api::EpState::Unconnected);
    stream_both_ways(&active, &passive)
}

#[test]
fn an_unreachable_peer_is_reported_and_the_socket_is_returned() -> Result<()> {
    if !adapter_address().is_loopback() {
        not_run("the device stays up, because other tests use it");
        return Ok(());
    }
    let node = Node::new()?;
    let NetSpace::Own = NetSpace::enter()? else {
        not_run("network namespaces are refused, and the machine's own loopback stays up");
        return Ok(());
    };
    let (active, _peer) = pair()?;
    SockRef::from(&active).set_tcp_user_timeout(Some(Duration::from_millis(100)))?;
    let down = std::process::Command::new("ip")
        .args(["link", "set", "lo", "down"])
        .status();
    if !down.is_ok_and(|status| status.success()) {
        not_run("`ip link set lo down` failed; install iproute2");
        return Ok(());
    }
    let ep = node.ep()?;
    ep.start_connect_socket(active, Some(DEADLINE), b"")?;
    let (_socket, _) = failure(&ep, ConnectionKind::Unreachable)?;
    Ok(())
}
