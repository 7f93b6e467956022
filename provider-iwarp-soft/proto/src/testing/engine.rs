//! The engine around a connection: moves bytes, and checks each operation against what was granted.

use std::collections::BTreeMap;

use crc_fast::CrcAlgorithm::Crc32Iscsi;

use super::memory::{Grant, Memory, Receives, Region};
use crate::{
    Access, CarrierMessage, Completion, CompletionStatus, Config, Connection, Delivery, Ends,
    Immediate, Inbound, MpaError, Peer, PeerTerminate, Placement, ProtocolError, ReceiveBuffer,
    StreamState, Target, TransmitFpdu, TransmitPayload, WorkKind, WorkRequest,
    wire::{
        ddp,
        fpdu::{self, CRC_LEN, Deframed, LENGTH_LEN},
        rdmap::{self, AtomicRequest, Opcode},
    },
};

/// An event at one end, comparable between runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message was received completely.
    Delivered(Delivery),
    /// A Read Request was received.
    ReadRequest,
    /// An atomic operation was executed.
    Atomic(AtomicRequest, u64),
    /// An atomic operation that this end posted was answered.
    AtomicResult(u64, u64),
    /// A carrier message was received.
    Carrier(CarrierMessage),
    /// The first FPDU of a peer-to-peer initiator.
    ReadyToReceive,
    /// The peer ended the stream.
    Terminated(Option<PeerTerminate>),
    /// The peer broke the protocol; the Terminate message follows among the sent FPDUs.
    Failed(ProtocolError),
    /// An FPDU was sent.
    Sent(Vec<u8>),
}

/// A connection, its memory, and the results of both.
#[derive(Debug)]
pub struct Engine {
    /// The connection under test.
    pub conn: Connection,
    /// Registrations.
    pub memory: Memory,
    /// Posted receives.
    pub receives: Receives,
    /// Local memory of work requests and receives, by token.
    pub buffers: BTreeMap<u64, Vec<u8>>,
    /// Events in the order in which they happened.
    pub events: Vec<Event>,
    /// Work requests that completed, in order.
    pub completions: Vec<Completion>,
    /// True if the CRC of received FPDUs is checked.
    pub checks_crc: bool,
    /// The greatest length of the queue of our unanswered requests.
    pub outstanding_max: usize,
    /// The number of segments whose target was predicted.
    pub predicted: usize,
    /// Tokens of accepted work requests, in order.
    posted: Vec<u64>,
    /// The number of events up to the last FPDU that [`Engine::take_sent`] has returned.
    taken: usize,
    /// Received bytes; those before `handled` belong to FPDUs that have been processed.
    staging: Vec<u8>,
    handled: usize,
    /// Bytes of the receive in progress.
    filled: u32,
    /// The number of bytes of the latest Write received so far, and whether the Write is complete.
    written: (u32, bool),
}

