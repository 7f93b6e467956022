//! References to registered memory that the peer may still read.
//!
//! A long payload is not copied by its sender: the ring carries its address, and the peer reads it
//! by `process_vm_readv`. So deregistration has to take such references back before it returns
//! (RFC 5042 section 6.3.3): a reference that the peer has not begun to read is revoked, and one
//! that is being read is waited for.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use iwarp_proto::Stag;

use crate::engine::io;
use crate::memory::Lender;

use super::record::Position;
use super::rendezvous::UnixConn;
use super::ring::{Revoked, Revoker};

/// How long a peer may take to read what it has begun to read: a process that is stopped in that
/// moment may read memory that is no longer registered, and its connection ends instead of
/// delivering what it has read ([`Revoker::abandon`]).
const PULL_PATIENCE: Duration = Duration::from_secs(1);
/// The pause between two looks at a reference that is being read.
const PULL_PAUSE: Duration = Duration::from_micros(20);

/// One reference.
#[derive(Debug)]
struct Loan {
    position: Position,
    /// The registrations that its memory belongs to.
    stags: Vec<Stag>,
}

/// The references of one connection.
#[derive(Debug)]
pub(super) struct Loans {
    revoker: Revoker,
    /// The connection of the two processes. A peer that has closed it, or is dead, reads no more.
    conn: Arc<UnixConn>,
    open: Mutex<Vec<Loan>>,
}

impl Loans {
    pub(super) fn new(revoker: Revoker, conn: Arc<UnixConn>) -> Self {
        Self {
            revoker,
            conn,
            open: Mutex::default(),
        }
    }

    /// A reference was written. Called before it is published, with the memory table open.
    pub(super) fn add(&self, position: Position, stags: Vec<Stag>) {
        self.lock().push(Loan { position, stags });
    }

    /// The peer is done with a reference.
    pub(super) fn remove(&self, position: Position) {
        self.lock().retain(|loan| loan.position != position);
    }

    /// Takes back all references that `is_meant` names, and returns when the peer reads none of
    /// them any more.
    fn take_back(&self, open: &[Loan], is_meant: impl Fn(&Loan) -> bool) {
        let meant = || open.iter().filter(|loan| is_meant(loan));
        // Whatever is being read: the peer begins with none of the others.
        let being_read: Vec<Position> = meant()
            .map(|loan| loan.position)
            .filter(|position| self.revoker.revoke(*position) == Revoked::Pulling)
            .collect();
        let deadline = Instant::now() + PULL_PATIENCE;
        for position in being_read {
            while self.revoker.revoke(position) == Revoked::Pulling {
                if io::is_hung_up(self.conn.as_fd()) {
                    return;
                }
                if Instant::now() >= deadline {
                    tracing::warn!("a peer reads memory for longer than it is registered");
                    self.revoker.abandon(position);
                    break;
                }
                thread::sleep(PULL_PAUSE);
            }
        }
    }

    /// Takes back everything: the connection is over.
    pub(super) fn take_back_all(&self) {
        let mut open = self.lock();
        self.take_back(&open, |_| true);
        open.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Loan>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lender for Loans {
    fn revoke(&self, stag: Stag) {
        self.take_back(&self.lock(), |loan| loan.stags.contains(&stag));
    }
}
