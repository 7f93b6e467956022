//! The address families that the switch handles.
//!
//! Programs that are not written for the switch use `AF_INET` and `AF_INET6`. Other programs may
//! use a family of the switch. `*_OFFLOAD` spans all stacks and ignores the rule file; with the
//! number of an offload protocol it selects this protocol alone. `*_DIRECT` selects the kernel's
//! stack alone. The kernel has no such families, so a program that runs without the switch gets
//! `EAFNOSUPPORT`.

use rustix::io::Errno;

use crate::registry::Registry;

/// `AF_INET`, the argument of `socket`.
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

/// `SOCK_NONBLOCK` and `SOCK_CLOEXEC`, which are flags in the argument of the type.
const TYPE_FLAGS: i32 = 0o4000 | 0o2_000_000;

/// `IPPROTO_TCP`, which a program may pass instead of 0.
const TCP: i32 = 6;

/// The stacks that the program has chosen for a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StackRequest {
    /// The stacks of the matching rule.
    ByRule,
    /// All stacks.
    Every,
    /// This offload protocol alone.
    Only(String),
}

/// The way in which a call of `socket` is handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// A kernel socket of this family.
    Native {
        /// The family of the kernel socket.
        family: i32,
    },
    /// A socket of the switch, with a kernel socket of this family.
    Switched {
        /// The family of the kernel socket.
        family: i32,
        /// The stacks that the program asked for.
        request: StackRequest,
    },
}

/// Chooses between the kernel and the switch for a call of `socket`.
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
