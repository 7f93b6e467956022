//! The regions to which a window may be bound.

use std::sync::{Arc, Weak};

use crate::ep::EpInner;
use crate::region::Region;

/// The regions that must stay registered because a peer may access them through the window. A bind
/// takes effect when it completes; until then the bind before it is in force.
#[derive(Default)]
pub(super) struct Bindings {
    /// Regions that may be in force, as of the last time when all binds had completed.
    settled: Vec<Region>,
    /// Binds posted since then, oldest first.
    posted: Vec<Posted>,
    /// Number of posted binds whose completion has not been read.
    untold: usize,
    /// True if one of them failed.
    failed: bool,
}

struct Posted {
    ep: Weak<EpInner>,
    /// The region; `None` for an unbind.
    region: Option<Region>,
}

impl Bindings {
    pub(super) fn on_post(&mut self, ep: &Arc<EpInner>, region: Option<Region>) {
        // Endpoints that were freed deliver no more events and have no outstanding work.
        if !self.posted.is_empty() && self.posted.iter().all(|posted| posted.is_over()) {
            self.failed |= self.untold > 0;
            self.settle();
        }
        self.posted.push(Posted {
            ep: Arc::downgrade(ep),
            region,
        });
        self.untold += 1;
    }

    /// Removes the bind of the last [`on_post`](Self::on_post), which was refused.
    pub(super) fn on_refused(&mut self) {
        self.posted.pop();
        self.untold -= 1;
    }

    /// Called when a bind has completed. The event does not identify the bind, so no region is
    /// released before all binds have completed.
    pub(super) fn on_completion(&mut self, success: bool) {
        self.failed |= !success;
        self.untold = self.untold.saturating_sub(1);
        if self.untold == 0 {
            self.settle();
        }
    }

    fn settle(&mut self) {
        let posted = std::mem::take(&mut self.posted);
        let failed = std::mem::take(&mut self.failed);
        self.untold = 0;
        let Some(last) = posted.last() else { return };
        // Of the binds of one endpoint the last is in force. Of binds of several endpoints the
        // order is unknown.
        let is_one = posted.iter().all(|other| other.ep.ptr_eq(&last.ep));
        let first = if is_one && !failed {
            posted.len() - 1
        } else {
            0
        };
        if !failed {
            self.settled.clear();
        }
        let regions = posted.into_iter().skip(first);
        for region in regions.filter_map(|posted| posted.region) {
            let is_new = !self.settled.iter().any(|known| known.is_same(&region));
            if is_new {
                self.settled.push(region);
            }
        }
    }
}

impl Posted {
    fn is_over(&self) -> bool {
        self.ep.strong_count() == 0
    }
}
