//! The sending side of a connection: turns work requests into frames, and sends their bytes.
//!
//! # How bytes are sent
//!
//! An FPDU is assembled in one staging buffer: header, payload, pad, CRC. The next FPDU follows it
//! there. One `send` sends all queued FPDUs, because a pass through TCP costs many times the copy.
//! The CRC is computed over the copy and not over the consumer's memory, which may legally change
//! during the send: OFA's dtest lets both ends write into the buffers from which they write. A CRC
//! over bytes other than those sent would end the connection at the peer.
//!
//! If CRC was negotiated away, payloads above 16 KiB are not copied: `sendmsg` sends them from the
//! consumer's memory. The pad and CRC field of one FPDU and the header of the next are adjacent in
//! the staging buffer and form one piece of the vector.
//!
//! A burst begins with two sends of 32 KiB, so that the peer copies out while this end copies in.
//! It grows to sends of 1 MiB, or of 256 KiB (the length of the staging buffer) if every payload is
//! staged. A burst directly after a long one begins with the last of these sizes, because the peer
//! still has bytes to copy. Two sends are faster if TCP takes longer for a lone 64 KiB message than
//! two calls cost, and slower otherwise; `dat-bench --cases send-ping:65536:1` shows the
//! difference.
//!
//! A Send or Write that fits one FPDU and overtakes nothing is framed when it is posted
//! ([`Tx::frame_at_once`]), whether it is sent at once or held back. The sender then keeps only the
//! position of its end and the report for its completion.
//!
//! # Cost of one 64-byte Send on an idle connection
//!
//! The cost is one system call, one copy of the payload, one CRC, no allocation, and no lock beyond
//! the connection's.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use iwarp_proto::mpa::Negotiated;
use iwarp_proto::wire::{fpdu, marker};
use iwarp_proto::{
    Access, Connection, Ends, HEADER_MAX, ProtectionFault, Stag, TransmitFpdu, TransmitPayload,
};
use rnic::Amount;
use rustix::io::Errno;

use crate::carrier::{Flow, Payloads, TxFault};
use crate::engine::io::{self, Sent};
use crate::memory::{Bytes, MemoryAccess, Stream};
use crate::pool::{STAGING_LEN, Staging};
use crate::work::{Outstanding, Report};

use super::crc::crc32c;
use super::marked::{self, MarkedTx};

/// The longest payload that is copied next to its frame if CRC is off. For a longer payload, a
/// piece of a vector costs less than the copy.
const STAGED_MAX: usize = 16 * 1024;
/// The reason why there is a staging buffer while an FPDU is framed.
const HAS_STAGING: &str = "`has_staging` has returned true";
/// Pad and CRC.
const TRAILER_MAX: usize = 7;
/// Pieces of one `sendmsg`.
const VECTOR_MAX: usize = 128;
/// Bytes that are framed before each of the sends of a burst.
const RAMP: [u64; 4] = [32 * 1024, 32 * 1024, 256 * 1024, 1024 * 1024];
/// A burst of this many bytes keeps the peer busy for longer than [`FLOW_GAP`].
const FLOW_BYTES: u64 = 128 * 1024;
/// The longest pause after such a burst in which the peer is still busy with it.
const FLOW_GAP: Duration = Duration::from_micros(50);
/// The pause, in spins, of a sender that found its socket full. The pause doubles while the socket
/// stays full. Retrying at once would contend with the acknowledgements for the socket's lock.
const FULL_PAUSE_SPINS: u32 = 60;
const FULL_PAUSE_DOUBLINGS: u32 = 3;

/// The socket, and the memory of the payloads, for one pass.
pub(super) struct Sources<'a> {
    pub(super) fd: BorrowedFd<'a>,
    pub(super) memory: &'a MemoryAccess<'a>,
    pub(super) stream: Stream,
    pub(super) outstanding: &'a Outstanding,
}

