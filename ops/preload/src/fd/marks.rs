//! Properties of descriptors besides their entries.
//!
//! A mark says what a descriptor was when a hook saw it last. If the descriptor was closed by a
//! call without a hook and its number was used again, its marks are those of the former descriptor,
//! so the users of a mark check what they do with the kernel.
//!
//! The switch handles TCP sockets, and leaves UDP and MPTCP sockets to the kernel. Reading the
//! protocol from the kernel costs a system call at each `connect`, so the protocol is recorded when
//! the socket is made. A UDP socket with a wrong mark may appear in the list of sockets that stay
//! on TCP. It is never offloaded, because the switch first asks the kernel for the TCP state, which
//! a UDP socket does not have.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::Ordering;

use host::descriptors::Identity;
use ops::Wish;

use crate::fd::slots::{Slot, existing, slot, slots};

/// A property of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Mark {
    /// `socket` returned it as a TCP socket.
    MadeAsTcp = 1,
    /// It is a TCP socket with several descriptors in this process.
    Duplicated = 2,
    /// It is a TCP socket that another process may have as well.
    Shared = 4,
    /// It was added to an `epoll` set since its number was last closed.
    Watched = 8,
    /// It was last used as an `epoll` set.
    Set = 16,
    /// The program has named the kernel's stack for it.
    WantsKernel = 32,
    /// The program has named offload protocols for it.
    WantsOffload = 64,
    /// The program has named SDP for it.
    WantsSdp = 128,
}

/// The marks of the stacks that a program names.
const WISHES: [(Mark, Wish); 3] = [
    (Mark::WantsKernel, Wish::Kernel),
    (Mark::WantsOffload, Wish::Offload),
    (Mark::WantsSdp, Wish::Protocol(SDP)),
];

/// The name of the protocol that `AF_INET_SDP` and `IPPROTO_SDP` stand for.
pub(crate) const SDP: &str = "sdp";

/// Records the stack that the program has named for a new socket.
pub(super) fn record_wish(fd: c_int, wish: Wish) {
    for (mark, _) in WISHES.iter().filter(|(_, named)| *named == wish) {
        set(fd, *mark, true);
    }
}

/// Returns the stack that the program has named for a socket.
pub(crate) fn wish_of(fd: c_int) -> Wish {
    let named = WISHES.iter().find(|(mark, _)| has(fd, *mark));
    named.map_or(Wish::None, |(_, wish)| *wish)
}

/// Returns true for a descriptor with a mark. A number beyond the table has none.
#[inline]
pub(super) fn has(fd: c_int, mark: Mark) -> bool {
    existing(fd).is_some_and(|slot| slot.marks.load(Ordering::Acquire) & mark as u8 != 0)
}

/// Adds or removes a mark. Returns false if the number has no slot for it.
#[inline]
pub(super) fn set(fd: c_int, mark: Mark, is_set: bool) -> bool {
    let found = if is_set { slot(fd) } else { existing(fd) };
    let Some(slot) = found else { return !is_set };
    let bit = mark as u8;
    if (slot.marks.load(Ordering::Relaxed) & bit != 0) == is_set {
        return true;
    }
    if is_set {
        slot.marks.fetch_or(bit, Ordering::Release);
    } else {
        slot.marks.fetch_and(!bit, Ordering::Release);
    }
    true
}

/// Replaces the marks of TCP sockets by those of a new socket. The number may be watched already,
/// because a connection that the program ends gets a new socket.
#[inline]
pub(super) fn begin(fd: c_int, is_tcp: bool) {
    let made = if is_tcp { Mark::MadeAsTcp as u8 } else { 0 };
    let Some(slot) = (if is_tcp { slot(fd) } else { existing(fd) }) else {
        return;
    };
    let watched = Mark::Watched as u8;
    if slot.marks.load(Ordering::Relaxed) & !watched != made {
        slot.marks.fetch_and(made | watched, Ordering::Relaxed);
        slot.marks.fetch_or(made, Ordering::Release);
    }
}

/// Removes all marks of a descriptor that is about to be closed.
pub(super) fn end(fd: c_int) {
    if let Some(slot) = existing(fd) {
        slot.marks.store(0, Ordering::Release);
    }
}

/// Gives the descriptor `made` the marks of a duplicate of `fd`.
pub(super) fn duplicate(fd: c_int, made: c_int) {
    let is_tcp = has(fd, Mark::MadeAsTcp) || has(fd, Mark::Duplicated);
    set(made, Mark::MadeAsTcp, false);
    set(made, Mark::Duplicated, is_tcp);
    set(made, Mark::Shared, is_tcp && has(fd, Mark::Shared));
    for (mark, _) in WISHES {
        set(made, mark, has(fd, mark));
    }
    if is_tcp {
        set(fd, Mark::Duplicated, true);
    }
}

/// Records that another process gets a copy of a descriptor.
pub(super) fn share(fd: c_int) {
    set(fd, Mark::Shared, true);
}

/// Records that the child of a `fork` gets a copy of all descriptors.
pub(super) fn share_all() {
    slots(0, usize::MAX).for_each(|(_, slot)| share_tcp(slot));
}

