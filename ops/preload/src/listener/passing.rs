//! Passes a connection from the listening process to the process that accepts it.
//!
//! The process that called `listen` receives the offloaded connections. A process that inherited
//! the listener requests a connection over a message socket that all these processes share, and
//! attaches a socket for the answer. So the answer to a process that was killed meanwhile is not
//! received by another process. The answer is the program's end of a socket pair and the addresses
//! of the connection, or the reason why there is no connection.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use host::descriptors::raise;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{DupFlags, Errno, dup3};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, send, sendmsg, socketpair,
};

/// The length of an IPv6 address, a port and a scope id, in bytes.
pub(super) const NAME_LEN: usize = 16 + 2 + 4;

/// A connection that another process owns.
pub(crate) struct Passed {
    /// The program's end of the pair.
    pub(crate) program: OwnedFd,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}

/// Makes the end for the listening process, and the end for the processes that accept.
pub(crate) fn make() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (from, to) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok((raise(from)?, raise(to)?))
}

/// A request to the listening process.
pub(crate) enum Request {
    /// Requests a connection. The answer is sent into this socket; `None`: this process has no
    /// descriptor left for it.
    Arrival(Option<OwnedFd>),
    /// Ends the service. There is no answer.
    End,
}

/// The first byte of a request for a connection.
const ARRIVAL: u8 = 0;
/// The first byte of a request to end the service.
const END: u8 = 1;

/// The reason why a request is answered without a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum NoConnection {
    /// No connection is queued.
    NoneQueued = 0,
    /// The listening process has no descriptor left for the connection.
    NoDescriptor = 1,
}

/// The descriptors of a request, which are made before a connection is taken from the counter.
pub(crate) struct Inquiry {
    /// Receives the answer.
    answer: OwnedFd,
    /// The end that is attached to the request. After that, its number is reserved for the
    /// connection. If another thread takes the number just before the receive, the connection is
    /// lost, and its peer sees a reset.
    reply: OwnedFd,
}

impl Inquiry {
    pub(crate) fn new() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (answer, reply) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let answer = raise(answer)?;
        Ok(Self { answer, reply })
    }

    /// Sends the request, and closes the end that is attached to it. Waits for room in the queue of
    /// the listening process, as long as for an answer.
    fn send(&mut self, over: impl AsFd) -> Result<(), Errno> {
        for _ in 0..INTERVALS_MAX {
            match self.try_send(&over) {
                Err(Errno::AGAIN) => {}
                sent => return sent,
            }
            let mut set = [PollFd::new(&over, PollFlags::OUT)];
            let _ = poll(&mut set, Some(&CHECK_INTERVAL));
        }
        Err(Errno::AGAIN)
    }

    fn try_send(&mut self, over: impl AsFd) -> Result<(), Errno> {
        let numbers = [self.reply.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&numbers)) {
            return Err(Errno::NOBUFS);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(over, &[IoSlice::new(&[ARRIVAL])], &mut control, flags)?;
        dup3(&self.answer, &mut self.reply, DupFlags::CLOEXEC)
    }
}

/// The interval at which a waiting process checks that the listening process is alive.
const CHECK_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};
/// The number of intervals to wait for an answer, or for the end of a service: one second, because
/// the listening process may be stopped.
const INTERVALS_MAX: usize = 50;

/// The error of a request that was not sent, for whose connection the caller must count again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotSent;

/// Requests a connection, and waits for the answer. `None`: there is no connection, the listening
/// process has ended, or its answer was not received in time; the listening process counts the
/// connection again then. On an inner error the connection stays queued, and is counted again too.
pub(crate) fn request(
    over: impl AsFd,
    mut inquiry: Inquiry,
) -> Result<Result<Option<Passed>, Errno>, NotSent> {
    match inquiry.send(&over) {
        Ok(()) => Ok(await_answer(over, inquiry)),
        // The queued connections have ended with the listening process.
        Err(_) if is_hung_up(&over) => Ok(Ok(None)),
        Err(_) => Err(NotSent),
    }
}

