//! The place of a connection among the threads that make progress: armed, polled or closed.
//!
//! ```text
//!              poll                      arm
//!   ARMED ────────────> POLLED ────────────────> ARMED or, where the kernel
//!     ^ |                 |                      has no room, UNWATCHED
//!     | | room is wanted, | close
//!     '-' or no segments  v
//!       ───────────────> CLOSED
//! ```
//!
//! An armed connection is in the set of its adapter, so a thread that sleeps on the set or polls it
//! is notified. A polled connection is driven by every thread that polls. If the peer sends its
//! segments through the socket, the socket is then removed from the set: even an entry without
//! interest costs a call and two locks in the kernel for every received segment.
//!
//! The place is part of the connection and changes under its lock.

/// The events of an armed connection's socket, besides its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wants {
    /// True unless the next segment has been received and waits for a receive.
    pub(super) segments: bool,
    /// True if bytes wait for room in the socket.
    pub(super) room: bool,
}

impl Wants {
    /// No bytes wait for room, and no segment waits for a receive.
    pub(crate) const SEGMENTS: Self = Self {
        segments: true,
        room: false,
    };

    pub(crate) const fn with_room(room: bool) -> Self {
        Self {
            segments: true,
            room,
        }
    }
}

/// The place of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the set.
    Armed {
        /// The events that the set reports.
        wants: Wants,
    },
    /// On the list of connections that polling threads drive.
    Polled {
        /// True if the socket stays in the set. The peer then sends no segments through it, and the
        /// set reports only the end of the connection.
        in_set: bool,
    },
    /// The kernel has no room for the connection in the set: the engine ends the connection.
    Unwatched,
    /// The connection is over.
    Closed,
}

/// The change of the set that a transition requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetChange {
    None,
    Add { wants: Wants },
    Modify { wants: Wants },
    Delete,
}

impl Place {
    /// Returns true if every poll drives the connection.
    pub(crate) fn is_polled(self) -> bool {
        matches!(self, Self::Polled { .. })
    }

    /// Returns true if the connection waits in the set.
    pub(crate) fn is_armed(self) -> bool {
        matches!(self, Self::Armed { .. })
    }

    /// Called when a polling thread starts to drive the connection directly. `in_set`: the socket
    /// stays in the set.
    pub(super) fn on_poll(&mut self, in_set: bool) -> SetChange {
        match *self {
            Self::Armed { wants } => {
                *self = Self::Polled { in_set };
                match (in_set, wants) {
                    (false, _) => SetChange::Delete,
                    (true, Wants::SEGMENTS) => SetChange::None,
                    // Polling threads need no event to find room.
                    (true, _) => SetChange::Modify {
                        wants: Wants::SEGMENTS,
                    },
                }
            }
            Self::Polled { .. } | Self::Unwatched | Self::Closed => SetChange::None,
        }
    }

    /// Called when the peer sends no more segments through the socket.
    pub(super) fn on_moved(&mut self) -> SetChange {
        match *self {
            Self::Polled { in_set: false } => {
                *self = Self::Polled { in_set: true };
                SetChange::Add {
                    wants: Wants::SEGMENTS,
                }
            }
            Self::Armed { .. } | Self::Polled { .. } | Self::Unwatched | Self::Closed => {
                SetChange::None
            }
        }
    }

    /// Called when no thread polls the connection any more.
    pub(super) fn on_arm(&mut self, wants_room: bool) -> SetChange {
        match *self {
            Self::Polled { in_set } => {
                let wants = Wants::with_room(wants_room);
                *self = Self::Armed { wants };
                match (in_set, wants_room) {
                    (false, _) => SetChange::Add { wants },
                    (true, true) => SetChange::Modify { wants },
                    (true, false) => SetChange::None,
                }
            }
            Self::Armed { .. } | Self::Unwatched | Self::Closed => SetChange::None,
        }
    }

    /// Called when bytes start or stop waiting for room in the socket.
    pub(super) fn on_room_wanted(&mut self, room: bool) -> SetChange {
        self.change(|wants| Wants { room, ..wants })
    }

    /// Called when the next segment of the socket begins to wait for a receive, or no longer waits.
    pub(super) fn on_segments_wanted(&mut self, segments: bool) -> SetChange {
        self.change(|wants| Wants { segments, ..wants })
    }