fn share_tcp(slot: &Slot) {
    let tcp = Mark::MadeAsTcp as u8 | Mark::Duplicated as u8;
    if slot.marks.load(Ordering::Relaxed) & tcp != 0 {
        slot.marks.fetch_or(Mark::Shared as u8, Ordering::Release);
    }
}

/// Returns true if a hooked `socket` of this process made the descriptor as a TCP socket.
pub(crate) fn is_made_as_tcp(fd: c_int) -> bool {
    has(fd, Mark::MadeAsTcp)
}

/// Returns true if another process may have the socket, because it existed at a `fork` or was
/// passed on. Such a process does not know the listeners of the protocols next to the socket, so it
/// would not receive their clients.
pub(crate) fn is_shared(fd: c_int) -> bool {
    has(fd, Mark::Shared)
}

/// Returns true if another descriptor of this process refers to the socket. A connection or
/// listener that replaces the socket under one number would not be found under the other. The copy
/// of the descriptor in another process is not found; see [`is_shared`].
pub(crate) fn has_duplicate(socket: BorrowedFd<'_>) -> bool {
    let own = socket.as_raw_fd();
    if !has(own, Mark::Duplicated) {
        return false;
    }
    let (Ok(identity), Ok(all)) = (Identity::of(socket), std::fs::read_dir("/proc/self/fd")) else {
        return true;
    };
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers
        .filter(|number| *number != own)
        .any(|number| Identity::of_number(number) == Ok(identity))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    const ALL: [Mark; 8] = [
        Mark::MadeAsTcp,
        Mark::Duplicated,
        Mark::Shared,
        Mark::Watched,
        Mark::Set,
        Mark::WantsKernel,
        Mark::WantsOffload,
        Mark::WantsSdp,
    ];

    #[test]
    fn each_mark_is_set_and_removed_alone() {
        // A number that no test opens.
        let fd = 1_000_200;
        for mark in ALL {
            set(fd, mark, true);
            assert_eq!(ALL.map(|each| has(fd, each)), ALL.map(|each| each == mark));
            set(fd, mark, false);
            assert_eq!(ALL.map(|each| has(fd, each)), [false; 8]);
        }
    }

    #[test]
    fn a_new_socket_has_no_marks_of_the_former_one() {
        let fd = 1_000_201;
        for is_tcp in [true, false] {
            assert!(ALL.iter().all(|mark| set(fd, *mark, true)));
            begin(fd, is_tcp);
            let left = ALL.map(|mark| has(fd, mark));
            let expected = ALL.map(|mark| match mark {
                Mark::MadeAsTcp => is_tcp,
                mark => mark == Mark::Watched,
            });
            assert_eq!(left, expected, "it may be watched");
        }
        end(fd);
        assert_eq!(ALL.map(|mark| has(fd, mark)), [false; 8]);
    }

    #[test]
    fn numbers_beyond_the_table_have_no_marks() {
        for fd in [-1, c_int::MAX] {
            begin(fd, true);
            assert!(!set(fd, Mark::Watched, true));
            assert!(!has(fd, Mark::MadeAsTcp) && !has(fd, Mark::Watched));
        }
    }

    #[test]
    fn a_socket_is_shared_from_a_fork_to_the_next_socket_of_its_number() {
        // Numbers that no test opens.
        let (fd, other) = (1_000_100, 1_000_101);
        begin(fd, true);
        begin(other, false);
        // Not `share_all`, which would share the sockets of other tests.
        slots(1_000_100, 1_000_101).for_each(|(_, slot)| share_tcp(slot));
        assert!(is_shared(fd) && !is_shared(other) && !is_shared(-1));
        duplicate(fd, other);
        assert!(is_shared(other));
        begin(fd, true);
        begin(other, true);
        assert!(!is_shared(fd) && !is_shared(other));
    }

    #[test]
    fn a_wish_is_that_of_duplicates_and_not_of_the_next_socket() {
        // Numbers that no test opens.
        let (fd, other) = (1_000_103, 1_000_104);
        for wish in [Wish::None, Wish::Kernel, Wish::Offload, Wish::Protocol(SDP)] {
            begin(fd, true);
            record_wish(fd, wish);
            duplicate(fd, other);
            assert_eq!([wish_of(fd), wish_of(other)], [wish; 2]);
            begin(fd, true);
            assert_eq!(wish_of(fd), Wish::None);
        }
    }

    #[test]
    fn a_duplicate_is_not_made_as_tcp() {
        let fd = 1_000_102;
        begin(fd, true);
        duplicate(-1, fd);
        assert!(!is_made_as_tcp(fd), "the kernel is asked");
    }

    #[test]
    fn a_socket_has_a_duplicate_until_that_is_closed() {
        let tcp = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        begin(tcp.as_raw_fd(), true);
        assert!(!has_duplicate(tcp.as_fd()));
        let other = tcp.try_clone().unwrap();
        duplicate(tcp.as_raw_fd(), other.as_raw_fd());
        assert!(has_duplicate(tcp.as_fd()) && has_duplicate(other.as_fd()));
        end(tcp.as_raw_fd());
        drop(tcp);
        assert!(!has_duplicate(other.as_fd()), "the socket was moved");
        end(other.as_raw_fd());
    }
}
