//! The receiving side of a connection: receives bytes from the socket and places their payload.
//!
//! # How bytes are received
//!
//! A `recv` of up to 128 KiB into a staging buffer takes the bytes that TCP has. Then each frame is
//! handled: length, CRC, every check of RFC 5040 and 5041, and only then the copy to the target. A
//! connection keeps the buffer while it contains a partial frame, and while a consumer drives the
//! connection. The engine returns the buffer when the consumer has stopped.
//!
//! If CRC was negotiated away, the payload of a long frame is not copied ([`placing`]).
//!
//! # Cost of one 64-byte Send
//!
//! The cost is one system call, one CRC, one copy, and no allocation. A `recv` that filled less
//! than the buffer has emptied the socket and is not repeated. Directly after a payload that was
//! placed without a copy, the cost is one call more.

mod placing;

use std::os::fd::BorrowedFd;

use iwarp_proto::mpa::Negotiated;
use iwarp_proto::wire::fpdu::{self, Deframed};
use iwarp_proto::{Connection, MpaError};

use crate::carrier::End;
use crate::carrier::inbox::{Reception, Sinks};
use crate::engine::io::{self, Received};
use crate::pool::Staging;

use super::crc::crc32c;
use super::marked::{MarkedRx, Unmarked};
use placing::Placing;

/// Bytes that one drive receives before it returns to the consumer.
const DRIVE_MAX: usize = 4 * RECEIVE_MAX;
/// Bytes of one receive. The bytes that are checked and copied right after the kernel wrote them
/// should still be in the second cache level, together with the program's own data.
const RECEIVE_MAX: usize = 128 * 1024;
/// A drive that receives this many bytes is part of a bulk transfer.
const BULK: usize = 64 * 1024;
/// The number of frames in one receive that indicates a stream of small messages.
const STREAM: u32 = 4;
/// The pause, in spins, of a bulk receiver that found its socket empty. Retrying at once would
/// contend with the sender for the socket's lock.
const BULK_PAUSE_SPINS: u32 = 60;
const BULK_PAUSE_DOUBLINGS: u32 = 3;

/// The receiving side.
#[derive(Debug)]
pub(super) struct Rx {
    crc: bool,
    /// The markers that this end requested, if any.
    marked: Option<MarkedRx>,
    /// The buffer, held while it has a partial frame, at `start..end`, or will soon be needed
    /// again.
    staging: Option<Staging>,
    start: usize,
    end: usize,
    /// The segment whose payload is received straight into its target, if there is one.
    placing: Option<Placing>,
    /// The number of frames that must still be received without the bytes that follow them.
    narrow: u8,
    is_bulk: bool,
    /// Complete frames handled so far.
    frames: u64,
    /// The number of retries on the empty socket since the last bytes, up to the longest pause.
    empty_retries: u32,
}

impl Rx {
    pub(super) fn new(negotiated: &Negotiated) -> Self {
        Self {
            crc: negotiated.crc,
            marked: negotiated.markers_rx.then(MarkedRx::default),
            staging: None,
            start: 0,
            end: 0,
            placing: None,
            narrow: 0,
            is_bulk: false,
            frames: 0,
            empty_retries: 0,
        }
    }

    /// Complete frames handled so far.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// Receives and places the bytes that the socket has. Returns `false` if it had none.
    ///
    /// Without memory for a buffer the connection ends.
    ///
    /// With `keep` the buffer is kept for the next call, until [`Self::release_if_empty`].
    pub(super) fn run(
        &mut self,
        fd: BorrowedFd<'_>,
        keep: bool,
        reception: &mut Reception<'_>,
    ) -> Result<bool, End> {
        let staging = self.staging.take().or_else(Staging::take);
        let mut staging = staging.ok_or(End::Broken)?;
        let result = self.fill_and_handle(&mut staging, fd, reception);
        self.staging = Some(staging);
        if !keep {
            self.release_if_empty();
        }
        result
    }

