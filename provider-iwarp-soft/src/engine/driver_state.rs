//! Who serves a connection's socket.
//!
//! ```text
//!            readable, nobody drives: drive, arm again
//!               .--.
//!               v  |        readable, a consumer drives
//!  connect --> ENGINE ---------------------------------> WATCHED <--.
//!               |  ^                                      |  |  |   | still driven
//!               |  '------- tick: not driven any more ----'  |  '---'
//!   readable,   |                                            | tick: a consumer is
//!   a consumer  |           the last blocked consumer        | blocked on it and did not
//!   is blocked  v           has left                         v drive between rare ticks
//!              OWNED <---------------------------------------'
//!                '------------------------------------> WATCHED
//! ```
//!
//! In `ENGINE` the one-shot interest of the poller is armed; in `OWNED` it is used up and in
//! `WATCHED` the socket is not in the poller, so data that arrives wakes only the thread that waits
//! for it. `WATCHED` costs ticks; `OWNED` costs nothing.

use std::sync::atomic::{AtomicU8, Ordering};

const ENGINE: u8 = 0;
const WATCHED: u8 = 1;
const OWNED: u8 = 2;

/// The state, shared by the engine and the consumers. All changes are sequentially consistent: each
/// side stores and then looks at what the other stores (blocked consumers, bytes that wait for
/// room).
#[derive(Debug, Default)]
pub(super) struct DriverState(AtomicU8);

impl DriverState {
    /// The engine is armed for it.
    pub(super) fn is_engines(&self) -> bool {
        self.0.load(Ordering::SeqCst) == ENGINE
    }

    /// The engine looks at it at every tick.
    pub(super) fn is_watched(&self) -> bool {
        self.0.load(Ordering::SeqCst) == WATCHED
    }

    /// A blocked consumer serves it.
    pub(super) fn is_owned(&self) -> bool {
        self.0.load(Ordering::SeqCst) == OWNED
    }

    /// A consumer drives it. `true`: the engine is to be told to look, once however often this is
    /// said.
    pub(super) fn on_driven(&self) -> bool {
        self.0.swap(WATCHED, Ordering::SeqCst) != WATCHED
    }

    /// A consumer is blocked on it.
    pub(super) fn on_blocked(&self) {
        self.0.store(OWNED, Ordering::SeqCst);
    }

    /// The last blocked consumer has left. `true`: the engine is to be told to look.
    pub(super) fn on_left(&self) -> bool {
        let change = self
            .0
            .compare_exchange(OWNED, WATCHED, Ordering::SeqCst, Ordering::SeqCst);
        change.is_ok()
    }

    /// Nobody drives it any more; the engine is about to arm.
    pub(super) fn on_idle(&self) {
        self.0.store(ENGINE, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [u8; 3] = [ENGINE, WATCHED, OWNED];

    #[test]
    fn every_event_in_every_state() {
        type Event = fn(&DriverState) -> bool;
        type Row = (&'static str, Event, [(u8, bool); 3]);
        let rows: [Row; 4] = [
            (
                "driven",
                DriverState::on_driven,
                [(WATCHED, true), (WATCHED, false), (WATCHED, true)],
            ),
            (
                "left",
                DriverState::on_left,
                [(ENGINE, false), (WATCHED, false), (WATCHED, true)],
            ),
            (
                "blocked",
                |driver| {
                    driver.on_blocked();
                    false
                },
                [(OWNED, false); 3],
            ),
            (
                "idle",
                |driver| {
                    driver.on_idle();
                    false
                },
                [(ENGINE, false); 3],
            ),
        ];
        for (name, event, after) in rows {
            for (before, (state, tells)) in ALL.into_iter().zip(after) {
                let driver = DriverState(AtomicU8::new(before));
                assert_eq!(event(&driver), tells, "{name} in {before}");
                assert_eq!(driver.0.into_inner(), state, "{name} in {before}");
            }
        }
    }

    #[test]
    fn the_states_are_told_apart() {
        for state in ALL {
            let driver = DriverState(AtomicU8::new(state));
            let seen = [driver.is_engines(), driver.is_watched(), driver.is_owned()];
            assert_eq!(seen.map(u8::from), ALL.map(|s| u8::from(s == state)));
        }
    }
}