impl<'a> Sources<'a> {
    pub(super) fn new(
        fd: BorrowedFd<'a>,
        memory: &'a MemoryAccess<'a>,
        payloads: &Payloads<'a>,
    ) -> Self {
        Self {
            fd,
            memory,
            stream: payloads.stream,
            outstanding: payloads.outstanding,
        }
    }
}

/// The reason why framing stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filled {
    /// Nothing is left to frame.
    All,
    /// The bytes of one send are framed.
    Enough,
}

/// A piece of unsent data.
#[derive(Debug, Clone, Copy)]
enum Piece {
    /// Bytes of the staging buffer.
    Staged { at: usize, len: usize },
    /// Payload of a work request.
    Work { token: u64, skip: usize, len: usize },
    /// Payload of the answer to a read.
    Response { stag: Stag, to: u64, len: usize },
}

/// The end of an FPDU in the stream of sent bytes.
#[derive(Debug, Clone, Copy)]
struct Mark {
    end: u64,
    ends_work: bool,
}

/// The sending side.
#[derive(Debug)]
pub(super) struct Tx {
    crc: bool,
    /// The markers that the peer requested, if any.
    marked: Option<MarkedTx>,
    /// The room that one FPDU may need.
    frame_max: usize,
    /// The longest payload that is copied next to its frame.
    staged_max: usize,
    staging: Option<Staging>,
    filled: usize,
    pieces: VecDeque<Piece>,
    marks: VecDeque<Mark>,
    /// The end of each request that was framed when it was posted, and its report.
    reports: VecDeque<(u64, Report)>,
    /// The reports of those requests that the socket has accepted.
    finished: Vec<Report>,
    framed: u64,
    sent: u64,
    /// Segments that were framed.
    segments: Amount,
    /// The end of the last FPDU that the socket has accepted completely.
    boundary: u64,
    /// The time at which the last burst ended, if it was a long one.
    flowed: Option<Instant>,
    /// The number of retries on the full socket since it accepted the last bytes, at most
    /// [`FULL_PAUSE_DOUBLINGS`].
    full_retries: u32,
}

impl Tx {
    /// Creates the sending side; `ulpdu_max` is the longest ULPDU that this connection ever sends.
    pub(super) fn new(negotiated: &Negotiated, ulpdu_max: usize) -> Self {
        let Negotiated {
            crc, markers_tx, ..
        } = *negotiated;
        let staged_max = if crc || markers_tx {
            ulpdu_max
        } else {
            STAGED_MAX
        };
        let markers_max = if markers_tx { marked::BYTES_MAX } else { 0 };
        Self {
            crc,
            marked: markers_tx.then(MarkedTx::default),
            frame_max: HEADER_MAX + staged_max + TRAILER_MAX + markers_max,
            staged_max,
            staging: None,
            filled: 0,
            pieces: VecDeque::new(),
            marks: VecDeque::new(),
            reports: VecDeque::new(),
            finished: Vec::new(),
            framed: 0,
            sent: 0,
            segments: Amount::default(),
            boundary: 0,
            flowed: None,
            full_retries: 0,
        }
    }

    /// Bytes that the socket has accepted.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Segments that were framed.
    pub(super) fn segments(&self) -> Amount {
        self.segments
    }

