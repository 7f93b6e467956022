//! The local carrier of one connection: two rings, a bell, references that are pulled, and Writes
//! and Reads that the initiator carries out ([`super::direct`]).
//!
//! # Cost of one 64-byte Send
//!
//! | | sender | receiver |
//! |---|---|---|
//! | system calls | none; one if the receiver sleeps | none |
//! | copies | 1, into the ring | 1, to its target |
//! | locks taken, uncontended | connection, memory table, queue | connection, memory table, receives, queue |
//! | allocations | none | none |
//!
//! A payload above [`INLINE_MAX`] is not copied by the sender if the receiver can read the sender's
//! memory, unless the Send asks for a copy. One `process_vm_readv` of the receiver copies it to its
//! target, and the sender only checks for the receiver's answer. If the receiver cannot read the
//! memory, the sender supplies the bytes ([`supply`]), and later payloads are copied.

mod bells;
mod one_sided;
mod pending_pull;
mod supply;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use iwarp_proto::{
    Connection, Ends, Placement, ProtectionFault, Stag, TransmitFpdu, TransmitPayload,
};
use rnic::Flow as Way;

use crate::carrier::inbox::{Accepted, Reception, Sinks};
use crate::carrier::{Carrier, Distance, End, Flow, Payloads, TxFault, visit_payload};
use crate::memory::{Bytes, MemoryAccess, ReferenceHolder, TAIL};
use crate::progress::conn_socket::MayHaveWork;
use crate::work::Report;

use super::attention::{self, Attention};
use super::bell;
use super::direct::{Grant, Initiator, must_follow};
use super::pull::{self, Puller, Witness};
use super::record::{Body, Corrupt, PIECES_MAX, Piece, Position};
use super::references::OutstandingReferences;
use super::rendezvous::{self, UnixConn};
use super::ring::{Consumer, Outcome, Producer, Refused};
use super::watch::Watch;
use pending_pull::PendingPull;
use supply::Declined;

/// Payloads up to this long are copied through the ring.
pub(crate) const INLINE_MAX: usize = 8 * 1024;
/// The longest payload of a segment that is read by reference. A deregistration of its target waits
/// for this amount.
const REFERENCE_MAX: usize = 1024 * 1024;
/// The longest payload of a segment if the receiver cannot read the sender's memory: long enough
/// for copies at full speed, and short enough for both sides to copy at the same time.
const THROUGH_RING_MAX: usize = 16 * 1024;
/// The shortest ring in which a segment that is not read by reference has room.
pub(crate) const RING_LEN_ADOPTED: usize = 4 * THROUGH_RING_MAX;
/// A drive that copies payloads of this length may last longer than a pause between two polls, so
/// each of them counts as a poll.
const LONG_COPY: usize = 2048;
/// Maximum number of records and bytes that one drive takes before it returns to the consumer.
const DRIVE_RECORDS: usize = 128;
const DRIVE_BYTES: usize = 512 * 1024;

/// A segment that is not finished, because it or an earlier one is a reference that is not pulled.
#[derive(Debug)]
struct Unfinished {
    reference: Option<(Position, TransmitPayload)>,
    /// The position of the record, if the peer must have handled it.
    handled: Option<Position>,
    ends: Finish,
}

/// The action when the peer has received a segment and all segments before it.
#[derive(Debug, Clone, Copy)]
enum Finish {
    /// No action.
    Silent,
    /// A work request of the protocol is sent.
    Work { token: u64 },
    /// A submitted request is reported.
    Report(Report),
}

/// The permission to read the memory of the peer.
#[derive(Debug, Clone, Copy)]
enum Reading {
    /// The kernel has never permitted it, so the peer sends no references.
    Never,
    Permitted(Puller),
    /// The permission has ended, while the ring may have had references.
    Ended,
}

