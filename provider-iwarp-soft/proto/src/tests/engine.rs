//! A small engine around one connection: vectors for memory, a vector for the wire.

use std::collections::{BTreeMap, VecDeque};

use crc_fast::CrcAlgorithm::Crc32Iscsi;

use crate::{
    Access, CarrierMessage, Completion, Config, Connection, Delivery, Ends, Inbound,
    InvalidateFault, MemoryTable, MpaError, Peer, PeerTerminate, Placement, ProtectionFault,
    ProtocolError, ReceiveBuffer, ReceiveQueue, Role, Stag, Target, TransmitFpdu, TransmitPayload,
    WorkKind, WorkRequest,
    wire::{
        ddp::Control,
        fpdu::{self, CRC_LEN, Deframed, LENGTH_LEN},
        rdmap::{self, Opcode},
    },
};

/// Xorshift: enough randomness for splits, the same on every run.
pub(super) struct Prng(u64);

impl Prng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(super) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// A Send without event and without invalidation.
pub(super) const SEND: WorkKind = WorkKind::Send {
    solicited: false,
    invalidate: None,
};

/// A registration.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) base: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) rights: Vec<Access>,
    /// The registration belongs to another stream.
    pub(super) foreign: bool,
    pub(super) invalidatable: bool,
}

#[derive(Debug, Default)]
pub(super) struct Memory(pub(super) BTreeMap<u32, Region>);

impl Memory {
    pub(super) fn slice(&mut self, stag: Stag, to: u64, len: usize) -> &mut [u8] {
        let region = self.0.get_mut(&stag.0).expect("checked before");
        let start = (to - region.base) as usize;
        &mut region.bytes[start..start + len]
    }
}

impl MemoryTable for Memory {
    type Place = ();

    fn resolve(
        &self,
        access: Access,
        stag: Stag,
        to: u64,
        len: u32,
    ) -> Result<(), ProtectionFault> {
        assert!(len > 0, "empty segments are never checked");
        let region = self.0.get(&stag.0).ok_or(ProtectionFault::InvalidStag)?;
        if region.foreign {
            return Err(ProtectionFault::NotAssociated);
        }
        if !region.rights.contains(&access) {
            return Err(ProtectionFault::AccessViolation);
        }
        let end = to
            .checked_add(u64::from(len))
            .ok_or(ProtectionFault::Wrap)?;
        if to < region.base || end > region.base + region.bytes.len() as u64 {
            return Err(ProtectionFault::Bounds);
        }
        Ok(())
    }

