//! The calls on both pairs, and their results.

use std::io::{self, Read, Write};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crate::pair::Pair;
use crate::when_full;

/// The time limit for readiness and counts to become equal.
const SETTLE: Duration = Duration::from_secs(30);
/// The time to wait for an event that need not occur.
const MOMENT: Duration = Duration::from_millis(50);

/// A call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// `send` of this many bytes.
    Send(usize),
    /// `recv` into a buffer of this size, with these flags in addition to `MSG_DONTWAIT`.
    Receive(usize, i32),
    /// `recv` of this many bytes without a buffer: `MSG_TRUNC` discards them.
    Discard(usize),
    /// A blocking `MSG_PEEK` that waits for this many bytes, with a timeout that expires if fewer
    /// are available.
    AwaitPeek(usize),
    /// An urgent byte when the socket is full, without a reader and with a peer that reads.
    UrgentWhenFull,
    /// `shutdown`.
    ShutDown(i32),
    /// `dup`, and `close` of the original.
    Duplicate,
    /// `close`.
    Close,
    /// `close` after `SO_LINGER` with no time: a reset.
    Reset,
    /// A blocking `recv` with a timeout that expires if no byte is available.
    Await,
    /// `getsockopt` of the pending error.
    PendingError,
    /// `getsockopt` of the options that distinguish kinds of sockets.
    Kind,
    /// `fork` of a child that keeps all ends open and uses none.
    Fork,
    /// `send` of this many bytes by the child of a `fork`.
    SendInChild(usize),
    /// `recv` into a buffer of this size by the child of a `fork`.
    ReceiveInChild(usize),
    /// `setsockopt` with a number, and the value that `getsockopt` returns afterwards.
    SetOption(i32, i32, i32),
}

/// The result of a call, and the state that the socket shows afterwards.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The result, or the error number.
    pub(crate) result: Result<i64, i32>,
    /// The bytes that were received.
    pub(crate) bytes: Vec<u8>,
}

impl Step {
    /// Makes the call on one end.
    pub(crate) fn apply(self, pair: &mut Pair, end: usize, first_byte: u8) -> Outcome {
        let fd = pair.fd(end);
        let mut bytes = Vec::new();
        let result = match self {
            Self::Send(len) => send(fd, len, first_byte),
            Self::Fork => in_child(&mut bytes, |_| Ok(0)),
            Self::SendInChild(len) => in_child(&mut bytes, |_| send(fd, len, first_byte)),
            Self::ReceiveInChild(len) => in_child(&mut bytes, |bytes| {
                receive(fd, len, libc::MSG_DONTWAIT, bytes)
            }),
            Self::Receive(len, flags) => receive(fd, len, flags | libc::MSG_DONTWAIT, &mut bytes),
            Self::Discard(len) => {
                let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
                // SAFETY: the kernel does not access the buffer, so null is allowed.
                number(unsafe { libc::recv(fd, std::ptr::null_mut(), len, flags) } as i64)
            }
            Self::UrgentWhenFull => when_full::send_urgent(pair, end, &mut bytes),
            // SAFETY: the call takes no pointers.
            Self::ShutDown(how) => number(unsafe { libc::shutdown(fd, how) }.into()),
            Self::Duplicate => pair
                .duplicate(end)
                .map(|()| 0)
                .map_err(|error| error.raw_os_error().unwrap_or(0)),
            Self::Close => {
                pair.close(end);
                Ok(0)
            }
            Self::Reset => {
                let linger = libc::linger {
                    l_onoff: 1,
                    l_linger: 0,
                };
                let result = set(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger);
                pair.close(end);
                result
            }
            Self::Await => in_time(pair, end, || receive(fd, 1, 0, &mut bytes)),
            Self::AwaitPeek(len) => {
                let flags = libc::MSG_PEEK | libc::MSG_WAITALL;
                in_time(pair, end, || receive(fd, len, flags, &mut bytes))
            }
            Self::PendingError => option(fd, libc::SOL_SOCKET, libc::SO_ERROR),
            Self::Kind => kind(fd),
            Self::SetOption(level, name, value) => {
                set(fd, level, name, &value).and_then(|_| option(fd, level, name))
            }
        };
        Outcome { result, bytes }
    }
}

/// Makes a blocking call with a short timeout.
fn in_time<T>(pair: &Pair, end: usize, call: impl FnOnce() -> T) -> T {
    let timeout = Some(Duration::from_millis(20));
    let stream = pair.end(end);
    let _ = stream.map(|stream| stream.set_read_timeout(timeout));
    let result = call();
    let _ = stream.map(|stream| stream.set_read_timeout(None));
    result
}

/// Runs `work` in the child of a fork, which then exits, and returns the child's result.
fn in_child(
    bytes: &mut Vec<u8>,
    work: impl FnOnce(&mut Vec<u8>) -> Result<i64, i32>,
) -> Result<i64, i32> {
    let (mut reader, mut writer) = io::pipe().map_err(|error| error.raw_os_error().unwrap_or(0))?;
    // SAFETY: the child makes only calls of this module, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let result = work(bytes);
        let number = result.unwrap_or_else(|error| -i64::from(error));
        let _ = writer.write_all(&number.to_ne_bytes());
        let _ = writer.write_all(bytes);
        // SAFETY: the call ends the child.
        unsafe { libc::_exit(0) };
    }
    drop(writer);
    let mut number = [0; 8];
    let read = reader
        .read_exact(&mut number)
        .and_then(|()| reader.read_to_end(bytes));
    // SAFETY: the process is our own child; its status is not used.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    read.map_err(|error| error.raw_os_error().unwrap_or(0))?;
    match i64::from_ne_bytes(number) {
        count @ 0.. => Ok(count),
        error => Err(i32::try_from(-error).unwrap_or(0)),
    }
}