    /// True while framed bytes wait for room in the socket.
    pub(super) fn is_pending(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// True if there are framed bytes and all of them are in the staging buffer.
    pub(super) fn is_all_staged(&self) -> bool {
        self.pieces.len() == 1 && matches!(self.pieces.front(), Some(Piece::Staged { .. }))
    }

    /// Sends the framed bytes if all of them are staged and nothing else is to be sent.
    pub(super) fn flush(
        &mut self,
        proto: &mut Connection,
        fd: BorrowedFd<'_>,
    ) -> Result<Flow, TxFault> {
        let (Some(staging), Some(Piece::Staged { at, len })) = (&self.staging, self.pieces.front())
        else {
            return Ok(Flow::Drained);
        };
        let sent = io::send(fd, &staging[*at..at + len]);
        Ok(match self.on_result(sent, proto)? {
            true => Flow::Drained,
            false => Flow::Blocked,
        })
    }

    /// Frames and sends until nothing is left or the socket is full.
    pub(super) fn run(
        &mut self,
        proto: &mut Connection,
        sources: &Sources<'_>,
    ) -> Result<Flow, TxFault> {
        let (was_full, before) = (self.is_pending(), self.sent);
        let is_continued = was_full || self.flowed.is_some_and(|at| at.elapsed() < FLOW_GAP);
        let first = if is_continued { RAMP.len() - 1 } else { 0 };
        let flow = self.burst(proto, sources, first)?;
        let is_flow = was_full || self.sent - before >= FLOW_BYTES;
        self.flowed = is_flow.then(Instant::now);
        Ok(flow)
    }

    fn burst(
        &mut self,
        proto: &mut Connection,
        sources: &Sources<'_>,
        mut step: usize,
    ) -> Result<Flow, TxFault> {
        loop {
            let filled = self.fill(proto, sources, RAMP[step])?;
            if !self.is_pending() {
                return Ok(Flow::Drained);
            }
            if !self.send(proto, sources)? {
                return Ok(Flow::Blocked);
            }
            if filled == Filled::All {
                return Ok(Flow::Drained);
            }
            step = (step + 1).min(RAMP.len() - 1);
        }
    }

    fn fill(
        &mut self,
        proto: &mut Connection,
        sources: &Sources<'_>,
        limit: u64,
    ) -> Result<Filled, TxFault> {
        while self.framed - self.sent < limit
            && self.filled + self.frame_max <= STAGING_LEN
            && self.pieces.len() + 2 < VECTOR_MAX
        {
            let Some(fpdu) = proto.poll_transmit() else {
                return Ok(Filled::All);
            };
            if !self.has_staging() {
                return Err(TxFault::Transport(Errno::NOMEM));
            }
            if let Err(fault) = self.frame(&fpdu, sources) {
                return Err(match (fpdu.payload, fault) {
                    (TransmitPayload::WorkRequest { token, .. }, _) => TxFault::Local { token },
                    (_, fault) => TxFault::Response(proto.refuse_response(&fpdu, fault)),
                });
            }
        }
        Ok(Filled::Enough)
    }

    /// Takes a staging buffer unless there is one. Called before an FPDU is framed. Returns false
    /// without memory.
    fn has_staging(&mut self) -> bool {
        if self.staging.is_none() {
            self.staging = Staging::take();
        }
        self.staging.is_some()
    }

    /// True if [`Self::frame_at_once`] may be called for an FPDU with a payload of this length.
    pub(super) fn has_room(&mut self, payload_len: usize) -> bool {
        self.marked.is_none()
            && payload_len <= self.staged_max
            && self.filled + HEADER_MAX + payload_len + TRAILER_MAX <= STAGING_LEN
            && self.has_staging()
    }

    /// Frames an FPDU with this payload after the bytes that are framed already. The caller has
    /// checked the room. Once the socket has accepted the FPDU, `report` is in [`Self::finished`].
    pub(super) fn frame_at_once(
        &mut self,
        fpdu: &TransmitFpdu,
        payload: &[Bytes<'_>],
        report: Report,
    ) {
        let start = self.filled;
        let staging = self.staging.as_mut().expect(HAS_STAGING);
        let header = fpdu.header();
        let mut at = start + header.len();
        staging[start..at].copy_from_slice(header);
        for bytes in payload {
            let is_read = bytes.read_into(&mut staging[at..]);
            debug_assert!(is_read, "the caller submits no memory whose copy may fail");
            at += bytes.len();
        }
        self.close_frame(start, at, fpdu);
        self.reports.push_back((self.framed, report));
    }

    /// Returns the reports of requests that the socket has accepted; the caller empties the list.
    pub(super) fn finished(&mut self) -> &mut Vec<Report> {
        &mut self.finished
    }

    /// True if there are requests that were framed when they were posted and that the socket has
    /// not accepted.
    pub(super) fn has_unfinished(&self) -> bool {
        !self.reports.is_empty()
    }

    /// Takes the reports of requests that were framed and that the socket has not accepted.
    pub(super) fn take_unfinished(&mut self) -> impl Iterator<Item = Report> {
        self.reports.drain(..).map(|(_, report)| report)
    }

    /// Adds pad and CRC to the frame at `start`, whose payload ends at `end`, and counts it.
    fn close_frame(&mut self, start: usize, end: usize, fpdu: &TransmitFpdu) {
        let Some(staging) = &mut self.staging else {
            return;
        };
        let covered = end + fpdu.pad();
        staging[end..covered].fill(0);
        let crc = if self.crc {
            crc32c(&staging[start..covered])
        } else {
            0
        };
        let trailer = covered + fpdu::CRC_LEN;
        staging[covered..trailer].copy_from_slice(&fpdu::crc_field(crc));
        push_staged(&mut self.pieces, start, trailer);
        self.mark(fpdu, trailer, fpdu.wire_len());
    }

    /// Frames one FPDU without payload after the bytes that are framed already.
    pub(super) fn frame_last(&mut self, fpdu: &TransmitFpdu, sources: &Sources<'_>) {
        let has_room = self.filled + HEADER_MAX + TRAILER_MAX + marker::LEN <= STAGING_LEN;
        if has_room && self.has_staging() {
            // A frame without payload cannot be refused.
            let _ = self.frame(fpdu, sources);
        }
    }

    fn frame(&mut self, fpdu: &TransmitFpdu, sources: &Sources<'_>) -> Result<(), ProtectionFault> {
        if self.marked.is_some() {
            return self.frame_marked(fpdu, sources);
        }
        let payload_len = fpdu.payload_len();
        let staging = self.staging.as_mut().expect(HAS_STAGING);
        let header = fpdu.header();
        let start = self.filled;
        let body = start + header.len();
        staging[start..body].copy_from_slice(header);
        if payload_len <= self.staged_max {
            let end = body + payload_len;
            copy_payload(fpdu, sources, &mut staging[body..end])?;
            self.close_frame(start, end, fpdu);
            return Ok(());
        }
        let covered = body + fpdu.pad();
        let end = covered + fpdu::CRC_LEN;
        // Only without CRC is a payload not copied, and then the CRC field may have any value.
        staging[body..end].fill(0);
        push_staged(&mut self.pieces, start, body);
        self.pieces.push_back(memory_piece(fpdu));
        self.pieces.push_back(Piece::Staged {
            at: body,
            len: end - body,
        });
        self.mark(fpdu, end, fpdu.wire_len());
        Ok(())
    }

    /// Frames like [`Self::frame`], with markers. A separate function, so that markers cost the
    /// usual path nothing.
    #[cold]
    fn frame_marked(
        &mut self,
        fpdu: &TransmitFpdu,
        sources: &Sources<'_>,
    ) -> Result<(), ProtectionFault> {
        let staging = self.staging.as_mut().expect(HAS_STAGING);
        let marked = self.marked.get_or_insert_default();
        let start = self.filled;
        let len = marked.len(fpdu.wire_len());
        let room = &mut staging[start..start + len];
        let frame_at = len - fpdu.wire_len();
        let body = frame_at + fpdu.header().len();
        room[frame_at..body].copy_from_slice(fpdu.header());
        let covered = len - fpdu::CRC_LEN;
        room[body..].fill(0);
        copy_payload(fpdu, sources, &mut room[body..body + fpdu.payload_len()])?;
        marked.insert(room, fpdu.wire_len());
        if self.crc {
            let crc = crc32c(&room[..covered]);
            room[covered..].copy_from_slice(&fpdu::crc_field(crc));
        }
        push_staged(&mut self.pieces, start, start + len);
        self.mark(fpdu, start + len, len);
        Ok(())
    }

    fn mark(&mut self, fpdu: &TransmitFpdu, filled: usize, wire_len: usize) {
        self.filled = filled;
        self.framed += wire_len as u64;
        self.segments.add_segment(fpdu.payload_len());
        let ends_work = matches!(fpdu.ends, Some(Ends::WorkRequest { .. }));
        self.marks.push_back(Mark {
            end: self.framed,
            ends_work,
        });
    }

    /// Sends the framed bytes. Returns `false` if the socket is full.
    fn send(&mut self, proto: &mut Connection, sources: &Sources<'_>) -> Result<bool, TxFault> {
        let Some(staging) = &self.staging else {
            return Ok(true);
        };
        let sent = match (self.pieces.front(), self.pieces.len()) {
            (Some(Piece::Staged { at, len }), 1) => io::send(sources.fd, &staging[*at..at + len]),
            _ => send_pieces(&self.pieces, staging, sources)?,
        };
        self.on_result(sent, proto)
    }

    /// Accounts for the result of a send. Returns `false` if the socket is full.
    fn on_result(&mut self, sent: Sent, proto: &mut Connection) -> Result<bool, TxFault> {
        match sent {
            Sent::Bytes(count) => {
                self.full_retries = 0;
                self.advance(count);
                let work = self.pop_marks();
                if work > 0 {
                    proto.on_sent(work);
                }
                Ok(!self.is_pending())
            }
            Sent::WouldBlock => {
                self.pause();
                Ok(false)
            }
            Sent::Failed(error) => Err(TxFault::Transport(error)),
        }
    }

    /// Waits before the next attempt on a full socket.
    fn pause(&mut self) {
        let doublings = self.full_retries;
        self.full_retries = (doublings + 1).min(FULL_PAUSE_DOUBLINGS);
        for _ in 0..FULL_PAUSE_SPINS << doublings {
            std::hint::spin_loop();
        }
    }

    fn advance(&mut self, mut count: usize) {
        self.sent += count as u64;
        while count > 0 {
            let Some(piece) = self.pieces.front_mut() else {
                break;
            };
            let taken = piece.advance(count);
            if piece.len() == 0 {
                self.pieces.pop_front();
            }
            count -= taken;
        }
        if self.pieces.is_empty() {
            self.filled = 0;
        }
    }

    /// Returns the staging buffer to the pool, if it is empty.
    pub(super) fn release_if_empty(&mut self) {
        if self.pieces.is_empty() {
            self.release();
        }
    }

    /// Counts the work requests that the socket has accepted since the last call.
    fn pop_marks(&mut self) -> usize {
        let mut work = 0;
        while let Some(mark) = self.marks.front()
            && mark.end <= self.sent
        {
            work += usize::from(mark.ends_work);
            self.boundary = mark.end;
            self.marks.pop_front();
        }
        while let Some(&(end, report)) = self.reports.front()
            && end <= self.sent
        {
            self.finished.push(report);
            self.reports.pop_front();
        }
        work
    }

    /// Takes the unsent rest of an FPDU of which the socket has accepted a part, and drops
    /// everything framed after it, so that a stream that ends here ends between two FPDUs.
    ///
    /// Returns `None` if the rest cannot be read, because its memory is no longer registered.
    pub(super) fn take_rest_of_fpdu(&mut self, sources: &Sources<'_>) -> Option<Vec<u8>> {
        let has_begun = self.sent > self.boundary;
        let end = self
            .marks
            .front()
            .filter(|_| has_begun)
            .map_or(self.sent, |mark| mark.end);
        if let Some(marked) = &mut self.marked {
            *marked = MarkedTx::at(end);
        }
        self.take_bytes(sources, (end - self.sent) as usize)
    }

    /// Takes all framed bytes, for a stream that ends with a Terminate message after them.
    pub(super) fn take_all(&mut self, sources: &Sources<'_>) -> Option<Vec<u8>> {
        self.take_bytes(sources, (self.framed - self.sent) as usize)
    }

    fn take_bytes(&mut self, sources: &Sources<'_>, mut left: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let pieces = std::mem::take(&mut self.pieces);
        let mut complete = true;
        for piece in &pieces {
            let len = piece.len().min(left);
            if len == 0 {
                break;
            }
            left -= len;
            let at = bytes.len();
            bytes.resize(at + len, 0);
            complete &= match (*piece, &self.staging) {
                (Piece::Staged { at: from, .. }, Some(staging)) => {
                    bytes[at..].copy_from_slice(&staging[from..from + len]);
                    true
                }
                (piece, _) => piece.copy_into(sources, &mut bytes[at..]),
            };
        }
        self.marks.clear();
        self.framed = self.sent;
        self.release();
        complete.then_some(bytes)
    }

    fn release(&mut self) {
        self.filled = 0;
        if let Some(staging) = self.staging.take() {
            staging.put();
        }
    }
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Staged { len, .. } | Self::Work { len, .. } | Self::Response { len, .. } => *len,
        }
    }

