//! The ends of the two directions, where a socket of `AF_UNIX` does not show those of TCP.
//!
//! The kernel ends both directions of a socket when the peer closes its socket. TCP ends only the
//! direction from the peer, until this end has ended its own direction too, or the peer has
//! answered bytes by a reset. So the library records the end of the direction to the peer. All
//! processes that use the connection need the record, therefore it is stored in the kernel's socket
//! as well, as the value of `SO_INCOMING_CPU`, which has no effect on a socket of `AF_UNIX`.
//!
//! The record is written when a direction ends, and read when the kernel shows a hang-up. A process
//! that has [restricted](crate::process::restrictions) its system calls uses its own copy alone.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{SO_INCOMING_CPU, SOL_SOCKET, ssize_t};
use rustix::event::PollFlags;

use crate::fd;
use crate::process::{self, errno, guard, real, restrictions};
use crate::socket::local::LocalSocket;

/// The direction to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Sending {
    Open = 0,
    /// The direction was shut down, or the program has received the error of a reset.
    Ended = 1,
    /// The peer had closed when bytes were sent. TCP receives a reset then, whose error is pending.
    Refused = 2,
}

/// An event of the direction to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The program has shut the direction down.
    ShutDown,
    /// A call has returned the error of a reset.
    Reset,
    /// Bytes were sent after the peer had closed.
    SentAfterClose,
    /// A call has returned the pending error.
    ErrorTaken,
}

impl Sending {
    fn on(self, event: Event) -> Self {
        match (self, event) {
            (Self::Open, Event::SentAfterClose) | (Self::Refused, Event::ShutDown) => Self::Refused,
            (Self::Open, Event::ErrorTaken) => Self::Open,
            (Self::Refused, Event::SentAfterClose) => Self::Refused,
            (_, Event::ShutDown | Event::Reset | Event::ErrorTaken | Event::SentAfterClose) => {
                Self::Ended
            }
        }
    }

    /// The value of `SO_INCOMING_CPU`, which is -1 if no call has set it.
    fn mark(self) -> c_int {
        -1 - c_int::from(self as u8)
    }

    fn of_mark(mark: c_int) -> Option<Self> {
        [Self::Ended, Self::Refused]
            .into_iter()
            .find(|it| it.mark() == mark)
    }

    fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Ended,
            2 => Self::Refused,
            _ => Self::Open,
        }
    }
}

/// Returns the state of the direction to the peer.
pub(crate) fn sending(socket: &LocalSocket, fd: BorrowedFd<'_>) -> Sending {
    read_mark(fd).unwrap_or_else(|| Sending::from_number(socket.sending()))
}

/// Records an event of a connection.
pub(crate) fn record(socket: &LocalSocket, fd: BorrowedFd<'_>, event: Event) {
    let before = sending(socket, fd);
    let after = before.on(event);
    socket.set_sending(after as u8);
    if before != after {
        write_mark(fd, after);
    }
}

/// Records that the program has shut down directions of a connection.
pub(crate) fn on_shut_down(socket: &LocalSocket, fd: BorrowedFd<'_>, how: c_int) {
    if how != libc::SHUT_WR {
        socket.end_receiving();
    }
    if how != libc::SHUT_RD {
        record(socket, fd, Event::ShutDown);
    }
}

/// Calls `call` with the connection of a descriptor. Keeps `errno`. `None`: the descriptor is no
/// connection within the host.
pub(crate) fn with<R>(
    fd: c_int,
    call: impl FnOnce(&LocalSocket, BorrowedFd<'_>) -> R,
) -> Option<R> {
    let why = errno::get();
    let _inside = guard::enter();
    let socket = super::local_socket(fd)?;
    // SAFETY: the number has an entry, so it is not negative.
    let result = call(&socket, unsafe { BorrowedFd::borrow_raw(fd) });
    errno::set(why);
    Some(result)
}

/// Records the reset that a call has returned which receives. Keeps the result and `errno`.
#[inline]
pub(crate) fn received(fd: c_int, result: ssize_t) -> ssize_t {
    if result < 0 {
        on_receive_failed(fd);
    }
    result
}

#[cold]
fn on_receive_failed(fd: c_int) {
    if errno::get() == libc::ECONNRESET && fd::is_local(fd) {
        with(fd, |socket, fd| record(socket, fd, Event::Reset));
    }
}

/// Returns the pending error of a connection, of which the kernel has reported `error`.
pub(crate) fn take_error(socket: &LocalSocket, fd: BorrowedFd<'_>, error: c_int) -> c_int {
    if error != 0 {
        record(socket, fd, Event::Reset);
        return error;
    }
    match sending(socket, fd) {
        Sending::Refused => {
            record(socket, fd, Event::ErrorTaken);
            libc::EPIPE
        }
        _ => 0,
    }
}

/// Returns true if both directions have ended, and both ends have been notified: TCP has no
/// connection then, so calls for the peer's address fail.
pub(crate) fn is_over(socket: &LocalSocket, fd: BorrowedFd<'_>) -> bool {
    if restrictions::is_restricted() {
        return false;
    }
    let Ok(shown) = process::shown_events(fd, PollFlags::empty()) else {
        return false;
    };
    shown.contains(PollFlags::HUP)
        && (shown.contains(PollFlags::ERR)
            || match sending(socket, fd) {
                Sending::Open => false,
                Sending::Refused => true,
                // If this end has stopped receiving, the kernel does not show the peer's end.
                Sending::Ended => !socket.has_ended_receiving(),
            })
}

fn read_mark(fd: BorrowedFd<'_>) -> Option<Sending> {
    if restrictions::is_restricted() {
        return None;
    }
    let mut mark: c_int = -1;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    let (value, len) = ((&raw mut mark).cast(), &raw mut len);
    let why = errno::get();
    // SAFETY: both pointers are to local variables.
    unsafe { real::getsockopt(fd.as_raw_fd(), SOL_SOCKET, SO_INCOMING_CPU, value, len) };
    errno::set(why);
    Sending::of_mark(mark)
}

fn write_mark(fd: BorrowedFd<'_>, sending: Sending) {
    if restrictions::is_restricted() {
        return;
    }
    let mark = sending.mark();
    let (value, len) = (
        (&raw const mark).cast(),
        size_of::<c_int>() as libc::socklen_t,
    );
    let why = errno::get();
    // SAFETY: the value is a local variable.
    unsafe { real::setsockopt(fd.as_raw_fd(), SOL_SOCKET, SO_INCOMING_CPU, value, len) };
    errno::set(why);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_in_each_state_leads_to_one_state() {
        use Event::{ErrorTaken, Reset, SentAfterClose, ShutDown};
        use Sending::{Ended, Open, Refused};
        let expected = [
            (Open, [Ended, Ended, Refused, Open]),
            (Ended, [Ended, Ended, Ended, Ended]),
            (Refused, [Refused, Ended, Refused, Ended]),
        ];
        for (before, after) in expected {
            let events = [ShutDown, Reset, SentAfterClose, ErrorTaken];
            assert_eq!(events.map(|event| before.on(event)), after, "{before:?}");
        }
    }

    #[test]
    fn marks_are_distinct_and_never_the_kernels_default() {
        for state in [Sending::Ended, Sending::Refused] {
            assert_eq!(Sending::of_mark(state.mark()), Some(state));
            assert_eq!(Sending::from_number(state as u8), state);
        }
        assert_eq!(Sending::of_mark(-1), None);
        assert_eq!(Sending::of_mark(0), None);
    }
}