fn await_answer(over: impl AsFd, inquiry: Inquiry) -> Result<Option<Passed>, Errno> {
    let Inquiry { answer, reply } = inquiry;
    for _ in 0..INTERVALS_MAX {
        let mut set = [PollFd::new(&answer, PollFlags::IN)];
        // A signal does not end the wait, because the program would have to accept again.
        match poll(&mut set, Some(&CHECK_INTERVAL)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) if set[0].revents().contains(PollFlags::IN) => {
                drop(reply);
                return match receive_answer(&answer) {
                    // The listening process has no descriptor left for the socket of the answer.
                    Err(Errno::PIPE) if !is_hung_up(&over) => Err(Errno::NFILE),
                    Err(error @ (Errno::MFILE | Errno::NFILE)) => Err(error),
                    answer => Ok(answer.ok().flatten()),
                };
            }
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// Returns true if all processes have closed the other end.
pub(crate) fn is_hung_up(over: impl AsFd) -> bool {
    let mut set = [PollFd::new(&over, PollFlags::empty())];
    poll(&mut set, Some(&Timespec::default())).is_ok() && set[0].revents().contains(PollFlags::HUP)
}

/// Ends the service in the listening process, and waits up to a second until it has ended.
pub(crate) fn end(over: impl AsFd) {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    // If the request cannot be sent, the listening process has ended already.
    if send(&over, &[END], flags).is_err() {
        return;
    }
    for _ in 0..INTERVALS_MAX {
        let mut set = [PollFd::new(&over, PollFlags::empty())];
        if poll(&mut set, Some(&CHECK_INTERVAL)).is_ok_and(|ready| ready > 0) {
            return;
        }
    }
}

pub(crate) fn receive_request(over: impl AsFd) -> Option<Request> {
    let mut request = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(
        over,
        &mut [IoSliceMut::new(&mut request)],
        &mut control,
        flags,
    );
    match received.ok()?.bytes {
        0 => None,
        _ if request[0] == END => Some(Request::End),
        _ => Some(Request::Arrival(descriptor(&mut control))),
    }
}

/// Returns the descriptor that is attached to a message.
fn descriptor(control: &mut RecvAncillaryBuffer<'_>) -> Option<OwnedFd> {
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut numbers) => numbers.next(),
        _ => None,
    })
}

pub(crate) fn answer_none(into: impl AsFd, why: NoConnection) {
    // This fails if the requesting processes have ended.
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = send(into, &[why as u8], flags);
}

pub(crate) fn answer(into: impl AsFd, arrival: &Passed) -> Result<(), Errno> {
    let mut text = [0; 2 * NAME_LEN];
    write_name(&mut text[..NAME_LEN], arrival.local);
    write_name(&mut text[NAME_LEN..], arrival.peer);
    let numbers: [BorrowedFd<'_>; 1] = [arrival.program.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&numbers)) {
        return Err(Errno::NOBUFS);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(into, &[IoSlice::new(&text)], &mut control, flags).map(|_| ())
}

/// Receives an answer. `PIPE`: the listening process has dropped the request.
fn receive_answer(from: impl AsFd) -> Result<Option<Passed>, Errno> {
    let mut text = [0; 2 * NAME_LEN];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut receive = || {
        let mut into = [IoSliceMut::new(&mut text)];
        recvmsg(&from, &mut into, &mut control, flags).map(|received| received.bytes)
    };
    // The kernel checks for a message first and for the end afterwards. An answer that arrives in
    // between is found by the second call.
    let mut count = receive()?;
    if count == 0 {
        count = receive()?;
    }
    if count == 0 {
        return Err(Errno::PIPE);
    }
    if count == 1 && text[0] == NoConnection::NoDescriptor as u8 {
        // The listening process has reached its limit, so the error is not that of this process's
        // limit.
        return Err(Errno::NFILE);
    }
    let program = descriptor(&mut control);
    if count == text.len() && program.is_none() {
        return Err(Errno::MFILE);
    }
    let names = read_name(&text[..NAME_LEN]).zip(read_name(&text[NAME_LEN..]));
    Ok(program.zip(names).map(|(program, (local, peer))| Passed {
        program,
        local,
        peer,
    }))
}

pub(super) fn write_name(to: &mut [u8], name: SocketAddr) {
    let (ip, scope) = match name {
        SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
        SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
    };
    to[..16].copy_from_slice(&ip.octets());
    to[16..18].copy_from_slice(&name.port().to_be_bytes());
    to[18..].copy_from_slice(&scope.to_be_bytes());
}

pub(super) fn read_name(from: &[u8]) -> Option<SocketAddr> {
    let ip: [u8; 16] = from.get(..16)?.try_into().ok()?;
    let port = u16::from_be_bytes(from.get(16..18)?.try_into().ok()?);
    let scope = u32::from_be_bytes(from.get(18..NAME_LEN)?.try_into().ok()?);
    Some(match Ipv6Addr::from(ip).to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), port),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
    })
}
