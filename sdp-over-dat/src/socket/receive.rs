//! Reading.

use std::{io, sync::MutexGuard, time::Instant};

use rustix::io::Errno;

use super::{
    Inner, Socket,
    drive::READ,
    in_place::{Decision, Limit, Use},
    inner::ReadInto,
    send::{deadline, timed_out_as_would_block},
};
use crate::{errors, user_memory::UserMemory};

/// The flags of a read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiveFlags {
    /// The bytes are not removed (MSG_PEEK).
    pub peek: bool,
    /// Waits for the full length, unless the stream ends (MSG_WAITALL).
    pub wait_all: bool,
    /// Does not wait (MSG_DONTWAIT).
    pub dont_wait: bool,
}

impl Socket {
    /// Reads the bytes that are available. Waits for the first one.
    pub(crate) fn receive(&self, into: &mut [u8], flags: ReceiveFlags) -> io::Result<usize> {
        let mut inner = self.lock();
        let waits = !(inner.options.nonblocking || flags.dont_wait);
        if !waits && self.poll_finds_nothing(&mut inner, into.len()) {
            return Err(Errno::AGAIN.into());
        }
        let timeout = inner.options.read_timeout.filter(|_| waits);
        let mut limit = Limit::Deadline(deadline(timeout));
        let (inner, filled, error) = self.fill(inner, into, flags, waits, &mut limit);
        self.leave(inner, (filled, into.len()), 0, error)
    }

    /// True if a blocking read of `len` bytes is to be made by [`Self::receive_in_place`] now: the
    /// peer has advertised its next bytes, or nothing has arrived and much is expected, because the
    /// read waits for all bytes or the last one has received many.
    pub(crate) fn receives_in_place(&self, len: usize, wait_all: bool) -> bool {
        let config = &self.config;
        let threshold = config.sink_threshold.min(config.zcopy_threshold);
        if len < threshold {
            return false;
        }
        let mut inner = self.lock();
        // A source that is handled now is left to the reader.
        (inner.reader_room, inner.expects_reader) = (len, true);
        self.progress(&mut inner);
        if inner.connection.readable() > 0 {
            return self.suits_reader(&inner, len);
        }
        inner.receive.is_clear()
            && !inner.has_result_for_reader()
            && (wait_all || inner.last_read >= threshold / 2)
    }

    /// Reads as [`Self::receive`] does. Waits, whatever the options say, until bytes have arrived
    /// or the caller decides otherwise. While the call waits, the watch is not notified of the
    /// bytes that the call receives.
    pub(crate) fn receive_in_place(
        &self,
        into: &mut [u8],
        wait_all: bool,
        decide: &mut dyn FnMut(usize) -> Decision,
    ) -> io::Result<usize> {
        let flags = ReceiveFlags {
            wait_all,
            ..ReceiveFlags::default()
        };
        let mut limit = Limit::Caller {
            ask: decide,
            last: Decision::Continue,
        };
        let mut inner = self.lock();
        inner.readers_in_place += 1;
        let (mut inner, filled, error) = self.fill(inner, into, flags, true, &mut limit);
        inner.readers_in_place -= 1;
        inner.arrived &= inner.readiness().readable;
        inner.show();
        // The next read most likely has as much room.
        self.leave(inner, (filled, into.len()), into.len(), error)
    }

