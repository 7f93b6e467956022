//! Reads the SDP frames of both directions of a connection and says which rule is broken.
//!
//! A second opinion: it shares no line with the protocol core it watches, neither the parser nor a
//! constant nor a state, so a mistake has to be made twice to pass.
//!
//! | File | What |
//! |---|---|
//! | `frame.rs` | a frame taken apart |
//! | `broken.rs` | the rules, each a sentence |
//! | `end.rs` | what one end has sent and received |
//! | `checker.rs` | both ends and the wire between them |
//! | `trace.rs` | the file format of a recorded connection |
//! | `shown.rs` | a message of it in words |
//!
//! A rule is held against what its sender knew when it sent. So the checker is told of frames
//! twice: when they are sent and when they are received ([`Checker::sent`],
//! [`Checker::received`]). At one end of a real connection the peer's knowledge is not known;
//! [`Checker::arrived`] then assumes the most.

#![forbid(unsafe_code)]

mod broken;
mod checker;
mod end;
mod frame;
mod shown;
mod trace;

pub use broken::Broken;
pub use checker::{Checker, Side};
pub use trace::{Kind, Record, Records, TraceFault, TraceWriter, check_trace};
