//! The threads that wait on a CNO, and which of them makes progress for the RNIC.

/// State of a CNO. The `on_*` methods are the only writers.
///
/// ```text
///          begin_wait               begin_wait, end_wait, begin_drive, end_drive
///    Idle ───────────▶ Waited ──────▶ Waited
///      ◀───────────────── the last end_wait
///    Idle/Waited ── free ──▶ Dead, until the waiters have noticed
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CnoState {
    /// No thread waits.
    Idle,
    /// Some threads wait.
    Waited {
        /// Number of waiting threads; not 0.
        waiters: u32,
        /// True while one of the waiters makes progress for the RNIC.
        is_driven: bool,
    },
    /// Freed.
    Dead {
        /// Number of threads that have not noticed that the CNO was freed.
        waiters: u32,
    },
}

impl CnoState {
    pub(crate) fn on_begin_wait(&mut self) {
        *self = match *self {
            Self::Idle => Self::Waited {
                waiters: 1,
                is_driven: false,
            },
            Self::Waited { waiters, is_driven } => Self::Waited {
                waiters: waiters + 1,
                is_driven,
            },
            Self::Dead { waiters } => Self::Dead {
                waiters: waiters + 1,
            },
        }
    }

    pub(crate) fn on_end_wait(&mut self) {
        *self = match *self {
            Self::Idle | Self::Waited { waiters: 1, .. } => Self::Idle,
            Self::Waited { waiters, is_driven } => Self::Waited {
                waiters: waiters - 1,
                is_driven,
            },
            Self::Dead { waiters } => Self::Dead {
                waiters: waiters.saturating_sub(1),
            },
        }
    }

    /// Called when a waiter wants to make progress. Returns `false` if another waiter does so, or
    /// if the CNO has been freed.
    pub(crate) fn on_begin_drive(&mut self) -> bool {
        match self {
            Self::Waited { is_driven, .. } if !*is_driven => {
                *is_driven = true;
                true
            }
            Self::Idle | Self::Waited { .. } | Self::Dead { .. } => false,
        }
    }

    pub(crate) fn on_end_drive(&mut self) {
        if let Self::Waited { is_driven, .. } = self {
            *is_driven = false;
        }
    }

    pub(super) fn on_free(&mut self) {
        *self = match *self {
            Self::Idle => Self::Dead { waiters: 0 },
            Self::Waited { waiters, .. } | Self::Dead { waiters } => Self::Dead { waiters },
        }
    }

    pub(crate) fn has_waiter(self) -> bool {
        match self {
            Self::Idle => false,
            Self::Waited { .. } => true,
            Self::Dead { waiters } => waiters > 0,
        }
    }

    /// Returns true if threads may wait while another waiter makes progress.
    pub(super) fn has_followers(self) -> bool {
        match self {
            Self::Idle => false,
            Self::Waited { waiters, .. } => waiters > 1,
            Self::Dead { waiters } => waiters > 0,
        }
    }

    pub(crate) fn is_dead(self) -> bool {
        matches!(self, Self::Dead { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn waited(waiters: u32, is_driven: bool) -> CnoState {
        CnoState::Waited { waiters, is_driven }
    }

    const fn dead(waiters: u32) -> CnoState {
        CnoState::Dead { waiters }
    }

    #[test]
    fn every_event_in_every_state() {
        use CnoState::Idle;
        let events: [fn(&mut CnoState); 5] = [
            CnoState::on_begin_wait,
            CnoState::on_end_wait,
            |state| {
                state.on_begin_drive();
            },
            CnoState::on_end_drive,
            CnoState::on_free,
        ];
        macro_rules! rows {
            ($($state:expr => $after:expr;)+) => { [$(($state, $after)),+] };
        }
        // A state, and the states after begin_wait, end_wait, begin_drive, end_drive and free.
        let rows = rows! {
            Idle => [waited(1, false), Idle, Idle, Idle, dead(0)];
            waited(1, false)
                => [waited(2, false), Idle, waited(1, true), waited(1, false), dead(1)];
            waited(1, true) => [waited(2, true), Idle, waited(1, true), waited(1, false), dead(1)];
            waited(2, true)
                => [waited(3, true), waited(1, true), waited(2, true), waited(2, false), dead(2)];
            dead(0) => [dead(1), dead(0), dead(0), dead(0), dead(0)];
            dead(1) => [dead(2), dead(0), dead(1), dead(1), dead(1)];
        };
        for (state, expected) in rows {
            for (number, (event, next)) in events.into_iter().zip(expected).enumerate() {
                let mut after = state;
                event(&mut after);
                assert_eq!(after, next, "event {number} in {state:?}");
            }
        }
    }

    #[test]
    fn one_waiter_drives_and_a_freed_cno_is_recognised() {
        for (mut state, drives, has_waiter, has_followers, is_dead) in [
            (CnoState::Idle, false, false, false, false),
            (waited(1, false), true, true, false, false),
            (waited(1, true), false, true, false, false),
            (waited(2, true), false, true, true, false),
            (dead(0), false, false, false, true),
            (dead(1), false, true, true, true),
        ] {
            assert_eq!(state.has_waiter(), has_waiter, "{state:?}");
            assert_eq!(state.has_followers(), has_followers, "{state:?}");
            assert_eq!(state.is_dead(), is_dead, "{state:?}");
            assert_eq!(state.on_begin_drive(), drives, "{state:?}");
        }
    }
}
