//! State of an EVD: waiting, dequeuing, resizing.

use dat_abi::*;

use crate::error::{DatError, DatResult};

/// Right to take events. The `on_*` methods are the only writers.
///
/// ```text
///              begin_wait            set_unwaitable
///    Idle ────────────────> Waited ─────────────────> (the waiter returns)
///      <──────────────────── end_wait
///    Idle/Waited ── overflow ──> Overflowed        any ── close ──> Closed
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// No thread waits.
    Idle,
    /// One thread waits; only this thread takes events.
    Waited,
    /// Events were lost; no events can be taken any more.
    Overflowed {
        /// True while a waiting thread has not yet noticed the overflow.
        waited: bool,
    },
    /// The EVD is freed; a waiter may not have noticed it yet.
    Closed,
}

#[derive(Debug)]
pub(super) struct EvdState {
    access: Access,
    enabled: bool,
    waitable: bool,
    /// Number of `set_unwaitable` calls, so that a waiter notices a call that was reverted at once.
    interruptions: u64,
}

/// Proof that the holder is the waiter.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitTicket {
    interruptions: u64,
}

const WRONG_STATE: DatError = DatError::invalid_state(DAT_NO_SUBTYPE);

impl EvdState {
    pub(super) fn new() -> Self {
        Self {
            access: Access::Idle,
            enabled: true,
            waitable: true,
            interruptions: 0,
        }
    }

    pub(super) fn on_begin_wait(&mut self) -> DatResult<WaitTicket> {
        if self.access != Access::Idle {
            return Err(WRONG_STATE);
        }
        if !self.waitable {
            return Err(DatError::invalid_state(DAT_INVALID_STATE_EVD_UNWAITABLE));
        }
        self.access = Access::Waited;
        Ok(WaitTicket {
            interruptions: self.interruptions,
        })
    }

    pub(super) fn on_end_wait(&mut self) {
        self.access = match self.access {
            Access::Waited => Access::Idle,
            Access::Overflowed { .. } => Access::Overflowed { waited: false },
            other => other,
        };
    }

    /// Returns `true` for the first overflow.
    pub(super) fn on_overflow(&mut self) -> bool {
        let waited = match self.access {
            Access::Idle => false,
            Access::Waited => true,
            Access::Overflowed { .. } | Access::Closed => return false,
        };
        self.access = Access::Overflowed { waited };
        true
    }

    pub(super) fn on_close(&mut self) {
        self.access = Access::Closed;
    }

    pub(super) fn on_set_unwaitable(&mut self) {
        self.waitable = false;
        self.interruptions += 1;
    }

    pub(super) fn on_clear_unwaitable(&mut self) {
        self.waitable = true;
    }

    pub(super) fn on_set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// Checks that the waiter may continue to wait.
    pub(super) fn check_wait(&self, ticket: WaitTicket) -> DatResult {
        match self.access {
            Access::Closed => Err(DatError::of(DAT_ABORT)),
            Access::Waited if ticket.interruptions == self.interruptions => Ok(()),
            _ => Err(WRONG_STATE),
        }
    }

    pub(super) fn check_dequeue(&self) -> DatResult {
        match self.access {
            Access::Idle => Ok(()),
            _ => Err(WRONG_STATE),
        }
    }

    pub(super) fn is_waited(&self) -> bool {
        matches!(
            self.access,
            Access::Waited | Access::Overflowed { waited: true }
        )
    }

