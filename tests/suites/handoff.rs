//! A connection request that moves to another process (`dat_cr_handoff`): which process has the
//! request, and the result for the requester, if a process ends at any step.
//!
//! Source: iWARP Transport Specific Extensions for DAT 2.0, section 1.2.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept,
    bind, connect, listen, recv, recvmsg, send, sendmsg, shutdown, socket_with,
    sockopt::{Timeout, set_socket_timeout},
};
use stack_tests::raw::{REPLY, REQUEST, RawPeer};
use stack_tests::{DEADLINE, Finished, Peers, Running, not_over_devices, not_run, orderly};

/// The port of the process that hands a request off, and that of the process that receives it.
const FIRST: u16 = 7471;
const SECOND: u16 = 7472;
/// The beginning of an offer.
const MAGIC: &[u8] = b"dat-cr-1";
const READY: u8 = 0;
const UNFIT: u8 = 1;
const COMMIT: &[u8] = &[0];
/// A Reply of revision 2 to the program's Request, with IRD and ORD of 4 (RFC 6581 section 9).
const ENHANCED_REPLY: [u8; 24] = *b"MPA ID Rep Frame\x50\x02\x00\x04\x80\x04\x80\x04";
/// A user without privileges.
const OTHER_USER: u32 = 12345;
/// The arguments of a process that still has its request when it is killed.
const FOR_EVER: &str = "pause_ms=100000000";

/// Programs, or `None` over devices, where no request moves to another process.
fn peers() -> Result<Option<Peers>> {
    if not_over_devices("a device's request cannot move to another process") {
        return Ok(None);
    }
    Peers::new().map(Some)
}

/// Programs for a test of two users.
fn peers_of_root() -> Result<Option<Peers>> {
    if nix::unistd::geteuid().is_root() {
        return peers();
    }
    not_run("only root can be another user");
    Ok(None)
}

/// The address at which a service takes requests of other processes.
fn name_of(port: u16) -> Result<SocketAddrUnix> {
    let name = format!("dat-rs-cr-127.0.0.1:{port}");
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

fn unix_socket() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let unix = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    set_socket_timeout(&unix, Timeout::Recv, Some(DEADLINE))?;
    Ok(unix)
}

