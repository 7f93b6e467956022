//! Two differently configured ends with random behaviour, in virtual time.
//!
//! An episode is determined by its seed. Both users write, write registered memory, advertise,
//! cancel, read, refuse, advertise memory to be written, change modes, resize buffers, suspend
//! the connection and send urgent bytes, each as often as their [`Character`] determines. Then the
//! wire recovers, and both users read everything and close. The invariants: no rule is broken, no
//! end waits for ever, nothing is read from memory that was released, no memory stays registered,
//! and each end has read exactly the bytes that the other wrote.
//!
//! `SDP_SEED=7` replays one episode; `SDP_EPISODES=100000` runs more of them.

use std::{collections::BTreeMap, env};

use sdp_checker::Side::{self, Active, Passive};

use super::{engine::Uses, pair::Pair, random::Random};
use crate::{Config, OnCancel, wire::Mid};

/// The number of steps of an episode before the wire recovers.
const STEPS: u64 = if cfg!(miri) { 120 } else { 2_500 };
/// All episodes make more than two million steps, for which Miri would need days.
const EPISODES: u64 = if cfg!(miri) { 2 } else { 840 };
/// The limits of write lengths; a write is shorter than one of these.
const LENGTHS: [u64; 4] = if cfg!(miri) {
    [3, 20, 60, 300]
} else {
    [3, 60, 700, 9_000]
};

/// The kinds of messages that all episodes together must contain. AbortConn is too rare.
const KINDS: [Mid; 15] = [
    Mid::Data,
    Mid::SrcAvail,
    Mid::RdmaRdCompl,
    Mid::SendSm,
    Mid::SrcAvailCancel,
    Mid::ModeChange,
    Mid::DisConn,
    Mid::SinkAvail,
    Mid::RdmaWrCompl,
    Mid::SinkAvailCancel,
    Mid::SinkCancelAck,
    Mid::ChRcvBuf,
    Mid::ChRcvBufAck,
    Mid::SuspComm,
    Mid::SuspCommAck,
];

/// The behaviour of a user: how often it does each thing, out of a hundred steps.
#[derive(Clone, Copy, Debug)]
struct Character {
    writes: u64,
    advertises: u64,
    registers: u64,
    reads: u64,
    cancels: u64,
    refuses: u64,
    changes_mode: u64,
    urgent: u64,
    waits: u64,
    cancels_waits: u64,
    pipelines: u64,
    resizes: u64,
    suspends_at: u64,
    /// Writes from this length on are advertised.
    threshold: u64,
    read_max: u64,
    shuts_at: u64,
    aborts_at: u64,
}

impl Character {
    fn draw(random: &mut Random) -> Self {
        let rarely = |random: &mut Random| random.one_of(&[0, 0, 0, 1, 3]);
        Self {
            writes: random.one_of(&[0, 2, 10, 30]),
            advertises: random.one_of(&[0, 5, 20]),
            registers: random.one_of(&[0, 0, 5, 20]),
            reads: random.one_of(&[0, 1, 5, 20, 40]),
            cancels: random.one_of(&[0, 0, 2, 10]),
            refuses: random.one_of(&[0, 0, 2, 10]),
            changes_mode: rarely(random),
            urgent: rarely(random),
            waits: random.one_of(&[0, 10, 30]),
            cancels_waits: random.one_of(&[0, 0, 3, 10]),
            pipelines: random.one_of(&[0, 2, 5]),
            resizes: rarely(random),
            suspends_at: random.one_of(&[STEPS / 3, u64::MAX, u64::MAX]),
            threshold: random.one_of(&[1, 64, 1 << 40]),
            read_max: random.one_of(&[1, 50, 1_000, 1 << 30]),
            shuts_at: random.one_of(&[u64::MAX, u64::MAX, STEPS / 2]),
            aborts_at: random.one_of(&[u64::MAX; 12]).min(if random.chance(4) {
                STEPS * 3 / 4
            } else {
                u64::MAX
            }),
        }
    }
}

fn config(random: &mut Random) -> Config {
    Config {
        buffers: random.one_of(&[3, 3, 4, 5, 8, 16, 64]),
        buffer_size: random.one_of(&[37, 40, 80, 200, 1_000, 4_096]),
        send_size_max: random.one_of(&[37, 100, 1_000, 65_536]),
        adverts_max: random.one_of(&[1, 2, 3, 16, 16, 255]),
        write_min: random.one_of(&[1, 1, 30, 1_000]),
    }
}

struct Episode {
    pair: Pair,
    random: Random,
    characters: [Character; 2],
    steps: u64,
    pattern: u8,
    /// The configuration of a process that continues a suspended connection.
    config: Config,
}

