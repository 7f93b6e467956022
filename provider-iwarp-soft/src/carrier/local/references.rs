//! References to registered memory that the peer may still read, and its direct copies.
//!
//! The sender of a long payload does not copy it: the ring carries the payload's address, and the
//! peer reads the payload by `process_vm_readv`. So deregistration must end such references before
//! it returns (RFC 5042 section 6.3.3): it revokes a reference that the peer has not begun to read,
//! and waits for one that is being read. It also waits for a direct copy of the peer
//! ([`super::direct`]).

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use host::locks::IgnorePoison as _;
use iwarp_proto::Stag;

use super::direct::Grant;
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
    /// The peer's permission to copy directly.
    pub(super) grant: Grant,
    open: Mutex<Vec<OutstandingReference>>,
}

impl OutstandingReferences {
    pub(super) fn new(revoker: Revoker, conn: Arc<UnixConn>, grant: Grant) -> Self {
        Self {
            revoker,
            conn,
            grant,
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

    /// Revokes the references to a registration, or all, and returns when the peer accesses none of
    /// that memory any more, or after `patience`. The bytes that the peer still reads then are
    /// void, and direct copies that have not begun cannot begin.
    ///
    /// The lock is not held between two checks. A drive adds references with the memory table open,
    /// so a drive that waited for the lock would stop all connections of the adapter.
    fn revoke_where(&self, patience: Duration, stag: Option<Stag>) {
        self.grant.on_removed();
        let selected =
            |it: &&OutstandingReference| stag.is_none_or(|stag| it.stags.contains(&stag));
        let all = |open: &[OutstandingReference]| -> Vec<Position> {
            open.iter().filter(selected).map(|it| it.position).collect()
        };
        // No reference is added that is selected, so this list is complete.
        let mut being_read = all(&self.lock());
        let mut deadline = Instant::now() + patience;
        loop {
            self.retain_being_read(&mut being_read);
            let is_claimed = self.grant.is_claimed(stag);
            let is_done = being_read.is_empty() && !is_claimed;
            if is_done || io::is_hung_up(self.conn.as_fd()) {
                return;
            }
            if Instant::now() >= deadline {
                self.abandon(&std::mem::take(&mut being_read));
                if !is_claimed || self.grant.is_withdrawn() {
                    return;
                }
                tracing::warn!("a peer does not finish a direct copy; its copies end");
                self.grant.withdraw();
                deadline += patience;
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
        if positions.is_empty() {
            return;
        }
        tracing::warn!("a peer does not finish reading memory that is no longer in use");
        let open = self.lock();
        for position in positions.iter().filter(|it| is_open(&open, **it)) {
            self.revoker.abandon(*position);
        }
    }

    /// Ends all access of the peer, because the connection is over. A direct copy that does not end
    /// within a moment delays the deregistration of its memory.
    pub(super) fn revoke_all(&self) {
        self.revoke_where(END_TIMEOUT, None);
        self.grant.withdraw();
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OutstandingReference>> {
        self.open.lock().ignore_poison()
    }
}

impl ReferenceHolder for OutstandingReferences {
    fn revoke(&self, stag: Stag) {
        self.revoke_where(PULL_TIMEOUT, Some(stag));
    }

    fn is_in_use(&self) -> bool {
        self.grant.is_claimed(None) && !io::is_hung_up(self.conn.as_fd())
    }
}

/// True if the record at a position is still the reference. The ring reuses the room of a reference
/// that is not open any more, so no state may be written there.
fn is_open(open: &[OutstandingReference], position: Position) -> bool {
    open.iter().any(|it| it.position == position)
}

#[cfg(test)]
mod tests;
