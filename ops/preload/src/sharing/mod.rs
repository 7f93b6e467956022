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
//! The owner's side is `socket::relay`, that of the users `socket::relayed`.
//!
//! | File | What |
//! |---|---|
//! | `mod` | a connection that begins to be shared |
//! | [`renewal`] | a fresh pair, where the old one takes no bytes any more |
//! | [`adopting`] | the names of connections, for programs that did not see them begin |
//! | [`leaving`] | what is handed over before other programs use it |

pub(crate) mod adopting;
pub(crate) mod leaving;
mod renewal;

use std::sync::Arc;

use rustix::io::Errno;

use crate::socket::Socket;
use crate::socket::relay::Relay;
use crate::socket::relayed::Relayed;
use crate::socket::shared_state::Place;
use crate::table::{self, Entry};

/// Makes a connection ready for other processes. It ends when nobody holds the program's end from
/// then on, and not when this process has closed it.
pub(crate) fn share(socket: &Arc<Socket>) -> Result<Arc<Relay>, Errno> {
    if let Some(relay) = socket.observer().relay() {
        return Ok(relay);
    }
    socket.observer().will_be_shared();
    renewal::renew_ended(socket)?;
    Relay::of(socket, rename)
}

/// The numbers of this process name a descriptor that carries bytes now.
fn rename(socket: &Arc<Socket>, place: Place) {
    let relayed = Arc::new(Relayed::carrying(socket.identity(), Some(place)));
    let is_it = |entry: &Entry| matches!(entry, Entry::Socket(it) if Arc::ptr_eq(it, socket));
    for fd in table::within(0, usize::MAX) {
        table::exchange(fd, is_it, || Entry::Relayed(relayed.clone()));
    }
}
