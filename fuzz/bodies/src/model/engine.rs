//! The engine around a connection: moves bytes, and checks each operation against what was granted.

use std::collections::BTreeMap;

use iwarp_proto::{
    Access, CarrierMessage, Completion, CompletionStatus, Config, Connection, Delivery, Ends,
    Inbound, MpaError, PeerTerminate, Placement, ProtocolError, ReceiveBuffer, StreamState, Target,
    TransmitFpdu, TransmitPayload, WorkKind, WorkRequest,
    wire::{
        ddp,
        fpdu::{self, CRC_LEN, Deframed, LENGTH_LEN},
        rdmap::{self, AtomicRequest, Opcode},
    },
};

use crate::crc::crc32c;

use super::memory::{Grant, Memory, Receives};

/// An event at one end, comparable between runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message was received completely.
    Delivered(Delivery),
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
    pub connection: Connection,
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
    /// Tokens of accepted work requests, in order.
    posted: Vec<u64>,
    /// Received bytes; those before `handled` belong to FPDUs that have been processed.
    staging: Vec<u8>,
    handled: usize,
    /// Bytes of the receive in progress.
    filled: u32,
    /// The number of bytes of the latest Write received so far, and whether the Write is complete.
    written: (u32, bool),
    crc: bool,
}

impl Engine {
    /// A connection right after its start-up.
    #[must_use]
    pub fn new(config: Config, crc: bool) -> Self {
        Self {
            connection: Connection::new(config),
            memory: Memory::default(),
            receives: Receives::default(),
            buffers: BTreeMap::new(),
            events: Vec::new(),
            completions: Vec::new(),
            posted: Vec::new(),
            staging: Vec::new(),
            handled: 0,
            filled: 0,
            written: (0, true),
            crc,
        }
    }

    /// Posts a receive of `len` bytes.
    pub fn post_receive(&mut self, token: u64, len: u32) {
        self.receives.posted.push_back(ReceiveBuffer { token, len });
        self.buffers.insert(token, vec![0; len as usize]);
    }

    /// Posts work whose local memory is `bytes`. Returns false if the work is refused.
    pub fn post(&mut self, token: u64, kind: WorkKind, bytes: Vec<u8>, fence: bool) -> bool {
        let request = WorkRequest {
            token,
            kind,
            len: bytes.len() as u32,
            fence,
        };
        let accepted = self.connection.post(request).is_ok();
        if accepted {
            self.posted.push(token);
            self.buffers.insert(token, bytes);
        }
        accepted
    }

    /// Takes bytes as a socket returns them, and after each segment transmits what is pending.
    pub fn receive(&mut self, bytes: &[u8]) {
        let mut staging = std::mem::take(&mut self.staging);
        staging.extend_from_slice(bytes);
        while let Some(frame) = self.next_frame(&staging) {
            self.handled += frame.len();
            if !self.receive_frame(frame) {
                break;
            }
        }
        // Only the remaining bytes are moved, so the cost of a long stream is proportional to its
        // length.
        staging.drain(..self.handled);
        self.handled = 0;
        self.staging = staging;
    }

    /// Returns false if the bytes after the FPDU must not be processed yet.
    fn receive_frame(&mut self, frame: &[u8]) -> bool {
        let (covered, crc) = frame.split_at(frame.len() - CRC_LEN);
        if self.crc && crc_field(covered) != crc {
            let error = self.connection.handle_llp_error(MpaError::Crc);
            self.fail(error);
            return false;
        }
        let ulpdu_len = usize::from(u16::from_be_bytes([frame[0], frame[1]]));
        self.handle(&frame[LENGTH_LEN..LENGTH_LEN + ulpdu_len]);
        self.transmit();
        true
    }

    /// Sends all FPDUs that may be sent now.
    pub fn transmit(&mut self) {
        loop {
            let had = self.connection.has_transmit();
            let fpdu = self.connection.poll_transmit();
            assert_eq!(had, fpdu.is_some(), "has_transmit predicts poll_transmit");
            let Some(fpdu) = fpdu else { return };
            assert_eq!(self.connection.state(), StreamState::Operational);
            self.send(&fpdu);
        }
    }

    /// Closes the transport; then everything must be accounted for.
    pub fn close(&mut self) {
        self.connection.on_llp_closed();
        self.complete();
        assert!(!self.connection.has_transmit() && self.connection.poll_transmit().is_none());
        while let Some(flushed) = self.connection.poll_flushed() {
            assert_eq!(flushed.status, CompletionStatus::Flushed);
            self.completions.push(flushed);
        }
        let completed: Vec<u64> = self.completions.iter().map(|done| done.token).collect();
        assert_eq!(completed, self.posted, "each once, in the order of posting");
        let mut received: Vec<u64> = self.received().map(|(token, _)| token).collect();
        received.extend(self.connection.take_partial_receive());
        assert_eq!(
            received, self.receives.taken,
            "each receive that was taken ends"
        );
        assert_eq!(self.connection.take_partial_receive(), None);
    }

    /// Tokens and lengths of the receives that were completed by messages, in order.
    pub fn received(&self) -> impl Iterator<Item = (u64, u32)> {
        self.events.iter().filter_map(|event| match event {
            Event::Delivered(Delivery::Receive { token, len, .. }) => Some((*token, *len)),
            _ => None,
        })
    }