/// The local carrier of one connection.
///
/// When the connection has received the end of the peer's TCP stream, it first receives what is
/// left in this carrier. So no segment is lost that the peer transmitted before that end.
#[derive(Debug)]
pub(crate) struct LocalCarrier {
    producer: Producer,
    consumer: Consumer,
    /// The connection between the two processes: bells in both directions.
    conn: Arc<UnixConn>,
    reading: Reading,
    initiator: Initiator,
    attention: Attention,
    /// The position up to which the peer has been rung, or was found to have taken all records.
    settled: u64,
    /// The position of the next record at the last check of the peer's polls.
    checked: u64,
    /// True if a segment is finished once the peer has handled it.
    awaits_handling: bool,
    /// The last segment that no direct copy may overtake, until the peer has handled it.
    ordered: Option<Position>,
    /// True if a segment was received, and not released, that no direct copy may overtake.
    has_ordered: bool,
    references: Arc<OutstandingReferences>,
    watch: Arc<Watch>,
    /// A segment for which the ring had no room.
    stashed: Option<TransmitFpdu>,
    /// True if a wait found room or a finished reference, and no thread has transmitted since.
    must_transmit: bool,
    /// The segments from the oldest reference on that the peer has not pulled.
    unfinished: VecDeque<Unfinished>,
    /// The number of bytes of the oldest reference that were supplied.
    supplied: usize,
    /// The message at the front of the ring, if this end has declined its reference.
    declined: Option<Declined>,
    finished: Vec<Report>,
    distance: Distance,
    /// True while threads poll the connection, so that the peer need not ring.
    is_polled: bool,
    /// True if a message was received and nothing was sent since: the peer waits for an answer.
    is_answering: bool,
    /// True if a message was sent and nothing was received since: the next message is probably its
    /// answer, and the only one.
    awaits_answer: bool,
    /// The longest payload of a segment.
    payload_max: usize,
    /// The payload bytes through the ring, by reference, and by direct copies.
    ring: Way,
    reference: Way,
    direct: Way,
}

impl LocalCarrier {
    /// Creates the carrier on which both ends have agreed. `conn` is the connection between the two
    /// processes, and `witness` the word by which the peer recognises this process.
    pub(crate) fn new(
        producer: Producer,
        mut consumer: Consumer,
        conn: UnixConn,
        witness: Witness,
    ) -> Self {
        let credentials = rendezvous::peer_credentials(&conn).ok();
        let known = consumer.known_word();
        let puller = credentials.and_then(|peer| Puller::probe(peer, known).ok());
        tracing::debug!(by_reference = puller.is_some(), "shared memory is agreed");
        consumer.set_can_pull(puller.is_some());
        let reading = puller.map_or(Reading::Never, Reading::Permitted);
        let conn = Arc::new(conn);
        let grant = Grant::new(producer.half().clone(), witness);
        let references = OutstandingReferences::new(producer.revoker(), conn.clone(), grant);
        let references = Arc::new(references);
        let initiator = Initiator::new(consumer.half().clone());
        let attention = Attention::new(producer.half().clone());
        let watch = Arc::new(Watch::new(consumer.half().clone()));
        Self {
            producer,
            consumer,
            conn,
            reading,
            initiator,
            attention,
            settled: 0,
            checked: 0,
            awaits_handling: false,
            ordered: None,
            has_ordered: false,
            references,
            watch,
            stashed: None,
            must_transmit: false,
            unfinished: VecDeque::new(),
            supplied: 0,
            declined: None,
            finished: Vec::new(),
            distance: Distance::default(),
            is_polled: false,
            is_answering: false,
            awaits_answer: false,
            payload_max: THROUGH_RING_MAX,
            ring: Way::default(),
            reference: Way::default(),
            direct: Way::default(),
        }
    }

    /// Makes a segment finish once the peer has handled it, instead of when it is in the ring.
    pub(crate) fn await_handling(&mut self) {
        self.awaits_handling = true;
        self.producer.await_releases();
    }

    /// The object that deregistration calls before returning, because the peer reads registered
    /// memory.
    pub(crate) fn reference_holder(&self) -> Arc<dyn ReferenceHolder> {
        self.references.clone()
    }

    /// The view for polling threads that do not hold the connection.
    pub(crate) fn watch(&self) -> Arc<dyn MayHaveWork> {
        self.watch.clone()
    }

    /// Updates the view of [`Self::watch`] at the end of a pass. `is_busy` is true if the
    /// connection has work outside of the carrier.
    pub(crate) fn update_watch(&self, is_busy: bool) {
        attention::note_taken(self.consumer.half(), self.consumer.position());
        let is_busy = is_busy || self.is_pending();
        self.watch
            .set((!is_busy).then(|| self.consumer.next_offset()));
    }

