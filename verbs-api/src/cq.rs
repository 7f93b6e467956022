//! Completion queues.
//!
//! A queue pair converts its completions, because their meaning depends on its state
//! ([`Owner::convert`]). A completion queue therefore finds the owner of each completion by its
//! token, and remembers the last one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use host::locks::lock;
use provider_iwarp_soft::{SoftCq, SoftRnic};
use rnic::{Completion, QpToken, Rnic as _};
use verbs_dl::types::ibv_wc;

use crate::channel::Notified;
use crate::users::{Used, Users};

/// The most completions that one call takes from the RNIC.
const BATCH: usize = 16;

/// The queue pair to which completions belong.
pub(crate) trait Owner: Send + Sync {
    /// The number of the queue pair.
    fn number(&self) -> u32;
    /// Called for each completion that was polled: frees its place in the RNIC, and returns the
    /// completion for the program, if there is one now.
    fn convert(&self, completion: &Completion) -> Option<ibv_wc>;
}

/// A queue pair that adds its completions itself, when it is polled.
pub(crate) trait Source: Send + Sync {
    /// The number of the queue pair.
    fn number(&self) -> u32;
    /// Adds the completions that are ready.
    fn poll(&self);
    /// Requests that the queue pair polls itself when the next completion is ready.
    fn arm(self: Arc<Self>);
}

/// Finds the queue pair of a completion.
pub(crate) trait Owners: Send + Sync {
    fn owner(&self, token: QpToken) -> Option<Arc<dyn Owner>>;
}

/// A completion queue.
pub(crate) struct Cq {
    pub(crate) hw: SoftCq,
    rnic: Arc<SoftRnic>,
    owners: Weak<dyn Owners>,
    pub(crate) notified: Arc<Notified>,
    /// The owner of the last completion. The lock is held while completions are converted, so that
    /// they are returned in order.
    last: Mutex<Option<Arc<dyn Owner>>>,
    /// Completions that precede those of the RNIC.
    ready: Mutex<VecDeque<ibv_wc>>,
    /// True if `ready` is not empty.
    has_ready: AtomicBool,
    sources: Mutex<Vec<Weak<dyn Source>>>,
    /// True if `sources` is not empty.
    has_sources: AtomicBool,
    /// True if the program waits for solicited and failed completions only.
    solicited_only: AtomicBool,
    users: Users,
}

impl Used for Cq {
    fn users(&self) -> &Users {
        &self.users
    }
}

rnic::opaque_debug!(Cq { notified });

impl Cq {
    pub(crate) fn new(
        hw: SoftCq,
        rnic: Arc<SoftRnic>,
        owners: Weak<dyn Owners>,
        notified: Arc<Notified>,
    ) -> Self {
        Self {
            hw,
            rnic,
            owners,
            notified,
            last: Mutex::default(),
            ready: Mutex::default(),
            has_ready: AtomicBool::new(false),
            sources: Mutex::default(),
            has_sources: AtomicBool::new(false),
            solicited_only: AtomicBool::new(false),
            users: Users::default(),
        }
    }

    /// Stores completions in `out` and returns their number. If there are none, the calling thread
    /// makes progress on the connections of the adapter and polls once more.
    pub(crate) fn poll(&self, out: &mut [ibv_wc]) -> usize {
        let count = self.take(out);
        if count > 0 || out.is_empty() {
            return count;
        }
        self.rnic.drive();
        for source in self.sources() {
            source.poll();
        }
        self.take(out)
    }

    /// Requests an event for the next completion.
    pub(crate) fn arm(&self, solicited_only: bool) {
        self.solicited_only.store(solicited_only, Ordering::Release);
        self.notified.arm();
        self.rnic.arm_cq(&self.hw, solicited_only);
        for source in self.sources() {
            source.arm();
        }
    }

