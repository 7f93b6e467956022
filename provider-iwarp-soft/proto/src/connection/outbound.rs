//! Makes FPDUs from work requests and pending answers.

use crate::{
    Ends, Msn, Stag, TransmitFpdu, TransmitPayload, WorkKind, WorkRequest,
    wire::{
        ddp::{TAGGED_LEN, Tagged, UNTAGGED_LEN, Untagged, qn},
        fpdu::{LENGTH_LEN, MULPDU_MIN},
        mpa::RtrKind,
        rdmap::{
            ATOMIC_REQUEST_LEN, ATOMIC_RESPONSE_LEN, AtomicRequest, AtomicResponse, IMMEDIATE_LEN,
            Opcode, READ_REQUEST_LEN, ReadRequest,
        },
    },
};

use super::{
    Connection, Sequences,
    requests::{Outstanding, Pending},
    send_queue::Sequence,
};

/// The offset of the RDMAP header of an untagged message in an FPDU.
const RDMAP_AT: usize = LENGTH_LEN + UNTAGGED_LEN;
/// The STag of a zero-length Write as first FPDU. No rule checks it, but some hardware refuses 0.
const RTR_STAG: Stag = Stag(1);

/// The sources of messages to transmit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Local work.
    Work,
    /// Answers to the peer.
    Answer,
}

impl Source {
    const fn other(self) -> Self {
        match self {
            Self::Work => Self::Answer,
            Self::Answer => Self::Work,
        }
    }
}

/// The sending half of a connection.
#[derive(Debug)]
pub(super) struct Transmitter {
    /// The kind of a peer-to-peer initiator's first FPDU, until it is transmitted.
    pub(super) rtr: Option<RtrKind>,
    /// True after an FPDU was transmitted.
    pub(super) sent_fpdu: bool,
    msn: Sequences,
    request_id: u32,
    /// The source that transmits next. A message in progress keeps the turn, and nothing delays its
    /// next segment, so it is never interrupted: some receivers close the connection when segments
    /// of two messages are interleaved.
    turn: Source,
}

impl Transmitter {
    pub(super) const fn new(rtr: Option<RtrKind>) -> Self {
        Self {
            rtr,
            sent_fpdu: false,
            msn: Sequences::FIRST,
            request_id: 0,
            turn: Source::Work,
        }
    }

    /// The MSN of our next read or atomic.
    pub(super) const fn next_request(&self) -> Msn {
        self.msn.request
    }

    /// Takes the MSN of a carrier message that is transmitted now.
    pub(super) const fn next_carrier(&mut self) -> Msn {
        self.sent_fpdu = true;
        let msn = self.msn.carrier;
        self.msn.carrier = msn.next();
        msn
    }

    /// Records that a segment was transmitted. Its source continues until its message ends; then
    /// the other source has its turn. So readers cannot starve local work, and local work cannot
    /// starve readers.
    const fn on_segment(&mut self, source: Source, last: bool) {
        self.sent_fpdu = true;
        self.turn = if last { source.other() } else { source };
    }
}

impl Connection {
    /// Returns the next FPDU, or `None` if there is nothing to send now.
    pub fn poll_transmit(&mut self) -> Option<TransmitFpdu> {
        self.poll_transmit_limited(usize::MAX)
    }

    /// Returns the next FPDU, with a ULPDU no longer than `ulpdu_max` even if the connection's
    /// MULPDU is longer. At least 128 bytes are always allowed.
    ///
    /// After the move to another carrier ([`Self::has_tx_moved`]) this is the next segment for that
    /// carrier ([`TransmitFpdu::segment_header`]).
    pub fn poll_transmit_limited(&mut self, ulpdu_max: usize) -> Option<TransmitFpdu> {
        if !self.may_transmit() {
            return None;
        }
        if let Some(kind) = self.tx.rtr.take() {
            self.tx.sent_fpdu = true;
            return Some(self.ready_to_receive(kind));
        }
        if let Some(fpdu) = self.transmit_carrier() {
            return Some(fpdu);
        }
        let mulpdu = self.segment_max().min(ulpdu_max).max(MULPDU_MIN);
        let first = self.tx.turn;
        self.transmit_from(first, mulpdu)
            .or_else(|| self.transmit_from(first.other(), mulpdu))
    }

