//! The tests of the checker.
//!
//! | File | Contents |
//! |---|---|
//! | `script.rs` | conversations as lists of steps, and their traces at both ends |
//! | `frames.rs` | byte-exact frames: forms, numbers, credits, order of the stream |
//! | `rules.rs` | for each rule a conversation that keeps it and one that breaks it |
//! | `crossings.rs` | messages that cross on the wire, in both orders |
//! | `random.rs` | random conversations, seen at both ends and in the trace of each end |
//! | `table.rs` | the verdict for each message in each state, and for each change of mode |

mod crossings;
mod frames;
mod random;
mod rules;
mod script;
mod table;
