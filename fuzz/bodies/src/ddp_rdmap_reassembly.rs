//! Two connections and a wire that loses, repeats, reorders and damages FPDUs on their way from the
//! initiator to the responder.
//!
//! Input: one byte of flags (two bits for the kind of the start-up's RTR message, one for each end
//! that offers longer FPDUs, one for the offer of carrier messages), the MULPDU of the initiator
//! and of the responder, the receives of the responder, the work of both sides (each with its count
//! first), then the faults: the FPDU's number, the fault, and three bytes with its position and
//! bits.
//!
//! TCP itself never loses, repeats or reorders FPDUs, so MPA, DDP and RDMAP need not detect all of
//! these faults. A Write that is lost looks like no Write at all, and a Write that is received
//! twice looks like one Write. The following must hold. Messages that have numbers are
//! received exactly as they were sent, in order, from the first one without a gap, until a fault is
//! reported. Bytes in registered memory are either the old ones or the ones that were sent there.
//! The CRC detects all damage.

use std::collections::BTreeMap;

use iwarp_proto::{
    CompletionStatus, Config, Delivery, Immediate, OwnOffer, Role, Stag, StreamState, WorkKind,
    testing::engine::{Engine, Event},
    wire::{mpa::RtrKind, rdmap::AtomicOp},
};

use crate::input::Input;

/// Registered at both ends, one slot per item: the target of the peer's Writes and of our reads.
const SLOTS: u32 = 0x100;
/// Registered at both ends: the source of the peer's reads.
const SOURCE: u32 = 0x200;
/// Registered at both ends: a counter.
const COUNTER: u32 = 0x300;
/// Bytes of a slot, the longest message.
const SLOT: usize = 512;
/// The largest number of operations of a side.
const WORK_MAX: usize = 8;
/// The offset of the slots for reads, after the slots that the peer writes to.
const SINK_BASE: u64 = (WORK_MAX * SLOT) as u64;
/// The number that each FetchAdd adds.
const STEP: u64 = 3;

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.byte();
    let rtr = [
        Some(RtrKind::Write),
        Some(RtrKind::Read),
        Some(RtrKind::Send),
    ][usize::from(flags & 3) % 3];
    let mulpdus = [
        128 + 8 * usize::from(input.byte()),
        128 + 8 * usize::from(input.byte()),
    ];
    let receives = input.below(WORK_MAX + 1);
    let work = [take_work(&mut input), take_work(&mut input)];
    let config = |role, mulpdu| Config {
        role,
        mulpdu,
        ird: 4,
        ord: 4,
        rtr,
        send_queue_len: WORK_MAX,
        rfc7306: true,
        peer: iwarp_proto::Peer::Unknown,
    };
    let mut initiator = engine(config(Role::Initiator, mulpdus[0]), &work[0], WORK_MAX);
    let mut responder = engine(config(Role::Responder, mulpdus[1]), &work[1], receives);
    // If both ends offer longer FPDUs, both use them after the Read of their start-up.
    for (bit, engine) in [(4, &mut initiator), (8, &mut responder)] {
        if flags & bit != 0 {
            engine.conn.offer(OwnOffer {
                ulpdu_max: 2 * mulpdus[0],
                carriers: flags & 16 != 0,
            });
        }
    }
    let mut wire = Wire::take(&mut input);
    wire.run(&mut initiator, &mut responder);

    check_received(&work[0], &responder, wire.did_harm);
    check_received(&work[1], &initiator, wire.did_harm);
    check_atomics(&initiator);
    check_atomics(&responder);
    check_memory(&work[0], &initiator, &work[1]);
    check_memory(&work[1], &responder, &work[0]);
    let consuming = work[0].iter().filter(|item| item.op.is_numbered_send());
    if !wire.did_harm && consuming.count() <= receives {
        for (engine, work) in [(&initiator, &work[0]), (&responder, &work[1])] {
            assert_eq!(engine.conn.state(), StreamState::Operational);
            assert_eq!(engine.completions.len(), work.len());
            assert!(engine.conn.is_idle());
        }
    }
    initiator.close();
    responder.close();
}

/// An operation of a side.
#[derive(Clone, Copy, Debug)]
struct Item {
    op: Op,
    bytes: &'static [u8],
    fence: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Send,
    Write,
    Read,
    Immediate,
    Add,
}

impl Op {
    fn is_numbered_send(self) -> bool {
        matches!(self, Self::Send | Self::Immediate)
    }
}

fn take_work(input: &mut Input<'_>) -> Vec<Item> {
    (0..input.below(WORK_MAX + 1))
        .map(|index| {
            let choice = input.byte();
            let len = usize::from(input.short()) % (SLOT + 1);
            Item {
                op: [Op::Send, Op::Write, Op::Read, Op::Immediate, Op::Add][choice as usize % 5],
                bytes: pattern(index, len),
                fence: choice & 0x80 != 0,
            }
        })
        .collect()
}

