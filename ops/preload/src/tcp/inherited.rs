//! The options that an accepted socket inherits from its listener: all options that the program has
//! set, as over TCP.
//!
//! An accept costs one system call for each option below, and one more for each option that differs
//! from that of a new socket.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use host::descriptors::raise;
use libc::{
    IP_BIND_ADDRESS_NO_PORT, IP_MTU_DISCOVER, IP_TOS, IP_TTL, IPPROTO_IP, IPPROTO_IPV6,
    IPPROTO_TCP, IPV6_TCLASS, IPV6_UNICAST_HOPS, IPV6_V6ONLY, SO_BUSY_POLL, SO_DONTROUTE,
    SO_KEEPALIVE, SO_LINGER, SO_MARK, SO_OOBINLINE, SO_PRIORITY, SO_RCVBUF, SO_RCVBUFFORCE,
    SO_RCVLOWAT, SO_RCVTIMEO, SO_REUSEADDR, SO_REUSEPORT, SO_SNDBUF, SO_SNDBUFFORCE, SO_SNDTIMEO,
    SO_TIMESTAMP, SOL_SOCKET, TCP_CONGESTION, TCP_CORK, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL,
    TCP_LINGER2, TCP_MAXSEG, TCP_NODELAY, TCP_NOTSENT_LOWAT, TCP_SYNCNT, TCP_USER_TIMEOUT,
    TCP_WINDOW_CLAMP, socklen_t,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};

use crate::process::per_process::PerProcess;
use crate::process::real;
use crate::tcp::names::Family;

/// The option that programs set most often is the first, because the list is searched for each
/// option that a program sets.
const OF_ALL: &[(c_int, c_int)] = &[
    (IPPROTO_TCP, TCP_NODELAY),
    (SOL_SOCKET, SO_KEEPALIVE),
    (SOL_SOCKET, SO_LINGER),
    (SOL_SOCKET, SO_OOBINLINE),
    (SOL_SOCKET, SO_RCVBUF),
    (SOL_SOCKET, SO_SNDBUF),
    (SOL_SOCKET, SO_RCVLOWAT),
    (SOL_SOCKET, SO_RCVTIMEO),
    (SOL_SOCKET, SO_SNDTIMEO),
    (SOL_SOCKET, SO_MARK),
    (SOL_SOCKET, SO_DONTROUTE),
    (SOL_SOCKET, SO_REUSEADDR),
    (SOL_SOCKET, SO_REUSEPORT),
    (SOL_SOCKET, SO_TIMESTAMP),
    (SOL_SOCKET, SO_BUSY_POLL),
    (IPPROTO_TCP, TCP_CORK),
    (IPPROTO_TCP, TCP_KEEPIDLE),
    (IPPROTO_TCP, TCP_KEEPINTVL),
    (IPPROTO_TCP, TCP_KEEPCNT),
    (IPPROTO_TCP, TCP_USER_TIMEOUT),
    (IPPROTO_TCP, TCP_SYNCNT),
    (IPPROTO_TCP, TCP_LINGER2),
    (IPPROTO_TCP, TCP_MAXSEG),
    (IPPROTO_TCP, TCP_WINDOW_CLAMP),
    (IPPROTO_TCP, TCP_NOTSENT_LOWAT),
    (IPPROTO_TCP, TCP_CONGESTION),
    (IPPROTO_IP, IP_TOS),
    (IPPROTO_IP, IP_TTL),
    (IPPROTO_IP, IP_MTU_DISCOVER),
    (IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT),
];

const OF_V6: &[(c_int, c_int)] = &[
    (IPPROTO_IPV6, IPV6_V6ONLY),
    (IPPROTO_IPV6, IPV6_TCLASS),
    (IPPROTO_IPV6, IPV6_UNICAST_HOPS),
];

/// The value of an option: the first `len` of these bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value {
    bytes: [u8; 16],
    len: socklen_t,
}

/// Makes a TCP socket with the options of another one, which listens or keeps the options of a
/// connection.
pub(crate) fn socket(family: Family, listening: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let made = new(family)?;
    let is_new = as_new(family, made.as_fd());
    for (index, &(level, name)) in options(family).enumerate() {
        let value = Value::of(listening.as_raw_fd(), level, name);
        if let Some(value) = value.filter(|value| is_new.get(index) != Some(&Some(*value))) {
            // An option that the kernel does not let this program set is not inherited; the error
            // is ignored.
            value.set(made.as_raw_fd(), level, name);
            if (level, name) == (IPPROTO_IP, IP_TOS) {
                // Setting `IP_TOS` sets `SO_PRIORITY` too, which is not inherited.
                Value::NONE.set(made.as_raw_fd(), SOL_SOCKET, SO_PRIORITY);
            }
        }
    }
    Ok(made)
}

/// Returns true for options that are set on a socket of `AF_UNIX`. `SO_REUSEADDR`, which almost
/// every server sets, has no effect on a connection.
pub(crate) fn is_of_socket(level: c_int, name: c_int) -> bool {
    level == SOL_SOCKET && name != SO_REUSEADDR
}

