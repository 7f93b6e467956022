//! Which regions a window may be bound to.

use std::sync::{Arc, Weak};

use crate::ep::EpInner;
use crate::region::Region;

/// What has to stay because a peer may reach it through the window: a bind takes effect when it
/// completes, and until then the one before is in force.
#[derive(Default)]
pub(super) struct Bindings {
    /// In force, for all that is known.
    settled: Vec<Region>,
    /// Posted since, oldest first.
    posted: Vec<Posted>,
    /// How many of them have not told their end.
    untold: usize,
    /// One of them failed.
    failed: bool,
}

struct Posted {
    ep: Weak<EpInner>,
    /// `None`: an unbind.
    region: Option<Region>,
}

impl Bindings {
    pub(super) fn on_post(&mut self, ep: &Arc<EpInner>, region: Option<Region>) {
        // Endpoints that are gone tell nothing more and have nothing under way.
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

    /// The bind of the last [`on_post`](Self::on_post) was refused.
    pub(super) fn on_refused(&mut self) {
        self.posted.pop();
        self.untold -= 1;
    }

    /// A bind has ended. Which one its event does not say, so nothing goes before all have.
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
        // Of one endpoint the last is in force. Of several nobody knows which it is.
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