impl Episode {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let configs = [config(&mut random), config(&mut random)];
        let latency = [0, 1].map(|_| random.one_of(&[0, 1, 5, 40]));
        let characters = [Character::draw(&mut random), Character::draw(&mut random)];
        Self {
            pair: Pair::new(configs[0], configs[1], latency),
            random,
            characters,
            steps: 0,
            pattern: 0,
            config: configs[1],
        }
    }

    /// Bytes of a pattern that shows their position, so that a mix-up is detected.
    fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len)
            .map(|_| {
                self.pattern = self.pattern.wrapping_mul(5).wrapping_add(17);
                self.pattern
            })
            .collect()
    }

    fn step(&mut self) {
        self.steps += 1;
        self.pair.now += 1;
        let side = if self.random.chance(50) {
            Active
        } else {
            Passive
        };
        let character = self.characters[side as usize];
        if self.steps == character.shuts_at {
            self.pair.end(side).connection.shut_send();
        }
        if self.steps == character.suspends_at {
            self.pair.end(side).connection.suspend(0x1_1390);
            self.pair.end(side).take_events();
        }
        if self.steps == character.aborts_at {
            self.pair.end(side).connection.abort();
            self.pair.end(side).take_events();
            self.pair.transmit(side);
        }
        if self.random.chance(50) {
            self.move_wire(side);
        } else {
            self.act(side, character);
        }
        self.pair.disconnect_if_asked();
        self.resume_if_suspended();
    }

    fn resume_if_suspended(&mut self) -> bool {
        let resumed = self.pair.resume_if_suspended(self.config);
        if resumed == Some(Passive) {
            self.characters.swap(0, 1);
        }
        resumed.is_some()
    }

    /// Both users read everything, also in the continuation of a suspended connection.
    fn drain(&mut self) {
        loop {
            self.pair.drain();
            self.pair.disconnect_if_asked();
            if !self.resume_if_suspended() {
                return;
            }
            self.pair.passive.connection.handle_established();
        }
    }

    fn move_wire(&mut self, side: Side) {
        match self.random.below(8) {
            0..3 => drop(self.pair.transmit(side)),
            3..6 => drop(self.pair.deliver(side)),
            6 => drop(self.pair.serve_read(side)),
            _ => {
                let end = self.pair.end(side);
                end.connection.handle_established();
                if end.connection.wants_tick() {
                    end.connection.handle_tick();
                }
                end.take_events();
            }
        }
    }

    fn act(&mut self, side: Side, character: Character) {
        let long = self.random.one_of(&LENGTHS);
        let len = 1 + self.random.below(long);
        if self.random.chance(character.writes) {
            let bytes = self.bytes(len);
            if len < character.threshold {
                self.pair.end(side).write(bytes);
            } else {
                self.pair.end(side).advertise(bytes, 1);
            }
        }
        if self.random.chance(character.advertises) {
            let bytes = self.bytes(len);
            let inline = self.random.below(300) as u32;
            self.pair.end(side).advertise(bytes, inline);
        }
        if self.random.chance(character.registers) {
            let bytes = self.bytes(len);
            self.pair.end(side).write_registered(bytes);
        }
        let read_max = 1 + self.random.below(character.read_max);
        let [reads, cancels, refuses, modes, urgent] = [
            character.reads,
            character.cancels,
            character.refuses,
            character.changes_mode,
            character.urgent,
        ]
        .map(|percent| self.random.chance(percent));
        let odd = self.random.chance(50);
        let byte = self.bytes(1)[0];
        let end = self.pair.end(side);
        if reads {
            end.read(read_max as usize);
            end.begin_read(read_max as u32);
        }
        if cancels {
            let then = [OnCancel::Send, OnCancel::TakeBack][usize::from(odd)];
            end.cancel(then, read_max.is_multiple_of(2));
        }
        if refuses {
            end.connection.refuse_advert();
        }
        if modes && odd {
            end.connection.go_buffered();
        } else if modes {
            end.connection.go_combined();
        }
        if urgent {
            end.write_urgent(byte);
        }
        self.act_in_pipelined_mode(side, character);
    }

    fn act_in_pipelined_mode(&mut self, side: Side, character: Character) {
        let [waits, cancels, pipelines, resizes] = [
            character.waits,
            character.cancels_waits,
            character.pipelines,
            character.resizes,
        ]
        .map(|percent| self.random.chance(percent));
        let choice = self.random.below(4);
        let size = 37 + self.random.below(10_000) as u32;
        let more = self.random.one_of(&[0, 1, 100, 3_000]);
        let end = self.pair.end(side);
        let connection = &mut end.connection;
        match choice {
            _ if !pipelines => (),
            0 => connection.leave_pipelined(),
            1 => connection.ask_pipelined(),
            _ => connection.go_pipelined(),
        }
        if resizes {
            connection.ask_buffers(size);
        }
        if cancels {
            connection.cancel_sinks();
        }
        if waits {
            let len = connection.sink_min() + more;
            end.advertise_sink(len);
        }
        end.take_events();
    }

    /// Lets the wire recover, and both users read everything and close.
    fn finish(&mut self) {
        for side in [Active, Passive] {
            let end = self.pair.end(side);
            end.connection.handle_established();
            end.take_events();
        }
        // Neither user reads, so the ends exchange frames until neither end can send.
        self.pair.settle();
        self.check_reserves();
        self.pair.disconnect_if_asked();
        // The peer would keep the advertisements of waiting readers until its stream ends.
        let wait = self.random.chance(50);
        for side in [Active, Passive] {
            if wait {
                self.pair.end(side).connection.cancel_sinks();
                self.pair.end(side).take_events();
            }
        }
        self.drain();
        if !self.has_failed() {
            if wait {
                let is_free =
                    self.pair.active.sinks.is_empty() && self.pair.passive.sinks.is_empty();
                assert!(is_free, "a cancel was not answered");
            }
            self.check_streams();
        }
        for side in [Active, Passive] {
            self.pair.end(side).end_growth();
            self.pair.end(side).connection.shut_send();
        }
        self.drain();
        if !self.has_failed() {
            let complete = self.pair.checker.check_complete();
            complete.expect("nothing is pending");
            assert!(self.pair.is_quiet());
            assert!(self.pair.active.saw_end && self.pair.passive.saw_end);
        }
        self.pair.disconnect_if_asked();
        for side in [Active, Passive] {
            let end = self.pair.end(side);
            assert!(end.has_ended(), "{side:?} is {:?}", end.connection.state());
            let is_free = end.registered.is_empty() && end.sinks.is_empty();
            assert!(is_free, "{side:?} leaks a registration");
        }
    }

    /// Checks that each end could still send a message while nobody reads, now or after the other's
    /// tick.
    fn check_reserves(&mut self) {
        for side in [Active, Passive] {
            let connection = &self.pair.end(side).connection;
            let (state, credits) = (connection.state(), connection.credits());
            let is_tick_due = self.pair.end(side.other()).connection.wants_tick();
            let can_send = credits >= 2 || is_tick_due || !state.is_established();
            assert!(
                can_send,
                "{side:?} has {credits} credits, and no tick of the peer is due"
            );
        }
    }

    fn has_failed(&self) -> bool {
        self.pair.active.failure.is_some() || self.pair.passive.failure.is_some()
    }

    fn check_streams(&mut self) {
        for side in [Active, Passive] {
            let (stream, urgent) = self.pair.end(side).stream();
            let is_drained = self.pair.end(side).connection.is_drained();
            assert!(is_drained, "{side:?} still has something to send");
            let checked = self.pair.streamed(side);
            let peer = self.pair.end(side.other());
            let received = peer.received.len();
            assert_eq!(received, stream.len(), "{side:?}: bytes are lost");
            assert!(peer.received == stream, "{side:?}: bytes are mixed up");
            assert_eq!(peer.urgent_received, urgent, "{side:?}: urgent bytes");
            let announced = peer.urgent_announced as usize;
            let is_announced = announced >= urgent.len();
            assert!(is_announced, "{side:?}: urgent and not announced");
            assert_eq!(
                checked,
                stream.len() as u64,
                "{side:?}: the checker's count"
            );
            let registered = &self.pair.end(side).registered;
            let leaked = registered.keys();
            assert!(registered.is_empty(), "{side:?} leaks {leaked:?}");
        }
    }
}

