//! Where a connection waits for the threads that make progress.
//!
//! ```text
//!              poll                      arm
//!   ARMED ────────────> POLLED ────────────────> ARMED or, where the kernel
//!     ^ |                 |                      has no room, UNWATCHED
//!     | | block, unblock  | close
//!     '-'                 v
//!       ───────────────> CLOSED
//! ```
//!
//! An armed connection is in the set of its adapter, so whoever sleeps on the set or asks it is
//! notified. A polled one is driven by every thread that polls, and its socket is not in the set:
//! even an entry without interest costs every arrival a call and two locks in the kernel.
//!
//! The place is part of the connection and changed under its lock.

/// The place of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the set.
    Armed {
        /// Bytes wait for room in the socket, so room is an event too.
        wants_room: bool,
    },
    /// On the list of connections that polling threads drive.
    Polled,
    /// The kernel has no room for it in the set: the engine ends the connection.
    Unwatched,
    /// The connection is over.
    Closed,
}

/// The change of the set that a transition asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetChange {
    None,
    Add { wants_room: bool },
    Modify { wants_room: bool },
    Delete,
}

impl Place {
    /// A polling thread is to drive it directly.
    pub(super) fn on_poll(&mut self) -> SetChange {
        match *self {
            Self::Armed { .. } => {
                *self = Self::Polled;
                SetChange::Delete
            }
            Self::Polled | Self::Unwatched | Self::Closed => SetChange::None,
        }
    }

    /// No thread polls it any more.
    pub(super) fn on_arm(&mut self, wants_room: bool) -> SetChange {
        match *self {
            Self::Polled => {
                *self = Self::Armed { wants_room };
                SetChange::Add { wants_room }
            }
            Self::Armed { .. } | Self::Unwatched | Self::Closed => SetChange::None,
        }
    }

    /// Bytes begin or cease to wait for room in the socket.
    pub(super) fn on_room_wanted(&mut self, wants_room: bool) -> SetChange {
        match *self {
            Self::Armed { wants_room: before } if before != wants_room => {
                *self = Self::Armed { wants_room };
                SetChange::Modify { wants_room }
            }
            Self::Armed { .. } | Self::Polled | Self::Unwatched | Self::Closed => SetChange::None,
        }
    }

    /// The kernel refused a change of the set.
    pub(super) fn on_refused(&mut self) {
        if !matches!(self, Self::Closed) {
            *self = Self::Unwatched;
        }
    }

    /// The connection is over.
    pub(super) fn on_close(&mut self) -> SetChange {
        let before = std::mem::replace(self, Self::Closed);
        match before {
            // A refused change may have left an entry.
            Self::Armed { .. } | Self::Unwatched => SetChange::Delete,
            Self::Polled | Self::Closed => SetChange::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Place::*;
    use super::*;

    #[test]
    fn every_event_in_every_state() {
        type Event = fn(&mut Place) -> SetChange;
        let quiet = Armed { wants_room: false };
        let full = Armed { wants_room: true };
        let before = [quiet, full, Polled, Unwatched, Closed];
        let none = SetChange::None;
        let rows: [(&str, Event, [(Place, SetChange); 5]); 6] = [
            (
                "poll",
                Place::on_poll,
                [
                    (Polled, SetChange::Delete),
                    (Polled, SetChange::Delete),
                    (Polled, none),
                    (Unwatched, none),
                    (Closed, none),
                ],
            ),
            (
                "arm",
                |place| place.on_arm(true),
                [
                    (quiet, none),
                    (full, none),
                    (full, SetChange::Add { wants_room: true }),
                    (Unwatched, none),
                    (Closed, none),
                ],
            ),
            (
                "room is wanted",
                |place| place.on_room_wanted(true),
                [
                    (full, SetChange::Modify { wants_room: true }),
                    (full, none),
                    (Polled, none),
                    (Unwatched, none),
                    (Closed, none),
                ],
            ),
            (
                "there is room",
                |place| place.on_room_wanted(false),
                [
                    (quiet, none),
                    (quiet, SetChange::Modify { wants_room: false }),
                    (Polled, none),
                    (Unwatched, none),
                    (Closed, none),
                ],
            ),
            (
                "refused",
                |place| {
                    place.on_refused();
                    SetChange::None
                },
                [
                    (Unwatched, none),
                    (Unwatched, none),
                    (Unwatched, none),
                    (Unwatched, none),
                    (Closed, none),
                ],
            ),
            (
                "close",
                Place::on_close,
                [
                    (Closed, SetChange::Delete),
                    (Closed, SetChange::Delete),
                    (Closed, none),
                    (Closed, SetChange::Delete),
                    (Closed, none),
                ],
            ),
        ];
        for (name, event, after) in rows {
            for (before, (expected, change)) in before.into_iter().zip(after) {
                let mut place = before;
                assert_eq!(event(&mut place), change, "{name} in {before:?}");
                assert_eq!(place, expected, "{name} in {before:?}");
            }
        }
    }
}