/// Runs `call` with the effective user of this thread changed. The process is root's.
fn as_other_user<T>(call: impl FnOnce() -> T) -> T {
    let set = |user: u32| {
        // SAFETY: the call takes numbers. Unlike libc's function, it changes this thread only.
        let done = unsafe { libc::syscall(libc::SYS_setresuid, -1, user, -1) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    };
    set(OTHER_USER);
    let result = call();
    set(0);
    result
}

/// A service that the test plays.
struct Service(OwnedFd);

impl Service {
    fn open(port: u16) -> Result<Self> {
        let unix = unix_socket()?;
        bind(&unix, &name_of(port)?)?;
        listen(&unix, 4)?;
        Ok(Self(unix))
    }

    /// Accepts a sender, and receives its offer.
    fn offer(&self) -> Result<Offered> {
        let unix = accept(&self.0)?;
        set_socket_timeout(&unix, Timeout::Recv, Some(DEADLINE))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 1024];
        let mut pieces = [IoSliceMut::new(&mut bytes)];
        let count = recvmsg(&unix, &mut pieces, &mut control, RecvFlags::empty())?.bytes;
        ensure!(bytes[..count].starts_with(MAGIC) && bytes[8..].starts_with(&REQUEST[..16]));
        let rights = control.drain().find_map(|part| match part {
            RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        let socket = TcpStream::from(rights.context("no descriptor")?);
        Ok(Offered { unix, socket })
    }
}

/// An offer that the test has received.
struct Offered {
    unix: OwnedFd,
    socket: TcpStream,
}

impl Offered {
    fn answer(&self, answer: u8) -> Result<()> {
        send(&self.unix, &[answer], SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn receive_commit(&self) -> Result<()> {
        let mut commit = [9; 2];
        let (count, _) = recv(&self.unix, &mut commit, RecvFlags::empty())?;
        ensure!(commit[..count] == *COMMIT, "{count} bytes: {commit:?}");
        Ok(())
    }
}

/// Offers a message and descriptors to the service at a port, as a sender that the test plays.
fn offer(port: u16, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<OwnedFd> {
    let unix = unix_socket()?;
    connect(&unix, &name_of(port)?)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    ensure!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    let pieces = [IoSlice::new(message)];
    sendmsg(&unix, &pieces, &mut control, SendFlags::NOSIGNAL)?;
    Ok(unix)
}

fn answer_to(unix: &OwnedFd) -> Result<Option<u8>> {
    let mut answer = [0; 2];
    let (count, _) = recv(unix, &mut answer, RecvFlags::empty())?;
    Ok((count == 1).then_some(answer[0]))
}

/// A valid offer without its descriptor.
fn message() -> Vec<u8> {
    [MAGIC, &REQUEST].concat()
}

fn expect_data(passive: Running, active: Running) -> Result<(Finished, Finished)> {
    let active = orderly(active)?
        .prints("PRIVATE private data of the accept")?
        .prints("DATA 10 messages, write and read verified")?;
    let passive = orderly(passive)?
        .prints("CALLER 127.0.0.1")?
        .prints("PRIVATE private data of the request")?
        .prints("DATA 10 messages, written area verified")?;
    Ok((passive, active))
}

fn expect_refused(active: Running) -> Result<()> {
    orderly(active)?.prints("EVENT non-peer-rejected")?;
    Ok(())
}

/// Starts the process that hands off, and a requester. The request is received when this returns.
fn request(peers: &Peers, args: &str) -> Result<(Running, Running)> {
    let first = peers.start_ready(&format!("listen port={FIRST} handoff={SECOND} {args}"))?;
    let active = peers.start(&format!("connect port={FIRST}"))?;
    first.wait_for("CALLER", DEADLINE)?;
    Ok((first, active))
}

fn kill(process: Running) -> Result<()> {
    process.signal(Signal::SIGKILL)?;
    process.finish(DEADLINE)?;
    Ok(())
}

#[test]
fn a_request_moves_to_another_process_and_on_to_a_third() -> Result<()> {
    let Some(peers) = peers()? else { return Ok(()) };
    let third = peers.start_ready("listen port=7473")?;
    let second = peers.start_ready(&format!("listen port={SECOND} handoff=7473"))?;
    let (first, active) = request(&peers, "")?;
    orderly(first)?.prints("HANDED OFF")?;
    orderly(second)?
        .prints("PRIVATE private data of the request")?
        .prints("HANDED OFF")?;
    expect_data(third, active)?;
    Ok(())
}

#[test]
fn a_request_over_a_socket_moves_to_another_process() -> Result<()> {
    let Some(peers) = peers()? else { return Ok(()) };
    let second = peers.start_ready(&format!("listen port={SECOND}"))?;
    let first = peers.start(&format!("ssp socket=accept greet=1 handoff={SECOND}"))?;
    peers.env.net.wait_for_listener(FIRST, DEADLINE)?;
    let active = peers.start("upgrade socket=connect greet=1")?;
    orderly(first)?
        .prints("HANDED OFF")?
        .prints("SOCKET closed")?;
    let (_, active) = expect_data(second, active)?;
    active.prints("SOCKET closed")?;
    Ok(())
}

#[test]
fn a_request_over_a_socket_stays_if_no_process_takes_it() -> Result<()> {
    let Some(peers) = peers()? else { return Ok(()) };
    let first = peers.start(&format!("ssp socket=accept handoff={SECOND}"))?;
    peers.env.net.wait_for_listener(FIRST, DEADLINE)?;
    let active = peers.start("upgrade socket=connect")?;
    let (first, _) = expect_data(first, active)?;
    first
        .prints("RETURN dat_cr_handoff")?
        .prints("INVALID_ARG2")?;
    Ok(())
}

#[test]
fn a_request_stays_if_no_process_has_the_service() -> Result<()> {
    let Some(peers) = peers()? else { return Ok(()) };
    let (first, active) = request(&peers, "")?;
    expect_data(first, active)?.0.prints("INVALID_ARG2")?;
    Ok(())
}

#[test]
fn a_request_does_not_move_to_the_service_of_another_user() -> Result<()> {
    let Some(peers) = peers_of_root()? else {
        return Ok(());
    };
    let service = as_other_user(|| Service::open(SECOND))?;
    let (first, active) = request(&peers, "")?;
    let (first, _) = expect_data(first, active)?;
    first.prints("DAT_PRIVILEGES_VIOLATION")?;
    drop(service);
    Ok(())
}

#[test]
fn a_service_takes_no_request_of_another_user() -> Result<()> {
    let Some(peers) = peers_of_root()? else {
        return Ok(());
    };
    let second = peers.start_ready(&format!("listen port={SECOND}"))?;
    let (_requester, socket) = RawPeer::pair()?;
    // The service closes the connection, before or after the offer.
    let sent = as_other_user(|| offer(SECOND, &message(), &[socket.as_fd()]));
    let is_answered = sent.is_ok_and(|unix| matches!(answer_to(&unix), Ok(Some(_))));
    ensure!(!is_answered);
    let active = peers.start(&format!("connect port={SECOND}"))?;
    expect_data(second, active)?;
    Ok(())
}

#[test]
fn a_service_refuses_what_is_not_a_request_and_takes_the_next() -> Result<()> {
    let Some(peers) = peers()? else { return Ok(()) };
    let second = peers.start_ready(&format!("listen port={SECOND} hold=1"))?;
    let (mut requester, socket) = RawPeer::pair()?;
    let (file, good) = (std::fs::File::open("/dev/null")?, message());
    let too_long = [good.clone(), vec![0; 1000]].concat();
    let bad: [(&[u8], &[BorrowedFd<'_>]); 8] = [
        (b"", &[socket.as_fd()]),
        (b"dat-cr-0", &[socket.as_fd()]),
        (MAGIC, &[socket.as_fd()]),
        (&good[..good.len() - 1], &[socket.as_fd()]),
        (&too_long, &[socket.as_fd()]),
        (&good, &[]),
        (&good, &[file.as_fd()]),
        (&good, &[socket.as_fd(), socket.as_fd()]),
    ];
    for (number, (message, descriptors)) in bad.into_iter().enumerate() {
        let answer = answer_to(&offer(SECOND, message, descriptors)?)?;
        ensure!(answer == Some(UNFIT), "{number}: {answer:?}");
    }
    // A sender that ends before the commit: the socket is as it was.
    let unix = offer(SECOND, &good, &[socket.as_fd()])?;
    ensure!(answer_to(&unix)? == Some(READY));
    drop(unix);
    let unix = offer(SECOND, &good, &[socket.as_fd()])?;
    ensure!(answer_to(&unix)? == Some(READY));
    send(&unix, COMMIT, SendFlags::NOSIGNAL)?;
    drop((unix, socket));
    requester.set_read_timeout(Some(DEADLINE))?;
    let mut reply = [0; REPLY.len()];
    requester.read_exact(&mut reply)?;
    ensure!(reply[..18] == REPLY[..18], "{reply:02x?}");
    drop(requester);
    orderly(second)?;
    Ok(())
}

#[test]
fn a_service_keeps_no_socket_of_a_sender_that_never_commits() -> Result<()> {
    let Some(peers) = peers()? else { return Ok(()) };
    let _second = peers.start_ready(&format!("listen port={SECOND}"))?;
    let (mut requester, socket) = RawPeer::pair()?;
    let unix = offer(SECOND, &message(), &[socket.as_fd()])?;
    ensure!(answer_to(&unix)? == Some(READY));
    drop(socket);
    requester.set_read_timeout(Some(DEADLINE))?;
    ensure!(
        requester.read(&mut [0])? == 0,
        "the service has sent a byte"
    );
    ensure!(send(&unix, COMMIT, SendFlags::NOSIGNAL).is_err());
    Ok(())
}

#[test]
fn a_sender_killed_before_the_offer_refuses_the_requester() -> Result<()> {
    let Some(peers) = peers()? else { return Ok(()) };
    let (first, active) = request(&peers, FOR_EVER)?;
    kill(first)?;
    expect_refused(active)
}

#[test]
fn a_sender_killed_after_the_offer_refuses_the_requester() -> Result<()> {
    let Some(peers) = peers()? else { return Ok(()) };
    let service = Service::open(SECOND)?;
    let (first, active) = request(&peers, "")?;
    let offered = service.offer()?;
    kill(first)?;
    drop(offered);
    expect_refused(active)
}

#[test]
fn a_sender_killed_after_the_commit_has_no_effect() -> Result<()> {
    let Some(peers) = peers()? else { return Ok(()) };
    let service = Service::open(SECOND)?;
    let first = peers.start_ready(&format!("listen port={FIRST} handoff={SECOND}"))?;
    let active = peers.start(&format!("connect port={FIRST} hold=1"))?;
    let mut offered = service.offer()?;
    offered.answer(READY)?;
    offered.receive_commit()?;
    kill(first)?;
    offered.socket.write_all(&ENHANCED_REPLY)?;
    active.wait_for("EVENT established", DEADLINE)?;
    drop(offered);
    orderly(active)?;
    Ok(())
}

#[test]
fn silent_senders_delay_a_request_and_do_not_prevent_it() -> Result<()> {
    let Some(peers) = peers()? else { return Ok(()) };
    let second = peers.start_ready(&format!("listen port={SECOND}"))?;
    let mut silent = Vec::new();
    for _ in 0..100 {
        let unix = unix_socket()?;
        connect(&unix, &name_of(SECOND)?)?;
        silent.push(unix);
    }
    let (_requester, socket) = RawPeer::pair()?;
    let unix = offer(SECOND, &message(), &[socket.as_fd()])?;
    ensure!(answer_to(&unix)? == Some(READY));
    drop(silent);
    let active = peers.start(&format!("connect port={SECOND}"))?;
    expect_data(second, active)?;
    Ok(())
}

#[test]
fn a_receiver_that_ends_before_its_answer_leaves_the_request() -> Result<()> {
    let Some(peers) = peers()? else { return Ok(()) };
    let service = Service::open(SECOND)?;
    let (first, active) = request(&peers, "")?;
    drop(service.offer()?);
    expect_data(first, active)?.0.prints("INVALID_ARG2")?;
    Ok(())
}

#[test]
fn a_receiver_that_ends_before_the_commit_leaves_the_request() -> Result<()> {
    let Some(peers) = peers()? else { return Ok(()) };
    let service = Service::open(SECOND)?;
    let (first, active) = request(&peers, "")?;
    let offered = service.offer()?;
    // From here on the kernel refuses the commit, as if the process had ended after its answer.
    shutdown(&offered.unix, Shutdown::Read)?;
    offered.answer(READY)?;
    expect_data(first, active)?.0.prints("INVALID_ARG2")?;
    Ok(())
}

#[test]
fn a_receiver_that_refuses_or_is_silent_leaves_the_request() -> Result<()> {
    let Some(peers) = peers()? else { return Ok(()) };
    let service = Service::open(SECOND)?;
    for (answer, expected) in [
        (Some(UNFIT), "DAT_INVALID_STATE"),
        (Some(2), "DAT_INSUFFICIENT_RESOURCES"),
        (None, "DAT_TIMEOUT_EXPIRED"),
    ] {
        let (first, active) = request(&peers, "")?;
        let offered = service.offer()?;
        answer.map_or(Ok(()), |answer| offered.answer(answer))?;
        expect_data(first, active)?.0.prints(expected)?;
    }
    Ok(())
}

#[test]
fn a_receiver_killed_before_its_accept_refuses_the_requester() -> Result<()> {
    let Some(peers) = peers()? else { return Ok(()) };
    let second = peers.start_ready(&format!("listen port={SECOND} {FOR_EVER}"))?;
    let (first, active) = request(&peers, "")?;
    second.wait_for("CALLER", DEADLINE)?;
    orderly(first)?.prints("HANDED OFF")?;
    kill(second)?;
    expect_refused(active)
}

#[test]
fn a_receiver_killed_after_its_accept_ends_the_connection() -> Result<()> {
    let Some(peers) = peers()? else { return Ok(()) };
    let second = peers.start_ready(&format!("listen port={SECOND} hold=1"))?;
    let first = peers.start_ready(&format!("listen port={FIRST} handoff={SECOND}"))?;
    let active = peers.start(&format!("connect port={FIRST} hold=1"))?;
    active.wait_for("HOLDING", DEADLINE)?;
    orderly(first)?.prints("HANDED OFF")?;
    kill(second)?;
    let active = orderly(active)?;
    let is_over = ["EVENT disconnected", "EVENT broken"]
        .iter()
        .any(|it| active.text.contains(it));
    ensure!(is_over, "{}", active.tail());
    Ok(())
}
