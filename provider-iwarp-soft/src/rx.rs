//! The receiving side of a connection: bytes from the socket, payload to its place.
//!
//! # How bytes arrive
//!
//! One `recv` of up to 128 KiB into a staging buffer takes what TCP has; then frame by frame:
//! length, CRC, every check of RFC 5040 and 5041, and only then the copy to the target. A
//! connection keeps the buffer while it holds a partial frame, and while a consumer drives it,
//! which the engine looks after.
//!
//! Where CRC was negotiated away, the payload of a long frame does without the copy ([`placing`]).
//!
//! # Cost of one 64-byte Send
//!
//! One system call, one CRC, one copy, no allocation; a `recv` that filled less than the buffer has
//! emptied the socket and is not repeated. Right behind a payload that was placed so, a call more.

mod placing;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use access_layer::rnic::{Completion, WcOpcode, WcStatus};
use iwarp_proto::mpa::Negotiated;
use iwarp_proto::wire::fpdu::{self, Deframed};
use iwarp_proto::{
    Access, Connection, Delivery, Inbound, MpaError, PeerTerminate, Placement, ProtectionFault,
    ProtocolError, ReceiveBuffer, ReceiveQueue, Target, TerminateCode,
};
use rustix::io::Errno;

use crate::crc::crc32c;
use crate::engine::io::{self, Received};
use crate::marked::{MarkedRx, Unmarked};
use crate::memory::{MemoryAccess, StreamMemory};
use crate::pool::Staging;
use crate::qp::Qp;
use crate::work::{Outstanding, RecvSlot, notify};

use placing::Placing;

/// Bytes that one drive takes before it lets the consumer look.
const DRIVE_MAX: usize = 4 * RECEIVE_MAX;
/// Bytes of one receive: what is checked and copied right after the kernel wrote it should still be
/// in the second cache level, beside what the program itself keeps there.
const RECEIVE_MAX: usize = 128 * 1024;
/// A receive this long is part of a bulk transfer.
const BULK: usize = 64 * 1024;
/// So many frames in one receive are part of a stream of small messages.
const STREAM: u32 = 4;
/// How long a bulk receiver stays off an empty socket. Asking again at once would fight the sender
/// for the socket's lock.
const BULK_PAUSE_SPINS: u32 = 60;
const BULK_PAUSE_DOUBLINGS: u32 = 3;

/// Why receiving ended for good.
#[derive(Debug)]
pub(crate) enum RxEnd {
    /// The peer has closed between two frames.
    Closed,
    /// It has closed within a frame.
    Broken,
    /// The socket has failed.
    Socket(Errno),
    /// The peer violated the protocol, or a local receive was unusable.
    Fault(ProtocolError),
    /// The peer has sent a Terminate message.
    Terminated(Option<PeerTerminate>),
}

/// What a connection lends its receiving side for one pass.
pub(crate) struct Lent<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) qp: &'a Qp,
    pub(crate) proto: &'a mut Connection,
    pub(crate) outstanding: &'a mut Outstanding,
    pub(crate) completions: &'a mut Vec<Completion>,
}

/// The same once something has arrived, with the memory table open.
struct Sinks<'a> {
    memory: &'a MemoryAccess<'a>,
    qp: &'a Qp,
    proto: &'a mut Connection,
    outstanding: &'a mut Outstanding,
    completions: &'a mut Vec<Completion>,
}

impl Lent<'_> {
    fn open<'a>(&'a mut self, memory: &'a MemoryAccess<'a>) -> Sinks<'a> {
        Sinks {
            memory,
            qp: self.qp,
            proto: &mut *self.proto,
            outstanding: &mut *self.outstanding,
            completions: &mut *self.completions,
        }
    }
}