/// Bytes that identify their item and their offset; never 0, which is the initial content of
/// memory.
fn pattern(index: usize, len: usize) -> &'static [u8] {
    const PERIOD: usize = 251;
    static CYCLE: [u8; PERIOD + SLOT] = {
        let mut cycle = [0; PERIOD + SLOT];
        let mut offset = 0;
        while offset < cycle.len() {
            cycle[offset] = (1 + offset % PERIOD) as u8;
            offset += 1;
        }
        cycle
    };
    &CYCLE[37 * index % PERIOD..][..len]
}

fn engine(config: Config, work: &[Item], receives: usize) -> Engine {
    let mut engine = Engine::new(config);
    let slots = vec![0; 2 * WORK_MAX * SLOT];
    engine.register(SLOTS, 0, slots);
    engine.register(SOURCE, 0, pattern(99, SLOT).to_vec());
    engine.register(COUNTER, 0, vec![0; 8]);
    for token in 0..receives {
        engine.post_receive(1000 + token as u64, SLOT as u32);
    }
    for (index, item) in work.iter().enumerate() {
        let slot = (index * SLOT) as u64;
        let kind = match item.op {
            Op::Send => WorkKind::Send {
                solicited: index % 2 == 0,
                invalidate: None,
            },
            Op::Write => WorkKind::Write {
                stag: Stag(SLOTS),
                to: slot,
            },
            Op::Read => WorkKind::Read {
                source_stag: Stag(SOURCE),
                source_to: 0,
                sink_stag: Stag(SLOTS),
                sink_to: SINK_BASE + slot,
            },
            Op::Immediate => WorkKind::ImmediateData {
                data: [index as u8; 8],
                solicited: index % 2 == 0,
            },
            Op::Add => WorkKind::Atomic {
                op: AtomicOp::FetchAdd { add: STEP, mask: 0 },
                stag: Stag(COUNTER),
                to: 0,
            },
        };
        engine.post(index as u64, kind, item.bytes.to_vec(), item.fence);
    }
    engine
}

/// The fault of an FPDU of the initiator.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Lost,
    Twice,
    BehindTheNext,
    /// Up to four neighbouring bytes change, which CRC32C always notices.
    Damaged {
        at: u16,
        flip: u8,
    },
    /// The end is missing, so the receiver misreads what follows.
    Cut {
        at: u16,
    },
}

#[derive(Debug)]
struct Wire {
    faults: BTreeMap<usize, Fault>,
    /// The number of FPDUs of the initiator so far.
    count: usize,
    /// The number of events of the initiator and of the responder that have been examined.
    seen: [usize; 2],
    /// True once a fault has been applied to an FPDU.
    did_harm: bool,
}

impl Wire {
    fn take(input: &mut Input<'_>) -> Self {
        let mut faults = BTreeMap::new();
        while !input.is_empty() && faults.len() < 8 {
            let which = input.below(64);
            let choice = input.byte();
            let (at, flip) = (input.short(), input.byte());
            let fault = match choice % 5 {
                0 => Fault::Lost,
                1 => Fault::Twice,
                // An empty Write that overtakes the first FPDU is taken for the first FPDU, which
                // is correct.
                2 if which > 0 => Fault::BehindTheNext,
                2 => Fault::Twice,
                3 => Fault::Damaged { at, flip },
                _ => Fault::Cut { at },
            };
            faults.insert(which, fault);
        }
        Self {
            faults,
            count: 0,
            seen: [0, 0],
            did_harm: false,
        }
    }

    /// Runs until neither end has anything to transmit.
    fn run(&mut self, initiator: &mut Engine, responder: &mut Engine) {
        loop {
            initiator.transmit_all();
            responder.transmit_all();
            let out = sent_since(initiator, &mut self.seen[0]);
            let back = sent_since(responder, &mut self.seen[1]);
            if out.is_empty() && back.is_empty() {
                return;
            }
            for fpdu in self.mangle(out) {
                responder.receive_and_answer(&fpdu);
            }
            back.iter()
                .for_each(|fpdu| initiator.receive_and_answer(fpdu));
        }
    }