    /// Reads into `into` until a read with these flags is complete. Returns the number of bytes
    /// that were read, and the error that ended the read.
    fn fill<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        into: &mut [u8],
        flags: ReceiveFlags,
        waits: bool,
        limit: &mut Limit<'_>,
    ) -> (MutexGuard<'a, Inner>, usize, Option<io::Error>) {
        let mut filled = 0;
        loop {
            let room = into.len() - filled;
            inner.reader_room = if waits && !flags.peek { room } else { 0 };
            inner.expects_reader = false;
            if waits {
                self.begin(&mut inner);
            }
            match self.take(&mut inner, &mut into[filled..], flags.peek) {
                Ok(taken) => filled += taken,
                Err(error) => return (inner, filled, Some(error)),
            }
            // The first bytes of advertised memory are received with its message; this reads the
            // rest.
            if waits && self.may_read_directly(&inner, into.len() - filled, flags) {
                let (again, direct) = self.receive_directly(inner, &mut into[filled..], limit);
                inner = again;
                filled += direct;
            }
            let is_enough = if flags.wait_all && !flags.peek {
                // As over TCP, a read with MSG_WAITALL does not pass the mark either.
                filled == into.len() || filled > 0 && inner.receive.is_at_mark()
            } else {
                filled > 0 || into.is_empty()
            };
            // A reset by bytes that were received after SHUT_RD is reported before the end of
            // stream that SHUT_RD causes.
            let is_shut = inner.read_half.is_shut() && inner.error.is_none();
            let has_ended = inner.read_half.has_ended() && !inner.has_unread() || is_shut;
            if is_enough || has_ended {
                return (inner, filled, None);
            }
            let error = inner.error.filter(|_| !inner.has_unread());
            if let Some(errno) = error {
                if filled == 0 {
                    // The error is reported once.
                    inner.error = None;
                }
                return (inner, filled, Some(errno.into()));
            }
            if inner.connection.state().has_ended() && !inner.has_unread() {
                return (inner, filled, None);
            }
            if !waits || limit.is_over() {
                return (inner, filled, Some(Errno::AGAIN.into()));
            }
            if self.may_advertise_sink(&mut inner, into.len() - filled, flags, limit) {
                let (again, written) = self.receive_written(inner, &mut into[filled..], limit);
                inner = again;
                filled += written;
                // The event that ended the advertisement may be the one that the reader waits for.
                continue;
            }
            inner = match self.wait_for_bytes(inner, limit) {
                Ok(inner) => inner,
                Err(error) => return (self.lock(), filled, Some(error)),
            };
        }
    }

    /// Waits for an event, or until the caller is to be asked.
    fn wait_for_bytes<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
        limit: &mut Limit<'_>,
    ) -> io::Result<MutexGuard<'a, Inner>> {
        let waited = self.wait(inner, limit.next_question(Instant::now()));
        let inner = match (waited, &limit) {
            (Ok(inner), _) => inner,
            (Err(error), Limit::Caller { .. }) if error.kind() == io::ErrorKind::TimedOut => {
                self.lock()
            }
            (Err(error), _) => return Err(timed_out_as_would_block(error)),
        };
        match limit {
            Limit::Deadline(_) => Ok(inner),
            limit => Ok(self.ask(inner, Use::Sink, limit).0),
        }
    }

    /// Handles the events for a read of `len` bytes that does not wait, until that many bytes
    /// are available. Returns true if there was no event and there is nothing to return.
    fn poll_finds_nothing(&self, inner: &mut Inner, len: usize) -> bool {
        let is_enough = |inner: &Inner| inner.receive.readable() >= len;
        let has_events = self.poll_events(inner, is_enough);
        !has_events && !inner.has_result_for_reader() && len > 0
    }

    /// Ends a read. Returns the bytes that were read, or the error if there are none. Advertised
    /// bytes are left to the next reader if it is expected to have this much `room`.
    fn leave(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        (filled, wanted): (usize, usize),
        room: usize,
        error: Option<io::Error>,
    ) -> io::Result<usize> {
        if wanted > 0 && error.is_none() {
            inner.last_read = filled;
        }
        (inner.reader_room, inner.expects_reader) = (room, room > 0);
        self.resume_if_suspended(&mut inner);
        if inner.connection.readable() > 0 {
            // Bytes that no reader waits for are staged.
            self.pump(&mut inner);
        }
        self.hand_over(&mut inner);
        match error {
            Some(error) if filled == 0 => Err(error),
            _ => Ok(filled),
        }
    }

    fn take(&self, inner: &mut Inner, into: &mut [u8], peek: bool) -> io::Result<usize> {
        let was_urgent = inner.receive.has_urgent();
        let taken = inner.receive.take(into, peek);
        let taken = taken.map_err(|error| errors::of_dat(&error))?;
        if was_urgent && !inner.receive.has_urgent() {
            // The urgent byte was read at its position in the stream.
            inner.is_urgent_announced = false;
        }
        // The events of this call may permit a message, and a mark that was passed may have
        // released a buffer.
        self.pump_after_read(inner);
        Ok(taken)
    }

    /// True if the advertised memory is next in the stream and this reader is to read it itself.
    fn may_read_directly(&self, inner: &Inner, room: usize, flags: ReceiveFlags) -> bool {
        !flags.peek && inner.receive.is_empty() && self.suits_reader(inner, room)
    }

    /// Reads advertised memory straight into the caller's memory. Returns when that read is no
    /// longer in progress.
    ///
    /// An RDMA Read cannot be cancelled. If the peer has not answered some time after the limit, or
    /// after this half was shut, its connection is aborted.
    fn receive_directly<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        into: &mut [u8],
        limit: &mut Limit<'_>,
    ) -> (MutexGuard<'a, Inner>, usize) {
        let max = into.len().min(self.adapter.read_max) as u32;
        let needs_remote_write = self.adapter.sink_needs_remote_write;
        let sink = match UserMemory::sink(&self.adapter.pz, into, needs_remote_write) {
            Ok(sink) => sink,
            Err(error) => {
                tracing::debug!(%error, "memory is not registered; its bytes are staged");
                inner.reader_room = 0;
                // The peer waits, and without this call the bytes are staged only in the next round
                // of the stack's thread.
                self.pump(&mut inner);
                return (inner, 0);
            }
        };
        let mut direct = 0;
        if let Some(read) = inner.connection.begin_read(max) {
            let number = self.next_read(&mut inner, read.len, ReadInto::Reader);
            let cookie = inner.cookie(READ, number);
            let posted = sink
                .segment(0, read.len as usize)
                .and_then(|segment| self.post_read(&segment, read, cookie));
            self.check_read(&mut inner, posted);
            inner = self.wait_for_memory(inner, Use::Read(number), limit);
            let done = &mut inner.read_direct;
            let is_it = |(of, _): &(u64, usize)| *of == number;
            direct = done
                .iter()
                .position(is_it)
                .map_or(0, |at| done.swap_remove(at).1);
        }
        drop(sink);
        inner.statistics.bytes_direct += direct as u64;
        (inner, direct)
    }

    /// Reads the urgent byte (MSG_OOB).
    pub(crate) fn receive_urgent(&self, peek: bool) -> io::Result<u8> {
        let mut inner = self.lock();
        self.progress(&mut inner);
        if inner.options.oob_inline {
            return Err(Errno::INVAL.into());
        }
        match inner.receive.take_urgent(peek) {
            Some(byte) if peek => Ok(byte),
            Some(byte) => {
                inner.is_urgent_announced = false;
                inner.show();
                Ok(byte)
            }
            None if inner.is_urgent_announced => Err(Errno::AGAIN.into()),
            None => Err(Errno::INVAL.into()),
        }
    }

    /// True if the urgent mark is next in the stream (SIOCATMARK).
    pub(crate) fn is_at_mark(&self) -> bool {
        let mut inner = self.lock();
        self.progress(&mut inner);
        inner.receive.is_at_mark()
    }

    /// The number of bytes that can be read now (FIONREAD).
    pub(crate) fn readable(&self) -> usize {
        let mut inner = self.lock();
        self.progress(&mut inner);
        inner.receive.readable()
    }

    pub(crate) fn readable_before_mark(&self) -> usize {
        let mut inner = self.lock();
        self.progress(&mut inner);
        inner.receive.readable_before_mark()
    }
}