/// The receiving side.
#[derive(Debug)]
pub(crate) struct Rx {
    crc: bool,
    /// The markers that we asked for, if we did.
    marked: Option<MarkedRx>,
    /// Held while it has a partial frame, at `start..end`, or is soon needed again.
    staging: Option<Staging>,
    start: usize,
    end: usize,
    /// The segment whose payload does not come through the buffer, if there is one.
    placing: Option<Placing>,
    /// So many frames are not taken together with what follows them.
    narrow: u8,
    is_bulk: bool,
    /// Whole frames handled so far.
    frames: u64,
    /// Looks at the empty socket since the last bytes, as far as they matter.
    empty_looks: u32,
    /// Receives taken over from the queue pair, so that its lock is taken once for many.
    batch: VecDeque<RecvSlot>,
    /// The receive of the message that is arriving, and why it cannot complete well.
    current: Option<RecvSlot>,
    current_status: WcStatus,
}

impl Rx {
    pub(crate) fn new(negotiated: &Negotiated) -> Self {
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
            empty_looks: 0,
            batch: VecDeque::new(),
            current: None,
            current_status: WcStatus::Success,
        }
    }

    /// Whole frames handled so far.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Receives and places what the socket has. `false`: it had nothing.
    ///
    /// With `keep` the buffer stays for the next call, until [`Self::rest`].
    pub(crate) fn run(&mut self, keep: bool, lent: &mut Lent<'_>) -> Result<bool, RxEnd> {
        let mut staging = self.staging.take().unwrap_or_else(Staging::take);
        let result = self.fill_and_handle(&mut staging, lent);
        self.staging = Some(staging);
        if !keep {
            self.rest();
        }
        result
    }

    /// Gives the buffer back, unless a partial frame is in it.
    pub(crate) fn rest(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if let Some(staging) = self.staging.take() {
                staging.give_back();
            }
        }
    }

    fn fill_and_handle(
        &mut self,
        staging: &mut Staging,
        lent: &mut Lent<'_>,
    ) -> Result<bool, RxEnd> {
        let mut taken = 0;
        while taken < DRIVE_MAX {
            let (received, is_short) = self.receive(staging, lent)?;
            match received {
                Received::Bytes(count) => {
                    taken += count;
                    let memory = lent.qp.shared.memory.access();
                    let frames = self.handle_all(staging, &mut lent.open(&memory))?;
                    self.empty_looks = 0;
                    self.frames += u64::from(frames);
                    self.is_bulk = taken >= BULK || frames >= STREAM;
                    if is_short {
                        return Ok(true);
                    }
                }
                Received::WouldBlock => {
                    self.warm_up();
                    self.pause_if_bulk(lent.proto);
                    return Ok(taken > 0);
                }
                Received::Eof if self.is_between_frames() => return Err(RxEnd::Closed),
                Received::Eof => return Err(RxEnd::Broken),
                Received::Failed(error) => return Err(RxEnd::Socket(error)),
            }
        }
        Ok(true)
    }

    /// One receive, to where the next bytes belong. Says also whether it took less than was asked
    /// for, and so all that there was.
    fn receive(
        &mut self,
        staging: &mut Staging,
        lent: &mut Lent<'_>,
    ) -> Result<(Received, bool), RxEnd> {
        if let Some(placing) = self.placing.take() {
            return self.receive_placing(placing, staging, lent);
        }
        let room = self.narrowed(staging, (staging.len() - self.end).min(RECEIVE_MAX));
        let received = io::receive(lent.fd, &mut staging[self.end..self.end + room]);
        if let Received::Bytes(count) = received {
            self.end += count;
        }
        Ok((received, received != Received::Bytes(room)))
    }

    /// Whether nothing is here of a frame that has not arrived whole.
    fn is_between_frames(&self) -> bool {
        self.start == self.end && self.placing.is_none()
    }

    /// Brings the next receive near the processor while there is time: a queue of thousands of them
    /// is larger than its first caches.
    fn warm_up(&self) {
        if let Some(next) = self.batch.front() {
            std::hint::black_box((next.wr_id, next.signalled));
        }
    }

    /// Stays off an empty socket during a bulk transfer: longer and longer while it is certain that
    /// more comes, because a frame is cut or a read is not answered.
    fn pause_if_bulk(&mut self, proto: &Connection) {
        if !self.is_bulk {
            return;
        }
        let more_comes = !self.is_between_frames() || proto.outstanding_reads() > 0;
        let doublings = if more_comes { self.empty_looks } else { 0 };
        self.empty_looks = (self.empty_looks + 1).min(BULK_PAUSE_DOUBLINGS);
        for _ in 0..BULK_PAUSE_SPINS << doublings {
            std::hint::spin_loop();
        }
    }

    /// Handles the whole frames in the buffer and moves a partial one to its front. Returns how
    /// many there were.
    fn handle_all(&mut self, staging: &mut Staging, sinks: &mut Sinks<'_>) -> Result<u32, RxEnd> {
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
            if !self.crc && self.marked.is_none() {
                self.begin_placing(staging, sinks)?;
            }
        }
        Ok(placed + frames)
    }

    #[inline]
    fn handle_plain(&mut self, staging: &mut Staging, sinks: &mut Sinks<'_>) -> Result<u32, RxEnd> {
        let mut frames = 0;
        loop {
            match fpdu::peek(&staging[self.start..self.end]) {
                Deframed::Fpdu {
                    ulpdu_len,
                    total_len,
                } => {
                    let at = self.start;
                    self.start += total_len;
                    self.narrow = self.narrow.saturating_sub(1);
                    frames += 1;
                    let frame = &staging[at..at + total_len];
                    self.handle_frame(frame, ulpdu_len, sinks)?;
                }
                Deframed::Need(_) => break,
                Deframed::BadLength => {
                    return Err(RxEnd::Fault(sinks.proto.handle_llp_error(MpaError::Length)));
                }
            }
        }
        Ok(frames)
    }

    /// Handles the whole frames in the buffer where there are markers among them.
    #[cold]
    fn handle_marked(
        &mut self,
        staging: &mut Staging,
        sinks: &mut Sinks<'_>,
    ) -> Result<u32, RxEnd> {
        let crc = self.crc;
        let mut frames = 0;
        while let Some(marked) = &mut self.marked {
            let front = &mut staging[self.start..self.end];
            match marked.take(front, crc) {
                Ok(Some(Unmarked { ulpdu, consumed })) => {
                    let ulpdu = self.start + ulpdu.start..self.start + ulpdu.end;
                    self.start += consumed;
                    frames += 1;
                    self.handle_ulpdu(&staging[ulpdu], sinks)?;
                }
                Ok(None) => break,
                Err(error) => return Err(RxEnd::Fault(sinks.proto.handle_llp_error(error))),
            }
        }
        Ok(frames)
    }

    fn handle_frame(
        &mut self,
        frame: &[u8],
        ulpdu_len: usize,
        sinks: &mut Sinks<'_>,
    ) -> Result<(), RxEnd> {
        let (covered, field) = frame.split_at(frame.len() - fpdu::CRC_LEN);
        if self.crc && fpdu::crc_field(crc32c(covered)) != field {
            return Err(RxEnd::Fault(sinks.proto.handle_llp_error(MpaError::Crc)));
        }
        let ulpdu = &covered[fpdu::LENGTH_LEN..fpdu::LENGTH_LEN + ulpdu_len];
        self.handle_ulpdu(ulpdu, sinks)
    }

    /// Asks the protocol, with the memory and the receives that are at hand.
    #[inline]
    fn ask<R>(
        &mut self,
        sinks: &mut Sinks<'_>,
        question: impl FnOnce(&mut Connection, &StreamMemory<'_>, &mut Receives<'_>) -> R,
    ) -> R {
        let memory = StreamMemory {
            access: sinks.memory,
            stream: sinks.qp.stream(),
        };
        let mut receives = Receives {
            qp: sinks.qp,
            batch: &mut self.batch,
            current: &mut self.current,
        };
        question(sinks.proto, &memory, &mut receives)
    }

    /// A segment whose CRC is good.
    #[inline]
    fn handle_ulpdu(&mut self, ulpdu: &[u8], sinks: &mut Sinks<'_>) -> Result<(), RxEnd> {
        let judged = self.ask(sinks, |proto, memory, receives| {
            proto.handle_ulpdu(ulpdu, memory, receives)
        });
        let inbound = match judged {
            Ok(inbound) => inbound,
            Err(fault) => return Err(self.judge(fault)),
        };
        match inbound {
            Inbound::Place(placement) => self.place(ulpdu, &placement, sinks),
            Inbound::Atomic(request) => {
                let original = execute_atomic(&request, sinks)?;
                sinks.proto.answer_atomic(original);
                Ok(())
            }
            Inbound::AtomicResponse { token, original } => {
                self.store_atomic(token, original, sinks)
            }
            Inbound::ReadRequest
            | Inbound::ReadyToReceive
            | Inbound::Carrier(_)
            | Inbound::Dropped => Ok(()),
            Inbound::Terminated(terminate) => Err(RxEnd::Terminated(terminate)),
        }
    }

    /// A message longer than its receive completes the receive with that error.
    fn judge(&mut self, fault: ProtocolError) -> RxEnd {
        if fault.code == TerminateCode::Untagged(iwarp_proto::UntaggedError::TooLong) {
            self.current_status = WcStatus::LocalLength;
        }
        RxEnd::Fault(fault)
    }

    fn place(
        &mut self,
        ulpdu: &[u8],
        placement: &Placement,
        sinks: &mut Sinks<'_>,
    ) -> Result<(), RxEnd> {
        let payload = &ulpdu[placement.payload.clone()];
        if !payload.is_empty() {
            match placement.target {
                Target::Tagged { stag, to } => {
                    let access = tagged_access(ulpdu);
                    let (stream, len) = (sinks.qp.stream(), payload.len() as u32);
                    match sinks.memory.remote(stream, access, stag, to, len) {
                        Ok(bytes) => bytes.write(payload),
                        Err(fault) => return Err(refuse(ulpdu, ulpdu.len(), fault, sinks)),
                    }
                }
                Target::Untagged { offset, .. } => {
                    self.place_untagged(payload, offset as usize, sinks)?;
                }
            }
        }
        self.deliver(placement, sinks);
        Ok(())
    }

    /// The payload is in its place: a message may be complete with it.
    fn deliver(&mut self, placement: &Placement, sinks: &mut Sinks<'_>) {
        if let Some(Delivery::Receive {
            len,
            solicited,
            invalidate,
            immediate,
            ..
        }) = placement.delivered
        {
            if let Some(stag) = invalidate {
                sinks.memory.invalidate(stag);
            }
            self.complete_receive(len, solicited, invalidate, immediate, sinks);
        }
    }

    fn place_untagged(
        &mut self,
        payload: &[u8],
        offset: usize,
        sinks: &mut Sinks<'_>,
    ) -> Result<(), RxEnd> {
        let mut at = 0;
        let placed = self.current.as_ref().is_some_and(|slot| {
            let range = (offset, payload.len());
            slot.sgl
                .for_each_piece(sinks.memory, sinks.qp.pd(), true, range, |bytes| {
                    bytes.write(&payload[at..at + bytes.len()]);
                    at += bytes.len();
                })
        });
        if placed {
            return Ok(());
        }
        Err(self.fail_receive(sinks))
    }

    fn complete_receive(
        &mut self,
        len: u32,
        solicited: bool,
        invalidate: Option<iwarp_proto::Stag>,
        immediate: Option<[u8; 8]>,
        sinks: &mut Sinks<'_>,
    ) {
        let Some(slot) = self.current.take() else {
            return;
        };
        let opcode = match (invalidate, immediate) {
            (Some(_), _) => WcOpcode::RecvInvalidate,
            (_, Some(_)) => WcOpcode::RecvImmediate,
            _ => WcOpcode::Recv,
        };
        sinks.completions.push(Completion {
            wr_id: slot.wr_id,
            qp: sinks.qp.token,
            opcode,
            status: WcStatus::Success,
            byte_len: len,
            invalidated: invalidate.map(|stag| stag.0),
            immediate: immediate.map(|bytes| immediate_value(&bytes)),
            notify: notify(slot.signalled, solicited, WcStatus::Success),
        });
    }

    fn store_atomic(
        &mut self,
        token: u64,
        original: u64,
        sinks: &mut Sinks<'_>,
    ) -> Result<(), RxEnd> {
        let bytes = original.to_ne_bytes();
        let mut at = 0;
        let stored = sinks.outstanding.get(token).is_some_and(|slot| {
            let range = (0, bytes.len());
            slot.sgl
                .for_each_piece(sinks.memory, sinks.qp.pd(), true, range, |piece| {
                    piece.write(&bytes[at..at + piece.len()]);
                    at += piece.len();
                })
        });
        if stored {
            return Ok(());
        }
        if let Some(slot) = sinks.outstanding.get_mut(token) {
            slot.status = WcStatus::LocalProtection;
        }
        Err(RxEnd::Fault(sinks.proto.fail_local()))
    }

    /// The receives that have not completed, the one that was being filled first, with its status.
    pub(crate) fn take_receives(&mut self) -> (Option<(RecvSlot, WcStatus)>, VecDeque<RecvSlot>) {
        let status = match self.current_status {
            WcStatus::Success => WcStatus::Flushed,
            failed => failed,
        };
        if let Some(staging) = self.staging.take() {
            staging.give_back();
        }
        (
            self.current.take().map(|slot| (slot, status)),
            std::mem::take(&mut self.batch),
        )
    }
}

