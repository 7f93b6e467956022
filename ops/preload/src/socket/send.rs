//! Sending: `write`, `send` and their kin.
//!
//! System calls of a send that finds room: none beyond the stream's own, or one that stops the
//! descriptor from showing `OUT` when it took the last room. Copies: the stream's own.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use libc::{MSG_FASTOPEN, MSG_NOSIGNAL, MSG_OOB};
use ops::Watch;
use rustix::io::Errno;

use super::{Patience, Socket};

impl Socket {
    /// Sends `from` as `sendmsg` does with these flags. Without `MSG_NOSIGNAL`, a connection that
    /// takes no more raises `SIGPIPE` as well.
    pub(crate) fn send(
        &self,
        fd: BorrowedFd<'_>,
        from: &mut [IoSlice<'_>],
        flags: i32,
    ) -> Result<usize, Errno> {
        let sent = self.send_quietly(fd, from, flags);
        if sent == Err(Errno::PIPE) && flags & MSG_NOSIGNAL == 0 {
            // SAFETY: raising a signal in the calling thread; what it does is the program's choice.
            unsafe { libc::raise(libc::SIGPIPE) };
        }
        sent
    }

    fn send_quietly(
        &self,
        fd: BorrowedFd<'_>,
        from: &mut [IoSlice<'_>],
        flags: i32,
    ) -> Result<usize, Errno> {
        if flags & MSG_FASTOPEN != 0 {
            return Err(Errno::ISCONN);
        }
        if let Some(error) = self.observer.take_error(fd) {
            return Err(error);
        }
        let mut patience = None;
        let wanted: usize = from.iter().map(|part| part.len()).sum();
        let mut urgent = None;
        let mut parts = from;
        if flags & MSG_OOB != 0 {
            urgent = cut_last_byte(parts);
        }
        let mut done = 0;
        let plain = wanted - usize::from(urgent.is_some());
        while done < plain {
            match self.send_some(fd, parts, flags, done > 0, &mut patience) {
                Ok(count) => {
                    done += count;
                    IoSlice::advance_slices(&mut parts, count);
                }
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
        let Some(byte) = urgent else {
            if plain == 0 {
                self.refuse_ended(fd)?;
            }
            return Ok(done);
        };
        match self.stream.send_urgent(byte) {
            Ok(()) => Ok(done + 1),
            Err(_) if done > 0 => Ok(done),
            Err(error) => Err(error),
        }
    }

    fn send_some(
        &self,
        fd: BorrowedFd<'_>,
        parts: &[IoSlice<'_>],
        flags: i32,
        begun: bool,
        patience: &mut Option<Patience>,
    ) -> Result<usize, Errno> {
        loop {
            let seen = self.observer.parking().news();
            self.refuse_ended(fd)?;
            match self.stream.send(parts) {
                Ok(count) => {
                    if !self.stream.readiness().writable {
                        self.show_full(fd);
                    }
                    return Ok(count);
                }
                Err(Errno::AGAIN) => {
                    if !self.show_full(fd) {
                        let patience = patience.get_or_insert_with(|| {
                            Patience::of(fd, flags, self.options().send_timeout)
                        });
                        patience.wait(&self.observer, seen, begun)?;
                    }
                }
                Err(error) => return Err(self.observer.take_error(fd).unwrap_or(error)),
            }
        }
    }

    /// Stops showing `OUT`. `true`: room came in between, and it is shown again.
    fn show_full(&self, fd: BorrowedFd<'_>) -> bool {
        self.observer.no_room(fd);
        let room = self.stream.readiness().writable;
        if room {
            self.observer.room();
        }
        room
    }

    fn refuse_ended(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.writing_ended.load(Ordering::Acquire) || self.observer.is_broken() {
            return Err(self.observer.take_error(fd).unwrap_or(Errno::PIPE));
        }
        Ok(())
    }
}

/// The last byte of a message sent with `MSG_OOB` is the urgent one.
fn cut_last_byte(parts: &mut [IoSlice<'_>]) -> Option<u8> {
    let last = parts.iter_mut().rev().find(|part| !part.is_empty())?;
    let byte = *last.last()?;
    let without = last.len() - 1;
    // SAFETY: a shorter piece of the same bytes, which live as long as the slice that it replaces.
    *last = IoSlice::new(unsafe { std::slice::from_raw_parts(last.as_ptr(), without) });
    Some(byte)
}
