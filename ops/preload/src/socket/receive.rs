//! `read`, `recv` and related functions.
//!
//! A receive that finds bytes makes no system call, or one that removes the announcement from the
//! pair, so that the descriptor stops showing `IN`. Bytes are copied once, from the stream into the
//! caller's buffer. Long receives may not copy at all; see [`in_place`](super::in_place).

use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use libc::{MSG_ERRQUEUE, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL};
use ops::{OffloadStream, Watch};
use rustix::io::Errno;

use crate::socket::calls::HANDED_OVER;
use crate::socket::vector::Vector;
use crate::socket::{Patience, Socket, handed_over};

/// The number of bytes that `MSG_TRUNC` discards at a time.
const DISCARD: usize = 16 * 1024;

impl Socket {
    /// Receives into `into` as `recvmsg` does with these flags.
    ///
    /// # Safety
    /// The parts of `into` are null or valid for writes.
    pub(crate) unsafe fn receive(
        &self,
        fd: BorrowedFd<'_>,
        into: &mut Vector,
        flags: i32,
    ) -> Result<usize, Errno> {
        if flags & MSG_ERRQUEUE != 0 {
            return Err(Errno::AGAIN);
        }
        if flags & MSG_OOB != 0 {
            // SAFETY: the caller guarantees the parts.
            return unsafe { self.receive_urgent(into, flags) };
        }
        let wanted = into.len();
        let destination = if wanted > 0 && flags & MSG_TRUNC != 0 {
            Destination::Discarded
        } else if wanted == 0 || into.has_null() {
            Destination::None
        } else {
            // SAFETY: the caller guarantees the parts, none of which is null.
            Destination::Parts(unsafe { into.as_targets() })
        };
        self.run_receive(
            fd,
            ReceiveCall {
                wanted,
                flags,
                is_peek: flags & MSG_PEEK != 0,
                is_wait_all: flags & MSG_WAITALL != 0,
                enough: self.enough(wanted, flags),
                destination,
                done: 0,
                patience: None,
                must_copy: false,
                ends_with: None,
            },
        )
    }

    /// # Safety
    /// As for `receive`.
    unsafe fn receive_urgent(&self, into: &mut Vector, flags: i32) -> Result<usize, Errno> {
        let inline = self.options().is_urgent_inline;
        if inline {
            return Err(Errno::INVAL);
        }
        let byte = self.stream.receive_urgent(flags & MSG_PEEK != 0)?;
        if into.len() == 0 {
            return Ok(0);
        }
        if flags & MSG_TRUNC != 0 {
            return Ok(1);
        }
        if into.has_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: the caller guarantees the parts, none of which is null.
        let mut parts = unsafe { into.as_targets() }.iter_mut();
        if let Some(part) = parts.find(|part| !part.is_empty()) {
            part[0] = byte;
        }
        Ok(1)
    }