/// The receive queue as the protocol sees it.
struct Receives<'a> {
    qp: &'a Qp,
    batch: &'a mut VecDeque<RecvSlot>,
    current: &'a mut Option<RecvSlot>,
}

impl ReceiveQueue for Receives<'_> {
    fn next(&mut self) -> Option<ReceiveBuffer> {
        let slot = self.qp.take_receive(self.batch)?;
        let buffer = ReceiveBuffer {
            token: slot.wr_id,
            len: slot.len,
        };
        // One message arrives at a time, so one receive is in use at a time.
        *self.current = Some(slot);
        Some(buffer)
    }
}

/// A segment of a Read Response needs less than a Write: the sink's rights are our own.
fn tagged_access(ulpdu: &[u8]) -> Access {
    const OPCODE_MASK: u8 = 0x0F;
    const READ_RESPONSE: u8 = 0x2;
    match ulpdu.get(1) {
        Some(control) if control & OPCODE_MASK == READ_RESPONSE => Access::ReadSink,
        _ => Access::RemoteWrite,
    }
}

fn refuse(ulpdu: &[u8], len: usize, fault: ProtectionFault, sinks: &mut Sinks<'_>) -> RxEnd {
    RxEnd::Fault(sinks.proto.refuse_placement(ulpdu, len, fault))
}

/// The eight bytes of Immediate Data carry a 32-bit value in their first four, in network order.
pub(crate) fn immediate_value(bytes: &[u8; 8]) -> u32 {
    let [a, b, c, d, ..] = *bytes;
    u32::from_be_bytes([a, b, c, d])
}

/// The wire form of a 32-bit immediate value.
pub(crate) fn immediate_bytes(value: u32) -> [u8; 8] {
    let [a, b, c, d] = value.to_be_bytes();
    [a, b, c, d, 0, 0, 0, 0]
}

fn execute_atomic(
    request: &iwarp_proto::wire::rdmap::AtomicRequest,
    sinks: &mut Sinks<'_>,
) -> Result<u64, RxEnd> {
    let range = sinks.memory.remote(
        sinks.qp.stream(),
        Access::RemoteAtomic,
        request.stag,
        request.to,
        size_of::<u64>() as u32,
    );
    match range.map(|bytes| bytes.update(|original| request.op.apply(original))) {
        Ok(Some(original)) => Ok(original),
        // A misaligned address of ours under an aligned tagged offset, or memory that went away.
        _ => Err(RxEnd::Fault(sinks.proto.fail_local())),
    }
}