/// Returns the bit of an option in a set of inherited options; 0 for all other options.
pub(crate) fn bit_of(level: c_int, name: c_int) -> u64 {
    let name = match (level, name) {
        (SOL_SOCKET, SO_SNDBUFFORCE) => SO_SNDBUF,
        (SOL_SOCKET, SO_RCVBUFFORCE) => SO_RCVBUF,
        _ => name,
    };
    let index = options(Family::V6).position(|option| *option == (level, name));
    index.map_or(0, |index| 1 << index)
}

/// Returns the options whose values differ from those of a new socket. `among` is a set of bits of
/// [`bit_of`]: other options are not returned.
pub(crate) fn set_on(
    socket: BorrowedFd<'_>,
    family: Family,
    among: u64,
) -> impl Iterator<Item = (c_int, c_int, Value)> {
    let new = match known(family).get() {
        Some(known) => known.as_slice(),
        None => new(family).map_or(&[][..], |made| as_new(family, made.as_fd())),
    };
    let fd = socket.as_raw_fd();
    options(family)
        .zip(new)
        .enumerate()
        .filter(move |(index, _)| among & (1 << index) != 0)
        .filter_map(move |(_, (&(level, name), new))| {
            let value = Value::of(fd, level, name)?;
            (*new != Some(value)).then_some((level, name, value))
        })
}

/// Makes a TCP socket with a descriptor above those that programs use.
pub(crate) fn new(family: Family) -> Result<OwnedFd, Errno> {
    let domain = match family {
        Family::V4 => AddressFamily::INET,
        Family::V6 => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC;
    raise(socket_with(
        domain,
        SocketType::STREAM,
        flags,
        Some(ipproto::TCP),
    )?)
}

fn options(family: Family) -> impl Iterator<Item = &'static (c_int, c_int)> {
    let more = match family {
        Family::V4 => &[],
        Family::V6 => OF_V6,
    };
    OF_ALL.iter().chain(more)
}

/// Returns the cache of the options of a new socket.
fn known(family: Family) -> &'static PerProcess<Vec<Option<Value>>> {
    // The cache has no lock. A thread that held a lock during a fork would not exist in the child,
    // and the child would wait for ever.
    static V4: PerProcess<Vec<Option<Value>>> = PerProcess::new();
    static V6: PerProcess<Vec<Option<Value>>> = PerProcess::new();
    match family {
        Family::V4 => &V4,
        Family::V6 => &V6,
    }
}

/// Returns the values of the options of a new socket of a family. The values are read once in each
/// process, from the socket `made`.
fn as_new(family: Family, made: BorrowedFd<'_>) -> &'static [Option<Value>] {
    known(family).get_or_init(|| {
        let fd = made.as_raw_fd();
        options(family)
            .map(|&(level, name)| Value::of(fd, level, name))
            .collect()
    })
}

impl Value {
    const NONE: Self = Self {
        bytes: [0; 16],
        len: size_of::<c_int>() as socklen_t,
    };

    /// Returns the value of an integer.
    pub(crate) fn number(number: c_int) -> Self {
        let mut value = Self::NONE;
        value.bytes[..size_of::<c_int>()].copy_from_slice(&number.to_ne_bytes());
        value
    }

    /// Returns the value as an integer.
    pub(crate) fn as_number(self) -> c_int {
        let [a, b, c, d, ..] = self.bytes;
        c_int::from_ne_bytes([a, b, c, d])
    }

    /// Returns the bytes that `getsockopt` returns to the program.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..(self.len as usize).min(self.bytes.len())]
    }

    pub(crate) fn of(fd: RawFd, level: c_int, name: c_int) -> Option<Self> {
        let mut bytes = MaybeUninit::<[u8; 16]>::zeroed();
        let mut len = size_of_val(&bytes) as socklen_t;
        let into = bytes.as_mut_ptr().cast();
        // SAFETY: the buffer has room for `len` bytes.
        let result = unsafe { real::getsockopt(fd, level, name, into, &raw mut len) };
        // SAFETY: the bytes were zeroed, so all of them are initialized.
        let bytes = unsafe { bytes.assume_init() };
        (result == 0).then_some(Self { bytes, len })
    }

    pub(crate) fn set(mut self, fd: RawFd, level: c_int, name: c_int) {
        if (level, name) == (SOL_SOCKET, SO_RCVBUF) || (level, name) == (SOL_SOCKET, SO_SNDBUF) {
            // The kernel doubles the size that is set, and returns the double.
            let [a, b, c, d, ..] = self.bytes;
            let half = i32::from_ne_bytes([a, b, c, d]) / 2;
            self.bytes[..4].copy_from_slice(&half.to_ne_bytes());
        }
        let from = self.bytes.as_ptr().cast();
        // SAFETY: the value has `len` bytes.
        unsafe { real::setsockopt(fd, level, name, from, self.len) };
    }
}