    /// Drops up to `count` bytes from the front and returns how many.
    fn advance(&mut self, count: usize) -> usize {
        let taken = count.min(self.len());
        match self {
            Self::Staged { at, len } => (*at, *len) = (*at + taken, *len - taken),
            Self::Work { skip, len, .. } => (*skip, *len) = (*skip + taken, *len - taken),
            Self::Response { to, len, .. } => (*to, *len) = (*to + taken as u64, *len - taken),
        }
        taken
    }

    /// Copies the first bytes of a piece in registered memory. Returns `false` if the memory is no
    /// longer registered, or does not exist any more.
    fn copy_into(&self, sources: &Sources<'_>, out: &mut [u8]) -> bool {
        let (mut at, mut is_read) = (0, true);
        let visited = self.visit(sources, out.len(), |bytes| {
            is_read &= bytes.read_into(&mut out[at..]);
            at += bytes.len();
        });
        visited.is_ok() && is_read
    }

    /// Visits at most the first `len_max` bytes of a piece in registered memory.
    fn visit<'m>(
        &self,
        sources: &Sources<'m>,
        len_max: usize,
        mut visit: impl FnMut(Bytes<'m>),
    ) -> Result<(), ProtectionFault> {
        match *self {
            Self::Staged { .. } => Ok(()),
            Self::Work { token, skip, len } => {
                let slot = sources
                    .outstanding
                    .get(token)
                    .ok_or(ProtectionFault::InvalidStag)?;
                let range = (skip, len.min(len_max));
                let whole =
                    slot.sgl
                        .for_each_piece(sources.memory, sources.stream.pd, false, range, visit);
                if whole {
                    Ok(())
                } else {
                    Err(ProtectionFault::InvalidStag)
                }
            }
            Self::Response { stag, to, len } => {
                let len = len.min(len_max) as u32;
                let access = Access::RemoteRead;
                visit(
                    sources
                        .memory
                        .remote(sources.stream, access, stag, to, len)?,
                );
                Ok(())
            }
        }
    }
}