    /// The queue pairs that add completions themselves. No allocation if there are none.
    fn sources(&self) -> Vec<Arc<dyn Source>> {
        if !self.has_sources.load(Ordering::Acquire) {
            return Vec::new();
        }
        lock(&self.sources)
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    pub(crate) fn add_source(&self, source: Weak<dyn Source>) {
        lock(&self.sources).push(source);
        self.has_sources.store(true, Ordering::Release);
    }

    pub(crate) fn remove_source(&self, number: u32) {
        let mut sources = lock(&self.sources);
        sources.retain(|source| {
            let source = source.upgrade();
            source.is_some_and(|source| source.number() != number)
        });
        self.has_sources
            .store(!sources.is_empty(), Ordering::Release);
    }

    /// The number of completions that were added and not polled.
    pub(crate) fn unpolled(&self) -> usize {
        match self.has_ready.load(Ordering::Acquire) {
            true => lock(&self.ready).len(),
            false => 0,
        }
    }

    /// Adds completions that the RNIC does not report, after those of earlier calls. They are
    /// solicited or failed if `is_solicited` is true.
    pub(crate) fn add(&self, completions: impl IntoIterator<Item = ibv_wc>, is_solicited: bool) {
        let mut ready = lock(&self.ready);
        ready.extend(completions);
        let is_empty = ready.is_empty();
        self.has_ready.store(!is_empty, Ordering::Release);
        drop(ready);
        if !is_empty && (is_solicited || !self.solicited_only.load(Ordering::Acquire)) {
            self.notified.notify();
        }
    }

    /// Moves the completions of the RNIC behind those that were added. So the next ones to be
    /// added follow them.
    pub(crate) fn gather(&self) {
        self.gather_those(&mut lock(&self.last), |_| true);
    }

    /// Removes all completions of a queue pair that is reset or destroyed. The RNIC adds no others.
    pub(crate) fn forget(&self, number: u32) {
        let mut last = lock(&self.last);
        self.gather_those(&mut last, |completion| number_of(completion.qp) != number);
        *last = None;
        let mut ready = lock(&self.ready);
        ready.retain(|completion| completion.qp_num != number);
        self.has_ready.store(!ready.is_empty(), Ordering::Release);
    }

    /// Moves the completions of the RNIC that `is_kept` selects, and removes the others.
    fn gather_those(
        &self,
        last: &mut Option<Arc<dyn Owner>>,
        is_kept: impl Fn(&Completion) -> bool,
    ) {
        let mut batch = [Completion::EMPTY; BATCH];
        loop {
            let count = self.rnic.poll_cq(&self.hw, &mut batch);
            let kept = batch[..count]
                .iter()
                .filter(|completion| is_kept(completion));
            let kept: Vec<ibv_wc> = kept
                .filter_map(|completion| self.convert(completion, last))
                .collect();
            let mut ready = lock(&self.ready);
            ready.extend(kept);
            self.has_ready.store(!ready.is_empty(), Ordering::Release);
            if count == 0 {
                break;
            }
        }
    }

    fn take(&self, out: &mut [ibv_wc]) -> usize {
        let mut last = lock(&self.last);
        let mut count = self.take_ready(out);
        let mut batch = [Completion::EMPTY; BATCH];
        while count < out.len() {
            let room = BATCH.min(out.len() - count);
            let polled = self.rnic.poll_cq(&self.hw, &mut batch[..room]);
            for completion in &batch[..polled] {
                if let Some(converted) = self.convert(completion, &mut last) {
                    out[count] = converted;
                    count += 1;
                }
            }
            if polled < room {
                break;
            }
        }
        count
    }

    fn take_ready(&self, out: &mut [ibv_wc]) -> usize {
        if !self.has_ready.load(Ordering::Acquire) {
            return 0;
        }
        let mut ready = lock(&self.ready);
        let count = out.len().min(ready.len());
        for (place, completion) in out.iter_mut().zip(ready.drain(..count)) {
            *place = completion;
        }
        self.has_ready.store(!ready.is_empty(), Ordering::Release);
        count
    }

    fn convert(
        &self,
        completion: &Completion,
        last: &mut Option<Arc<dyn Owner>>,
    ) -> Option<ibv_wc> {
        let is_owner = |owner: &Arc<dyn Owner>| owner.number() == number_of(completion.qp);
        if !last.as_ref().is_some_and(is_owner) {
            *last = self.owners.upgrade()?.owner(completion.qp);
        }
        last.as_ref()?.convert(completion)
    }
}

/// The token by which the RNIC names the queue pair with this number.
pub(crate) fn token_of(number: u32) -> QpToken {
    QpToken(u64::from(number))
}

/// The token of the end that sends, if the queue pair with this number is connected to itself.
pub(crate) fn token_of_sender(number: u32) -> QpToken {
    QpToken(1 << u32::BITS | u64::from(number))
}

/// Returns the number of the queue pair that a token names.
pub(crate) fn number_of(token: QpToken) -> u32 {
    token.0 as u32
}
