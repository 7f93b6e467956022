//! A descriptor whose readiness a library steers, for sockets whose bytes are carried by another
//! transport.
//!
//! A program that was linked against the C library waits for its sockets with `poll`, `select` and
//! `epoll`, duplicates them, inherits them over `fork` and passes them to other processes. All of
//! this keeps the kernel's own meaning if the program's descriptor is a kernel object. Here the
//! descriptor is one end of an `AF_UNIX` stream pair. As long as one process uses the connection,
//! no user byte is sent through the pair. The library sends single signal bytes through it, and
//! shuts down and closes its ends, so that the program's end shows the same readiness as a TCP
//! socket in the same state.
//!
//! | TCP state | readiness | how the pair shows it |
//! |---|---|---|
//! | fresh | `OUT HUP` | [`fresh`]: not connected |
//! | connecting | none | [`begin_connect`]: the send buffer of the program's end is full |
//! | established | `OUT` | [`LibraryEnd::open_window`] |
//! | something to read | `IN` | [`LibraryEnd::announce`]: a signal byte is unread |
//! | send window full | not `OUT` | [`close_window`]: one byte more than the buffer permits |
//! | urgent byte | `PRI` | [`LibraryEnd::announce_urgent`] |
//! | peer has shut down | `IN RDHUP` | [`LibraryEnd::half_close`] |
//! | both have shut down | `IN OUT RDHUP HUP` | [`LibraryEnd::end`] |
//! | reset, refused | `IN OUT RDHUP HUP ERR` | [`LibraryEnd::reset`]: closed with a byte unread |
//!
//! One thing differs from TCP: an urgent byte shows `IN` as well. A shutdown by the program alone
//! shows nothing, as with TCP, because the library shuts the pair down only when the peer has shut
//! down too.
//!
//! The library must hold no duplicate of the program's end. When the last duplicate in any process
//! is closed, `SIGKILL` included, the library's end gets a hang-up, and this is the only
//! notification of the close. A function that needs the program's end therefore borrows it from the
//! call in which the program passes it.
//!
//! A pair can also carry the bytes themselves, for processes that hold the program's end and not
//! the connection: children of a `fork`, and programs without the library. These processes and the
//! owner of the connection use [`Handover`] to start this; [`Carrier`] is the library's end
//! afterwards.
//!
//! A program can send past the library, for example by io_uring. Such bytes are in the pair behind
//! the signals. [`LibraryEnd::has_bytes`] finds them, and [`Carrier::with_bytes`] keeps them.
//!
//! [`LibraryEnd::announce`] and [`close_window`] make one system call each,
//! [`LibraryEnd::open_window`] two, and none if the pair shows the state already. All system calls
//! are direct, because a preload library replaces the C library's functions.

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
