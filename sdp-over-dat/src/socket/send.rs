//! Writing.

use std::{
    io::{self, IoSlice},
    sync::MutexGuard,
    time::{Duration, Instant},
};

use rustix::io::Errno;
use sdp_proto::{ConnectionState, wire::Mode};

use super::{Inner, Socket};
use crate::{errors, user_memory::UserMemory};

/// The number of posted bytes after which a writer polls its events. A provider may hold back
/// posted work until its consumer polls, to send the work together. Work that waits for long may be
/// sent by a thread of the provider.
const POLL_AFTER: usize = 256 * 1024;

/// The longest memory that is advertised at once, in bytes.
pub(super) const ADVERT_MAX: usize = 1 << 30;

/// The way in which the bytes of a write are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mover {
    /// Copied into the ring, and sent from there.
    Copy,
    /// Sent or written to the peer straight from the caller's registered memory.
    Registered,
    /// Advertised; the peer reads the caller's memory.
    Advertised,
}

impl Socket {
    /// Writes `bytes`: all of them if the call may wait, otherwise as many as fit.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.send_in_order(bytes);
        self.hand_over(&mut self.lock());
        result
    }

    fn send_in_order(&self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut inner = self.lock();
        let timeout = inner.options.write_timeout;
        let deadline = deadline(timeout.filter(|_| !inner.options.nonblocking));
        let (mut written, mut has_polled) = (0, false);
        loop {
            let may_wait = !inner.options.nonblocking;
            let (again, memory) = self.await_sink(inner, &bytes[written..], deadline, may_wait);
            inner = again;
            self.end_half_closed(&mut inner);
            if written > 0 && (inner.error.is_some() || !inner.connection.may_write()) {
                // The next call returns the error.
                return Ok(written);
            }
            check_writable(&mut inner)?;
            let (again, sent) = self.send_some(inner, (&bytes[written..], memory), deadline);
            inner = again;
            let (moved, has_waited) = sent?;
            written += moved;
            if written == bytes.len() {
                return Ok(written);
            }
            if inner.options.nonblocking {
                if has_polled {
                    inner.count_full_ring();
                    return short(written, Errno::AGAIN.into());
                }
                has_polled = true;
                self.progress(&mut inner);
                continue;
            }
            if inner.error.is_some() || !inner.connection.may_write() {
                continue;
            }
            if moved > 0 && has_waited || inner.send.free() > 0 {
                // Completions that were taken meanwhile have freed space. No further completion may
                // be due, so waiting for one could last for ever.
                if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                    return short(written, Errno::AGAIN.into());
                }
                continue;
            }
            inner = match self.wait_for_room(inner, deadline) {
                Ok(inner) => inner,
                Err(error) => return short(written, error),
            };
        }
    }

    /// Writes some of `bytes` in the way that suits them. Returns their number, and true if the
    /// call has waited for the peer.
    fn send_some<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        (mut bytes, memory): (&[u8], Option<UserMemory>),
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, Inner>, io::Result<(usize, bool)>) {
        if !inner.options.nonblocking {
            // A writer that does not block stays in its mode: in pipelined mode each of its long
            // writes would poll the events once more, and its peer often does not block either.
            bytes = self.part_for_sink(&mut inner, bytes);
        }
        match self.mover(&inner, bytes.len()) {
            Mover::Copy => {
                let copied = self.copy_in(&mut inner, &[IoSlice::new(bytes)]);
                (inner, copied.map(|copied| (copied, false)))
            }
            mover => {
                let (inner, sent) = self.send_from_user(inner, mover, (bytes, memory), deadline);
                (inner, sent.map(|sent| (sent, true)))
            }
        }
    }

    /// Writes as many bytes of `pieces`, in order, as fit, without waiting. Each piece is copied
    /// into the ring once, and a message may hold bytes of several pieces.
    pub(crate) fn try_send_pieces(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let result = self.try_send_in_order(pieces);
        self.hand_over(&mut self.lock());
        result
    }

    fn try_send_in_order(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if pieces.iter().all(|piece| piece.is_empty()) {
            return Ok(0);
        }
        let mut inner = self.lock();
        let mut has_polled = false;
        loop {
            self.begin(&mut inner);
            self.end_half_closed(&mut inner);
            check_writable(&mut inner)?;
            let copied = self.copy_in(&mut inner, pieces)?;
            if copied > 0 {
                return Ok(copied);
            }
            if has_polled {
                inner.count_full_ring();
                return Err(Errno::AGAIN.into());
            }
            has_polled = true;
            self.progress(&mut inner);
        }
    }

    /// Writes one urgent byte.
    pub(crate) fn send_urgent(&self, byte: u8) -> io::Result<()> {
        let mut inner = self.lock();
        let deadline = deadline(inner.options.write_timeout);
        loop {
            self.progress(&mut inner);
            self.end_half_closed(&mut inner);
            check_writable(&mut inner)?;
            if inner.send.free() > 0 {
                break;
            }
            if inner.options.nonblocking {
                inner.count_full_ring();
                return Err(Errno::AGAIN.into());
            }
            inner = self.wait_for_room(inner, deadline)?;
        }
        inner
            .send
            .write(&[byte])
            .map_err(|error| errors::of_dat(&error))?;
        inner.connection.write_urgent();
        self.pump(&mut inner);
        self.hand_over(&mut inner);
        Ok(())
    }

    pub(super) fn copy_in(&self, inner: &mut Inner, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut copied = 0;
        for piece in pieces {
            let some = inner.send.write(piece);
            let some = some.map_err(|error| errors::of_dat(&error))?;
            copied += some;
            if some < piece.len() {
                break;
            }
        }
        inner.connection.write(copied as u32);
        inner.statistics.bytes_sent += copied as u64;
        inner.statistics.bytes_copied += copied as u64;
        self.pump(inner);
        if !inner.connection.is_drained() || inner.posted_since_poll >= POLL_AFTER {
            // Credits or ring space were short and may be available now; or it is time to poll the
            // events.
            self.progress(inner);
        }
        Ok(copied)
    }

    fn wait_for_room<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        deadline: Option<Instant>,
    ) -> io::Result<MutexGuard<'a, Inner>> {
        inner.count_full_ring();
        inner.has_waiting_writer = true;
        let waited = self.wait(inner, deadline);
        match waited {
            Ok(mut inner) => {
                inner.has_waiting_writer = false;
                Ok(inner)
            }
            Err(error) => {
                self.lock().has_waiting_writer = false;
                Err(timed_out_as_would_block(error))
            }
        }
    }

    /// The way in which a write of `len` bytes is sent. The caller's memory is in use until the
    /// transport has taken it, so a write that must not take long is copied.
    fn mover(&self, inner: &Inner, len: usize) -> Mover {
        // Posted work cannot be taken back at a timeout.
        let may_post = inner.options.write_timeout.is_none();
        match inner.options.nonblocking {
            true => Mover::Copy,
            false => self.mover_in_place(inner, len, may_post),
        }
    }

    /// The way in which a write of `len` bytes is sent if its caller's memory may be used. Messages
    /// are posted from that memory only if `may_post`.
    pub(super) fn mover_in_place(&self, inner: &Inner, len: usize, may_post: bool) -> Mover {
        let config = &self.config;
        let may_register =
            inner.sources.is_empty() && inner.connection.state() == ConnectionState::Established;
        let may_advertise = inner.connection.send_mode() != Mode::Buffered;
        let has_sink = inner.connection.sink_room().is_some();
        match len {
            _ if !may_register => Mover::Copy,
            len if has_sink && may_post && len >= config.pipelined_threshold => Mover::Registered,
            len if len >= config.zcopy_threshold && may_advertise => Mover::Advertised,
            len if len >= config.registered_threshold && may_post => Mover::Registered,
            _ => Mover::Copy,
        }
    }
}

/// The pending error of the socket, or EPIPE if this half is shut.
pub(super) fn check_writable(inner: &mut Inner) -> io::Result<()> {
    if let Some(errno) = inner.error.take() {
        return Err(errno.into());
    }
    if inner.connection.may_write() {
        Ok(())
    } else {
        Err(Errno::PIPE.into())
    }
}

/// The deadline of a call with this timeout.
pub(super) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// Converts a timeout to EAGAIN, as socket calls report it.
pub(super) fn timed_out_as_would_block(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::TimedOut => Errno::AGAIN.into(),
        _ => error,
    }
}

/// The result of a write that ended early: the bytes that were written, or the error if there are
/// none.
fn short(written: usize, error: io::Error) -> io::Result<usize> {
    if written > 0 { Ok(written) } else { Err(error) }
}
