//! Checks the SDP frames of both directions of a connection and reports which rule is broken.
//!
//! The checker is independent of the protocol core: the two share no parser, constant or state. So
//! the same mistake would have to be made twice to remain undetected.
//!
//! | File | Contents |
//! |---|---|
//! | `frame.rs` | the fields of a frame |
//! | `hello.rs` | the fields of Hello and HelloAck |
//! | `broken.rs` | the rules, one sentence each |
//! | `half/` | a half of the connection, as its source and its sink see it; crossing messages |
//! | `sizes.rs` | the sizes of receive buffers, and their changes |
//! | `end.rs` | the frames that one end has sent and received |
//! | `checker.rs` | both ends and the wire between them |
//! | `trace.rs` | the file format of a recorded connection |
//! | `shown.rs` | a message as text |
//!
//! A rule is checked against the sender's knowledge at the time of sending, because messages of the
//! two ends cross on the wire. So each frame is passed to the checker twice: when it is sent and
//! when it is received ([`Checker::sent`], [`Checker::received`]).
//!
//! A trace holds the frames that one end has sent and received, in the order in which that end sent
//! and processed them. The trace does not show which frames the peer had received when the peer
//! sent a message. [`Checker::arrived`] derives this from MSeqAck.

#![forbid(unsafe_code)]

mod broken;
mod checker;
mod end;
mod frame;
mod half;
mod hello;
mod shown;
mod sizes;
mod trace;

pub use broken::Broken;
pub use checker::{Checker, Side};
pub use trace::{Kind, Record, Records, TraceFault, TraceWriter, check_trace};
