//! Connections that more than one process uses.
//!
//! A connection lives in the process that made it, its owner: threads, sockets and queue pairs
//! cannot be copied. What others hold, after a `fork`, an `exec` or over a Unix socket, is the
//! program's end of the pair. As long as they do not touch it (a server that forks to write a
//! snapshot), the owner goes on as before. Whoever touches it first asks the owner, and from then
//! on the pair carries bytes and the owner moves them between the pair and the connection. A
//! program without this library reads and writes them as they are, so whatever leads to one begins
//! this beforehand.
//!
//! The kernel counts who holds the program's end. The connection ends when nobody does: no exit, no
//! `SIGKILL` and no close in one process ends what another one uses.
//!
//! | File | What |
//! |---|---|
//! | [`passing`] | from the process that listens to the one that accepts |
//! | [`relay`] | the owner's side: from signals to bytes, and the end |
//! | [`flow`] | the bytes |
//! | [`relayed`] | a descriptor that carries bytes, in any process |
//! | [`renewal`] | a fresh pair, where the old one takes no bytes any more |
//! | [`shared_state`] | memory that the processes share |
//! | [`adopting`] | what it is called in a program that was not there when it came about |
//! | [`leaving`] | what is handed over before other programs use it, over a Unix socket |

pub(crate) mod adopting;
pub(crate) mod flow;
pub(crate) mod leaving;
pub(crate) mod passing;
pub(crate) mod relay;
pub(crate) mod relayed;
pub(crate) mod renewal;
pub(crate) mod shared_state;