    fn mangle(&mut self, fpdus: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut mangled = Vec::new();
        let mut held = None;
        for mut fpdu in fpdus {
            let fault = self.faults.remove(&self.count);
            self.count += 1;
            self.did_harm |= fault.is_some();
            let back = held.take();
            match fault {
                Some(Fault::Lost) => {}
                Some(Fault::Twice) => mangled.extend([fpdu.clone(), fpdu]),
                Some(Fault::BehindTheNext) => held = Some(fpdu),
                Some(Fault::Damaged { at, flip }) => {
                    let at = usize::from(at) % fpdu.len();
                    let end = fpdu.len().min(at + 1 + usize::from(flip % 4));
                    fpdu[at..end].iter_mut().for_each(|byte| *byte ^= flip | 1);
                    mangled.push(fpdu);
                }
                Some(Fault::Cut { at }) => {
                    fpdu.truncate(usize::from(at) % fpdu.len());
                    mangled.push(fpdu);
                }
                None => mangled.push(fpdu),
            }
            mangled.extend(back);
        }
        mangled.extend(held);
        mangled
    }
}

/// The FPDUs that `engine` sent after the first `seen` of its events.
fn sent_since(engine: &Engine, seen: &mut usize) -> Vec<Vec<u8>> {
    let new = &engine.events[*seen..];
    *seen = engine.events.len();
    let sent = new.iter().filter_map(|event| match event {
        Event::Sent(bytes) => Some(bytes.clone()),
        _ => None,
    });
    sent.collect()
}

/// Checks that the data which `receiver` received is a prefix of what was sent, byte for byte.
fn check_received(sent: &[Item], receiver: &Engine, did_harm: bool) {
    let mut numbered = (0..)
        .zip(sent)
        .filter(|(_, item)| item.op.is_numbered_send());
    for event in &receiver.events {
        let Event::Delivered(Delivery::Receive {
            token,
            len,
            solicited,
            invalidate,
            immediate,
        }) = event
        else {
            continue;
        };
        let (index, item) = numbered.next().expect("not more than was sent");
        assert_eq!(*solicited, index % 2 == 0);
        assert_eq!(*invalidate, None);
        if item.op == Op::Immediate {
            assert_eq!(*immediate, Some(Immediate::OfWrite([index as u8; 8])));
            // The model of the engine compares the length with the received Writes.
            assert!(did_harm || *len as usize == written_before(&sent[..index]));
        } else {
            assert_eq!((*immediate, *len as usize), (None, item.bytes.len()));
            assert!(receiver.buffers[token].starts_with(item.bytes));
        }
    }
}

/// The length that Immediate Data after these items must report: that of a Write right before it.
fn written_before(sent: &[Item]) -> usize {
    let mut before = sent.iter().rev();
    match before.find(|item| !matches!(item.op, Op::Read | Op::Add)) {
        Some(item) if item.op == Op::Write => item.bytes.len(),
        _ => 0,
    }
}

/// Checks that the k-th atomic of the peer found the sum of k additions, and that the k-th of ours
/// did.
fn check_atomics(engine: &Engine) {
    let executed = engine.events.iter().filter_map(|event| match event {
        Event::Atomic(_, original) => Some(*original),
        _ => None,
    });
    let answered = engine.events.iter().filter_map(|event| match event {
        Event::AtomicResult(_, original) => Some(*original),
        _ => None,
    });
    for (expected, original) in (0..).map(|k| STEP * k).zip(executed) {
        assert_eq!(original, expected);
    }
    for (expected, original) in (0..).map(|k| STEP * k).zip(answered) {
        assert_eq!(original, expected);
    }
}

/// Checks that slots hold what was sent there or their old content, and that completed reads are
/// complete.
fn check_memory(ours: &[Item], engine: &Engine, theirs: &[Item]) {
    let slots = &engine.memory.regions[&SLOTS].bytes;
    let (written, sunk) = slots.split_at(WORK_MAX * SLOT);
    for (index, slot) in written.chunks(SLOT).enumerate() {
        let item = theirs.get(index).filter(|item| item.op == Op::Write);
        let expected = item.map_or(&[][..], |item| item.bytes);
        assert_old_or(slot, expected);
    }
    let source = pattern(99, SLOT);
    for (index, slot) in sunk.chunks(SLOT).enumerate() {
        let item = ours.get(index).filter(|item| item.op == Op::Read);
        let expected = item.map_or(&[][..], |item| &source[..item.bytes.len()]);
        assert_old_or(slot, expected);
        let done = engine.completions.iter().any(|completion| {
            completion.token == index as u64 && completion.status == CompletionStatus::Done
        });
        if done {
            assert!(slot.starts_with(expected), "a read completed with holes");
        }
    }
}

fn assert_old_or(slot: &[u8], expected: &[u8]) {
    static ZEROS: [u8; SLOT] = [0; SLOT];
    let (may_change, rest) = slot.split_at(expected.len());
    assert_eq!(rest, &ZEROS[..rest.len()], "beyond what was sent");
    if may_change == expected || *may_change == ZEROS[..may_change.len()] {
        return;
    }
    for (byte, expected) in may_change.iter().zip(expected) {
        assert!(*byte == 0 || byte == expected);
    }
}
