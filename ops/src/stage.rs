//! The progress of an attempt to connect.

/// The progress of an attempt, before the first byte. The `on_*` methods are the only writers.
///
/// ```text
///   Asking ──on_mapped──> Trying(0) ──on_failed──> Trying(1) ... ──on_failed──> Over
///      │                     └──────on_connected──────────────────────────────> Connected
///      │  <──────────on_stale──────────┘
///      └──on_not_offered────────────────────────────────────────────────────> Over
///   Trying ──on_no_address──> Over          any of these ──on_late──> Over
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The peer's port mapper has not answered yet.
    Asking,
    /// The protocol at this index of the list tries to connect.
    Trying(usize),
    /// A protocol has connected.
    Connected,
    /// All protocols have failed.
    Over,
}

impl Stage {
    pub(crate) fn on_mapped(&mut self) {
        if *self == Self::Asking {
            *self = Self::Trying(0);
        }
    }

    pub(crate) fn on_not_offered(&mut self) {
        if *self == Self::Asking {
            *self = Self::Over;
        }
    }

    /// Continues with the next protocol after a failure. The list has `of` protocols.
    pub(crate) fn on_failed(&mut self, of: usize) {
        if let Self::Trying(at) = *self {
            *self = if at + 1 < of {
                Self::Trying(at + 1)
            } else {
                Self::Over
            };
        }
    }

    /// Asks again, because the peer's earlier answer is out of date.
    pub(crate) fn on_stale(&mut self) {
        if matches!(self, Self::Trying(_)) {
            *self = Self::Asking;
        }
    }

    /// Ends the attempt, because the connection gets no local address.
    pub(crate) fn on_no_address(&mut self) {
        if matches!(self, Self::Trying(_)) {
            *self = Self::Over;
        }
    }

    pub(crate) fn on_connected(&mut self) {
        if matches!(self, Self::Trying(_)) {
            *self = Self::Connected;
        }
    }

    pub(crate) fn on_late(&mut self) {
        if *self != Self::Connected {
            *self = Self::Over;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Stage::{self, Asking, Connected, Over, Trying};

    #[test]
    fn every_event_in_every_state() {
        let events: [fn(&mut Stage); 7] = [
            Stage::on_mapped,
            Stage::on_not_offered,
            |stage| stage.on_failed(2),
            Stage::on_connected,
            Stage::on_late,
            Stage::on_stale,
            Stage::on_no_address,
        ];
        for (state, after) in [
            (
                Asking,
                [Trying(0), Over, Asking, Asking, Over, Asking, Asking],
            ),
            (
                Trying(0),
                [
                    Trying(0),
                    Trying(0),
                    Trying(1),
                    Connected,
                    Over,
                    Asking,
                    Over,
                ],
            ),
            (
                Trying(1),
                [Trying(1), Trying(1), Over, Connected, Over, Asking, Over],
            ),
            (Connected, [Connected; 7]),
            (Over, [Over; 7]),
        ] {
            for (event, expected) in events.into_iter().zip(after) {
                let mut stage = state;
                event(&mut stage);
                assert_eq!(stage, expected, "{state:?}");
            }
        }
    }
}