fn send(fd: RawFd, len: usize, first_byte: u8) -> Result<i64, i32> {
    let data: Vec<u8> = (0..len).map(|n| first_byte.wrapping_add(n as u8)).collect();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the bytes live through the call.
    number(unsafe { libc::send(fd, data.as_ptr().cast(), len, flags) } as i64)
}

/// `recv` into a buffer of this size.
pub(crate) fn receive(fd: RawFd, len: usize, flags: i32, into: &mut Vec<u8>) -> Result<i64, i32> {
    let mut room = vec![0; len];
    // SAFETY: the buffer has this length.
    let result = number(unsafe { libc::recv(fd, room.as_mut_ptr().cast(), len, flags) } as i64)?;
    room.truncate(usize::try_from(result).unwrap_or(0));
    *into = room;
    Ok(result)
}

fn kind(fd: RawFd) -> Result<i64, i32> {
    let mut all = 0;
    for name in [
        libc::SO_DOMAIN,
        libc::SO_TYPE,
        libc::SO_PROTOCOL,
        libc::SO_ACCEPTCONN,
    ] {
        all = all * 1000 + option(fd, libc::SOL_SOCKET, name)?;
    }
    Ok(all)
}

fn option(fd: RawFd, level: i32, name: i32) -> Result<i64, i32> {
    let mut value: libc::c_int = 0;
    let mut len: libc::socklen_t = 4;
    // SAFETY: the buffer holds an integer, whose size is passed.
    let result =
        unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    number(result.into()).map(|_| value.into())
}

fn set<T>(fd: RawFd, level: i32, name: i32, value: &T) -> Result<i64, i32> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives through the call and has the length that is passed.
    let result =
        unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), len) };
    number(result.into())
}

/// A result, or the error number.
pub(crate) fn number(result: i64) -> Result<i64, i32> {
    if result >= 0 {
        return Ok(result);
    }
    Err(io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// The state of an end according to `poll`, `select`, a level-triggered set and `FIONREAD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shown {
    events: i16,
    selected: [bool; 2],
    level: u32,
    exclusive: u32,
    once: [u32; 2],
    unread: i32,
}

impl Shown {
    /// Converts the state to the state that processes with a shared connection see. They see the
    /// peer's end only after they have read all bytes before it, because a pair that shows the end
    /// receives no bytes any more.
    fn shared(mut self) -> Self {
        if self.unread > 0 {
            let end = libc::POLLRDHUP | libc::POLLHUP;
            let ends = (libc::EPOLLRDHUP | libc::EPOLLHUP).cast_unsigned();
            self.events &= !end;
            self.level &= !ends;
            self.exclusive &= !ends;
            self.once[0] &= !ends;
        }
        self
    }
}

/// Waits until an end of both pairs has received this many bytes. Waits only for a moment if the
/// end was shut down or closed, because such an end receives no bytes.
pub(crate) fn await_bytes(pairs: &[Pair; 2], end: usize, count: usize, is_readable: bool) {
    let start = Instant::now();
    let patience = if is_readable { SETTLE } else { MOMENT };
    let has_all = |pair: &Pair| usize::try_from(shown(pair, end).unread) == Ok(count);
    while !pairs.iter().all(has_all) && start.elapsed() < patience {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Waits for the edge that received bytes cause at an end.
pub(crate) fn has_edge(pair: &Pair, end: usize) -> bool {
    let start = Instant::now();
    while start.elapsed() < SETTLE {
        if pair.edge(end) & libc::EPOLLIN.cast_unsigned() != 0 {
            return true;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    false
}

/// Polls an end of both pairs until they show the same state.
///
/// # Errors
/// The states that they show at the deadline.
pub(crate) fn agree(pairs: &[Pair; 2], end: usize, forking: bool) -> Result<(), [Shown; 2]> {
    let start = Instant::now();
    loop {
        let mut shown = [shown(&pairs[0], end), shown(&pairs[1], end)];
        if forking {
            shown = shown.map(Shown::shared);
        }
        if shown[0] == shown[1] {
            return Ok(());
        }
        if start.elapsed() > SETTLE {
            return Err(shown);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// The number of received bytes at an end that have not been read.
pub(crate) fn unread(pair: &Pair, end: usize) -> i32 {
    let mut count: libc::c_int = 0;
    // SAFETY: the integer is in this frame.
    unsafe { libc::ioctl(pair.fd(end), libc::FIONREAD, &raw mut count) };
    count
}

fn shown(pair: &Pair, end: usize) -> Shown {
    let fd = pair.fd(end);
    let mut set = libc::pollfd {
        fd,
        events: libc::POLLIN | libc::POLLOUT | libc::POLLPRI | libc::POLLRDHUP,
        revents: 0,
    };
    // SAFETY: the set is in this frame.
    unsafe { libc::poll(&raw mut set, 1, 0) };
    Shown {
        events: set.revents,
        selected: selected(fd),
        level: pair.level(end),
        exclusive: pair.exclusive(end),
        once: pair.once(end),
        unread: unread(pair, end),
    }
}

/// The results of `select`: readable, writable.
fn selected(fd: RawFd) -> [bool; 2] {
    let mut timeout = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    // SAFETY: an `fd_set` is plain bits, for which zero is valid, and the number is below its size.
    unsafe {
        let mut sets: [libc::fd_set; 2] = std::mem::zeroed();
        if fd < 0 {
            return [false; 2];
        }
        sets.iter_mut().for_each(|set| libc::FD_SET(fd, set));
        let [readable, writable] = &mut sets;
        libc::select(
            fd + 1,
            readable,
            writable,
            std::ptr::null_mut(),
            &raw mut timeout,
        );
        sets.map(|set| libc::FD_ISSET(fd, &raw const set))
    }
}
