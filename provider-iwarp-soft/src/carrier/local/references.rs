//! References to registered memory that the peer may still read.
//!
//! The sender of a long payload does not copy it: the ring carries the payload's address, and the
//! peer reads the payload by `process_vm_readv`. So deregistration must end such references before
//! it returns (RFC 5042 section 6.3.3): it revokes a reference that the peer has not begun to read,
//! and waits for one that is being read.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use host::locks::IgnorePoison as _;
use iwarp_proto::Stag;

use super::record::Position;
use super::rendezvous::UnixConn;
use super::ring::{Revoked, Revoker};
use crate::engine::io;
use crate::memory::ReferenceHolder;

/// The time that a peer has to finish a read when the memory is deregistered. A process that is
/// stopped during the read may read memory that is no longer registered. Its connection then ends
/// and does not deliver the bytes ([`Revoker::abandon`]).
const PULL_TIMEOUT: Duration = Duration::from_secs(1);
/// The time that a peer has to finish a read when the connection ends, several times that of the
/// longest read. The thread that ends the connection also serves others, which must not wait for a
/// peer that only claims to read.
const END_TIMEOUT: Duration = Duration::from_millis(2);
/// The pause between two checks of a reference that is being read.
const PULL_PAUSE: Duration = Duration::from_micros(20);

/// A reference to registered memory.
#[derive(Debug)]
struct OutstandingReference {
    position: Position,
    /// The registrations that contain the memory of the reference.
    stags: Vec<Stag>,
}

/// The references of one connection.
#[derive(Debug)]
pub(super) struct OutstandingReferences {
    revoker: Revoker,
    /// The connection of the two processes. A peer that has closed it, or is dead, reads no more.
    conn: Arc<UnixConn>,
    open: Mutex<Vec<OutstandingReference>>,
}

impl OutstandingReferences {
    pub(super) fn new(revoker: Revoker, conn: Arc<UnixConn>) -> Self {
        Self {
            revoker,
            conn,
            open: Mutex::default(),
        }
    }

    /// Called when a reference was written, before it is published and with the memory table open.
    pub(super) fn add(&self, position: Position, stags: Vec<Stag>) {
        self.lock().push(OutstandingReference { position, stags });
    }

    /// Called when the peer has finished with a reference.
    pub(super) fn remove(&self, position: Position) {
        self.lock()
            .retain(|reference| reference.position != position);
    }

    /// Revokes the references that `is_selected` selects, and returns when the peer reads none of
    /// them any more, or after `patience`. The bytes that the peer still reads then are void.
    ///
    /// The lock is not held between two checks. A drive adds references with the memory table open,
    /// so a drive that waited for the lock would stop all connections of the adapter.
    fn revoke_where(
        &self,
        patience: Duration,
        is_selected: impl Fn(&OutstandingReference) -> bool,
    ) {
        let selected = |it: &&OutstandingReference| is_selected(it);
        let all = |open: &[OutstandingReference]| -> Vec<Position> {
            open.iter().filter(selected).map(|it| it.position).collect()
        };
        // No reference is added that is selected, so this list is complete.
        let mut being_read = all(&self.lock());
        let deadline = Instant::now() + patience;
        loop {
            self.retain_being_read(&mut being_read);
            if being_read.is_empty() || io::is_hung_up(self.conn.as_fd()) {
                return;
            }
            if Instant::now() >= deadline {
                return self.abandon(&being_read);
            }
            thread::sleep(PULL_PAUSE);
        }
    }

    /// Revokes references, and keeps those that are being read. The peer cannot start to read the
    /// remaining ones.
    fn retain_being_read(&self, positions: &mut Vec<Position>) {
        let open = self.lock();
        positions.retain(|position| {
            is_open(&open, *position) && self.revoker.revoke(*position) == Revoked::Pulling
        });
    }

    /// Revokes references that the peer has begun to read and does not finish reading.
    fn abandon(&self, positions: &[Position]) {
        tracing::warn!("a peer does not finish reading memory that is no longer in use");
        let open = self.lock();
        for position in positions.iter().filter(|it| is_open(&open, **it)) {
            self.revoker.abandon(*position);
        }
    }

    /// Revokes all references, because the connection is over.
    pub(super) fn revoke_all(&self) {
        self.revoke_where(END_TIMEOUT, |_| true);
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OutstandingReference>> {
        self.open.lock().ignore_poison()
    }
}

impl ReferenceHolder for OutstandingReferences {
    fn revoke(&self, stag: Stag) {
        self.revoke_where(PULL_TIMEOUT, |reference| reference.stags.contains(&stag));
    }
}

/// True if the record at a position is still the reference. The ring reuses the room of a reference
/// that is not open any more, so no state may be written there.
fn is_open(open: &[OutstandingReference], position: Position) -> bool {
    open.iter().any(|it| it.position == position)
}

#[cfg(test)]
mod tests;
