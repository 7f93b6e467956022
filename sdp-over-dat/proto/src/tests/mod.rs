//! Tests of whole messages and whole connections.
//!
//! | File | Contents |
//! |---|---|
//! | `golden.rs` | every message byte for byte |
//! | `setup.rs` | Hello, HelloAck, versions, trimming |
//! | `engine.rs` | an engine in memory: bytes, regions, receive buffers |
//! | `pair.rs` | two such engines, the wire between them, and the checker that reads it |
//! | `conversations.rs` | conversations between two ends |
//! | `crossings.rs` | messages of pipelined mode that cross, in both orders |
//! | `suspensions.rs` | suspension and continuation |
//! | `situations.rs` | every message in every situation, and every field with other values |
//! | `simulation.rs` | two ends with random behaviour, in virtual time |
//! | `random.rs` | pseudo-random numbers from a seed |

mod conversations;
mod crossings;
mod engine;
mod golden;
mod pair;
mod random;
mod setup;
mod simulation;
mod situations;
mod suspensions;

/// Checks a state machine. A row is an event and the states after it, in the order of `$all`, the
/// states before it.
macro_rules! transitions {
    ($state:ty: $all:expr; $($name:literal: $event:expr => $after:expr;)+) => {$(
        let event: fn(&mut $state) = $event;
        for (before, expected) in $all.into_iter().zip($after) {
            let mut state = before;
            event(&mut state);
            assert_eq!(state, expected, "{} in {before:?}", $name);
        }
    )+};
}
pub(crate) use transitions;

/// Bytes written as groups of hexadecimal digits.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter_map(|byte| char::from(byte).to_digit(16).map(|digit| digit as u8))
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}
