//! A descriptor whose readiness a library steers, for sockets whose bytes travel elsewhere.
//!
//! A program that was linked against the C library waits for its sockets with `poll`, `select` and
//! `epoll`, duplicates them, inherits them over `fork` and passes them to others. All of that keeps
//! the kernel's own meaning when the descriptor that the program holds is a kernel object. Here it
//! is one end of an `AF_UNIX` stream pair. No user byte goes through the pair: what travels in it
//! are single signal bytes, and the ends are shut down and closed, so that the program's end shows
//! just the readiness that a TCP socket in the same state would show.
//!
//! | TCP state | readiness | how the pair shows it |
//! |---|---|---|
//! | fresh | `OUT HUP` | [`fresh`]: not connected |
//! | connecting | none | [`begin_connect`]: the send buffer of the program's end is full |
//! | established | `OUT` | [`LibraryEnd::open_window`] |
//! | something to read | `IN` | [`LibraryEnd::announce`]: a signal byte lies there |
//! | send window full | not `OUT` | [`close_window`]: one byte more than the buffer likes |
//! | urgent byte | `PRI` | [`LibraryEnd::announce_urgent`] |
//! | peer has shut down | `IN RDHUP` | [`LibraryEnd::half_close`] |
//! | both have shut down | `IN OUT RDHUP HUP` | [`LibraryEnd::end`] |
//! | reset, refused | `IN OUT RDHUP HUP ERR` | [`LibraryEnd::reset`]: closed with a byte unread |
//!
//! Two things differ from TCP. An urgent byte shows `IN` as well. Shutting down only our side shows
//! nothing, as with TCP, because the pair is told of it only when the peer's side ends too.
//!
//! The library must hold no duplicate of the program's end: the hang-up that its own end sees when
//! the last duplicate in any process is closed, `SIGKILL` included, is how it learns of that. What
//! needs the program's end is therefore a function that borrows it from the call in which the
//! program hands it over.
//!
//! A pair can also carry the bytes themselves, for processes that hold its end and not the
//! connection: children of a `fork`, programs that know nothing of the library. [`Handover`] is how
//! they and the owner of the connection agree on it, [`Carrier`] is the library's end afterwards.
//!
//! System calls: [`LibraryEnd::announce`] and both directions of the window one each, and none when
//! the state is shown already. All are made without the C library, which a preload layer stands
//! in front of.

mod calibration;
mod carrier;
mod handover;
mod library_end;
mod program_end;
mod signals;

pub use calibration::NoStandIn;
pub use carrier::{Carrier, Taken};
pub use handover::{Handover, Move, Stage, Ticket};
pub use library_end::LibraryEnd;
pub use program_end::{Flags, begin_connect, close_window, consume, established, fresh, surrender};
pub use signals::Signals;