/// The piece that describes the payload of an FPDU.
fn memory_piece(fpdu: &TransmitFpdu) -> Piece {
    match fpdu.payload {
        TransmitPayload::None => Piece::Staged { at: 0, len: 0 },
        TransmitPayload::WorkRequest { token, offset, len } => Piece::Work {
            token,
            skip: offset as usize,
            len: len as usize,
        },
        TransmitPayload::ReadResponse { stag, to, len } => Piece::Response {
            stag,
            to,
            len: len as usize,
        },
    }
}

fn copy_payload(
    fpdu: &TransmitFpdu,
    sources: &Sources<'_>,
    out: &mut [u8],
) -> Result<(), ProtectionFault> {
    let (mut at, mut is_read) = (0, true);
    memory_piece(fpdu).visit(sources, usize::MAX, |bytes| {
        is_read &= bytes.read_into(&mut out[at..]);
        at += bytes.len();
    })?;
    if is_read {
        Ok(())
    } else {
        Err(ProtectionFault::Bounds)
    }
}

/// Appends staged bytes. Extends the last piece if the bytes follow it.
fn push_staged(pieces: &mut VecDeque<Piece>, start: usize, end: usize) {
    if let Some(Piece::Staged { at, len }) = pieces.back_mut()
        && *at + *len == start
    {
        *len = end - *at;
        return;
    }
    pieces.push_back(Piece::Staged {
        at: start,
        len: end - start,
    });
}