    fn check_invalidate(&self, stag: Stag) -> Result<(), InvalidateFault> {
        let region = self.0.get(&stag.0).ok_or(InvalidateFault::InvalidStag)?;
        if region.foreign {
            return Err(InvalidateFault::NotAssociated);
        }
        if region.invalidatable {
            Ok(())
        } else {
            Err(InvalidateFault::NotInvalidatable)
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Receives(pub(super) VecDeque<ReceiveBuffer>);

impl ReceiveQueue for Receives {
    fn next(&mut self) -> Option<ReceiveBuffer> {
        self.0.pop_front()
    }
}

/// The DDP header of a segment, and the length of its payload.
pub(super) fn split(segment: &[u8]) -> (&[u8], usize) {
    let header_len = segment
        .first()
        .map_or(0, |control| Control(*control).header_len());
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

/// A connection with an engine around it.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) conn: Connection,
    pub(super) memory: Memory,
    pub(super) receives: Receives,
    /// Local memory of work requests and receives, by token.
    pub(super) buffers: BTreeMap<u64, Vec<u8>>,
    /// Bytes in flight to the peer.
    pub(super) wire: VecDeque<u8>,
    /// Received bytes that are not a complete FPDU yet.
    staging: Vec<u8>,
    pub(super) completions: Vec<Completion>,
    pub(super) deliveries: Vec<Delivery>,
    pub(super) atomic_results: Vec<(u64, u64)>,
    pub(super) carrier_messages: Vec<CarrierMessage>,
    pub(super) ready_to_receive: usize,
    pub(super) read_requests: usize,
    pub(super) terminated: Option<Option<PeerTerminate>>,
    /// The greatest length of the queue of our unanswered requests.
    pub(super) outstanding_max: usize,
    /// True if the next segment is placed before it is handled, if possible.
    places_early: bool,
    pub(super) placed_early: usize,
}

pub(super) fn config(role: Role) -> Config {
    Config {
        role,
        mulpdu: 1442,
        ird: 4,
        ord: 4,
        rtr: None,
        send_queue_len: 64,
        rfc7306: true,
        peer: Peer::Unknown,
    }
}

impl Engine {
    pub(super) fn new(config: Config) -> Self {
        Self {
            conn: Connection::new(config),
            memory: Memory::default(),
            receives: Receives::default(),
            buffers: BTreeMap::new(),
            wire: VecDeque::new(),
            staging: Vec::new(),
            completions: Vec::new(),
            deliveries: Vec::new(),
            atomic_results: Vec::new(),
            carrier_messages: Vec::new(),
            ready_to_receive: 0,
            read_requests: 0,
            terminated: None,
            outstanding_max: 0,
            places_early: false,
            placed_early: 0,
        }
    }

    /// Registers memory with all rights.
    pub(super) fn register(&mut self, stag: u32, base: u64, bytes: Vec<u8>) {
        use Access::{ReadSink, RemoteAtomic, RemoteRead, RemoteWrite};
        let rights = vec![RemoteWrite, RemoteRead, ReadSink, RemoteAtomic];
        let region = Region {
            base,
            bytes,
            rights,
            foreign: false,
            invalidatable: true,
        };
        self.memory.0.insert(stag, region);
    }

    pub(super) fn post_receive(&mut self, token: u64, len: u32) {
        self.receives.0.push_back(ReceiveBuffer { token, len });
        self.buffers.insert(token, vec![0; len as usize]);
    }

    pub(super) fn post(&mut self, token: u64, kind: WorkKind, bytes: Vec<u8>, fence: bool) {
        let len = bytes.len() as u32;
        self.buffers.insert(token, bytes);
        self.conn
            .post(WorkRequest {
                token,
                kind,
                len,
                fence,
            })
            .expect("the queue has room");
    }

    pub(super) fn post_send(&mut self, token: u64, bytes: Vec<u8>) {
        self.post(token, SEND, bytes, false);
    }

    pub(super) fn post_read(
        &mut self,
        token: u64,
        source: (u32, u64),
        sink: (u32, u64),
        len: u32,
        fence: bool,
    ) {
        let kind = WorkKind::Read {
            source_stag: Stag(source.0),
            source_to: source.1,
            sink_stag: Stag(sink.0),
            sink_to: sink.1,
        };
        self.conn
            .post(WorkRequest {
                token,
                kind,
                len,
                fence,
            })
            .expect("the queue has room and ORD is not 0");
    }

    /// Transmits one FPDU onto the wire.
    pub(super) fn transmit_one(&mut self, ulpdu_max: usize) -> Option<TransmitFpdu> {
        let had = self.conn.has_transmit();
        let fpdu = self.conn.poll_transmit_limited(ulpdu_max);
        // Toward siw, some work is done without an FPDU.
        let is_predicted = had == fpdu.is_some() || had && self.conn.config().peer == Peer::Siw;
        assert!(is_predicted, "has_transmit predicts poll_transmit");
        let Some(fpdu) = fpdu else {
            self.complete();
            return None;
        };
        let bytes = self.assemble(&fpdu);
        self.wire.extend(bytes);
        self.conn.on_sent(usize::from(matches!(
            fpdu.ends,
            Some(Ends::WorkRequest { .. })
        )));
        self.outstanding_max = self.outstanding_max.max(self.conn.outstanding_reads());
        self.complete();
        Some(fpdu)
    }

    pub(super) fn transmit_all(&mut self) {
        while self.transmit_one(usize::MAX).is_some() {}
    }

    /// The bytes of a segment, payload included, as a carrier other than MPA transmits it.
    pub(super) fn segment(&mut self, fpdu: &TransmitFpdu) -> Vec<u8> {
        let mut bytes = fpdu.segment_header().to_vec();
        match fpdu.payload {
            TransmitPayload::None => {}
            TransmitPayload::WorkRequest { token, offset, len } => {
                let buffer = &self.buffers[&token];
                bytes.extend_from_slice(&buffer[offset as usize..][..len as usize]);
            }
            TransmitPayload::ReadResponse { stag, to, len } => {
                bytes.extend_from_slice(self.memory.slice(stag, to, len as usize));
            }
        }
        assert_eq!(bytes.len(), fpdu.ulpdu_len());
        bytes
    }

    /// The bytes of an FPDU, payload and CRC included.
    pub(super) fn assemble(&mut self, fpdu: &TransmitFpdu) -> Vec<u8> {
        let mut bytes = fpdu.header()[..LENGTH_LEN].to_vec();
        bytes.extend(self.segment(fpdu));
        bytes.resize(bytes.len() + fpdu.pad(), 0);
        let crc = crc_fast::checksum(Crc32Iscsi, &bytes) as u32;
        bytes.extend_from_slice(&fpdu::crc_field(crc));
        assert_eq!(bytes.len(), fpdu.wire_len());
        bytes
    }

    /// Receives bytes as a socket delivers them.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        self.staging.extend_from_slice(bytes);
        loop {
            let (ulpdu_len, total_len) = match fpdu::peek(&self.staging) {
                Deframed::Need(_) => return Ok(()),
                Deframed::BadLength => return Err(self.conn.handle_llp_error(MpaError::Length)),
                Deframed::Fpdu {
                    ulpdu_len,
                    total_len,
                } => (ulpdu_len, total_len),
            };
            let frame: Vec<u8> = self.staging.drain(..total_len).collect();
            let (covered, crc) = frame.split_at(total_len - CRC_LEN);
            if fpdu::crc_field(crc_fast::checksum(Crc32Iscsi, covered) as u32) != crc {
                return Err(self.conn.handle_llp_error(MpaError::Crc));
            }
            self.handle(&frame[LENGTH_LEN..LENGTH_LEN + ulpdu_len])?;
        }
    }

    /// Handles one segment: every other one as an engine does that places payload while it arrives.
    pub(super) fn handle(&mut self, ulpdu: &[u8]) -> Result<(), ProtocolError> {
        self.places_early = !self.places_early;
        if !self.places_early && self.place_early(ulpdu)? {
            self.complete();
            return Ok(());
        }
        let (memory, receives) = (&self.memory, &mut self.receives);
        let inbound = self.conn.handle_ulpdu(ulpdu, memory, receives)?;
        self.act(ulpdu, inbound);
        Ok(())
    }

    /// Handles one segment from a carrier other than MPA.
    pub(super) fn handle_segment(&mut self, segment: &[u8]) -> Result<(), ProtocolError> {
        let (header, payload_len) = match split(segment) {
            (header, len) if is_data(header) => (header, len),
            _ => (segment, 0),
        };
        let (memory, receives) = (&self.memory, &mut self.receives);
        let inbound = self
            .conn
            .handle_segment(header, payload_len, memory, receives)?;
        self.act(segment, inbound);
        Ok(())
    }

    fn act(&mut self, ulpdu: &[u8], inbound: Inbound<()>) {
        match inbound {
            Inbound::Place(placement) => self.place(ulpdu, placement),
            Inbound::ReadRequest => self.read_requests += 1,
            Inbound::Dropped => {}
            Inbound::Atomic { request, .. } => {
                let cell = self.memory.slice(request.stag, request.to, 8);
                let original = u64::from_be_bytes((&*cell).try_into().expect("eight bytes"));
                cell.copy_from_slice(&request.op.apply(original).to_be_bytes());
                assert!(self.conn.answer_atomic(original));
                assert!(
                    !self.conn.answer_atomic(original),
                    "one answer for one request"
                );
            }
            Inbound::AtomicResponse { token, original } => {
                self.atomic_results.push((token, original));
            }
            Inbound::Carrier(message) => self.carrier_messages.push(message),
            Inbound::ReadyToReceive => self.ready_to_receive += 1,
            Inbound::Terminated(terminate) => self.terminated = Some(terminate),
        }
        self.complete();
    }

    /// Returns `false` if the segment must be handled as a whole.
    fn place_early(&mut self, ulpdu: &[u8]) -> Result<bool, ProtocolError> {
        let (header, len) = split(ulpdu);
        let done = self.completions.len() + self.deliveries.len();
        let (memory, receives) = (&self.memory, &mut self.receives);
        let Some(target) = self.conn.predict_target(header, len, memory, receives) else {
            return Ok(false);
        };
        assert!(self.conn.poll_completion().is_none());
        assert_eq!(done, self.completions.len() + self.deliveries.len());
        let inbound = self
            .conn
            .handle_segment(header, len, &self.memory, &mut self.receives)?;
        let Inbound::Place(placement) = inbound else {
            panic!("predicted as payload: {inbound:?}");
        };
        assert_eq!(placement.target, target);
        self.placed_early += 1;
        self.place(ulpdu, placement);
        Ok(true)
    }

    fn place(&mut self, ulpdu: &[u8], placement: Placement<()>) {
        let payload = &ulpdu[placement.payload];
        match placement.target {
            Target::None => assert!(payload.is_empty()),
            Target::Tagged { stag, to, .. } => {
                self.memory
                    .slice(stag, to, payload.len())
                    .copy_from_slice(payload);
            }
            Target::Untagged { receive, offset } => {
                let buffer = self.buffers.get_mut(&receive).expect("a posted receive");
                buffer[offset as usize..][..payload.len()].copy_from_slice(payload);
            }
        }
        self.deliveries.extend(placement.delivered);
    }

    fn complete(&mut self) {
        while let Some(completion) = self.conn.poll_completion() {
            self.completions.push(completion);
        }
    }

    /// The tokens of completions, in order.
    pub(super) fn completed(&self) -> Vec<u64> {
        self.completions
            .iter()
            .map(|completion| completion.token)
            .collect()
    }

    /// The tokens and lengths of completed receives, in order.
    pub(super) fn received(&self) -> Vec<(u64, u32)> {
        self.deliveries
            .iter()
            .filter_map(|delivery| match delivery {
                Delivery::Receive { token, len, .. } => Some((*token, *len)),
                Delivery::Write | Delivery::Read { .. } => None,
            })
            .collect()
    }
}

/// Two engines and the wire between them.
pub(super) struct Pair {
    pub(super) initiator: Engine,
    pub(super) responder: Engine,
    prng: Prng,
}

impl Pair {
    pub(super) fn new(initiator: Config, responder: Config, seed: u64) -> Self {
        Self {
            initiator: Engine::new(initiator),
            responder: Engine::new(responder),
            prng: Prng::new(seed),
        }
    }

    /// A pair that is past its first FPDU, so that both sides may send.
    pub(super) fn operational(seed: u64) -> Self {
        use crate::wire::mpa::RtrKind;
        let rtr = Some(RtrKind::Write);
        let mut pair = Self::new(
            Config {
                rtr,
                ..config(Role::Initiator)
            },
            Config {
                rtr,
                ..config(Role::Responder)
            },
            seed,
        );
        pair.run();
        assert_eq!(pair.responder.ready_to_receive, 1);
        pair
    }

    /// Moves bytes in random pieces, with FPDUs of random limits, until nothing moves.
    pub(super) fn run(&mut self) {
        loop {
            let mut moved = false;
            for flip in [false, true] {
                let (from, to) = if flip {
                    (&mut self.responder, &mut self.initiator)
                } else {
                    (&mut self.initiator, &mut self.responder)
                };
                for _ in 0..=self.prng.below(4) {
                    moved |= from.transmit_one(128 + self.prng.below(3000)).is_some();
                }
                let len = self
                    .prng
                    .below(from.wire.len() + 1)
                    .max(1)
                    .min(from.wire.len());
                moved |= len > 0;
                let bytes: Vec<u8> = from.wire.drain(..len).collect();
                to.receive(&bytes).expect("both sides keep the rules");
            }
            if !moved {
                return;
            }
        }
    }
}
