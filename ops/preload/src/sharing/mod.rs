//! Connections that more than one process uses.
//!
//! A connection stays in the process that made it, its owner: threads, sockets and queue pairs
//! cannot be copied. Other processes get the program's end of the pair by a `fork`, by an `exec` or
//! over a Unix socket. As long as they do not use the descriptor (a server that forks to write a
//! snapshot), the owner continues as before. The first other process that uses the descriptor asks
//! the owner for bytes. From then on the pair carries bytes, and the owner moves them between the
//! pair and the connection. A program without this library reads and writes the pair directly, so
//! the change is made before such a program gets the descriptor.
//!
//! The kernel counts the holders of the program's end, and the connection ends when the last of
//! them closes it. An exit or a close in one process, or `SIGKILL` of a process that is not the
//! owner, ends no connection that another process uses.
//!
//! `socket::relay` is the owner's side, `socket::relay_client` the side of all other processes.
//!
//! | File | Contents |
//! |---|---|
//! | `mod` | starts to share a connection |
//! | [`renewal`] | makes a new pair if the old one no longer accepts bytes |
//! | [`adopting`] | names that identify a connection to a program that did not make it |
//! | [`exposing`] | makes a pair carry bytes before another program uses it |

pub(crate) mod adopting;
pub(crate) mod exposing;
mod renewal;

use std::sync::Arc;

use rustix::io::Errno;

use crate::fd::{self, Entry};
use crate::socket::Socket;
use crate::socket::relay::Relay;
use crate::socket::relay_client::RelayClient;
use crate::socket::shared_state::SharedStateRef;

/// Prepares a connection for other processes. From then on the connection ends when no process
/// holds the program's end any more, and not when this process closes it.
pub(crate) fn share(socket: &Arc<Socket>) -> Result<Arc<Relay>, Errno> {
    if let Some(relay) = socket.observer().relay() {
        return Ok(relay);
    }
    socket.observer().begin_sharing();
    renewal::renew_ended(socket)?;
    Relay::of(socket, replace_entries)
}

/// Replaces the table entries of a connection whose pair has begun to carry bytes.
fn replace_entries(socket: &Arc<Socket>, shared_state: SharedStateRef) {
    let client = Arc::new(RelayClient::carrying(socket.identity(), Some(shared_state)));
    for fd in fd::numbers_of(&**socket) {
        fd::exchange(fd, &**socket, || Arc::clone(&client) as Entry);
    }
}
