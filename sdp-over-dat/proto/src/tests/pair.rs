//! Two engines, the wire between them, and the checker that reads it.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, SocketAddr},
};

use sdp_checker::{Checker, Side};

use super::engine::{ADDRESS, Engine, Frame};
use crate::{AdvertId, Config, Connection};

/// The frames in flight in one direction, in order, each with the time of its arrival.
#[derive(Debug, Default)]
struct Wire {
    under_way: VecDeque<(u64, Frame)>,
    latency: u64,
}

#[derive(Debug)]
pub(super) struct Pair {
    pub(super) active: Engine,
    pub(super) passive: Engine,
    to_active: Wire,
    to_passive: Wire,
    pub(super) checker: Checker,
    pub(super) now: u64,
    /// The number of frames sent.
    pub(super) sent: u64,
    /// The kind of the last frame sent, unless it was a credit update.
    pub(super) last_kind: Option<u8>,
    /// The number of frames of each kind.
    pub(super) kinds: BTreeMap<u8, u64>,
    /// True while the checker reads the frames. It is false when a test forges frames.
    checked: bool,
    /// The number of bytes that each end has streamed over earlier transports.
    streamed_before: [u64; 2],
}

pub(super) const SMALL: Config = Config {
    buffers: 8,
    buffer_size: 116,
    send_size_max: 116,
    adverts_max: 1,
    write_min: 1,
};

/// The address of the active end, and that of the passive one.
fn addresses() -> (SocketAddr, IpAddr) {
    let local = "192.0.2.1:40000".parse().expect("an address");
    (local, "192.0.2.2".parse().expect("an address"))
}

/// Exchanges Hello and HelloAck. Returns the passive end.
fn set_up(
    checker: &mut Checker,
    initiator: &mut Connection,
    hello: &[u8],
    passive: Config,
) -> Connection {
    checker.hello(hello).expect("a good Hello");
    let hello = crate::wire::Hello::parse(hello).expect("a good Hello");
    let (responder, ack) = Connection::accept(passive, &hello);
    let bytes = ack.trimmed(24).expect("room enough");
    checker.hello_ack(&bytes).expect("a good HelloAck");
    initiator.handle_hello_ack(&bytes).expect("a good HelloAck");
    responder
}

impl Pair {
    /// Two ends that have set up a connection.
    pub(super) fn new(active: Config, passive: Config, latency: [u64; 2]) -> Self {
        let (local, peer) = addresses();
        let mut checker = Checker::new();
        let (mut initiator, hello) = Connection::connect(active, local, peer);
        let bytes = hello.trimmed(64).expect("room enough");
        let responder = set_up(&mut checker, &mut initiator, &bytes, passive);
        let wire = |latency| Wire {
            under_way: VecDeque::new(),
            latency,
        };
        let mut pair = Self {
            active: Engine::new(initiator, active.buffers, active.buffer_size),
            passive: Engine::new(responder, passive.buffers, passive.buffer_size),
            to_active: wire(latency[0]),
            to_passive: wire(latency[1]),
            checker,
            now: 0,
            sent: 0,
            last_kind: None,
            kinds: BTreeMap::new(),
            checked: true,
            streamed_before: [0; 2],
        };
        pair.active.take_events();
        pair
    }

    /// Two small ends on a wire without latency, both ready.
    pub(super) fn small() -> Self {
        let mut pair = Self::new(SMALL, SMALL, [0, 0]);
        pair.passive.connection.handle_established();
        pair.passive.take_events();
        pair
    }

    pub(super) fn end(&mut self, side: Side) -> &mut Engine {
        match side {
            Side::Active => &mut self.active,
            Side::Passive => &mut self.passive,
        }
    }

    fn wire_to(&mut self, side: Side) -> &mut Wire {
        match side {
            Side::Active => &mut self.to_active,
            Side::Passive => &mut self.to_passive,
        }
    }

    /// `side` sends at most one frame.
    pub(super) fn transmit(&mut self, side: Side) -> bool {
        let Some(frame) = self.end(side).transmit() else {
            return false;
        };
        self.sent += 1;
        let is_update = frame.bytes[0] == 0xff && frame.bytes.len() == frame.header_len;
        self.last_kind = (!is_update).then_some(frame.bytes[0]);
        *self.kinds.entry(frame.bytes[0]).or_default() += 1;
        if self.checked {
            let head = &frame.bytes[..frame.header_len];
            if let Err(broken) = self.checker.sent(side, head, frame.bytes.len()) {
                let end = self.end(side);
                panic!("{side:?} sends {head:02x?}: {broken}\n{:?}", end.connection);
            }
        }
        let now = self.now;
        let wire = self.wire_to(side.other());
        let at = now + wire.latency;
        wire.under_way.push_back((at, frame));
        true
    }