    /// The descriptor that becomes readable when the peer rings.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.conn.as_fd()
    }

    /// Returns the longest segment to transmit. Called when the transmitting direction moves; the
    /// peer has then announced whether it pulls.
    pub(crate) fn segment_max(&mut self) -> usize {
        self.payload_max = if self.producer.consumer_can_pull() {
            REFERENCE_MAX
        } else {
            THROUGH_RING_MAX
        };
        self.payload_max + iwarp_proto::HEADER_MAX
    }

    /// Transmits the last message of the stream, if there is room.
    pub(crate) fn transmit_last(&mut self, segment: &TransmitFpdu) {
        if self.producer.push_last(segment.segment_header()).is_ok() {
            self.publish();
        }
    }

    /// Ends all use of the consumer's memory by the peer.
    pub(crate) fn close(&mut self) {
        self.references.revoke_all();
    }

    /// Returns the payload that was copied, that was read by reference, and that this end has
    /// copied directly.
    pub(crate) fn traffic(&self) -> (Way, Way, Way) {
        (self.ring, self.reference, self.direct)
    }

    /// Writes one segment. Returns `false` if the ring has no room.
    fn push(
        &mut self,
        segment: &TransmitFpdu,
        memory: &MemoryAccess<'_>,
        payloads: &Payloads<'_>,
    ) -> Result<bool, PushFault> {
        let len = segment.payload_len();
        let mut pieces = [Bytes::EMPTY; PIECES_MAX];
        let mut count = 0;
        visit_payload(segment.payload, memory, payloads, |bytes| {
            if count < PIECES_MAX {
                pieces[count] = bytes;
            }
            count += 1;
        })
        .map_err(PushFault::Protection)?;
        let pieces = pieces.get(..count).unwrap_or_default();
        let pushed = if self.is_by_reference(segment, payloads) && !pieces.is_empty() {
            self.push_reference(segment, pieces, memory, payloads)
        } else {
            let header = segment.segment_header();
            let pushed = self.producer.push(header, len, |to| copy(pieces, to));
            if pushed.is_ok() {
                self.ring.sent.add_segment(len);
            }
            self.note_order(header, pushed.ok());
            pushed.map(|position| Unfinished {
                reference: None,
                handled: self.awaits_handling.then_some(position),
                ends: finish_of(segment),
            })
        };
        match pushed {
            Ok(unfinished) => {
                self.note(unfinished);
                Ok(true)
            }
            Err(Refused::Full) => Ok(false),
            Err(Refused::TooLong | Refused::Unreadable) => {
                Err(PushFault::Protection(ProtectionFault::Bounds))
            }
            Err(Refused::Corrupt(corrupt)) => Err(PushFault::Corrupt(corrupt)),
        }
    }

    /// True if the receiver is to read the payload in the memory of this process.
    fn is_by_reference(&self, segment: &TransmitFpdu, payloads: &Payloads<'_>) -> bool {
        let len = segment.payload_len();
        if len <= INLINE_MAX {
            return false;
        }
        if self.payload_max != REFERENCE_MAX {
            // Such a segment was made before the peer declined a reference.
            return len > self.producer.payload_max();
        }
        let TransmitPayload::WorkRequest { token, .. } = segment.payload else {
            return true;
        };
        let slot = payloads.outstanding.get(token);
        let is_inline = slot.is_some_and(|slot| slot.inline);
        !is_inline || len > self.producer.payload_max()
    }

    fn push_reference(
        &mut self,
        segment: &TransmitFpdu,
        pieces: &[Bytes<'_>],
        memory: &MemoryAccess<'_>,
        payloads: &Payloads<'_>,
    ) -> Result<Unfinished, Refused> {
        let mut places = [Piece::default(); PIECES_MAX];
        for (place, bytes) in places.iter_mut().zip(pieces) {
            (place.addr, place.len) = (bytes.addr(), bytes.len() as u32);
        }
        let header = segment.segment_header();
        let position = self
            .producer
            .push_reference(header, &places[..pieces.len()])?;
        self.references
            .add(position, stags_of(segment.payload, memory, payloads));
        self.reference.sent.add_segment(segment.payload_len());
        self.note_order(header, Some(position));
        Ok(Unfinished {
            reference: Some((position, segment.payload)),
            handled: None,
            ends: finish_of(segment),
        })
    }

    /// Records a segment that was written to the ring.
    fn note(&mut self, segment: Unfinished) {
        self.distance.sent += 1;
        self.unfinished.push_back(segment);
    }

    /// Finishes the segments that the peer has received, oldest first.
    fn finish(&mut self, proto: &mut Connection) -> Result<(), TxFault> {
        while let Some(oldest) = self.unfinished.front() {
            if let Some((position, _)) = oldest.reference {
                let Some(done) = self.producer.poll_reference().map_err(corrupt_tx)? else {
                    return Ok(());
                };
                self.references.remove(position);
                self.supplied = 0;
                if done.outcome != Outcome::Pulled {
                    return Err(fault_of(oldest.ends, done.outcome, proto));
                }
            }
            if let Some(position) = oldest.handled
                && self.producer.consumed().map_err(corrupt_tx)? <= position
            {
                return Ok(());
            }
            match self.unfinished.pop_front().map(|oldest| oldest.ends) {
                Some(Finish::Work { .. }) => proto.on_sent(1),
                Some(Finish::Report(report)) => self.finished.push(report),
                Some(Finish::Silent) | None => {}
            }
        }
        Ok(())
    }

    /// Receives records while `budget` permits it. The memory table is open, except while a payload
    /// is pulled.
    fn receive_within(
        &mut self,
        reception: &mut Reception<'_>,
        budget: &mut Budget,
    ) -> Result<(), End> {
        let table = reception.table;
        let mut pulled: Option<Placement<()>> = None;
        loop {
            let memory = table.access();
            let mut sinks = reception.open(&memory);
            if let Some(placement) = pulled.take() {
                sinks.deliver(&placement);
            }
            if !self.take_supplied(&mut sinks, budget)? {
                return Ok(());
            }
            let Some(mut pull) = self.handle_records(&mut sinks, budget)? else {
                return Ok(());
            };
            let pinned = table.pin(&memory, std::mem::take(&mut pull.stags));
            drop(memory);
            let is_pulled = self.pull(&mut pull)?;
            drop(pinned);
            if is_pulled {
                budget.take(pull.len);
                pulled = Some(pull.placement);
            } else {
                self.declined = Some(Declined::new(pull));
            }
        }
    }

    /// Handles the records at the front of the ring while `budget` permits it. A record whose
    /// payload is in the peer's memory is returned: its payload must be pulled, and the message
    /// delivered.
    fn handle_records(
        &mut self,
        sinks: &mut Sinks<'_>,
        budget: &mut Budget,
    ) -> Result<Option<PendingPull>, End> {
        while budget.has_left() {
            match self.handle_front(sinks)? {
                Front::Empty => budget.records = 0,
                Front::Handled(len) => budget.take(len),
                Front::Pull(pull) => return Ok(Some(pull)),
            }
        }
        Ok(None)
    }

    /// Handles the record at the front of the ring.
    fn handle_front(&mut self, sinks: &mut Sinks<'_>) -> Result<Front, End> {
        let Some(record) = self.consumer.peek().map_err(corrupt_rx)? else {
            return Ok(Front::Empty);
        };
        let (header, len) = (record.header(), record.payload_len());
        self.has_ordered |= must_follow(header) && self.references.grant.is_announced();
        let checked = sinks.with_proto(|proto, memory, receives| {
            proto.handle_segment(header, len, memory, receives)
        });
        let accepted = sinks.accept(checked)?;
        if matches!(accepted, Accepted::Unready) {
            // The record stays at the front.
            return Ok(Front::Empty);
        }
        if let Accepted::Place(placement) = accepted {
            match record.body {
                Body::None => {}
                Body::Inline { ptr, .. } => {
                    let (mut from, mut is_placed) = (ptr, true);
                    sinks.place(&placement.target, len, |bytes| {
                        // SAFETY: the record has `len` bytes from `ptr` on in the shared segment
                        // (Consumer::peek), which `self` keeps mapped, and the pieces of a target
                        // are `len` bytes long in all.
                        is_placed &= unsafe { bytes.write_from(from) };
                        from = from.wrapping_add(bytes.len());
                    })?;
                    if !is_placed {
                        return Err(sinks.fail_place(&placement.target));
                    }
                }
                Body::Reference { .. } => {
                    return PendingPull::prepare(placement, len, sinks).map(Front::Pull);
                }
            }
            sinks.deliver(&placement);
        }
        match record.body {
            Body::Reference { .. } => self.reference.received.add_segment(len),
            Body::Inline { .. } | Body::None => self.ring.received.add_segment(len),
        }
        self.consumer.advance();
        if len >= LONG_COPY {
            attention::note_poll(self.consumer.half());
        }
        Ok(Front::Handled(len))
    }

    /// Reads the payload of the record at the front from the peer's memory into its target, and
    /// takes the record. Returns false if the memory cannot be read: the peer supplies the payload.
    fn pull(&mut self, pull: &mut PendingPull) -> Result<bool, End> {
        if !self.consumer.begin_pull().map_err(corrupt_rx)? {
            // The peer has revoked the reference, because its memory is no longer registered. That
            // error of the peer ends the connection.
            return Err(End::Broken);
        }
        let puller = match self.reading {
            Reading::Permitted(puller) => puller,
            Reading::Ended => return self.decline(),
            Reading::Never => return Err(End::Broken),
        };
        let mut tail = [0; TAIL];
        pull.places.extend(pull.late.map(|_| pull::Target {
            ptr: tail.as_mut_ptr(),
            len: TAIL,
        }));
        // SAFETY: the memory table has checked the targets, whose registrations the caller has
        // pinned; the eight bytes are of this frame.
        let pulled = unsafe { puller.pull(self.consumer.pieces(), &pull.places) };
        if let Err(error) = pulled {
            tracing::debug!(%error, "the peer must supply a payload that cannot be read");
            if error.raw_os_error() != Some(libc::EFAULT) {
                self.reading = Reading::Ended;
                self.consumer.set_can_pull(false);
            }
            return self.decline();
        }
        if let Some(place) = pull.late
            && self.consumer.may_use_pulled()
        {
            // SAFETY: the last bytes of the target, which the memory table has checked, and whose
            // registrations the caller has pinned.
            unsafe { crate::memory::write_late(place, &tail) };
        }
        // From here on the sender reports success, so all bytes are in their place.
        if !self.consumer.end_pull() {
            return Err(End::Broken);
        }
        self.reference.received.add_segment(pull.len);
        self.consumer.advance();
        Ok(true)
    }

    fn decline(&mut self) -> Result<bool, End> {
        match self.consumer.decline() {
            true => Ok(false),
            false => Err(End::Broken),
        }
    }
}

