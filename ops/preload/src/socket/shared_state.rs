//! Memory that the owner of connections shares with its descendants.

use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use host::stand_in::{Handover, Move, Stage, Ticket};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// The state of one connection that its processes share.
#[derive(Debug)]
pub(crate) struct SharedState {
    /// The stage of the change from signals to bytes.
    handover: Handover,
    /// `SO_LINGER` in seconds, set by a process that is not the owner. Below 0: not set.
    linger: AtomicI32,
}

/// A reference to the shared state of one connection. The memory is reused, and the ticket
/// identifies the connection that it belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedStateRef {
    state: &'static SharedState,
    ticket: Ticket,
}

/// The interval at which a waiting process checks the progress of the other side.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

impl SharedStateRef {
    /// The stage of the change from signals to bytes.
    pub(crate) fn stage(self) -> Stage {
        self.state.handover.stage(self.ticket)
    }

    /// Makes a move. Returns false if the stage does not permit it.
    pub(crate) fn make(self, made: Move) -> bool {
        self.state.handover.make(self.ticket, made)
    }

    /// Sleeps while the connection is at this stage. Returns false when `at_most` has passed.
    pub(crate) fn wait(self, while_at: Stage, at_most: Duration) -> bool {
        self.state.handover.wait(self.ticket, while_at, at_most)
    }

    /// Requests bytes from the owner. `wake` must send the byte that wakes the owner.
    pub(crate) fn ask(self, wake: impl FnOnce()) {
        self.state.handover.ask(self.ticket, wake);
    }

    /// Completes the request of a user that was killed before it had woken the owner.
    pub(crate) fn complete_wake(self) {
        self.state.handover.complete_wake(self.ticket);
    }

    /// Waits a moment for the end of the change from signals to bytes.
    pub(crate) fn await_decision(self) {
        let stage = self.stage();
        if !matches!(stage, Stage::Carrying | Stage::Ended | Stage::Dropped) {
            self.wait(stage, CHECK_INTERVAL);
        }
    }

    /// Records `SO_LINGER`, set by a process that is not the owner.
    pub(crate) fn set_linger(self, seconds: Option<u64>) {
        let seconds = seconds.map_or(-1, |s| i32::try_from(s).unwrap_or(i32::MAX));
        self.state.linger.store(seconds, Ordering::Relaxed);
    }

    /// Returns true if a process has set `SO_LINGER` so that the last close resets the connection.
    pub(crate) fn resets_on_close(self) -> bool {
        self.state.linger.load(Ordering::Relaxed) == 0
    }
}

/// The number of bytes that are mapped at a time: a page.
const PAGE: usize = 4096;

/// Mapped states that serve no connection.
#[derive(Debug, Default)]
pub(crate) struct FreeStates {
    /// Used in turn, so that a state is reused as late as possible: a process may still have an old
    /// ticket.
    free: VecDeque<&'static SharedState>,
}

impl FreeStates {
    /// Takes a state for a new connection.
    pub(crate) fn take(&mut self) -> Result<SharedStateRef, Errno> {
        if self.free.is_empty() {
            self.free.extend(map()?);
        }
        let state = self.free.pop_front().ok_or(Errno::NOMEM)?;
        state.linger.store(-1, Ordering::Relaxed);
        let ticket = state.handover.issue();
        Ok(SharedStateRef { state, ticket })
    }

    /// Returns the state of a connection that has ended.
    pub(crate) fn release(&mut self, shared_state: SharedStateRef) {
        self.free.push_back(shared_state.state);
    }
}

fn map() -> Result<&'static [SharedState], Errno> {
    // SAFETY: the kernel chooses the address of the new memory, which is never unmapped. Zeroes are
    // a valid `SharedState`.
    unsafe {
        let flags = MapFlags::SHARED;
        let page = mmap_anonymous(
            ptr::null_mut(),
            PAGE,
            ProtFlags::READ | ProtFlags::WRITE,
            flags,
        )?;
        let count = PAGE / size_of::<SharedState>();
        Ok(std::slice::from_raw_parts(
            page.cast::<SharedState>(),
            count,
        ))
    }
}
