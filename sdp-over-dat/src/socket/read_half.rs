//! The receiving direction of a socket, as the program sees it.

/// The state of the direction. The `on_*` methods are the only writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadHalf {
    Open,
    /// The program has shut down the direction (SHUT_RD).
    Shut,
    /// The end of the peer's stream was received.
    Ended,
    /// `Shut` and `Ended`.
    ShutAndEnded,
}

impl ReadHalf {
    /// Called when the program shuts down the direction.
    pub(super) fn on_shut(&mut self) {
        *self = match *self {
            Self::Open | Self::Shut => Self::Shut,
            Self::Ended | Self::ShutAndEnded => Self::ShutAndEnded,
        }
    }

    /// Called when the end of the peer's stream was received.
    pub(super) fn on_end(&mut self) {
        *self = match *self {
            Self::Open | Self::Ended => Self::Ended,
            Self::Shut | Self::ShutAndEnded => Self::ShutAndEnded,
        }
    }

    pub(super) fn is_shut(self) -> bool {
        matches!(self, Self::Shut | Self::ShutAndEnded)
    }

    pub(super) fn has_ended(self) -> bool {
        matches!(self, Self::Ended | Self::ShutAndEnded)
    }
}

#[cfg(test)]
mod tests {
    use super::ReadHalf::{Ended, Open, Shut, ShutAndEnded};

    #[test]
    fn every_event_in_every_state() {
        for (state, shut, end, is_shut, has_ended) in [
            (Open, Shut, Ended, false, false),
            (Shut, Shut, ShutAndEnded, true, false),
            (Ended, ShutAndEnded, Ended, false, true),
            (ShutAndEnded, ShutAndEnded, ShutAndEnded, true, true),
        ] {
            let (mut after_shut, mut after_end) = (state, state);
            after_shut.on_shut();
            after_end.on_end();
            assert_eq!((after_shut, after_end), (shut, end), "{state:?}");
            assert_eq!((state.is_shut(), state.has_ended()), (is_shut, has_ended));
        }
    }
}