/// The counters of all episodes.
#[derive(Debug, Default)]
struct Tally {
    steps: u64,
    frames: u64,
    failed: u64,
    /// Frames of each kind.
    kinds: BTreeMap<u8, u64>,
    /// Uses of mechanisms that no kind shows.
    uses: Uses,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.frames += other.frames;
        self.failed += other.failed;
        for (kind, count) in &other.kinds {
            *self.kinds.entry(*kind).or_default() += count;
        }
        self.uses.add(other.uses);
    }
}

fn run(seed: u64) -> Tally {
    let mut episode = Episode::new(seed);
    for _ in 0..STEPS {
        episode.step();
    }
    episode.finish();
    Tally {
        steps: episode.steps,
        frames: episode.pair.sent,
        failed: u64::from(episode.has_failed()),
        uses: {
            let mut uses = episode.pair.active.uses;
            uses.add(episode.pair.passive.uses);
            uses
        },
        kinds: episode.pair.kinds,
    }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| {
        let number = text.parse();
        number.unwrap_or_else(|_| panic!("{name} is to be a number, not {text}"))
    })
}

#[test]
fn two_ends_with_random_behaviour_lose_nothing_and_finish() {
    if let Some(seed) = number("SDP_SEED") {
        println!("seed {seed}: {:?}", run(seed));
        return;
    }
    let mut tally = Tally::default();
    for seed in 0..number("SDP_EPISODES").unwrap_or(EPISODES) {
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(episode) => tally.add(&episode),
            Err(_) => panic!("replay with SDP_SEED={seed}"),
        }
    }
    println!("{tally:?}");
    if cfg!(miri) {
        // Each episode was checked. So few episodes need not contain every kind of event.
        return;
    }
    assert!(tally.steps >= 2_000_000 && tally.frames > tally.steps / 20 && tally.failed > 0);
    for mid in KINDS {
        let count = tally.kinds.get(&(mid as u8)).copied().unwrap_or(0);
        assert!(count > 20, "{mid:?} was sent {count} times");
    }
    for (name, count) in tally.uses.counts() {
        assert!(count > 20, "{name}: {count} times");
    }
    assert!(tally.uses.reads_ahead > 3, "{:?}", tally.uses);
}
