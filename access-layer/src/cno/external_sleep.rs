//! Waiting on a CNO whose sleep is the caller's: he sleeps on descriptors of his own as well.
//!
//! Between [`Cno::begin_sleep`] and [`Cno::end_sleep`] nothing of the wait is on the stack of the
//! thread: it may never come back, because a signal handler has left its sleep for good, or because
//! it was cancelled. Whoever finds that out calls [`Cno::end_sleep`] in its place; a second call
//! does nothing.

use std::os::fd::{AsFd, AsRawFd};

use dat_abi::*;

use super::Cno;
use crate::error::{DatError, DatResult};
use crate::rnic::Rnic;

impl<R: Rnic> Cno<R> {
    /// Fills `out` with what to sleep on, and says how much that is; 0 when something has triggered
    /// already, or may have. Refused where another thread waits, as it would not be woken, and for
    /// want of room; not implemented where the RNIC has nothing to sleep on.
    pub fn begin_sleep(&self, out: &mut [libc::pollfd]) -> DatResult<usize> {
        let mut inner = self.lock();
        if inner.state.is_dead() {
            return Err(DatError::invalid_state(DAT_INVALID_STATE_CNO_DEAD));
        }
        if inner.state.has_waiter() {
            return Err(DatError::of(DAT_INVALID_STATE));
        }
        if !inner.triggered.is_empty() {
            return Ok(0);
        }
        // From now on what triggers wakes.
        inner.state.on_begin_wait();
        inner.state.on_begin_drive();
        drop(inner);
        if !self.waker.begin_sleep() {
            self.end_turn();
            return Ok(0);
        }
        let mut fds = vec![libc::pollfd {
            fd: self.waker.as_fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }];
        let external_sleep = self.drive_with(|cqs| self.ia.rnic().begin_sleep(cqs, &mut fds));
        let refusal = if external_sleep.is_none() {
            Some(DatError::bare(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE))
        } else if fds.len() > out.len() {
            Some(DatError::no_resources(DAT_NO_SUBTYPE))
        } else {
            None
        };
        let mut inner = self.lock();
        inner.external_sleep = Some(external_sleep);
        if refusal.is_none() && inner.triggered.is_empty() {
            out[..fds.len()].copy_from_slice(&fds);
            return Ok(fds.len());
        }
        drop(inner);
        self.end_sleep();
        refusal.map_or(Ok(0), Err)
    }

    /// The sleep is over, if there is one: does what has come up meanwhile, and lets others wait.
    pub fn end_sleep(&self) {
        let Some(external_sleep) = self.lock().external_sleep.take() else {
            return;
        };
        self.waker.end_sleep();
        if let Some(external_sleep) = external_sleep {
            external_sleep.work();
        }
        self.end_turn();
    }

    fn end_turn(&self) {
        let mut inner = self.lock();
        inner.state.on_end_drive();
        inner.state.on_end_wait();
        let is_waited = inner.state.has_waiter();
        drop(inner);
        if is_waited {
            self.turn.notify_one();
        }
    }
}