impl Engine {
    /// A connection right after its start-up.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            conn: Connection::new(config),
            memory: Memory::default(),
            receives: Receives::default(),
            buffers: BTreeMap::new(),
            events: Vec::new(),
            completions: Vec::new(),
            checks_crc: true,
            outstanding_max: 0,
            predicted: 0,
            posted: Vec::new(),
            taken: 0,
            staging: Vec::new(),
            handled: 0,
            filled: 0,
            written: (0, true),
        }
    }

    /// Registers memory with all rights.
    pub fn register(&mut self, stag: u32, base: u64, bytes: Vec<u8>) {
        self.memory.regions.insert(stag, Region::open(base, bytes));
    }

    /// Posts a receive of `len` bytes.
    pub fn post_receive(&mut self, token: u64, len: u32) {
        self.receives.posted.push_back(ReceiveBuffer { token, len });
        self.buffers.insert(token, vec![0; len as usize]);
    }

    /// Posts work whose local memory is `bytes`. The queue must have room.
    pub fn post(&mut self, token: u64, kind: WorkKind, bytes: Vec<u8>, fence: bool) {
        assert!(self.try_post(token, kind, bytes, fence));
    }

    /// Posts work whose local memory is `bytes`. Returns false if the work is refused.
    pub fn try_post(&mut self, token: u64, kind: WorkKind, bytes: Vec<u8>, fence: bool) -> bool {
        let request = WorkRequest {
            token,
            kind,
            len: bytes.len() as u32,
            fence,
        };
        let accepted = self.conn.post(request).is_ok();
        if accepted {
            self.posted.push(token);
            self.buffers.insert(token, bytes);
        }
        accepted
    }

    /// Takes bytes as a socket returns them. Returns the first fault.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        self.staging.extend_from_slice(bytes);
        let mut result = Ok(());
        while result.is_ok() {
            match self.next_ulpdu() {
                Ok(Some(ulpdu)) => result = self.handle(&ulpdu),
                Ok(None) => break,
                Err(error) => result = Err(error),
            }
        }
        self.drop_handled();
        result
    }

    /// Takes bytes as a socket returns them, and after each segment transmits what is pending. A
    /// fault is answered by a Terminate message.
    pub fn receive_and_answer(&mut self, bytes: &[u8]) {
        self.staging.extend_from_slice(bytes);
        loop {
            match self.next_ulpdu() {
                Ok(Some(ulpdu)) => {
                    if let Err(error) = self.handle(&ulpdu) {
                        self.fail(error);
                    }
                    self.transmit_all();
                }
                Ok(None) => break,
                // The bytes after the FPDU must not be processed yet.
                Err(error) => {
                    self.fail(error);
                    break;
                }
            }
        }
        self.drop_handled();
    }

    /// Drops the bytes of processed FPDUs. Once per call, so the cost of a long stream is
    /// proportional to its length.
    fn drop_handled(&mut self) {
        self.staging.drain(..self.handled);
        self.handled = 0;
    }

    /// Takes the ULPDU of the next complete FPDU.
    fn next_ulpdu(&mut self) -> Result<Option<Vec<u8>>, ProtocolError> {
        let staged = &self.staging[self.handled..];
        let (ulpdu_len, total_len) = match fpdu::peek(staged) {
            Deframed::Need(len) => {
                assert!(len > staged.len(), "what is asked for is missing");
                return Ok(None);
            }
            Deframed::BadLength => {
                self.handled = self.staging.len();
                return Err(self.conn.handle_llp_error(MpaError::Length));
            }
            Deframed::Fpdu {
                ulpdu_len,
                total_len,
            } => (ulpdu_len, total_len),
        };
        assert!(LENGTH_LEN + ulpdu_len + CRC_LEN <= total_len);
        let (covered, crc) = staged[..total_len].split_at(total_len - CRC_LEN);
        let is_damaged = self.checks_crc && crc_field(covered) != crc;
        let ulpdu = covered[LENGTH_LEN..LENGTH_LEN + ulpdu_len].to_vec();
        self.handled += total_len;
        if is_damaged {
            return Err(self.conn.handle_llp_error(MpaError::Crc));
        }
        Ok(Some(ulpdu))
    }

    /// Sends one FPDU, with a ULPDU no longer than `ulpdu_max`.
    pub fn transmit_one(&mut self, ulpdu_max: usize) -> Option<TransmitFpdu> {
        let had = self.conn.has_transmit();
        let fpdu = self.conn.poll_transmit_limited(ulpdu_max);
        // Toward siw, some work is done without an FPDU.
        let is_predicted = had == fpdu.is_some() || had && self.conn.config().peer == Peer::Siw;
        assert!(is_predicted, "has_transmit predicts poll_transmit");
        match &fpdu {
            Some(fpdu) => {
                assert_eq!(self.conn.state(), StreamState::Operational);
                self.send(fpdu);
            }
            None => self.complete(),
        }
        fpdu
    }

    /// Sends all FPDUs that may be sent now.
    pub fn transmit_all(&mut self) {
        while self.transmit_one(usize::MAX).is_some() {}
    }

    /// The bytes of the FPDUs that were sent since the last call.
    pub fn take_sent(&mut self) -> Vec<u8> {
        let new = self.events[self.taken..].iter();
        let sent = new.filter_map(|event| match event {
            Event::Sent(bytes) => Some(&bytes[..]),
            _ => None,
        });
        let sent = sent.collect::<Vec<_>>().concat();
        self.taken = self.events.len();
        sent
    }

    /// Closes the transport; then everything must be accounted for.
    pub fn close(&mut self) {
        self.conn.on_llp_closed();
        self.complete();
        assert!(!self.conn.has_transmit() && self.conn.poll_transmit().is_none());
        while let Some(flushed) = self.conn.poll_flushed() {
            assert_eq!(flushed.status, CompletionStatus::Flushed);
            self.completions.push(flushed);
        }
        let completed: Vec<u64> = self.completions.iter().map(|done| done.token).collect();
        assert_eq!(completed, self.posted, "each once, in the order of posting");
        let received = self.received();
        let mut received: Vec<u64> = received.iter().map(|(token, _)| *token).collect();
        received.extend(self.conn.take_partial_receive());
        assert_eq!(
            received, self.receives.taken,
            "each receive that was taken ends"
        );
        assert_eq!(self.conn.take_partial_receive(), None);
    }

    /// Tokens and lengths of the receives that were completed by messages, in order.
    #[must_use]
    pub fn received(&self) -> Vec<(u64, u32)> {
        let received = self.events.iter().filter_map(|event| match event {
            Event::Delivered(Delivery::Receive { token, len, .. }) => Some((*token, *len)),
            _ => None,
        });
        received.collect()
    }

    /// Passes segments of odd length in the way of an engine that places payload while it is being
    /// received.
    fn judge(&mut self, ulpdu: &[u8]) -> Result<Inbound<Grant>, ProtocolError> {
        let (memory, receives) = (&self.memory, &mut self.receives);
        let (header, len) = split(ulpdu);
        let predicted = if ulpdu.len() % 2 == 1 {
            self.conn.predict_target(header, len, memory, receives)
        } else {
            None
        };
        let Some(target) = predicted else {
            return self.conn.handle_ulpdu(ulpdu, memory, receives);
        };
        let judged = self.conn.handle_segment(header, len, memory, receives);
        let placed = match &judged {
            Ok(Inbound::Place(placement)) => Some(placement.target.unresolved()),
            _ => None,
        };
        assert_eq!(placed, Some(target), "predicted, then {judged:?}");
        self.predicted += 1;
        judged
    }

    /// Handles one segment.
    pub fn handle(&mut self, ulpdu: &[u8]) -> Result<(), ProtocolError> {
        let ended = self.conn.state().has_ended();
        let taken = self.receives.taken.len();
        let judged = self.judge(ulpdu);
        if ended {
            assert_eq!(judged, Ok(Inbound::Dropped), "the stream has ended");
            assert_eq!(self.receives.taken.len(), taken);
            return Ok(());
        }
        let result = judged.map(|inbound| self.act(ulpdu, inbound));
        self.complete();
        result
    }

    /// Handles one segment from a carrier other than MPA.
    pub fn handle_segment(&mut self, segment: &[u8]) -> Result<(), ProtocolError> {
        let (header, payload_len) = match split(segment) {
            (header, len) if is_data(header) => (header, len),
            _ => (segment, 0),
        };
        let (memory, receives) = (&self.memory, &mut self.receives);
        let inbound = self
            .conn
            .handle_segment(header, payload_len, memory, receives)?;
        self.act(segment, inbound);
        self.complete();
        Ok(())
    }

    fn act(&mut self, ulpdu: &[u8], inbound: Inbound<Grant>) {
        match inbound {
            Inbound::Place(placement) => self.place(ulpdu, placement),
            Inbound::ReadRequest => self.events.push(Event::ReadRequest),
            Inbound::Atomic { request, place } => self.execute(request, place),
            Inbound::AtomicResponse { token, original } => {
                self.on_answer(token);
                self.events.push(Event::AtomicResult(token, original));
            }
            Inbound::Carrier(message) => self.events.push(Event::Carrier(message)),
            Inbound::ReadyToReceive => self.events.push(Event::ReadyToReceive),
            Inbound::Terminated(terminate) => {
                assert!(self.conn.state().has_ended());
                self.events.push(Event::Terminated(terminate));
            }
            Inbound::Unready => panic!("the engine does not wait for receives"),
            Inbound::Dropped => panic!("the stream has not ended"),
        }
    }

    fn place(&mut self, ulpdu: &[u8], placement: Placement<Grant>) {
        let payload = &ulpdu[placement.payload];
        let len = payload.len() as u32;
        let opcode = rdmap::Control(ulpdu[1]).opcode();
        if opcode == Some(Opcode::Write) {
            let before = if self.written.1 { 0 } else { self.written.0 };
            self.written = (before + len, ddp::Control(ulpdu[0]).is_last());
        }
        match placement.target {
            Target::None => assert!(payload.is_empty()),
            Target::Tagged {
                access,
                stag,
                to,
                place,
            } => {
                let is_write = opcode == Some(Opcode::Write);
                assert_eq!(access == Access::RemoteWrite, is_write);
                let granted = Grant {
                    access,
                    stag,
                    to,
                    len,
                };
                assert_eq!(place, granted, "the grant for this segment");
                self.memory
                    .slice(stag, to, payload.len())
                    .copy_from_slice(payload);
            }
            Target::Untagged { receive, offset } => {
                assert_eq!(self.receives.taken.last(), Some(&receive));
                assert_eq!(offset, self.filled, "messages fill without holes");
                self.filled += len;
                let buffer = self.buffers.get_mut(&receive).expect("a posted receive");
                buffer[offset as usize..][..payload.len()].copy_from_slice(payload);
            }
        }
        if let Some(delivery) = placement.delivered {
            if let Delivery::Read { token } = delivery {
                self.on_answer(token);
            }
            if let Delivery::Receive { len, immediate, .. } = delivery {
                let (written, _) = std::mem::replace(&mut self.written, (0, true));
                let filled = std::mem::take(&mut self.filled);
                let is_of_write = matches!(immediate, Some(Immediate::OfWrite(_)));
                assert_eq!(len, if is_of_write { written } else { filled });
            }
            self.events.push(Event::Delivered(delivery));
        }
    }

    /// Reports that an answer is stored. The request must not have completed before.
    fn on_answer(&mut self, token: u64) {
        self.complete();
        let mut completed = self.completions.iter().map(|done| done.token);
        assert!(!completed.any(|done| done == token), "completed too early");
        self.conn.on_answer_stored();
    }

    fn execute(&mut self, request: AtomicRequest, grant: Grant) {
        assert_eq!(grant.access, Access::RemoteAtomic);
        assert_eq!(
            (grant.stag, grant.to, grant.len),
            (request.stag, request.to, 8)
        );
        let cell = self.memory.slice(request.stag, request.to, 8);
        let original = u64::from_be_bytes((&*cell).try_into().expect("eight bytes"));
        cell.copy_from_slice(&request.op.apply(original).to_be_bytes());
        assert!(self.conn.answer_atomic(original));
        assert!(
            !self.conn.answer_atomic(original),
            "one answer for one request"
        );
        self.events.push(Event::Atomic(request, original));
    }

    /// Ends the stream; at most one Terminate message is sent.
    fn fail(&mut self, error: ProtocolError) {
        if self.conn.state() != StreamState::TerminateOwed {
            assert_eq!(self.conn.terminate(&error), None);
            return;
        }
        self.events.push(Event::Failed(error));
        let fpdu = self.conn.terminate(&error).expect("one is owed");
        assert_eq!(fpdu.ends, Some(Ends::Stream));
        self.send(&fpdu);
        assert_eq!(self.conn.terminate(&error), None, "one is enough");
        assert!(self.conn.poll_transmit().is_none());
    }

    fn send(&mut self, fpdu: &TransmitFpdu) {
        let bytes = self.assemble(fpdu);
        let ends_work = matches!(fpdu.ends, Some(Ends::WorkRequest { .. }));
        self.conn.on_sent(usize::from(ends_work));
        self.outstanding_max = self.outstanding_max.max(self.conn.outstanding_reads());
        self.events.push(Event::Sent(bytes));
        self.complete();
    }

    /// The bytes of an FPDU, payload and CRC included.
    pub fn assemble(&mut self, fpdu: &TransmitFpdu) -> Vec<u8> {
        let mut bytes = fpdu.header()[..LENGTH_LEN].to_vec();
        bytes.extend(self.segment(fpdu));
        seal(&mut bytes);
        assert_eq!(bytes.len(), fpdu.wire_len());
        bytes
    }

    /// The bytes of a segment, payload included, as a carrier other than MPA transmits it.
    pub fn segment(&mut self, fpdu: &TransmitFpdu) -> Vec<u8> {
        let mut bytes = fpdu.segment_header().to_vec();
        match fpdu.payload {
            TransmitPayload::None => {}
            TransmitPayload::WorkRequest { token, offset, len } => {
                let buffer = &self.buffers[&token];
                bytes.extend_from_slice(&buffer[offset as usize..][..len as usize]);
            }
            TransmitPayload::ReadResponse { stag, to, len } => {
                self.memory.assert_readable(stag, to, len);
                bytes.extend_from_slice(self.memory.slice(stag, to, len as usize));
            }
        }
        assert_eq!(bytes.len(), fpdu.ulpdu_len());
        bytes
    }

    fn complete(&mut self) {
        while let Some(done) = self.conn.poll_completion() {
            assert_eq!(done.status, CompletionStatus::Done);
            self.completions.push(done);
        }
    }
}

