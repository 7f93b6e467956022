//! The doorbell of a connection: bytes on the `AF_UNIX` stream connection of its two processes.
//!
//! A single connection carries the doorbells of both directions and of both purposes (a record was
//! published, records were released), because a side that is woken checks everything. The
//! connection also shows the death of the peer.

use std::os::fd::AsFd;

use crate::engine::io::{self, Received, Sent};

/// Maximum number of receives of one [`drain`], so that a peer that rings all the time does not
/// occupy this thread.
const RECEIVES_MAX: usize = 4;

/// The result of [`drain`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drained {
    /// The peer has rung.
    Rung,
    /// The peer has not rung.
    Quiet,
    /// The peer has closed its end, or the connection is broken.
    Gone,
}

/// Wakes the peer. Returns false if the peer has closed its end.
///
/// A connection that is full of bytes needs no further byte: the peer has doorbells that it has not
/// drained.
pub(crate) fn ring(conn: impl AsFd) -> bool {
    match io::send(conn.as_fd(), &[1]) {
        Sent::Bytes(_) | Sent::WouldBlock => true,
        Sent::Failed(_) => false,
    }
}

/// Receives all pending doorbells of the peer, so that the descriptor is not readable any more. The
/// kernel closes descriptors that a peer has attached.
pub(crate) fn drain(conn: impl AsFd) -> Drained {
    let mut bytes = [0; 256];
    let mut drained = Drained::Quiet;
    for _ in 0..RECEIVES_MAX {
        match io::receive(conn.as_fd(), &mut bytes) {
            Received::Bytes(count) => {
                drained = Drained::Rung;
                if count < bytes.len() {
                    break;
                }
            }
            Received::WouldBlock => break,
            // Doorbells before the end are reported first; the next call finds the end again.
            Received::Eof | Received::Failed(_) if drained == Drained::Rung => break,
            Received::Eof | Received::Failed(_) => return Drained::Gone,
        }
    }
    drained
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    #[test]
    fn doorbells_are_drained_together() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert_eq!(drain(&ours), Drained::Quiet);
        for _ in 0..300 {
            assert!(ring(&theirs));
        }
        assert_eq!(drain(&ours), Drained::Rung);
        assert_eq!(drain(&ours), Drained::Quiet);
        assert!(ring(&theirs) && ring(&ours));
        // Not by closing the socket: the child of another test's fork may have a copy.
        theirs.shutdown(Shutdown::Both).unwrap();
        assert_eq!(drain(&ours), Drained::Rung, "rung before the end");
        assert_eq!(drain(&ours), Drained::Gone);
        assert!(!ring(&ours));
    }

    #[test]
    fn a_full_connection_is_a_pending_doorbell() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut filled = 0;
        while let Ok(count) = theirs.write(&[0; 4096]) {
            filled += count;
        }
        assert!(ring(&theirs));
        let mut calls = 0;
        while drain(&ours) == Drained::Rung {
            calls += 1;
        }
        assert!(calls >= filled / (RECEIVES_MAX * 256), "a call is bounded");
    }
}