    pub(super) fn is_closed(&self) -> bool {
        self.access == Access::Closed
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Returns the state in the form of `dat_evd_query`.
    pub(super) fn as_dat(&self) -> DatEvdState {
        let enabled = if self.enabled {
            DAT_EVD_STATE_ENABLED
        } else {
            DAT_EVD_STATE_DISABLED
        };
        let waitable = if self.waitable {
            DAT_EVD_STATE_WAITABLE
        } else {
            DAT_EVD_STATE_UNWAITABLE
        };
        enabled | waitable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Event = fn(&mut EvdState);

    const WAITED: Event = |state| {
        state.on_begin_wait().unwrap();
    };
    const OVERFLOWED: Event = |state| {
        state.on_overflow();
    };
    const CLOSED: Event = EvdState::on_close;
    const IDLE: Event = |_| {};

    fn state_after(steps: &[Event]) -> EvdState {
        let mut state = EvdState::new();
        for step in steps {
            step(&mut state);
        }
        state
    }

    #[test]
    fn every_event_in_every_state() {
        use Access::{Closed, Idle, Overflowed};
        let lost = |waited| Overflowed { waited };
        let begin: Event = |state| {
            let _ = state.on_begin_wait();
        };
        let end: Event = EvdState::on_end_wait;
        let events = [begin, end, OVERFLOWED, CLOSED];
        let rows: [(&[Event], [Access; 4]); 5] = [
            // (path to the state, results of begin_wait, end_wait, overflow and close)
            (&[IDLE], [Access::Waited, Idle, lost(false), Closed]),
            (&[WAITED], [Access::Waited, Idle, lost(true), Closed]),
            (
                &[OVERFLOWED],
                [lost(false), lost(false), lost(false), Closed],
            ),
            (
                &[WAITED, OVERFLOWED],
                [lost(true), lost(false), lost(true), Closed],
            ),
            (&[CLOSED], [Closed, Closed, Closed, Closed]),
        ];
        for (number, (way, expected)) in rows.into_iter().enumerate() {
            for (event, access) in events.into_iter().zip(expected) {
                let mut state = state_after(way);
                event(&mut state);
                assert_eq!(state.access, access, "row {number}");
            }
            // The enabled and the waitable flag are independent of the access state.
            let mut state = state_after(way);
            let before = (state.access, state.is_waited(), state.is_closed());
            for (enabled, waitable) in [(false, false), (true, true)] {
                state.on_set_enabled(enabled);
                if waitable {
                    state.on_clear_unwaitable();
                } else {
                    state.on_set_unwaitable();
                }
                assert_eq!((state.enabled, state.waitable), (enabled, waitable));
                let now = (state.access, state.is_waited(), state.is_closed());
                assert_eq!(now, before, "row {number}");
            }
        }
    }

    #[test]
    fn only_an_idle_evd_can_be_waited_on_or_dequeued_from() {
        for (way, good) in [
            (IDLE, true),
            (WAITED, false),
            (OVERFLOWED, false),
            (CLOSED, false),
        ] {
            assert_eq!(state_after(&[way]).check_dequeue().is_ok(), good);
            assert_eq!(state_after(&[way]).on_begin_wait().is_ok(), good);
        }
    }

    #[test]
    fn only_the_first_overflow_is_reported() {
        for (way, first) in [
            (IDLE, true),
            (WAITED, true),
            (OVERFLOWED, false),
            (CLOSED, false),
        ] {
            assert_eq!(state_after(&[way]).on_overflow(), first);
        }
    }

    #[test]
    fn an_interruption_that_was_reverted_is_still_noticed() {
        let mut state = EvdState::new();
        let ticket = state.on_begin_wait().unwrap();
        state.on_set_unwaitable();
        state.on_clear_unwaitable();
        assert_eq!(state.check_wait(ticket).unwrap_err().code().0, 0x8007_0000);
    }

    #[test]
    fn an_unwaitable_evd_refuses_waiters() {
        let mut state = EvdState::new();
        state.on_set_unwaitable();
        let code = state.on_begin_wait().unwrap_err().code();
        assert_eq!(code.subtype(), DAT_INVALID_STATE_EVD_UNWAITABLE);
        assert_eq!(
            state.as_dat(),
            DAT_EVD_STATE_ENABLED | DAT_EVD_STATE_UNWAITABLE
        );
    }
}
