//! Random conversations: the traces of both ends get the verdict of the checker that sees both.

use std::collections::BTreeSet;

use super::script::{
    ABORT_CONN, Connection, DIS_CONN, Message, SEND_SM, SINK_CANCEL, SINK_CANCEL_ACK,
    SINK_TO_COMBINED, SRC_CANCEL, SUSP_COMM, SUSP_COMM_ACK,
    Step::{Receives, Sends},
    TO_BUFFERED, TO_COMBINED, TO_PIPELINED, UPDATE, data, read, resize, resized, sink_avail,
    src_avail, written,
};
use crate::Side::{Active, Passive};

const CONVERSATIONS: u64 = if cfg!(miri) { 20 } else { 4_000 };
const STEPS: u32 = 60;

/// Pseudo-random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn message(&mut self) -> Message {
        let number = self.below(4) as u32;
        let bytes = self.below(200) as u32;
        match self.below(24) {
            0..3 => data(1 + bytes % 100),
            3 => UPDATE,
            4..6 => src_avail(bytes + 2, 0),
            6 => src_avail(bytes + 2, 1 + bytes % 3),
            7..9 => read(bytes),
            9 => SEND_SM,
            10 => SRC_CANCEL,
            11..14 => sink_avail(100 + bytes, number),
            14 => sink_avail(100 + bytes, number).payload(5),
            15 => written(bytes),
            16 => SINK_CANCEL,
            17 => SINK_CANCEL_ACK,
            18 => [TO_BUFFERED, TO_COMBINED, SINK_TO_COMBINED][number as usize % 3],
            19 | 20 => TO_PIPELINED,
            21 => [resize(100 + bytes), resized(100 + bytes)][number as usize % 2],
            22 => [DIS_CONN, ABORT_CONN, SUSP_COMM, SUSP_COMM_ACK][number as usize],
            _ => data(1).flags(3),
        }
    }
}

#[test]
fn random_conversations_get_one_verdict() {
    let (mut accepted, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for seed in 1..=CONVERSATIONS {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut connection = Connection::new(3);
        let mut broken = None;
        for _ in 0..STEPS {
            let side = [Active, Passive][random.below(2) as usize];
            if random.below(4) == 0 {
                connection.step(Receives(side)).expect("nothing is sent");
                continue;
            }
            let message = random.message();
            let verdict = connection.would_send(side, message);
            // Few violations are sent, because they end the conversation.
            if verdict.is_ok() || random.below(100) == 0 {
                broken = connection
                    .step(Sends(side, message))
                    .err()
                    .map(|it| (side, it));
                assert_eq!(broken.map(|it| it.1), verdict.err(), "seed {seed}");
            }
            if let Some((_, rule)) = broken {
                refused.insert(format!("{rule:?}"));
                break;
            }
            if verdict.is_ok() {
                accepted.insert(message.mid());
            }
        }
        if broken.is_none() {
            connection.step(Receives(Active)).expect("nothing is sent");
            connection.step(Receives(Passive)).expect("nothing is sent");
        }
        for (side, verdict) in [Active, Passive].into_iter().zip(connection.traces()) {
            let expected = broken.filter(|(sender, _)| *sender == side);
            let expected = expected.map_or(Ok(()), |(_, rule)| Err(rule));
            assert_eq!(verdict, expected, "seed {seed}, {side:?}");
        }
    }
    if !cfg!(miri) {
        assert_eq!(accepted.len(), 16, "{accepted:x?}");
        assert!(refused.len() >= 20, "{refused:?}");
    }
}