    /// The error that ended the stream at this end.
    #[must_use]
    pub fn error(&self) -> Option<ProtocolError> {
        self.events.iter().find_map(|event| match event {
            Event::Failed(error) => Some(*error),
            _ => None,
        })
    }

    fn next_frame<'a>(&mut self, staging: &'a [u8]) -> Option<&'a [u8]> {
        let staged = &staging[self.handled..];
        match fpdu::peek(staged) {
            Deframed::Need(len) => {
                assert!(len > staged.len(), "what is asked for is missing");
                None
            }
            Deframed::BadLength => {
                self.handled = staging.len();
                let error = self.connection.handle_llp_error(MpaError::Length);
                self.fail(error);
                None
            }
            Deframed::Fpdu {
                ulpdu_len,
                total_len,
            } => {
                assert!(LENGTH_LEN + ulpdu_len + CRC_LEN <= total_len);
                Some(&staged[..total_len])
            }
        }
    }

    /// Passes segments of odd length in the way of an engine that places payload while it is being
    /// received.
    fn judge(&mut self, ulpdu: &[u8]) -> Result<Inbound<Grant>, ProtocolError> {
        let (memory, receives) = (&self.memory, &mut self.receives);
        let header_len = ulpdu
            .first()
            .map_or(0, |byte| ddp::Control(*byte).header_len());
        let (header, payload) = ulpdu.split_at(header_len.min(ulpdu.len()));
        let len = payload.len();
        let predicted = if ulpdu.len() % 2 == 1 {
            self.connection
                .predict_target(header, len, memory, receives)
        } else {
            None
        };
        let Some(target) = predicted else {
            return self.connection.handle_ulpdu(ulpdu, memory, receives);
        };
        let judged = self
            .connection
            .handle_segment(header, len, memory, receives);
        let placed = match &judged {
            Ok(Inbound::Place(placement)) => Some(placement.target.unresolved()),
            _ => None,
        };
        assert_eq!(placed, Some(target), "predicted, then {judged:?}");
        judged
    }

    fn handle(&mut self, ulpdu: &[u8]) {
        let ended = self.connection.state().has_ended();
        let taken = self.receives.taken.len();
        let judged = self.judge(ulpdu);
        if ended {
            assert_eq!(judged, Ok(Inbound::Dropped), "the stream has ended");
            assert_eq!(self.receives.taken.len(), taken);
            return;
        }
        match judged {
            Err(error) => self.fail(error),
            Ok(inbound) => self.act(ulpdu, inbound),
        }
        self.complete();
    }

    fn act(&mut self, ulpdu: &[u8], inbound: Inbound<Grant>) {
        match inbound {
            Inbound::Place(placement) => self.place(ulpdu, placement),
            Inbound::ReadRequest => {}
            Inbound::Atomic { request, place } => self.execute(request, place),
            Inbound::AtomicResponse { token, original } => {
                self.events.push(Event::AtomicResult(token, original));
            }
            Inbound::Carrier(message) => self.events.push(Event::Carrier(message)),
            Inbound::ReadyToReceive => self.events.push(Event::ReadyToReceive),
            Inbound::Terminated(terminate) => {
                assert!(self.connection.state().has_ended());
                self.events.push(Event::Terminated(terminate));
            }
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
            if let Delivery::Receive { len, immediate, .. } = delivery {
                let (written, _) = std::mem::replace(&mut self.written, (0, true));
                let filled = std::mem::take(&mut self.filled);
                assert_eq!(len, if immediate.is_some() { written } else { filled });
            }
            self.events.push(Event::Delivered(delivery));
        }
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
        assert!(self.connection.answer_atomic(original));
        assert!(
            !self.connection.answer_atomic(original),
            "one answer for one request"
        );
        self.events.push(Event::Atomic(request, original));
    }

    /// Ends the stream; at most one Terminate message is sent.
    fn fail(&mut self, error: ProtocolError) {
        if self.connection.state() != StreamState::TerminateOwed {
            assert_eq!(self.connection.terminate(&error), None);
            return;
        }
        self.events.push(Event::Failed(error));
        let fpdu = self.connection.terminate(&error).expect("one is owed");
        assert_eq!(fpdu.ends, Some(Ends::Stream));
        self.send(&fpdu);
        assert_eq!(self.connection.terminate(&error), None, "one is enough");
        assert!(self.connection.poll_transmit().is_none());
    }

    fn send(&mut self, fpdu: &TransmitFpdu) {
        let mut bytes = fpdu.header().to_vec();
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
        assert_eq!(bytes.len(), LENGTH_LEN + fpdu.ulpdu_len());
        seal(&mut bytes);
        assert_eq!(bytes.len(), fpdu.wire_len());
        let ends_work = matches!(fpdu.ends, Some(Ends::WorkRequest { .. }));
        self.connection.on_sent(usize::from(ends_work));
        self.events.push(Event::Sent(bytes));
        self.complete();
    }

    fn complete(&mut self) {
        while let Some(done) = self.connection.poll_completion() {
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
    fpdu::crc_field(crc32c(covered))
}
