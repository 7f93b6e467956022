//! The user of a socket: present, gone while the connection continues, or gone with the connection
//! aborted.
//!
//! ```text
//!             close             due, and nothing was delivered meanwhile
//!   PRESENT ─────────> CLOSING ──────────────────────────────────────────> ABORTED
//!                       |   ^
//!                       '---'  a message is received; due, and bytes were delivered
//! ```

use std::time::Instant;

/// The state, as the module's diagram shows it. The `on_*` methods are the only writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum User {
    Present,
    /// The user has closed the socket; the stack's thread continues the connection.
    Closing {
        /// The time at which the stack's thread aborts the connection. `None`: never.
        until: Option<Instant>,
        /// Bytes that had not been delivered when `until` was last set.
        undelivered: usize,
    },
    /// The time of the close has passed, and the connection was aborted.
    Aborted,
}

impl User {
    /// Records that the user closes the socket.
    pub(super) fn on_close(&mut self, until: Option<Instant>, undelivered: usize) {
        *self = Self::Closing { until, undelivered };
    }

    /// Records that a message was received, which restarts the time limit of the close. So a slow
    /// reader gets the bytes that were written before the close, as long as the reader sends
    /// messages.
    pub(super) fn on_message(&mut self, next: impl FnOnce() -> Option<Instant>) {
        if let Self::Closing { until, .. } = self {
            *until = next();
        }
    }

    /// Records that the time of the close has passed. `now_undelivered` is the number of bytes that
    /// are undelivered now. Returns true if the connection is to be aborted, because no byte was
    /// delivered meanwhile. A long message over a slow line delivers bytes without a message.
    pub(super) fn on_due(&mut self, next: Option<Instant>, now_undelivered: usize) -> bool {
        match *self {
            Self::Closing { undelivered, .. } if now_undelivered < undelivered => {
                *self = Self::Closing {
                    until: next,
                    undelivered: now_undelivered,
                };
                false
            }
            Self::Closing { .. } => {
                *self = Self::Aborted;
                true
            }
            Self::Present | Self::Aborted => false,
        }
    }

    pub(super) fn is_closing(self) -> bool {
        matches!(self, Self::Closing { .. })
    }

    /// True if the time of the close has passed at `now`.
    pub(super) fn is_due(self, now: Instant) -> bool {
        matches!(self, Self::Closing { until: Some(until), .. } if until <= now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        User::{Aborted, Closing, Present},
        *,
    };

    #[test]
    fn every_event_in_every_state() {
        type Row = (
            &'static str,
            Box<dyn Fn(&mut User) -> bool>,
            [(User, bool); 3],
        );
        let soon = Some(Instant::now());
        let late = soon.map(|soon| soon + Duration::from_secs(1));
        let closing = |until, undelivered| Closing { until, undelivered };
        let before = [Present, closing(soon, 5), Aborted];
        macro_rules! rows {
            ($($name:literal: $event:expr => $after:expr;)+) => {
                [$(($name, Box::new($event), $after)),+]
            };
        }
        let rows: [Row; 4] = rows! {
            "close": move |it| { it.on_close(late, 7); false }
                => [(closing(late, 7), false); 3];
            "message": move |it| { it.on_message(|| late); false }
                => [(Present, false), (closing(late, 5), false), (Aborted, false)];
            "due, bytes were delivered": move |it| it.on_due(late, 4)
                => [(Present, false), (closing(late, 4), false), (Aborted, false)];
            "due, nothing was delivered": move |it| it.on_due(late, 5)
                => [(Present, false), (Aborted, true), (Aborted, false)];
        };
        for (name, event, after) in rows {
            for (before, (expected, returned)) in before.into_iter().zip(after) {
                let mut state = before;
                assert_eq!(event(&mut state), returned, "{name} in {before:?}");
                assert_eq!(state, expected, "{name} in {before:?}");
            }
        }
    }

    #[test]
    fn a_close_is_due_at_its_time_or_never() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let closing = |until| Closing {
            until,
            undelivered: 0,
        };
        for (state, is_closing, is_due) in [
            (Present, false, false),
            (closing(Some(now)), true, true),
            (closing(Some(later)), true, false),
            (closing(None), true, false),
            (Aborted, false, false),
        ] {
            assert_eq!(state.is_closing(), is_closing, "{state:?}");
            assert_eq!(state.is_due(now), is_due, "{state:?}");
        }
    }
}