    fn may_transmit(&self) -> bool {
        self.state.may_transmit() && self.carriers.tx.may_transmit()
    }

    /// Returns true if a message of either source was transmitted in part.
    pub(super) fn is_within_message(&self) -> bool {
        let current = self.send_queue.current();
        current.is_some_and(|(_, offset, _)| offset > 0) || self.pending.is_partly_answered()
    }

    /// True if [`Self::poll_transmit`] would return an FPDU.
    #[must_use]
    pub fn has_transmit(&self) -> bool {
        let work_ready = |(request, offset, _): (&WorkRequest, u32, Sequence)| {
            offset > 0 || !self.is_blocked(request)
        };
        self.may_transmit()
            && (self.tx.rtr.is_some()
                || self.is_carrier_ready()
                || self.pending.is_ready()
                || self.send_queue.current().is_some_and(work_ready))
    }

    /// Returns the FPDU of a Send or Write that fits one, without a work request in the queue. The
    /// engine copies the payload at once and completes the request itself.
    ///
    /// Returns `None`, and changes nothing, if the request must be posted instead: older work or an
    /// answer waits to be transmitted, the message needs several FPDUs, or it is of another kind.
    pub fn transmit_now(&mut self, kind: WorkKind, len: u32) -> Option<TransmitFpdu> {
        let is_free = self.may_transmit()
            && self.tx.rtr.is_none()
            && !self.carriers.has_queued()
            && self.send_queue.current().is_none()
            && self.pending.entries.is_empty();
        if !is_free {
            return None;
        }
        let part = |header_len: usize| {
            let part = Part::cut(0, len, self.segment_max() - header_len);
            part.last.then_some(part)
        };
        let fpdu = match kind {
            WorkKind::Send { .. } | WorkKind::SendImmediate { .. } => {
                let (opcode, rsvd_ulp) = send_header(kind)?;
                let part = part(UNTAGGED_LEN)?;
                self.send_fpdu(opcode, rsvd_ulp, part, part.of_work(0), None)
            }
            WorkKind::Write { stag, to } => {
                let part = part(TAGGED_LEN)?;
                write_fpdu(stag, to, part, part.of_work(0), None)
            }
            WorkKind::Read { .. } | WorkKind::ImmediateData { .. } | WorkKind::Atomic { .. } => {
                return None;
            }
        };
        self.tx.on_segment(Source::Work, true);
        Some(fpdu)
    }

    fn transmit_from(&mut self, source: Source, mulpdu: usize) -> Option<TransmitFpdu> {
        match source {
            Source::Work => self.transmit_work(mulpdu),
            Source::Answer => self.transmit_answer(mulpdu),
        }
    }

    /// RFC 6581 section 9.2: the initiator's first FPDU, of length 0.
    fn ready_to_receive(&mut self, kind: RtrKind) -> TransmitFpdu {
        match kind {
            RtrKind::Send => self.untagged(Opcode::Send, 0, TransmitPayload::None, None),
            RtrKind::Write => {
                let header = Tagged {
                    last: true,
                    rdmap: Opcode::Write.control(),
                    stag: RTR_STAG,
                    to: 0,
                };
                tagged(header, TransmitPayload::None, None)
            }
            RtrKind::Read => {
                let request = ReadRequest {
                    sink_stag: Stag(0),
                    sink_to: self.agreement.ask(),
                    len: 0,
                    source_stag: RTR_STAG,
                    source_to: 0,
                };
                self.read_request(request, None)
            }
        }
    }

    /// RFC 5040 section 5.5: no request is transmitted before an earlier read that waits for ORD,
    /// or before an earlier fence.
    fn is_blocked(&self, request: &WorkRequest) -> bool {
        let outstanding = self.outstanding.entries.len();
        (request.fence || self.sends_nothing(request)) && outstanding > 0
            || request.kind.is_answered() && outstanding >= usize::from(self.config.ord)
    }

