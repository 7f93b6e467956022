//! Which sockets come to the switch.
//!
//! Programs that know nothing of it ask for `AF_INET` and `AF_INET6`. Those that do may name a
//! family of their own: `*_OFFLOAD` spans all stacks whatever the rule file says, and with the
//! number of an offload protocol means that one alone; `*_DIRECT` is the kernel's stack alone. The
//! kernel has no such families, so a program that runs without the switch is told `EAFNOSUPPORT`.

use rustix::io::Errno;

use crate::registry::Registry;

/// `AF_INET`, as `socket` takes it.
const AF_INET: i32 = 2;

/// `AF_INET6`.
const AF_INET6: i32 = 10;

/// IPv4 over every stack.
pub const AF_INET_OFFLOAD: i32 = 0x0100 | AF_INET;

/// IPv6 over every stack.
pub const AF_INET6_OFFLOAD: i32 = 0x0100 | AF_INET6;

/// IPv4 over the kernel's stack.
pub const AF_INET_DIRECT: i32 = 0x0200 | AF_INET;

/// IPv6 over the kernel's stack.
pub const AF_INET6_DIRECT: i32 = 0x0200 | AF_INET6;

/// `SOCK_STREAM`.
const STREAM: i32 = 1;

/// `SOCK_NONBLOCK` and `SOCK_CLOEXEC`, which say nothing of the type.
const TYPE_FLAGS: i32 = 0o4000 | 0o2_000_000;

/// `IPPROTO_TCP`, which careful programs name and mean "a stream" by.
const TCP: i32 = 6;

/// Which stacks a socket may use as far as its program says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StackRequest {
    /// Whatever the rule file says.
    ByRule,
    /// All of them.
    Every,
    /// This offload protocol and nothing else.
    Only(String),
}

/// What a call of `socket` comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The kernel's, with this family.
    Native {
        /// The family to ask the kernel for.
        family: i32,
    },
    /// One for the switch, with a kernel socket of this family.
    Switched {
        /// The family of the kernel socket.
        family: i32,
        /// Which stacks.
        request: StackRequest,
    },
}

/// Sorts a call of `socket`.
///
/// # Errors
/// `EPROTONOSUPPORT` for the number of an offload protocol that is not registered.
pub fn choose(family: i32, kind: i32, protocol: i32, registry: &Registry) -> Result<Choice, Errno> {
    let (plain, request) = match family {
        AF_INET | AF_INET6 => (family, StackRequest::ByRule),
        AF_INET_OFFLOAD => (AF_INET, StackRequest::Every),
        AF_INET6_OFFLOAD => (AF_INET6, StackRequest::Every),
        AF_INET_DIRECT => return Ok(Choice::Native { family: AF_INET }),
        AF_INET6_DIRECT => return Ok(Choice::Native { family: AF_INET6 }),
        other => return Ok(Choice::Native { family: other }),
    };
    if kind & !TYPE_FLAGS != STREAM {
        return Ok(Choice::Native { family: plain });
    }
    let request = match (request, protocol) {
        (request, 0 | TCP) => request,
        (StackRequest::Every, number) => {
            let found = registry.by_number(number).ok_or(Errno::PROTONOSUPPORT)?;
            StackRequest::Only(found.name().to_owned())
        }
        // Other stream protocols, such as SCTP, are the kernel's.
        (_, _) => return Ok(Choice::Native { family: plain }),
    };
    Ok(Choice::Switched {
        family: plain,
        request,
    })
}
