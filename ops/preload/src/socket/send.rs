//! `write`, `send` and related functions.
//!
//! In addition to the system calls of the stream, a send that takes the last room makes one that
//! stops the descriptor from showing `OUT`. Only the stream copies bytes. Long sends may not be
//! copied at all; see [`in_place`](super::in_place).

use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use libc::{MSG_FASTOPEN, MSG_NOSIGNAL, MSG_OOB};
use ops::Watch;
use rustix::io::Errno;

use crate::process::termination;
use crate::socket::calls::HANDED_OVER;
use crate::socket::send_turn::{self, Turn};
use crate::socket::vector::Vector;
use crate::socket::{Patience, Socket, handed_over};

impl Socket {
    /// Sends `from` as `sendmsg` does with these flags. Without `MSG_NOSIGNAL`, the error `EPIPE`
    /// also raises `SIGPIPE`.
    pub(crate) fn send(
        &self,
        fd: BorrowedFd<'_>,
        from: &mut Vector,
        flags: i32,
    ) -> Result<usize, Errno> {
        let sent = self.send_quietly(fd, from, flags);
        let is_refused = sent == Err(Errno::PIPE) && flags & MSG_NOSIGNAL == 0;
        // The end of the process has closed the connection, and the call does not return.
        if is_refused && !termination::is_by_another_thread() {
            // SAFETY: `raise` has no preconditions. The program chose the signal's action.
            unsafe { libc::raise(libc::SIGPIPE) };
        }
        sent
    }

    fn send_quietly(
        &self,
        fd: BorrowedFd<'_>,
        from: &mut Vector,
        flags: i32,
    ) -> Result<usize, Errno> {
        if flags & MSG_FASTOPEN != 0 {
            return Err(Errno::ISCONN);
        }
        let mut call = SendCall {
            plain: from.len(),
            urgent: None,
            flags,
            done: 0,
            patience: None,
            must_copy: false,
            ends_with: None,
        };
        if !self.may_use_stream(fd) {
            return call.send_to_descriptor(fd, from.as_sources()?);
        }
        if let Some(error) = self.observer.take_error(fd) {
            return Err(error);
        }
        if from.len() == 0 || from.has_null() {
            self.refuse_ended(fd)?;
        }
        let mut parts = from.as_sources()?;
        let _turn = match self.take_turn(fd, &mut call) {
            Ok(turn) => turn,
            Err(HANDED_OVER) => return call.send_to_descriptor(fd, parts),
            Err(error) => return Err(error),
        };
        if flags & MSG_OOB != 0 {
            call.urgent = cut_last_byte(parts);
            call.plain -= usize::from(call.urgent.is_some());
        }
        while call.done < call.plain {
            let sent = self.send_in_place(fd, &mut call, parts);
            let copy = |call: &mut SendCall| self.send_some(fd, call, || self.stream.send(parts));
            match sent.unwrap_or_else(|| copy(&mut call)) {
                Ok(count) => {
                    call.done += count;
                    IoSlice::advance_slices(&mut parts, count);
                }
                Err(HANDED_OVER) => return call.send_to_descriptor(fd, parts),
                Err(_) if call.done > 0 => return Ok(call.done),
                Err(error) => return Err(error),
            }
        }
        let Some(byte) = call.urgent else {
            return Ok(call.done);
        };
        match self.send_some(fd, &mut call, || self.stream.send_urgent(byte).map(|()| 1)) {
            Ok(count) => Ok(call.done + count),
            Err(HANDED_OVER) => call.send_to_descriptor(fd, parts),
            Err(_) if call.done > 0 => Ok(call.done),
            Err(error) => Err(error),
        }
    }

