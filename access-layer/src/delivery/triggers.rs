//! Taking the triggers of a CNO: `dat_cno_wait` and `dat_cno_trigger`.
//!
//! A waiter drives the CQs of all EVDs of the CNO on its own thread.

use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use dat_abi::*;
use host::locks::IgnorePoison as _;

use crate::cno::{Cno, Inner};
use crate::error::{DatError, DatResult};
use crate::evd::{Evd, deadline};
use crate::handle::{self, Handle, Pinned};
use crate::rnic::Rnic;

/// Error: nothing has triggered. OFA reports an empty queue, without the class bit.
const NOTHING: DatError = DatError::bare(DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE);

impl<R: Rnic> Cno<R> {
    /// Implements `dat_cno_trigger`: the same as [`wait`](Self::wait) with timeout 0. Never blocks.
    pub fn take_trigger(&self) -> DatResult<Handle> {
        if let Some(evd) = self.pop_trigger(&mut self.lock())? {
            return Ok(evd);
        }
        self.arm_and_progress();
        self.pop_trigger(&mut self.lock())?.ok_or(NOTHING)
    }

    /// Arms the CQs, which triggers the EVDs that still hold completions, and drives the RNIC once.
    fn arm_and_progress(&self) {
        self.drive_with(|_| self.ia().rnic().drive());
    }

    fn evds(&self) -> Vec<Pinned<Evd<R>>> {
        let inner = self.lock();
        let evds = inner.evds.iter();
        evds.filter_map(|evd| handle::pin_handle(*evd)).collect()
    }

    /// Implements `dat_cno_wait`: returns the first EVD that triggered and was not yet reported.
    pub fn wait(&self, timeout_us: DatTimeout) -> DatResult<Handle> {
        let deadline = deadline(timeout_us);
        let mut inner = self.lock();
        inner.state.on_begin_wait();
        let mut has_driven = false;
        // The whole timeout, for the first sleep. The clock is read again before the second.
        let mut first = (timeout_us != DAT_TIMEOUT_INFINITE)
            .then(|| Duration::from_micros(u64::from(timeout_us)));
        let result = loop {
            match self.pop_trigger(&mut inner) {
                Ok(Some(evd)) => break Ok(evd),
                Err(dead) => break Err(dead),
                Ok(None) => {}
            }
            let now_left = || deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let remaining = first.take().or_else(now_left);
            if remaining.is_some_and(|left| left.is_zero()) {
                if has_driven {
                    break Err(NOTHING);
                }
                // A caller that only polls also arms the CQs and drives once.
                drop(inner);
                self.arm_and_progress();
                has_driven = true;
                inner = self.lock();
                continue;
            }
            inner = if inner.state.on_begin_drive() {
                has_driven = true;
                self.drive(inner, remaining)
            } else {
                self.await_turn(inner, remaining)
            };
        };
        inner.state.on_end_wait();
        let is_waited = inner.state.has_waiter();
        drop(inner);
        if is_waited {
            self.turn.notify_one();
        }
        result
    }

    /// Lets the RNIC use this thread until an EVD may have triggered.
    fn drive<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
        remaining: Option<Duration>,
    ) -> MutexGuard<'a, Inner> {
        drop(inner);
        self.drive_with(|cqs| {
            if cqs.is_empty() {
                self.waker.sleep(remaining);
            } else {
                self.ia().rnic().wait(cqs, &self.waker, remaining);
            }
        });
        let mut inner = self.lock();
        inner.state.on_end_drive();
        inner
    }

    /// Arms the CQs of all EVDs, and calls `call` with them.
    pub(super) fn drive_with<T>(&self, call: impl FnOnce(&[&R::Cq]) -> T) -> T {
        let evds = self.evds();
        for evd in &evds {
            evd.arm_for_cno();
        }
        let cqs: Vec<_> = evds.iter().filter_map(|evd| evd.cq()).collect();
        call(&cqs)
    }

    /// Sleeps while another waiter drives.
    fn await_turn<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
        remaining: Option<Duration>,
    ) -> MutexGuard<'a, Inner> {
        match remaining {
            None => self.turn.wait(inner).ignore_poison(),
            Some(remaining) => {
                let result = self.turn.wait_timeout(inner, remaining);
                result.ignore_poison().0
            }
        }
    }
}