/// The result of a step at the front of the ring.
enum Front {
    /// There is no record.
    Empty,
    /// A record with a payload of this length was taken.
    Handled(usize),
    /// The payload of the record must be pulled.
    Pull(PendingPull),
}

/// The records and bytes that a drive may still take.
struct Budget {
    records: usize,
    bytes: usize,
    /// The number of records that were taken.
    taken: usize,
}

impl Budget {
    fn has_left(&self) -> bool {
        self.records > 0 && self.bytes > 0
    }

    fn take(&mut self, len: usize) {
        self.records = self.records.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(len);
        self.taken += 1;
    }
}

/// The reason why a segment cannot be written.
#[derive(Debug)]
enum PushFault {
    Protection(ProtectionFault),
    Corrupt(Corrupt),
}

impl Carrier for LocalCarrier {
    fn has_room(&mut self, payload_len: usize) -> bool {
        payload_len <= INLINE_MAX
            && self.stashed.is_none()
            && self.producer.has_room(iwarp_proto::HEADER_MAX, payload_len)
    }

    fn submit(&mut self, segment: &TransmitFpdu, payload: &[Bytes<'_>], report: Report) {
        let (header, len) = (segment.segment_header(), segment.payload_len());
        // The caller has checked the room.
        let pushed = self.producer.push(header, len, |to| copy(payload, to));
        debug_assert!(pushed.is_ok(), "{pushed:?}");
        let position = pushed.ok();
        self.note_order(header, position);
        // The peer waits for the segment, so it is published before the caller releases its locks.
        if self.is_answering {
            self.producer.publish();
        }
        self.ring.sent.add_segment(len);
        self.distance.sent += 1;
        let handled = position.filter(|_| self.awaits_handling);
        if self.unfinished.is_empty() && handled.is_none() {
            self.finished.push(report);
        } else {
            self.unfinished.push_back(Unfinished {
                reference: None,
                handled,
                ends: Finish::Report(report),
            });
        }
    }

    fn transmit(
        &mut self,
        proto: &mut Connection,
        payloads: &Payloads<'_>,
    ) -> Result<Flow, TxFault> {
        let mut flow = Flow::Drained;
        self.must_transmit = false;
        if self.stashed.is_some() || proto.has_transmit() {
            let memory = payloads.table.access();
            while let Some(segment) = self.stashed.take().or_else(|| proto.poll_transmit()) {
                match self.push(&segment, &memory, payloads) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.stashed = Some(segment);
                        flow = Flow::Blocked;
                        break;
                    }
                    Err(PushFault::Corrupt(corrupt)) => return Err(corrupt_tx(corrupt)),
                    Err(PushFault::Protection(fault)) => {
                        return Err(match segment.payload {
                            TransmitPayload::WorkRequest { token, .. } => TxFault::Local { token },
                            _ => TxFault::Response(proto.refuse_response(&segment, fault)),
                        });
                    }
                }
            }
        }
        self.publish();
        self.finish(proto)?;
        self.supply(proto, payloads)?;
        Ok(flow)
    }

    fn receive(&mut self, reception: &mut Reception<'_>) -> Result<bool, End> {
        if !self.consumer.has_record() {
            return Ok(false);
        }
        // A check of the word after an answer would be a cache miss, and would find nothing.
        let is_answer = std::mem::take(&mut self.awaits_answer);
        let mut budget = Budget {
            records: if is_answer { 1 } else { DRIVE_RECORDS },
            bytes: DRIVE_BYTES,
            taken: 0,
        };
        let result = self.receive_within(reception, &mut budget);
        self.distance.received += budget.taken as u64;
        if std::mem::take(&mut self.has_ordered) || self.consumer.must_release() {
            self.consumer.release();
        }
        self.is_answering = budget.taken == 1;
        if self.consumer.must_notify() {
            bell::ring(&self.conn);
        }
        result.map(|()| true)
    }

    fn reap(&mut self, proto: &mut Connection) -> Result<bool, TxFault> {
        let before = self.unfinished.len();
        if before > 0 {
            self.finish(proto)?;
        }
        Ok(self.unfinished.len() < before)
    }

    fn finished(&mut self) -> &mut Vec<Report> {
        &mut self.finished
    }

    fn has_unfinished(&self) -> bool {
        self.unfinished
            .iter()
            .any(|it| matches!(it.ends, Finish::Report(_)))
    }

    fn take_unfinished(&mut self) -> Vec<Report> {
        let reports = self.unfinished.drain(..).filter_map(|it| match it.ends {
            Finish::Report(report) => Some(report),
            _ => None,
        });
        reports.collect()
    }

    fn is_pending(&self) -> bool {
        self.stashed.is_some() || !self.unfinished.is_empty()
    }

    fn distance(&self) -> Distance {
        self.distance
    }
}