/// Appends pad and CRC to a length field and its ULPDU.
pub fn seal(fpdu: &mut Vec<u8>) {
    let pad = fpdu::pad(fpdu.len() - LENGTH_LEN);
    fpdu.resize(fpdu.len() + pad, 0);
    let crc = crc_field(fpdu);
    fpdu.extend_from_slice(&crc);
}

/// The FPDU around `ulpdu`, which is shorter than 64 KiB.
#[must_use]
pub fn frame(ulpdu: &[u8]) -> Vec<u8> {
    let mut fpdu = (ulpdu.len() as u16).to_be_bytes().to_vec();
    fpdu.extend_from_slice(ulpdu);
    seal(&mut fpdu);
    fpdu
}

fn crc_field(covered: &[u8]) -> [u8; CRC_LEN] {
    fpdu::crc_field(crc_fast::checksum(Crc32Iscsi, covered) as u32)
}

/// The DDP header of a segment, and the length of its payload.
#[must_use]
pub fn split(segment: &[u8]) -> (&[u8], usize) {
    let header_len = segment
        .first()
        .map_or(0, |control| ddp::Control(*control).header_len());
    let header = &segment[..header_len.min(segment.len())];
    (header, segment.len() - header.len())
}

/// Returns true if segments with this header have payload that is placed.
fn is_data(header: &[u8]) -> bool {
    let opcode = header
        .get(1)
        .and_then(|control| rdmap::Control(*control).opcode());
    !matches!(
        opcode,
        None | Some(
            Opcode::ReadRequest
                | Opcode::Terminate
                | Opcode::ImmediateData
                | Opcode::ImmediateDataSolicited
                | Opcode::AtomicRequest
                | Opcode::AtomicResponse
        )
    )
}