    fn run_receive(&self, fd: BorrowedFd<'_>, mut call: ReceiveCall<'_>) -> Result<usize, Errno> {
        if !self.may_use_stream(fd) {
            return call.receive_from_descriptor(fd);
        }
        self.note_use();
        self.observer.on_receive_called();
        loop {
            let seen = self.observer.wait_queue().seq();
            if self.observer.state().has_reading_ended() && !self.stream.readiness().readable {
                return Ok(call.done);
            }
            let peeked = match self.attempt(fd, &mut call)? {
                Attempt::Enough(count) => return Ok(count),
                Attempt::Again => continue,
                Attempt::TooFew(peeked) => peeked,
            };
            let found = call.done + peeked;
            let may_be_last = found > 0 || call.wanted == 0;
            match self.await_more(fd, &mut call, seen, may_be_last) {
                Ok(()) => {}
                Err(Errno::AGAIN | Errno::INTR) if call.has_waited_for_nothing() => return Ok(0),
                Err(HANDED_OVER) if self.may_use_stream(fd) => {}
                Err(HANDED_OVER) => return call.receive_from_descriptor(fd),
                Err(_) if found > 0 => return Ok(found),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the number of bytes for which a call waits, as over TCP.
    fn enough(&self, wanted: usize, flags: i32) -> usize {
        match flags & MSG_WAITALL != 0 {
            true => wanted,
            false => self.receive_low.load(Ordering::Relaxed).min(wanted),
        }
    }

    /// Receives, or peeks at, the bytes that have arrived.
    fn attempt(&self, fd: BorrowedFd<'_>, call: &mut ReceiveCall<'_>) -> Result<Attempt, Errno> {
        if call.done > 0 && self.stream.is_at_mark() {
            // A receive ends at the urgent mark; the next receive starts at the mark and passes it.
            return Ok(Attempt::Enough(call.done));
        }
        // Evaluated before the receive, which then finds all bytes that arrived before this point.
        let is_all_there = !(call.is_peek && call.is_wait_all) || self.is_peek_complete();
        let received = self.receive_in_place(fd, call);
        match received.unwrap_or_else(|| call.receive_from_stream(&*self.stream)) {
            Ok(0) if call.done == 0 && call.wanted > 0 && self.has_broken_unseen() => self
                .end_of_receive(fd, 0, Errno::CONNRESET)
                .map(Attempt::Enough),
            Ok(count) if call.is_peek => {
                let is_enough = is_all_there || count == 0 || count >= call.wanted;
                Ok(if is_enough {
                    Attempt::Enough(count)
                } else {
                    Attempt::TooFew(count)
                })
            }
            Ok(count) => {
                call.done += count;
                if count == 0 && call.wanted > 0 {
                    self.observer.on_end_read();
                }
                self.after_receive(fd);
                let is_enough = count == 0 || call.done >= call.enough;
                Ok(if is_enough {
                    Attempt::Enough(call.done)
                } else {
                    Attempt::Again
                })
            }
            Err(Errno::AGAIN) => {
                self.observer.clear_announcement(fd);
                if self.stream.readiness().readable {
                    // Bytes have arrived meanwhile. They are announced, because the program may
                    // call `poll` next.
                    self.observer.arrived();
                    return Ok(Attempt::Again);
                }
                Ok(Attempt::TooFew(0))
            }
            Err(error) => self
                .end_of_receive(fd, call.done, error)
                .map(Attempt::Enough),
        }
    }

    /// Returns true if the stream ended because the connection broke, and the program has not
    /// received that error yet, because the call that found it returned the last bytes. A break
    /// after the peer's end is `EPIPE`, and concerns writers only.
    fn has_broken_unseen(&self) -> bool {
        let error = self.observer.pending_error();
        error.is_some_and(|error| error != Errno::PIPE) && !self.observer.state().has_peer_ended()
    }

    fn await_more(
        &self,
        fd: BorrowedFd<'_>,
        call: &mut ReceiveCall<'_>,
        seen: u32,
        may_be_last: bool,
    ) -> Result<(), Errno> {
        if let Some(error) = call.ends_with.take() {
            return Err(error);
        }
        let patience = call
            .patience
            .get_or_insert_with(|| Patience::of(fd, call.flags, self.options().receive_timeout));
        let ends_by_any_signal = may_be_last || matches!(patience, Patience::Until(_));
        // A peek leaves its bytes, so the stream stays readable.
        let polls = *patience != Patience::None && !(call.is_peek && may_be_last);
        if polls && self.poll_readable(ends_by_any_signal)? {
            return Ok(());
        }
        patience.wait(self, seen, may_be_last)
    }

    /// Returns true if no later peek can return more bytes. A peek ends at the urgent mark.
    fn is_peek_complete(&self) -> bool {
        let readiness = self.stream.readiness();
        readiness.peer_ended
            || readiness.failed
            || self.observer.state().has_reading_ended()
            || !self.stream.is_at_mark() && self.has_urgent()
    }

    fn has_urgent(&self) -> bool {
        // An urgent byte that is announced but has not arrived counts as well.
        !matches!(self.stream.receive_urgent(true), Err(Errno::INVAL))
    }

    /// Returns the result of a receive on a broken connection: bytes received before, then the
    /// error once, then the end of the stream.
    fn end_of_receive(
        &self,
        fd: BorrowedFd<'_>,
        done: usize,
        error: Errno,
    ) -> Result<usize, Errno> {
        if done > 0 {
            return Ok(done);
        }
        match self.observer.take_error(fd) {
            Some(pending) => Err(pending),
            None if self.observer.state().is_broken() => Ok(0),
            None => Err(error),
        }
    }

    fn after_receive(&self, fd: BorrowedFd<'_>) {
        self.show_end_if_read();
        if self.stream.readiness().readable {
            self.observer.update_announcement(fd);
            return;
        }
        self.observer.clear_announcement(fd);
        if self.stream.readiness().readable {
            self.observer.arrived();
        }
    }
}

/// A receiving call and its progress.
pub(super) struct ReceiveCall<'a> {
    wanted: usize,
    pub(super) is_peek: bool,
    pub(super) is_wait_all: bool,
    /// The number of bytes for which the call waits.
    enough: usize,
    pub(super) flags: i32,
    pub(super) destination: Destination<'a>,
    /// The number of bytes received. A peek does not count.
    pub(super) done: usize,
    pub(super) patience: Option<Patience>,
    /// The rest of the bytes is copied.
    pub(super) must_copy: bool,
    /// The error with which the call ends as soon as it would wait.
    pub(super) ends_with: Option<Errno>,
}

/// The result of one attempt to receive from the stream.
enum Attempt {
    /// The result of the call.
    Enough(usize),
    /// Bytes were received, and more may have arrived.
    Again,
    /// Too few bytes have arrived, of which a peek found this number.
    TooFew(usize),
}

/// The destination of the bytes.
pub(super) enum Destination<'a> {
    /// The unfilled rest of the caller's buffers.
    Parts(&'a mut [IoSliceMut<'a>]),
    /// The bytes are discarded, whatever buffers the caller passed.
    Discarded,
    /// The buffers have no room, or one is null or cannot be written to, which is `EFAULT` once a
    /// byte has arrived.
    None,
}