    /// Returns the buffer to the pool, unless a partial frame is in it.
    pub(super) fn release_if_empty(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if let Some(staging) = self.staging.take() {
                staging.put();
            }
        }
    }

    fn fill_and_handle(
        &mut self,
        staging: &mut Staging,
        fd: BorrowedFd<'_>,
        reception: &mut Reception<'_>,
    ) -> Result<bool, End> {
        // Complete frames are in the buffer if the first one has waited for a receive.
        let has_waited = reception.inbox.is_unready() && !self.is_between_frames();
        if has_waited {
            let memory = reception.table.access();
            self.frames += u64::from(self.handle_all(staging, &mut reception.open(&memory))?);
            if reception.inbox.is_unready() {
                return Ok(true);
            }
        }
        let mut taken = 0;
        while taken < DRIVE_MAX {
            let (received, is_short) = self.receive_bytes(staging, fd, reception)?;
            match received {
                Received::Bytes(count) => {
                    taken += count;
                    let memory = reception.table.access();
                    let frames = self.handle_all(staging, &mut reception.open(&memory))?;
                    self.empty_retries = 0;
                    self.frames += u64::from(frames);
                    self.is_bulk = taken >= BULK || frames >= STREAM;
                    if is_short || reception.inbox.is_unready() {
                        return Ok(true);
                    }
                }
                Received::WouldBlock => {
                    reception.inbox.warm_up();
                    self.pause_if_bulk(reception.proto);
                    return Ok(has_waited || taken > 0);
                }
                Received::Eof if self.is_between_frames() => return Err(End::Disconnected),
                Received::Eof => return Err(End::Broken),
                Received::Failed(error) => return Err(End::of_socket(error)),
            }
        }
        Ok(true)
    }

    /// Receives once, to the place of the next bytes. Also returns true if the kernel returned
    /// fewer bytes than requested, so that the socket is empty.
    fn receive_bytes(
        &mut self,
        staging: &mut Staging,
        fd: BorrowedFd<'_>,
        reception: &mut Reception<'_>,
    ) -> Result<(Received, bool), End> {
        if let Some(placing) = self.placing.take() {
            return self.receive_placing(placing, staging, fd, reception);
        }
        let room = self.narrowed(staging, (staging.len() - self.end).min(RECEIVE_MAX));
        let received = io::receive(fd, &mut staging[self.end..self.end + room]);
        if let Received::Bytes(count) = received {
            self.end += count;
        }
        Ok((received, received != Received::Bytes(room)))
    }

    /// True if no part of an incomplete frame was received.
    fn is_between_frames(&self) -> bool {
        self.start == self.end && self.placing.is_none()
    }

    /// Pauses at an empty socket during a bulk transfer. The pause grows while more bytes are
    /// certain to follow, because a frame is incomplete or a read is not answered.
    fn pause_if_bulk(&mut self, proto: &Connection) {
        if !self.is_bulk {
            return;
        }
        let is_more_expected = !self.is_between_frames() || proto.outstanding_reads() > 0;
        let doublings = if is_more_expected {
            self.empty_retries
        } else {
            0
        };
        self.empty_retries = (self.empty_retries + 1).min(BULK_PAUSE_DOUBLINGS);
        for _ in 0..BULK_PAUSE_SPINS << doublings {
            std::hint::spin_loop();
        }
    }

    /// Handles the complete frames in the buffer and moves a partial one to the front. Returns the
    /// number of complete frames.
    fn handle_all(&mut self, staging: &mut Staging, sinks: &mut Sinks<'_>) -> Result<u32, End> {
        let placed = self.end_placing(staging, sinks)?;
        if self.placing.is_some() {
            return Ok(placed);
        }
        let frames = match &self.marked {
            None => self.handle_plain(staging, sinks)?,
            Some(_) => self.handle_marked(staging, sinks)?,
        };
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else {
            if self.start > 0 {
                staging.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            if !self.crc && self.marked.is_none() && !sinks.inbox.is_unready() {
                self.begin_placing(staging, sinks)?;
            }
        }
        Ok(placed + frames)
    }

    #[inline]
    fn handle_plain(&mut self, staging: &mut Staging, sinks: &mut Sinks<'_>) -> Result<u32, End> {
        let mut frames = 0;
        loop {
            match fpdu::peek(&staging[self.start..self.end]) {
                Deframed::Fpdu {
                    ulpdu_len,
                    total_len,
                } => {
                    let frame = &staging[self.start..self.start + total_len];
                    if !self.handle_frame(frame, ulpdu_len, sinks)? {
                        break;
                    }
                    self.start += total_len;
                    self.narrow = self.narrow.saturating_sub(1);
                    frames += 1;
                }
                Deframed::Need(_) => break,
                Deframed::BadLength => {
                    return Err(End::Fault(sinks.proto.handle_llp_error(MpaError::Length)));
                }
            }
        }
        Ok(frames)
    }

    /// Handles the complete frames in the buffer of a stream with markers.
    #[cold]
    fn handle_marked(&mut self, staging: &mut Staging, sinks: &mut Sinks<'_>) -> Result<u32, End> {
        let crc = self.crc;
        let mut frames = 0;
        while let Some(marked) = &mut self.marked {
            let front = &mut staging[self.start..self.end];
            match marked.take(front, crc) {
                Ok(Some(Unmarked { ulpdu, consumed })) => {
                    let ulpdu = self.start + ulpdu.start..self.start + ulpdu.end;
                    self.start += consumed;
                    frames += 1;
                    // With markers no message waits for a receive.
                    let _ = sinks.handle_ulpdu(&staging[ulpdu])?;
                }
                Ok(None) => break,
                Err(error) => return Err(End::Fault(sinks.proto.handle_llp_error(error))),
            }
        }
        Ok(frames)
    }

    /// Handles a complete frame. Returns false if it waits for a receive and must be presented
    /// again.
    fn handle_frame(
        &mut self,
        frame: &[u8],
        ulpdu_len: usize,
        sinks: &mut Sinks<'_>,
    ) -> Result<bool, End> {
        let (covered, field) = frame.split_at(frame.len() - fpdu::CRC_LEN);
        if self.crc && fpdu::crc_field(crc32c(covered)) != field {
            return Err(End::Fault(sinks.proto.handle_llp_error(MpaError::Crc)));
        }
        let ulpdu = &covered[fpdu::LENGTH_LEN..fpdu::LENGTH_LEN + ulpdu_len];
        sinks.handle_ulpdu(ulpdu)
    }

    /// Returns the staging buffer to the pool, because the connection has ended.
    pub(super) fn close(&mut self) {
        if let Some(staging) = self.staging.take() {
            staging.put();
        }
    }
}
