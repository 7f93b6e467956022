//! Writes and Reads that this end carries out itself, in order with its segments in the ring.

use iwarp_proto::Access;

use super::{Finish, LocalCarrier, Reading, Unfinished};
use crate::carrier::local::direct::{Remote, must_follow};
use crate::carrier::local::pull::Target;
use crate::carrier::local::record::Position;
use crate::memory::Stream;
use crate::work::Report;

impl LocalCarrier {
    /// Announces the memory table at `table` to the peer, whose earlier requests are all handled.
    pub(crate) fn announce(&self, table: u64, own: Stream) {
        self.references.grant.announce(table, own);
    }

    /// Returns true if a Write or Read of this length that is posted now may be carried out
    /// directly, and is not faster by the ring.
    pub(crate) fn may_copy(&mut self, access: Access, len: u32) -> bool {
        if access == Access::RemoteWrite && self.attention.prefers_ring(len) {
            return false;
        }
        if let Some(ordered) = self.ordered
            && self.producer.consumed().is_ok_and(|end| end > ordered)
        {
            self.ordered = None;
        }
        self.ordered.is_none()
            && self.stashed.is_none()
            && matches!(self.reading, Reading::Permitted(_))
            && self.initiator.is_permitted()
    }

    /// Carries out a Write or Read. Returns false if it must be sent.
    ///
    /// # Safety
    ///
    /// For a read, `local` may be written. Its total length is that of `remote`.
    pub(crate) unsafe fn copy_directly(&mut self, remote: &Remote, local: &[Target]) -> bool {
        let Reading::Permitted(puller) = self.reading else {
            return false;
        };
        // SAFETY: as for the caller.
        if !unsafe { self.initiator.copy(&puller, remote, local) } {
            return false;
        }
        let amount = match remote.access {
            Access::RemoteRead => &mut self.direct.received,
            _ => &mut self.direct.sent,
        };
        amount.add_segment(remote.len as usize);
        true
    }

    /// Records the report of a request that is carried out, after those of earlier requests.
    pub(crate) fn note_done(&mut self, report: Report) {
        if self.unfinished.is_empty() {
            self.finished.push(report);
        } else {
            self.note(Unfinished {
                reference: None,
                handled: None,
                ends: Finish::Report(report),
            });
        }
    }

    /// Records a segment that was written, if no direct copy may overtake it.
    pub(super) fn note_order(&mut self, header: &[u8], position: Option<Position>) {
        if must_follow(header) {
            self.ordered = position.or(self.ordered);
        }
    }
}
