//! Waiting on a CNO in the caller's own `poll`, together with other descriptors.
//!
//! Between [`Cno::begin_sleep`] and [`Cno::end_sleep`] the thread's stack holds no part of the
//! wait, because the thread may never return from its sleep: a signal handler may jump out of it,
//! or the thread may be cancelled. Any other thread may then call [`Cno::end_sleep`]. A second call
//! has no effect.

use std::os::fd::AsRawFd;

use dat_abi::*;

use crate::cno::Cno;
use crate::error::{DatError, DatResult};
use crate::rnic::{Arm, Rnic};

impl<R: Rnic> Cno<R> {
    /// Fills `out` with the descriptors to sleep on and returns their number; 0 if an EVD has
    /// triggered already, or may have. Refused while another thread waits, because that thread
    /// would not be woken, and if `out` is too small.
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
        // From now on every trigger wakes the waker.
        inner.state.on_begin_wait();
        inner.state.on_begin_drive();
        drop(inner);
        let Some(event) = self.waker.begin_sleep() else {
            self.end_turn();
            return Ok(0);
        };
        let rnic = self.ia().rnic();
        let arm = self.drive_with(|_| rnic.arm(&self.waker));
        let rnics = rnic.descriptor().filter(|_| arm == Arm::Sleep);
        let fds = [event, rnics.unwrap_or(event)];
        let fds = &fds[..1 + usize::from(rnics.is_some())];
        let mut inner = self.lock();
        inner.is_external_sleep = true;
        let is_too_small = fds.len() > out.len();
        if arm != Arm::HasWork && inner.triggered.is_empty() && !is_too_small {
            for (place, fd) in out.iter_mut().zip(fds) {
                *place = libc::pollfd {
                    fd: fd.as_raw_fd(),
                    events: libc::POLLIN,
                    revents: 0,
                };
            }
            return Ok(fds.len());
        }
        drop(inner);
        self.end_sleep();
        if is_too_small {
            return Err(DatError::no_resources(DAT_NO_SUBTYPE));
        }
        Ok(0)
    }

    /// Ends the sleep, if there is one: makes progress, and lets other threads wait.
    pub fn end_sleep(&self) {
        if !std::mem::take(&mut self.lock().is_external_sleep) {
            return;
        }
        self.waker.end_sleep();
        self.ia().rnic().end_sleep(&self.waker, true);
        self.ia().rnic().drive();
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