    /// Waits for the sends of other threads, so that the bytes of each stay together.
    fn take_turn(&self, fd: BorrowedFd<'_>, call: &mut SendCall) -> Result<Turn<'_>, Errno> {
        let waiting = self.observer.wait_queue();
        let mut stuck: Option<(u32, Instant)> = None;
        loop {
            let seen = waiting.seq();
            if let Some(turn) = self.turn.take(waiting) {
                return Ok(turn);
            }
            self.refuse_ended(fd)?;
            let sleep = self.turn.sleep_of_holder();
            let patience = self.patience(fd, call);
            match (sleep, stuck) {
                // The holder is about to continue.
                (None, _) => stuck = None,
                // No send has room.
                (Some(_), _) if !self.show_full(fd) => {
                    if patience == Patience::None {
                        return Err(Errno::AGAIN);
                    }
                    stuck = None;
                }
                (Some(sleep), Some((since, limit))) if sleep == since => {
                    if Instant::now() > limit {
                        self.turn.take_away(sleep);
                    }
                }
                (Some(sleep), _) => stuck = Some((sleep, Instant::now() + send_turn::PATIENCE)),
            }
            if patience == Patience::None || stuck.is_some() {
                std::thread::yield_now();
                continue;
            }
            match patience.wait(self, seen, false) {
                Ok(()) => {}
                Err(HANDED_OVER) if self.may_use_stream(fd) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the time that the call may wait.
    pub(super) fn patience(&self, fd: BorrowedFd<'_>, call: &mut SendCall) -> Patience {
        let of_socket = || Patience::of(fd, call.flags, self.options().send_timeout);
        *call.patience.get_or_insert_with(of_socket)
    }

    /// Sends as many bytes as the stream accepts, and waits while the stream has no room.
    fn send_some(
        &self,
        fd: BorrowedFd<'_>,
        call: &mut SendCall,
        mut send: impl FnMut() -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        loop {
            if call.ends_with == Some(HANDED_OVER) {
                call.ends_with = None;
                if !self.may_use_stream(fd) {
                    return Err(HANDED_OVER);
                }
            }
            let seen = self.observer.wait_queue().seq();
            self.refuse_ended(fd)?;
            match send() {
                Ok(count) => {
                    if !self.stream.readiness().writable {
                        self.show_full(fd);
                    }
                    return Ok(count);
                }
                Err(Errno::AGAIN) => {
                    if self.show_full(fd) {
                        continue;
                    }
                    if let Some(error) = call.ends_with {
                        return Err(error);
                    }
                    let patience = self.patience(fd, call);
                    let wait = || patience.wait(self, seen, call.done > 0);
                    match self.turn.while_asleep(wait) {
                        Ok(()) => {}
                        Err(HANDED_OVER) if self.may_use_stream(fd) => {}
                        Err(error) => return Err(error),
                    }
                }
                Err(error) => return Err(self.observer.take_error(fd).unwrap_or(error)),
            }
        }
    }

    /// Stops showing `OUT`. If the stream has room again meanwhile, shows `OUT` again and returns
    /// true.
    fn show_full(&self, fd: BorrowedFd<'_>) -> bool {
        self.observer.close_window(fd);
        let room = self.stream.readiness().writable;
        if room {
            self.observer.room();
        }
        room
    }

    pub(super) fn refuse_ended(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.observer.state().refuses_writes() {
            return Err(self.observer.take_error(fd).unwrap_or(Errno::PIPE));
        }
        Ok(())
    }
}

pub(super) struct SendCall {
    /// The number of bytes before the urgent byte.
    plain: usize,
    urgent: Option<u8>,
    flags: i32,
    pub(super) done: usize,
    patience: Option<Patience>,
    /// The rest of the bytes is copied.
    pub(super) must_copy: bool,
    /// The error with which the call ends as soon as it would wait.
    pub(super) ends_with: Option<Errno>,
}

impl SendCall {
    /// Sends the rest of the bytes to the descriptor, which carries them now.
    fn send_to_descriptor(
        &self,
        fd: BorrowedFd<'_>,
        left: &mut [IoSlice<'_>],
    ) -> Result<usize, Errno> {
        let mut done = self.done;
        let mut sent = Ok(0);
        if done < self.plain || self.urgent.is_none() {
            // If the urgent byte was cut off already, the rest must be sent without `MSG_OOB`.
            let flags = match self.urgent {
                Some(_) => self.flags & !MSG_OOB,
                None => self.flags,
            };
            sent = handed_over::send(fd, left, flags);
            done += sent.unwrap_or(0);
        }
        if let (Some(byte), true) = (self.urgent, done == self.plain) {
            sent = handed_over::send_urgent(fd, byte, self.flags);
            done += sent.unwrap_or(0);
        }
        match sent {
            Err(error) if done == 0 => Err(error),
            _ => Ok(done),
        }
    }
}

/// Cuts the last byte off, which is the urgent byte of a message sent with `MSG_OOB`.
fn cut_last_byte(parts: &mut [IoSlice<'_>]) -> Option<u8> {
    let last = parts.iter_mut().rev().find(|part| !part.is_empty())?;
    let byte = *last.last()?;
    let without = last.len() - 1;
    // SAFETY: the new slice is a prefix of the slice that it replaces, and has the same lifetime.
    *last = IoSlice::new(unsafe { std::slice::from_raw_parts(last.as_ptr(), without) });
    Some(byte)
}