    fn change(&mut self, change: impl FnOnce(Wants) -> Wants) -> SetChange {
        let Self::Armed { wants: before } = *self else {
            return SetChange::None;
        };
        let wants = change(before);
        if wants == before {
            return SetChange::None;
        }
        *self = Self::Armed { wants };
        SetChange::Modify { wants }
    }

    /// Called when the kernel refused a change of the set.
    pub(super) fn on_refused(&mut self) {
        if !matches!(self, Self::Closed) {
            *self = Self::Unwatched;
        }
    }

    /// Called when the connection is over.
    pub(super) fn on_close(&mut self) -> SetChange {
        let before = std::mem::replace(self, Self::Closed);
        match before {
            // A refused change may have left an entry.
            Self::Armed { .. } | Self::Unwatched | Self::Polled { in_set: true } => {
                SetChange::Delete
            }
            Self::Polled { in_set: false } | Self::Closed => SetChange::None,
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
        let want = |segments, room| Wants { segments, room };
        let armed = |wants| Armed { wants };
        let (segments, both) = (want(true, false), want(true, true));
        let (neither, room) = (want(false, false), want(false, true));
        let (quiet, full, held) = (armed(segments), armed(both), armed(neither));
        let (out, inside) = (Polled { in_set: false }, Polled { in_set: true });
        let before = [quiet, full, held, out, inside, Unwatched, Closed];
        let (none, delete) = (SetChange::None, SetChange::Delete);
        let add = |wants| SetChange::Add { wants };
        let modify = |wants| SetChange::Modify { wants };
        let refused: Event = |place| {
            place.on_refused();
            SetChange::None
        };
        type Row = (&'static str, Event, [Place; 7], [SetChange; 7]);
        macro_rules! rows {
            ($($name:literal: $event:expr => $places:expr, $changes:expr;)+) => {
                [$(($name, $event, $places, $changes)),+]
            };
        }
        let rows: [Row; 11] = rows! {
            "poll": |place| place.on_poll(false)
                => [out, out, out, out, inside, Unwatched, Closed],
                   [delete, delete, delete, none, none, none, none];
            "poll, socket stays": |place| place.on_poll(true)
                => [inside, inside, inside, out, inside, Unwatched, Closed],
                   [none, modify(segments), modify(segments), none, none, none, none];
            "moved": Place::on_moved
                => [quiet, full, held, inside, inside, Unwatched, Closed],
                   [none, none, none, add(segments), none, none, none];
            "arm": |place| place.on_arm(true)
                => [quiet, full, held, full, full, Unwatched, Closed],
                   [none, none, none, add(both), modify(both), none, none];
            "arm, nothing waits for room": |place| place.on_arm(false)
                => [quiet, full, held, quiet, quiet, Unwatched, Closed],
                   [none, none, none, add(segments), none, none, none];
            "room is wanted": |place| place.on_room_wanted(true)
                => [full, full, armed(room), out, inside, Unwatched, Closed],
                   [modify(both), none, modify(room), none, none, none, none];
            "there is room": |place| place.on_room_wanted(false)
                => [quiet, quiet, held, out, inside, Unwatched, Closed],
                   [none, modify(segments), none, none, none, none, none];
            "no receive": |place| place.on_segments_wanted(false)
                => [held, armed(room), held, out, inside, Unwatched, Closed],
                   [modify(neither), modify(room), none, none, none, none, none];
            "a receive": |place| place.on_segments_wanted(true)
                => [quiet, full, quiet, out, inside, Unwatched, Closed],
                   [none, none, modify(segments), none, none, none, none];
            "refused": refused
                => [Unwatched, Unwatched, Unwatched, Unwatched, Unwatched, Unwatched, Closed],
                   [none; 7];
            "close": Place::on_close
                => [Closed; 7],
                   [delete, delete, delete, none, delete, delete, none];
        };
        for (name, event, places, changes) in rows {
            let expected = places.into_iter().zip(changes);
            for (before, (after, change)) in before.into_iter().zip(expected) {
                let mut place = before;
                assert_eq!(event(&mut place), change, "{name} in {before:?}");
                assert_eq!(place, after, "{name} in {before:?}");
            }
        }
    }
}
