//! How far an attempt to connect is.

/// How far an attempt is, before the first byte. `on_*` are the only writers.
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
    /// The peer's port mapper is asked.
    Asking,
    /// The protocol of this place in the list tries.
    Trying(usize),
    /// One of them has connected.
    Connected,
    /// None has, and none will.
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

    /// The protocol that tries has failed; `of` protocols are in the list.
    pub(crate) fn on_failed(&mut self, of: usize) {
        if let Self::Trying(at) = *self {
            *self = if at + 1 < of {
                Self::Trying(at + 1)
            } else {
                Self::Over
            };
        }
    }

    /// What the peer said earlier does not hold any more.
    pub(crate) fn on_stale(&mut self) {
        if matches!(self, Self::Trying(_)) {
            *self = Self::Asking;
        }
    }

    /// This end gets no address for the connection.
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