    /// True if a request is carried out without a byte on the wire.
    fn sends_nothing(&self, request: &WorkRequest) -> bool {
        let is_empty_read = matches!(request.kind, WorkKind::Read { .. }) && request.len == 0;
        is_empty_read && !self.config.peer.answers_empty_reads()
    }

    fn transmit_work(&mut self, mulpdu: usize) -> Option<TransmitFpdu> {
        let (request, offset, sequence) = loop {
            let (request, offset, sequence) = self.send_queue.current()?;
            if offset == 0 && self.is_blocked(request) {
                return None;
            }
            if !self.sends_nothing(request) {
                break (*request, offset, sequence);
            }
            self.send_queue.skip();
        };
        let WorkRequest {
            token, kind, len, ..
        } = request;
        match kind {
            WorkKind::Send { .. } | WorkKind::SendImmediate { .. } => {
                let (opcode, rsvd_ulp) = send_header(kind)?;
                Some(self.send_segment(opcode, rsvd_ulp, token, offset, len, mulpdu))
            }
            WorkKind::Write { stag, to } => {
                Some(self.write_segment(stag, to, token, offset, len, mulpdu))
            }
            WorkKind::Read {
                source_stag,
                source_to,
                sink_stag,
                sink_to,
            } => {
                self.on_work_transmitted();
                let request = ReadRequest {
                    sink_stag,
                    sink_to,
                    len,
                    source_stag,
                    source_to,
                };
                Some(self.read_request(request, Some((sequence, token))))
            }
            WorkKind::ImmediateData { data, solicited } => {
                self.on_work_transmitted();
                Some(self.immediate_data(data, solicited, token))
            }
            WorkKind::Atomic { op, stag, to } => {
                self.on_work_transmitted();
                let request_id = self.tx.request_id;
                self.tx.request_id = request_id.wrapping_add(1);
                let request = AtomicRequest {
                    request_id,
                    stag,
                    to,
                    op,
                };
                Some(self.atomic_request(request, sequence, token))
            }
        }
    }

    /// Records that a work request of one segment was transmitted.
    fn on_work_transmitted(&mut self) {
        self.send_queue.advance(0, true);
        self.tx.on_segment(Source::Work, true);
    }

    fn send_segment(
        &mut self,
        opcode: Opcode,
        rsvd_ulp: u32,
        token: u64,
        offset: u32,
        len: u32,
        mulpdu: usize,
    ) -> TransmitFpdu {
        let part = Part::cut(offset, len, mulpdu - UNTAGGED_LEN);
        self.send_queue.advance(part.len, part.last);
        self.tx.on_segment(Source::Work, part.last);
        let (payload, ends) = (part.of_work(token), part.ends_work(token));
        self.send_fpdu(opcode, rsvd_ulp, part, payload, ends)
    }

    /// Makes a segment of a Send; the last segment takes the message's MSN.
    fn send_fpdu(
        &mut self,
        opcode: Opcode,
        rsvd_ulp: u32,
        part: Part,
        payload: TransmitPayload,
        ends: Option<Ends>,
    ) -> TransmitFpdu {
        let header = Untagged {
            last: part.last,
            rdmap: opcode.control(),
            rsvd_ulp,
            qn: qn::SEND,
            msn: self.tx.msn.send,
            mo: part.offset,
        };
        if part.last {
            self.tx.msn.send = header.msn.next();
        }
        let mut fpdu = TransmitFpdu::new(RDMAP_AT, payload, ends);
        header.emit(fpdu.part(LENGTH_LEN));
        fpdu
    }

    fn write_segment(
        &mut self,
        stag: Stag,
        to: u64,
        token: u64,
        offset: u32,
        len: u32,
        mulpdu: usize,
    ) -> TransmitFpdu {
        let part = Part::cut(offset, len, mulpdu - TAGGED_LEN);
        self.send_queue.advance(part.len, part.last);
        self.tx.on_segment(Source::Work, part.last);
        write_fpdu(stag, to, part, part.of_work(token), part.ends_work(token))
    }