impl Drop for LocalCarrier {
    fn drop(&mut self) {
        self.close();
    }
}

/// Copies the pieces of a payload, in order. Returns false if a piece does not exist any more.
fn copy(pieces: &[Bytes<'_>], mut to: *mut u8) -> bool {
    pieces.iter().all(|bytes| {
        // SAFETY: `to` has room for the pieces, whose lengths add up to the length of the payload
        // (Producer::push), and shared memory is never registered memory.
        let is_read = unsafe { bytes.read_to(to) };
        to = to.wrapping_add(bytes.len());
        is_read
    })
}

fn finish_of(segment: &TransmitFpdu) -> Finish {
    match segment.ends {
        Some(Ends::WorkRequest { token }) => Finish::Work { token },
        _ => Finish::Silent,
    }
}

/// The registrations that contain a payload.
fn stags_of(
    payload: TransmitPayload,
    memory: &MemoryAccess<'_>,
    payloads: &Payloads<'_>,
) -> Vec<Stag> {
    match payload {
        TransmitPayload::None => Vec::new(),
        TransmitPayload::ReadResponse { stag, .. } => memory.registrations(stag),
        TransmitPayload::WorkRequest { token, .. } => {
            let slot = payloads.outstanding.get(token);
            let segments = slot.map(|slot| slot.sgl.as_slice()).unwrap_or_default();
            segments.iter().map(|sge| Stag(sge.lkey)).collect()
        }
    }
}

/// Returns the fault for a reference that was not pulled, which ends the connection.
fn fault_of(ends: Finish, outcome: Outcome, proto: &mut Connection) -> TxFault {
    tracing::warn!(?outcome, "the peer did not read a payload");
    match ends {
        Finish::Work { token } => TxFault::Local { token },
        Finish::Silent | Finish::Report(_) => TxFault::Response(proto.fail_local()),
    }
}

fn corrupt_tx(corrupt: Corrupt) -> TxFault {
    tracing::warn!(%corrupt, "invalid value in shared memory, written by the peer");
    TxFault::Transport(rustix::io::Errno::PROTO)
}

fn corrupt_rx(corrupt: Corrupt) -> End {
    tracing::warn!(%corrupt, "invalid value in shared memory, written by the peer");
    End::Broken
}
