//! The checker of recorded SDP connections: any bytes get a verdict, and the traces of the two ends
//! get the verdict of a checker that sees both ends.
//!
//! Input: a byte for the kind. If it is odd, the rest is a trace. If it is even, the rest is a
//! conversation of steps, in each of which a side sends a message, or receives those in flight.
//!
//! The following must hold for a conversation. A message that keeps all rules keeps them in both
//! traces. A message that breaks a rule breaks the same rule in the trace of its sender.

use std::collections::VecDeque;

use sdp_checker::{Broken, Checker, Records, Side, TraceFault, TraceWriter, check_trace};

use crate::{
    input::Input,
    sdp_message::{HELLO, HELLO_ACK, MESSAGES},
    seed::{Seed, hex, seed},
};

/// The limit of the steps of a conversation.
const STEPS_MAX: usize = 400;

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    if input.byte() & 1 == 1 {
        check_bytes(input.rest());
    } else {
        Conversation::new(&mut input).run(&mut input);
    }
}

/// Gives the bytes of a trace a verdict, and prints its records.
fn check_bytes(trace: &[u8]) {
    let texts = Records::of(trace).map_while(Result::ok);
    let texts: Vec<String> = texts.map(|record| record.to_string()).collect();
    for side in [Side::Active, Side::Passive] {
        if let Ok(checker) = check_trace(side, trace) {
            assert!(checker.frames() <= texts.len() as u64);
        }
    }
}

/// An end of a conversation.
struct End {
    trace: TraceWriter<Vec<u8>>,
    sent: u32,
    received: u32,
    in_flight: VecDeque<Vec<u8>>,
}

struct Conversation {
    checker: Checker,
    active: End,
    passive: End,
}

impl Conversation {
    fn new(input: &mut Input<'_>) -> Self {
        let (mut hello, mut hello_ack) = (hex(HELLO), hex(HELLO_ACK));
        let adverts = input.byte().max(1);
        (hello[19], hello_ack[19]) = (adverts, adverts);
        let mut checker = Checker::new();
        checker.hello(&hello).expect("a good Hello");
        checker.hello_ack(&hello_ack).expect("a good HelloAck");
        let [active, passive] = [(); 2].map(|()| {
            let mut trace = TraceWriter::new(Vec::new());
            let written = trace
                .hello(&hello)
                .and_then(|()| trace.hello_ack(&hello_ack));
            written.expect("a vector takes all");
            End {
                trace,
                sent: 0,
                received: 0,
                in_flight: VecDeque::new(),
            }
        });
        Self {
            checker,
            active,
            passive,
        }
    }

    fn end(&mut self, side: Side) -> &mut End {
        match side {
            Side::Active => &mut self.active,
            Side::Passive => &mut self.passive,
        }
    }

    fn run(mut self, input: &mut Input<'_>) {
        let mut broken = None;
        for _ in 0..STEPS_MAX {
            if input.is_empty() || broken.is_some() {
                break;
            }
            let step = input.byte();
            let side = if step & 1 == 0 {
                Side::Active
            } else {
                Side::Passive
            };
            if step & 2 == 0 {
                broken = self.send(side, input).err().map(|broken| (side, broken));
            } else {
                self.receive(side);
            }
        }
        if broken.is_none() {
            self.receive(Side::Active);
            self.receive(Side::Passive);
        }
        self.check_traces(broken);
    }

    fn send(&mut self, side: Side, input: &mut Input<'_>) -> Result<(), Broken> {
        let mut message = hex(MESSAGES[input.below(MESSAGES.len())].1);
        // One byte may have any value: a length, a count, a mode.
        let change = input.byte();
        if change != 0 {
            let at = usize::from(change) % message.len();
            message[at] = input.byte();
        }
        let end = self.end(side);
        message[8..12].copy_from_slice(&(end.sent + 1).to_be_bytes());
        message[12..16].copy_from_slice(&end.received.to_be_bytes());
        end.sent += 1;
        let written = end.trace.sent(&message, message.len());
        written.expect("a vector takes all");
        let result = self.checker.sent(side, &message, message.len());
        self.end(side.other()).in_flight.push_back(message);
        result
    }

    fn receive(&mut self, side: Side) {
        while let Some(message) = self.end(side).in_flight.pop_front() {
            self.checker.received(side);
            let end = self.end(side);
            end.received += 1;
            let written = end.trace.received(&message, message.len());
            written.expect("a vector takes all");
        }
    }

    fn check_traces(self, broken: Option<(Side, Broken)>) {
        for (side, end) in [(Side::Active, self.active), (Side::Passive, self.passive)] {
            let verdict = check_trace(side, &end.trace.into_inner()).map(drop);
            match broken {
                Some((sender, rule)) if sender == side => {
                    let is_same = matches!(
                        verdict,
                        Err(TraceFault::Broken { broken, sender, .. })
                            if broken == rule && sender == side
                    );
                    assert!(is_same, "{side:?}: {verdict:?} instead of {rule:?}");
                }
                _ => assert_eq!(verdict, Ok(()), "{side:?}"),
            }
        }
    }
}

/// The initial inputs of the corpus: a trace, and a conversation for each kind of message.
pub(crate) fn seeds() -> Vec<Seed> {
    let mut trace = vec![1];
    for (kind, bytes) in [(0, hex(HELLO)), (1, hex(HELLO_ACK))] {
        trace.extend([kind, 0, 0, 0, bytes.len() as u8, bytes.len() as u8]);
        trace.extend(bytes);
    }
    let mut seeds = vec![seed("sdp_trace", "set-up", trace.clone())];
    for (index, (name, text)) in (0..).zip(MESSAGES) {
        let bytes = hex(text);
        let mut recorded = trace.clone();
        recorded.extend([2, 0, 0, 0, bytes.len() as u8, bytes.len() as u8]);
        recorded.extend(bytes);
        seeds.push(seed("sdp_trace", format!("recorded-{name}"), recorded));
        let conversation = vec![0, 3, 0, index, 0, 3, 1, index, 0, 2];
        seeds.push(seed("sdp_trace", format!("said-{name}"), conversation));
    }
    let position = |name| MESSAGES.iter().position(|message| message.0 == name);
    let step = |side: u8, name| [side, position(name).expect("a message") as u8, 0];
    // NonDiscards of the sample is 2; its last byte is the 36th.
    let sink = |side: u8| {
        let at = position("sink-avail").expect("a message") as u8;
        [side, at, 35, 0]
    };
    let pipelined = step(0, "pipelined");
    let conversations: [(&str, Vec<u8>); 3] = [
        (
            "crossing",
            [&pipelined[..], &[3], &step(0, "data"), &sink(1), &[2, 3]].concat(),
        ),
        (
            "written",
            [
                &pipelined[..],
                &[3],
                &sink(1),
                &[2],
                &step(0, "written"),
                &[3],
            ]
            .concat(),
        ),
        (
            "cancelled",
            [
                &step(0, "src-avail")[..],
                &step(0, "src-cancel"),
                &[3],
                &step(1, "send-sm"),
                &[2],
            ]
            .concat(),
        ),
    ];
    for (name, steps) in conversations {
        seeds.push(seed("sdp_trace", name, [&[0, 3][..], &steps].concat()));
    }
    seeds
}