    fn read_request(
        &mut self,
        request: ReadRequest,
        work: Option<(Sequence, u64)>,
    ) -> TransmitFpdu {
        let ends = work.map(|(_, token)| Ends::WorkRequest { token });
        let mut fpdu = self.untagged(
            Opcode::ReadRequest,
            READ_REQUEST_LEN,
            TransmitPayload::None,
            ends,
        );
        request.emit(fpdu.part(RDMAP_AT));
        self.outstanding.entries.push_back(Outstanding::Read {
            work,
            sink_stag: request.sink_stag,
            sink_to: request.sink_to,
            len: request.len,
            received: 0,
        });
        fpdu
    }

    fn immediate_data(&mut self, data: [u8; 8], solicited: bool, token: u64) -> TransmitFpdu {
        let opcode = if solicited {
            Opcode::ImmediateDataSolicited
        } else {
            Opcode::ImmediateData
        };
        let ends = Some(Ends::WorkRequest { token });
        let mut fpdu = self.untagged(opcode, IMMEDIATE_LEN, TransmitPayload::None, ends);
        *fpdu.part(RDMAP_AT) = data;
        fpdu
    }

    fn atomic_request(
        &mut self,
        request: AtomicRequest,
        sequence: Sequence,
        token: u64,
    ) -> TransmitFpdu {
        let ends = Some(Ends::WorkRequest { token });
        let mut fpdu = self.untagged(
            Opcode::AtomicRequest,
            ATOMIC_REQUEST_LEN,
            TransmitPayload::None,
            ends,
        );
        request.emit(fpdu.part::<ATOMIC_REQUEST_LEN>(RDMAP_AT));
        let request_id = request.request_id;
        self.outstanding.entries.push_back(Outstanding::Atomic {
            sequence,
            token,
            request_id,
        });
        fpdu
    }

    fn transmit_answer(&mut self, mulpdu: usize) -> Option<TransmitFpdu> {
        match self.pending.entries.front_mut()? {
            Pending::Read { request, done } => {
                let part = Part::cut(*done, request.len, mulpdu - TAGGED_LEN);
                let at = request.after(*done);
                *done += part.len;
                if part.last {
                    self.pending.entries.pop_front();
                    self.agreement.on_answer_sent();
                }
                self.tx.on_segment(Source::Answer, part.last);
                Some(read_response(&at, part))
            }
            Pending::Atomic {
                request_id,
                original,
            } => {
                let response = AtomicResponse {
                    request_id: *request_id,
                    original: (*original)?,
                };
                self.pending.entries.pop_front();
                self.tx.on_segment(Source::Answer, true);
                let mut fpdu = self.untagged(
                    Opcode::AtomicResponse,
                    ATOMIC_RESPONSE_LEN,
                    TransmitPayload::None,
                    Some(Ends::Response),
                );
                response.emit(fpdu.part(RDMAP_AT));
                Some(fpdu)
            }
        }
    }

    /// Returns the answer to an empty Read that waits, after a later message has ended the stream.
    /// Transmitted before the Terminate message, it shows the peer that the requests before the
    /// Read were executed.
    pub fn poll_last_answer(&mut self) -> Option<TransmitFpdu> {
        match self.pending.entries.front() {
            Some(Pending::Read { request, .. }) if request.len == 0 => {
                self.transmit_answer(MULPDU_MIN)
            }
            _ => None,
        }
    }

