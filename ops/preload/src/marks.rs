//! Properties of descriptors besides their entries: one byte for each number.
//!
//! A mark says what a descriptor was when a hook saw it last. If the descriptor was closed and its
//! number was used again without a hook, its marks are those of the former descriptor, so the users
//! of a mark check what they do with the kernel.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// The number of descriptors that can have marks: as many as the table has slots.
const NUMBERS: usize = 1 << 20;

static MARKS: [AtomicU8; NUMBERS] = [const { AtomicU8::new(0) }; NUMBERS];

/// The highest number that has had a mark.
static LAST: AtomicUsize = AtomicUsize::new(0);

/// A property of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mark {
    /// `socket` returned it as a TCP socket.
    MadeAsTcp = 1,
    /// It is a TCP socket with several descriptors in this process.
    Duplicated = 2,
    /// It is a TCP socket that another process may have as well.
    Shared = 4,
    /// It was added to an `epoll` set since its number was last closed.
    Watched = 8,
}

fn byte_of(fd: c_int) -> Option<&'static AtomicU8> {
    MARKS.get(usize::try_from(fd).ok()?)
}

/// Returns true for a descriptor with a mark. A number beyond the marks has none.
#[inline]
pub(crate) fn has(fd: c_int, mark: Mark) -> bool {
    byte_of(fd).is_some_and(|byte| byte.load(Ordering::Acquire) & mark as u8 != 0)
}

/// Returns true for a number beyond the marks.
pub(crate) fn is_beyond(fd: c_int) -> bool {
    byte_of(fd).is_none()
}

/// Adds or removes a mark.
#[inline]
pub(crate) fn set(fd: c_int, mark: Mark, is_set: bool) {
    let Some(byte) = byte_of(fd) else { return };
    let bit = mark as u8;
    if (byte.load(Ordering::Relaxed) & bit != 0) == is_set {
        return;
    }
    if is_set {
        LAST.fetch_max(fd.unsigned_abs() as usize, Ordering::Relaxed);
        byte.fetch_or(bit, Ordering::Release);
    } else {
        byte.fetch_and(!bit, Ordering::Release);
    }
}

/// Replaces the marks of TCP sockets by those of a new socket. The number may be watched already,
/// because a connection that the program ends gets a new socket.
#[inline]
pub(crate) fn begin(fd: c_int, is_tcp: bool) {
    let Some(byte) = byte_of(fd) else { return };
    let made = if is_tcp { Mark::MadeAsTcp as u8 } else { 0 };
    let watched = Mark::Watched as u8;
    if byte.load(Ordering::Relaxed) & !watched != made {
        LAST.fetch_max(fd.unsigned_abs() as usize, Ordering::Relaxed);
        byte.fetch_and(made | watched, Ordering::Relaxed);
        byte.fetch_or(made, Ordering::Release);
    }
}

/// Returns the numbers that may have marks.
pub(crate) fn numbers() -> impl Iterator<Item = c_int> {
    (0..=LAST.load(Ordering::Relaxed)).filter_map(|number| c_int::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Mark; 4] = [
        Mark::MadeAsTcp,
        Mark::Duplicated,
        Mark::Shared,
        Mark::Watched,
    ];

    #[test]
    fn each_mark_is_set_and_removed_alone() {
        // A number that no test opens.
        let fd = 1_000_200;
        for mark in ALL {
            set(fd, mark, true);
            assert_eq!(ALL.map(|each| has(fd, each)), ALL.map(|each| each == mark));
            set(fd, mark, false);
            assert_eq!(ALL.map(|each| has(fd, each)), [false; 4]);
        }
        assert!(numbers().any(|number| number == fd));
    }

    #[test]
    fn a_new_socket_has_no_marks_of_the_former_one() {
        let fd = 1_000_201;
        for is_tcp in [true, false] {
            ALL.iter().for_each(|mark| set(fd, *mark, true));
            begin(fd, is_tcp);
            let left = ALL.map(|mark| has(fd, mark));
            assert_eq!(left, [is_tcp, false, false, true], "it may be watched");
        }
    }

    #[test]
    fn numbers_beyond_the_marks_have_none() {
        for fd in [-1, c_int::MAX] {
            assert!(is_beyond(fd));
            begin(fd, true);
            set(fd, Mark::Watched, true);
            assert!(!has(fd, Mark::MadeAsTcp) && !has(fd, Mark::Watched));
        }
    }
}