    /// `side` receives at most one frame whose time of arrival has passed.
    pub(super) fn deliver(&mut self, side: Side) -> bool {
        let now = self.now;
        let wire = self.wire_to(side);
        if wire.under_way.front().is_none_or(|(at, _)| *at > now) {
            return false;
        }
        let Some((_, frame)) = wire.under_way.pop_front() else {
            return false;
        };
        self.checker.received(side);
        let end = self.end(side);
        if let Some((into, bytes)) = &frame.write
            && !end.has_ended()
        {
            end.be_written(*into, bytes);
        }
        end.receive(&frame.bytes);
        if frame.fin {
            let sender = self.end(side.other());
            sender.connection.handle_fin_completed();
            sender.take_events();
        }
        true
    }

    /// Completes the oldest read of `side`. The memory that it reads must still be registered.
    pub(super) fn serve_read(&mut self, side: Side) -> bool {
        let Some(read) = self.end(side).reads.front().copied() else {
            return false;
        };
        if self.end(side.other()).has_ended() {
            return false;
        }
        let source = &self.end(side.other()).registered;
        let memory = source.get(&AdvertId(u64::from(read.stag)));
        let memory = memory.expect("a read of memory that is not registered");
        let from = (read.address - ADDRESS) as usize;
        let bytes = memory[from..from + read.len as usize].to_vec();
        self.end(side).finish_read(&bytes);
        true
    }

    /// Ends the transport when an end asks for it. Frames in flight are lost.
    pub(super) fn disconnect_if_asked(&mut self) {
        for side in [Side::Active, Side::Passive] {
            if !std::mem::take(&mut self.end(side).wants_disconnect) {
                continue;
            }
            // Frames that this end sent before are still received.
            self.now += self.wire_to(side.other()).latency;
            while self.deliver(side.other()) {}
            self.end(side).disconnected();
            self.end(side.other()).disconnected();
            self.to_active.under_way.clear();
            self.to_passive.under_way.clear();
        }
    }

    /// Transmits, delivers and serves reads, until nothing is left to do without a user. Returns
    /// the number of frames sent.
    pub(super) fn settle(&mut self) -> u64 {
        let before = self.sent;
        loop {
            let mut moved = false;
            for side in [Side::Active, Side::Passive] {
                while self.transmit(side) {
                    moved = true;
                }
            }
            self.now += self.to_active.latency.max(self.to_passive.latency);
            for side in [Side::Active, Side::Passive] {
                while self.deliver(side) {
                    moved = true;
                }
                while self.serve_read(side) {
                    moved = true;
                }
            }
            if !moved {
                return self.sent - before;
            }
            assert!(
                self.sent - before < 100_000,
                "two idle ends exchange messages for ever"
            );
        }
    }

    /// Both users read everything, until nothing more is received.
    pub(super) fn drain(&mut self) {
        for _ in 0..100_000 {
            let mut moved = self.settle() > 0;
            for side in [Side::Active, Side::Passive] {
                let end = self.end(side);
                moved |= end.has_unread();
                end.read(usize::MAX);
                end.begin_read(u32::MAX);
                if end.connection.wants_tick() {
                    end.connection.handle_tick();
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
        panic!("two ends that read everything exchange messages for ever");
    }

    /// If one end has suspended the connection and its transport has ended, another process
    /// continues the connection with `config`, and the other end connects to that process. So the
    /// other end is the active one afterwards. Returns the earlier side of that end.
    pub(super) fn resume_if_suspended(&mut self, config: Config) -> Option<Side> {
        let sides = [Side::Active, Side::Passive];
        let is_quiet = self.is_quiet() && sides.iter().any(|side| self.end(*side).is_closed);
        let continues = |side: &Side| self.end(*side).connection.continues_at().is_some();
        let side = sides.into_iter().find(continues).filter(|_| is_quiet)?;
        let finished = std::mem::take(&mut self.checker);
        for side in sides {
            self.streamed_before[side as usize] += finished.streamed(side);
        }
        if side == Side::Passive {
            std::mem::swap(&mut self.active, &mut self.passive);
            self.streamed_before.swap(0, 1);
        }
        let (local, peer) = addresses();
        let hello = self.active.resume(local, peer);
        let initiator = &mut self.active.connection;
        let responder = set_up(&mut self.checker, initiator, &hello, config);
        self.active.take_events();
        self.passive
            .replace(responder, config.buffers, config.buffer_size);
        Some(side)
    }

    /// The number of bytes that the checker has counted in the stream of `side`.
    pub(super) fn streamed(&self, side: Side) -> u64 {
        self.streamed_before[side as usize] + self.checker.streamed(side)
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.to_active.under_way.is_empty() && self.to_passive.under_way.is_empty()
    }

    /// Takes the last frame that `side` sent off the wire.
    pub(super) fn take_frame(&mut self, side: Side) -> Option<Vec<u8>> {
        let wire = self.wire_to(side.other());
        wire.under_way.pop_back().map(|(_, frame)| frame.bytes)
    }

    /// Turns the checker off from here on, for tests that forge frames.
    pub(super) fn stop_checking(&mut self) {
        self.checked = false;
    }
}
