//! Connections that more than one process uses.
//!
//! A connection stays in the process that made it, its owner: threads, sockets and queue pairs
//! cannot be copied. Other processes get the program's end of the pair, by a `fork`, an `exec` or
//! over a Unix socket. As long as they do not use it (a server that forks to write a snapshot), the
//! owner goes on as before. The first process that uses it asks the owner: from then on the pair
//! carries bytes, and the owner moves them between the pair and the connection. A program without
//! this library reads and writes the pair as it is, so the change is made before such a program
//! gets the descriptor.
//!
//! The kernel counts the holders of the program's end, and the connection ends when there is none
//! left: no exit, no `SIGKILL` and no close in one process ends what another one uses.
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
