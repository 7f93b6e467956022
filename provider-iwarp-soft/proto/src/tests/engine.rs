//! The start of the tests of a connection: its parameters, two engines, and the wire between them.

use std::collections::VecDeque;

pub(super) use crate::testing::{
    engine::{Engine, Event, split},
    memory::Receives,
};
use crate::{
    CarrierMessage, Config, Delivery, Peer, PeerTerminate, Role, Stag, WorkKind, WorkRequest,
    wire::{mpa::RtrKind, rdmap::AtomicOp},
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
pub(crate) const SEND: WorkKind = WorkKind::Send {
    solicited: false,
    invalidate: None,
};

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

/// The configuration of a side in peer-to-peer mode, with this kind of first FPDU.
pub(super) fn with_rtr(role: Role, rtr: Option<RtrKind>) -> Config {
    Config {
        rtr,
        ..config(role)
    }
}

/// A request without fence.
pub(crate) fn request(token: u64, kind: WorkKind, len: u32) -> WorkRequest {
    WorkRequest {
        token,
        kind,
        len,
        fence: false,
    }
}

impl Engine {
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
        let request = WorkRequest {
            fence,
            ..request(token, read(source, sink), len)
        };
        self.conn
            .post(request)
            .expect("the queue has room and ORD is not 0");
    }

    /// The tokens of completions, in order.
    pub(super) fn completed(&self) -> Vec<u64> {
        self.completions
            .iter()
            .map(|completion| completion.token)
            .collect()
    }

    fn events_as<T>(&self, of: impl FnMut(&Event) -> Option<T>) -> Vec<T> {
        self.events.iter().filter_map(of).collect()
    }

    pub(super) fn deliveries(&self) -> Vec<Delivery> {
        self.events_as(|event| match event {
            Event::Delivered(delivery) => Some(*delivery),
            _ => None,
        })
    }

    pub(super) fn atomic_results(&self) -> Vec<(u64, u64)> {
        self.events_as(|event| match event {
            Event::AtomicResult(token, original) => Some((*token, *original)),
            _ => None,
        })
    }

    pub(super) fn carrier_messages(&self) -> Vec<CarrierMessage> {
        self.events_as(|event| match event {
            Event::Carrier(message) => Some(*message),
            _ => None,
        })
    }

    pub(super) fn terminated(&self) -> Option<Option<PeerTerminate>> {
        let terminates = self.events_as(|event| match event {
            Event::Terminated(terminate) => Some(*terminate),
            _ => None,
        });
        terminates.last().copied()
    }

    /// The number of events that equal `event`.
    pub(super) fn count(&self, event: &Event) -> usize {
        self.events.iter().filter(|it| *it == event).count()
    }
}

pub(super) fn write(stag: u32, to: u64) -> WorkKind {
    let stag = Stag(stag);
    WorkKind::Write { stag, to }
}

/// A read from `source` to `sink`, each an STag and a tagged offset.
pub(crate) fn read(source: (u32, u64), sink: (u32, u64)) -> WorkKind {
    WorkKind::Read {
        source_stag: Stag(source.0),
        source_to: source.1,
        sink_stag: Stag(sink.0),
        sink_to: sink.1,
    }
}

pub(super) fn immediate(data: [u8; 8], solicited: bool) -> WorkKind {
    WorkKind::ImmediateData { data, solicited }
}

pub(super) fn atomic(op: AtomicOp, stag: u32, to: u64) -> WorkKind {
    let stag = Stag(stag);
    WorkKind::Atomic { op, stag, to }
}

/// Two engines and the wire between them.
pub(super) struct Pair {
    pub(super) initiator: Engine,
    pub(super) responder: Engine,
    /// Bytes in flight to the responder, and to the initiator.
    wires: [VecDeque<u8>; 2],
    prng: Prng,
}

impl Pair {
    pub(super) fn new(initiator: Config, responder: Config, seed: u64) -> Self {
        Self {
            initiator: Engine::new(initiator),
            responder: Engine::new(responder),
            wires: Default::default(),
            prng: Prng::new(seed),
        }
    }

    /// A pair that is past its first FPDU, so that both sides may send.
    pub(super) fn operational(seed: u64) -> Self {
        let rtr = Some(RtrKind::Write);
        let (initiator, responder) = (Role::Initiator, Role::Responder);
        let mut pair = Self::new(with_rtr(initiator, rtr), with_rtr(responder, rtr), seed);
        pair.run();
        assert_eq!(pair.responder.count(&Event::ReadyToReceive), 1);
        pair
    }

    /// Moves bytes in random pieces, with FPDUs of random limits, until nothing moves.
    pub(super) fn run(&mut self) {
        loop {
            let mut moved = false;
            for (flip, wire) in [false, true].into_iter().zip(&mut self.wires) {
                let (from, to) = if flip {
                    (&mut self.responder, &mut self.initiator)
                } else {
                    (&mut self.initiator, &mut self.responder)
                };
                for _ in 0..=self.prng.below(4) {
                    moved |= from.transmit_one(128 + self.prng.below(3000)).is_some();
                }
                wire.extend(from.take_sent());
                let len = self.prng.below(wire.len() + 1).max(1).min(wire.len());
                moved |= len > 0;
                let bytes: Vec<u8> = wire.drain(..len).collect();
                to.receive(&bytes).expect("both sides keep the rules");
            }
            if !moved {
                return;
            }
        }
    }
}