impl ReceiveCall<'_> {
    /// Returns true for a receive of no bytes that has waited. The kernel returns 0 after such a
    /// wait, also if the time has passed or a signal has ended the wait.
    fn has_waited_for_nothing(&self) -> bool {
        self.wanted == 0 && self.patience != Some(Patience::None)
    }

    /// Receives the bytes that have arrived, up to the number wanted.
    fn receive_from_stream(&mut self, stream: &dyn OffloadStream) -> Result<usize, Errno> {
        let count = match &mut self.destination {
            Destination::Parts(parts) => stream.receive(parts, self.is_peek)?,
            Destination::Discarded => {
                // The stack of the program's thread may be small.
                let mut bytes = vec![0; DISCARD];
                let room = (self.wanted - self.done).min(DISCARD);
                stream.receive(&mut [IoSliceMut::new(&mut bytes[..room])], self.is_peek)?
            }
            Destination::None => match stream.receive(&mut [IoSliceMut::new(&mut [0])], true)? {
                0 => 0,
                _ if self.wanted == 0 => 0,
                _ => return Err(Errno::FAULT),
            },
        };
        self.advance(count);
        Ok(count)
    }

    /// Receives the rest of the bytes from the descriptor, which carries them now.
    fn receive_from_descriptor(&mut self, fd: BorrowedFd<'_>) -> Result<usize, Errno> {
        let left = self.wanted - self.done;
        let received = match &mut self.destination {
            Destination::Parts(parts) => handed_over::receive(fd, parts, self.flags),
            Destination::Discarded => handed_over::discard(fd, left, self.flags),
            Destination::None if self.wanted == 0 => handed_over::receive(fd, &mut [], self.flags),
            Destination::None => Err(Errno::FAULT),
        };
        match received {
            Ok(count) => Ok(self.done + count),
            Err(_) if self.done > 0 => Ok(self.done),
            Err(error) => Err(error),
        }
    }

    pub(super) fn advance(&mut self, count: usize) {
        if let (Destination::Parts(parts), false) = (&mut self.destination, self.is_peek) {
            IoSliceMut::advance_slices(parts, count);
        }
    }
}