    /// Makes an untagged message of one segment, whose RDMAP header of `rdmap_len` bytes the caller
    /// fills in. Takes the next MSN of its queue.
    fn untagged(
        &mut self,
        opcode: Opcode,
        rdmap_len: usize,
        payload: TransmitPayload,
        ends: Option<Ends>,
    ) -> TransmitFpdu {
        let qn = opcode.queue().unwrap_or(qn::SEND);
        let next = match qn {
            qn::REQUEST => &mut self.tx.msn.request,
            qn::ATOMIC_RESPONSE => &mut self.tx.msn.atomic_response,
            _ => &mut self.tx.msn.send,
        };
        let msn = *next;
        *next = msn.next();
        let header = Untagged {
            last: true,
            rdmap: opcode.control(),
            rsvd_ulp: 0,
            qn,
            msn,
            mo: 0,
        };
        let mut fpdu = TransmitFpdu::new(RDMAP_AT + rdmap_len, payload, ends);
        header.emit(fpdu.part(LENGTH_LEN));
        fpdu
    }
}

/// Returns the opcode of a Send, and the value of its DDP header; `None` for other requests.
fn send_header(kind: WorkKind) -> Option<(Opcode, u32)> {
    match kind {
        WorkKind::Send {
            solicited,
            invalidate,
        } => {
            let opcode = Opcode::send(solicited, invalidate.is_some());
            Some((opcode, invalidate.map_or(0, |stag| stag.0)))
        }
        WorkKind::SendImmediate { value, solicited } => {
            Some((Opcode::send_immediate(solicited), value))
        }
        _ => None,
    }
}

fn write_fpdu(
    stag: Stag,
    to: u64,
    part: Part,
    payload: TransmitPayload,
    ends: Option<Ends>,
) -> TransmitFpdu {
    let header = Tagged {
        last: part.last,
        rdmap: Opcode::Write.control(),
        stag,
        to: to.wrapping_add(u64::from(part.offset)),
    };
    tagged(header, payload, ends)
}

fn read_response(at: &ReadRequest, part: Part) -> TransmitFpdu {
    let header = Tagged {
        last: part.last,
        rdmap: Opcode::ReadResponse.control(),
        stag: at.sink_stag,
        to: at.sink_to,
    };
    let payload = if part.len == 0 {
        TransmitPayload::None
    } else {
        TransmitPayload::ReadResponse {
            stag: at.source_stag,
            to: at.source_to,
            len: part.len,
        }
    };
    tagged(header, payload, part.last.then_some(Ends::Response))
}

fn tagged(header: Tagged, payload: TransmitPayload, ends: Option<Ends>) -> TransmitFpdu {
    let mut fpdu = TransmitFpdu::new(LENGTH_LEN + TAGGED_LEN, payload, ends);
    header.emit(fpdu.part(LENGTH_LEN));
    fpdu
}

/// Bytes of a page.
const PAGE: u32 = 4096;
/// The minimum room, in bytes, for which a message is cut into equal parts.
const PAGES_MIN: u32 = 32 * 1024;

/// The part of a message that one segment carries.
#[derive(Clone, Copy, Debug)]
struct Part {
    offset: u32,
    len: u32,
    last: bool,
}

impl Part {
    /// Cuts as much as fits into `room` from `offset` of a message of `total` bytes. An empty
    /// message is one empty segment (RFC 5041 section 5.2).
    ///
    /// If the room is much longer than a page, the parts are whole pages of about equal length. A
    /// receiver that places a segment while the next one is in transit is faster with two halves
    /// than with a long segment and a short one.
    fn cut(offset: u32, total: u32, room: usize) -> Self {
        let left = total - offset;
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let len = if left <= room {
            left
        } else if room < PAGES_MIN {
            room
        } else {
            let room = room - room % PAGE;
            let parts = left.div_ceil(room);
            left.div_ceil(parts).next_multiple_of(PAGE).min(room)
        };
        Self {
            offset,
            len,
            last: len == left,
        }
    }

    const fn of_work(self, token: u64) -> TransmitPayload {
        if self.len == 0 {
            TransmitPayload::None
        } else {
            TransmitPayload::WorkRequest {
                token,
                offset: self.offset,
                len: self.len,
            }
        }
    }

    fn ends_work(self, token: u64) -> Option<Ends> {
        self.last.then_some(Ends::WorkRequest { token })
    }
}
