//! The regions to which a window may be bound.

use std::sync::{Arc, Weak};

use super::EpInner;
use crate::region::Region;

/// The regions that must stay registered because a peer may access them through the window. A bind
/// takes effect when it completes; until then the previous bind is in effect.
#[derive(Default)]
pub(crate) struct Bindings {
    /// Regions to which the window may have been bound when all binds had last completed.
    settled: Vec<Region>,
    /// Binds posted since then, oldest first.
    posted: Vec<Posted>,
    /// Number of posted binds whose completion has not been read.
    outstanding: usize,
    /// True if a bind in `posted` has failed.
    has_failed: bool,
}

struct Posted {
    ep: Weak<EpInner>,
    /// The region; `None` for an unbind.
    region: Option<Region>,
}

impl Bindings {
    pub(crate) fn on_post(&mut self, ep: &Arc<EpInner>, region: Option<Region>) {
        // Endpoints that were freed deliver no more events and have no outstanding work.
        if !self.posted.is_empty() && self.posted.iter().all(|posted| posted.is_freed()) {
            self.has_failed |= self.outstanding > 0;
            self.settle();
        }
        self.posted.push(Posted {
            ep: Arc::downgrade(ep),
            region,
        });
        self.outstanding += 1;
    }

    /// Removes the bind of the last [`on_post`](Self::on_post), which was refused.
    pub(crate) fn on_refused(&mut self) {
        self.posted.pop();
        self.outstanding -= 1;
    }

    /// Called when a bind has completed. The event does not identify the bind, so no region is
    /// released before all binds have completed.
    pub(super) fn on_completion(&mut self, success: bool) {
        self.has_failed |= !success;
        self.outstanding = self.outstanding.saturating_sub(1);
        if self.outstanding == 0 {
            self.settle();
        }
    }

    fn settle(&mut self) {
        let posted = std::mem::take(&mut self.posted);
        let has_failed = std::mem::take(&mut self.has_failed);
        self.outstanding = 0;
        let Some(last) = posted.last() else { return };
        // Of the binds of one endpoint the last is in effect. The order of binds through several
        // endpoints is unknown, so all of their regions are kept.
        let is_one = posted.iter().all(|other| other.ep.ptr_eq(&last.ep));
        let first = if is_one && !has_failed {
            posted.len() - 1
        } else {
            0
        };
        if !has_failed {
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
    fn is_freed(&self) -> bool {
        self.ep.strong_count() == 0
    }
}