/// Sends as many pieces as one vector can hold, in one call.
fn send_pieces(
    pieces: &VecDeque<Piece>,
    staging: &[u8],
    sources: &Sources<'_>,
) -> Result<Sent, TxFault> {
    let mut vector = [IoSlice::new(&[]); VECTOR_MAX];
    let mut count = 0;
    for piece in pieces {
        match *piece {
            Piece::Staged { at, len } => {
                if count < VECTOR_MAX {
                    vector[count] = IoSlice::new(&staging[at..at + len]);
                    count += 1;
                }
            }
            _ => piece
                .visit(sources, usize::MAX, |bytes| {
                    if count < VECTOR_MAX {
                        vector[count] = bytes.as_io_slice();
                    }
                    count += 1;
                })
                .map_err(|_| fault_of(piece))?,
        }
        if count >= VECTOR_MAX {
            break;
        }
    }
    Ok(io::send_vectored(
        sources.fd,
        &vector[..count.min(VECTOR_MAX)],
    ))
}

/// The fault for memory that was deregistered after its FPDU was framed.
fn fault_of(piece: &Piece) -> TxFault {
    match piece {
        Piece::Work { token, .. } => TxFault::Local { token: *token },
        // The FPDU is partly sent, so no Terminate message can follow it.
        _ => TxFault::Transport(Errno::FAULT),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;
    use crate::qp::Link;
    use crate::support::{Event, Node, hex, read_startup};

    #[test]
    fn bytes_after_a_cut_of_the_stream_have_markers_at_the_right_positions() {
        // The socket may fill within the last FPDU that is framed.
        let has_dropped = (0..50).any(|_| cut_drops_framed_bytes());
        assert!(has_dropped, "no framed bytes were dropped");
    }

    /// Cuts a stream whose socket is full, and checks the markers after the cut. Returns true if
    /// bytes were framed after the cut.
    fn cut_drops_framed_bytes() -> bool {
        let node = Node::new("lo 0");
        let client = node.side(10);
        let memory = node.memory(16 << 20);
        let mut raw = client.connect_to_raw(b"");
        read_startup(&mut raw);
        // A Reply of revision 2 that asks for markers.
        let reply = "4d504120 49442052 65702046 72616d65 d0020004 80048004";
        raw.write_all(&hex(reply)).unwrap();
        assert!(matches!(client.event(), Event::Established { .. }));
        // The peer receives nothing, so that framed bytes stay unsent.
        client.write(1, memory.remote(0, 16 << 20), &[memory.sge(0, 16 << 20)]);
        let qp = &client.qp.qp;
        let mut link = qp.lock_link();
        let Link::Up(conn) = &mut *link else {
            panic!("{link:?}");
        };
        assert!(conn.tcp.tx.is_pending());
        let framed = conn.tcp.tx.framed;
        let access = qp.shared.memory.access();
        let sources = Sources {
            fd: conn.socket.as_fd(),
            memory: &access,
            stream: crate::conn::Owner::stream(&**qp),
            outstanding: &conn.outstanding,
        };
        let rest = conn.tcp.tx.take_rest_of_fpdu(&sources).unwrap();
        let cut = conn.tcp.tx.sent + rest.len() as u64;
        let marked = conn.tcp.tx.marked.as_ref().unwrap();
        for len in 0..2 * marker::INTERVAL as usize {
            assert_eq!(marked.len(len), marker::total_len(cut, len), "{len}");
        }
        cut < framed
    }
}
