//! Receiving: `read`, `recv` and their kin.
//!
//! System calls of a receive that finds bytes: none, or one that takes the announcement back, so
//! that the descriptor stops showing `IN`. Copies: the stream's own, into the caller's buffer.

use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use libc::{MSG_ERRQUEUE, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL};
use ops::Watch;
use rustix::io::Errno;

use super::{Patience, Socket};

/// What `MSG_TRUNC` throws away at a time.
const DISCARD: usize = 16 * 1024;

impl Socket {
    /// Receives into `into` as `recvmsg` does with these flags.
    pub(crate) fn receive(
        &self,
        fd: BorrowedFd<'_>,
        into: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Result<usize, Errno> {
        if flags & MSG_ERRQUEUE != 0 {
            return Err(Errno::AGAIN);
        }
        if flags & MSG_OOB != 0 {
            return self.receive_urgent(into, flags);
        }
        let wanted = into.iter().map(|part| part.len()).sum();
        let take = Take {
            wanted,
            flags,
            peek: flags & MSG_PEEK != 0,
            all: flags & MSG_WAITALL != 0,
        };
        if flags & MSG_TRUNC != 0 {
            let mut bytes = [0; DISCARD];
            return self.take(fd, &take, |done, peek| {
                let room = (wanted - done).min(DISCARD);
                let mut part = [IoSliceMut::new(&mut bytes[..room])];
                self.stream.receive(&mut part, peek)
            });
        }
        let mut parts = into;
        let mut before = 0;
        self.take(fd, &take, |done, peek| {
            IoSliceMut::advance_slices(&mut parts, done - before);
            before = done;
            self.stream.receive(parts, peek)
        })
    }

    fn receive_urgent(&self, into: &mut [IoSliceMut<'_>], flags: i32) -> Result<usize, Errno> {
        let inline = self.options().urgent_inline;
        if inline {
            return Err(Errno::INVAL);
        }
        let byte = self.stream.receive_urgent(flags & MSG_PEEK != 0)?;
        match into.iter_mut().find(|part| !part.is_empty()) {
            Some(part) => {
                part[0] = byte;
                Ok(1)
            }
            None => Ok(0),
        }
    }

    fn take(
        &self,
        fd: BorrowedFd<'_>,
        take: &Take,
        mut receive: impl FnMut(usize, bool) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        let mut patience = None;
        loop {
            let seen = self.observer.parking().news();
            if self.reading_ended.load(Ordering::Acquire) && !self.stream.readiness().readable {
                return Ok(done);
            }
            match receive(done, take.peek) {
                Ok(count) => {
                    done += count;
                    if count == 0 && take.wanted > 0 && !take.peek {
                        self.observer.end_was_read();
                    }
                    self.after_receive(fd, take.peek);
                    let more = take.all && !take.peek && count > 0 && done < take.wanted;
                    if !more {
                        return Ok(done);
                    }
                }
                Err(Errno::AGAIN) => {
                    if done > 0 && !take.all {
                        return Ok(done);
                    }
                    self.observer.nothing_to_read(fd);
                    if self.stream.readiness().readable {
                        // It came in between; the next look may be the program's `poll`.
                        self.observer.arrived();
                        continue;
                    }
                    let patience = patience.get_or_insert_with(|| {
                        Patience::of(fd, take.flags, self.options().receive_timeout)
                    });
                    if let Err(error) = patience.wait(&self.observer, seen, done > 0) {
                        return if done > 0 { Ok(done) } else { Err(error) };
                    }
                }
                Err(error) => return self.end_of_receive(fd, done, error),
            }
        }
    }

    /// What was received before a connection broke is given first; then the error, once; then the
    /// end of the stream.
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
            None if self.observer.is_broken() => Ok(0),
            None => Err(error),
        }
    }

    fn after_receive(&self, fd: BorrowedFd<'_>, peek: bool) {
        if peek {
            return;
        }
        self.show_end_if_read();
        if self.stream.readiness().readable {
            self.observer.something_left(fd);
            return;
        }
        self.observer.nothing_to_read(fd);
        if self.stream.readiness().readable {
            self.observer.arrived();
        }
    }
}

/// What a call wants.
struct Take {
    wanted: usize,
    peek: bool,
    all: bool,
    flags: i32,
}
