//! Who may answer a connection request.

/// What waits for an answer, and whether it still does. `on_*` are the only writers.
///
/// ```text
///            take            over
///    Waiting ────▶ Taken ──────────▶ Over
///      ▲  │ ◀──put_back                ▲
///         └────────────over────────────┘
/// ```
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer<P> {
    /// The first answer gets it.
    Waiting(P),
    /// A thread has it and answers.
    Taken,
    /// Answered, handed off or gone.
    Over,
}

impl<P> Answer<P> {
    /// A thread begins to answer.
    pub(super) fn on_take(&mut self) -> Option<P> {
        match std::mem::replace(self, Self::Taken) {
            Self::Waiting(pending) => Some(pending),
            other => {
                *self = other;
                None
            }
        }
    }

    /// The answer could not be given. What comes back was given up meanwhile: the caller ends it.
    pub(super) fn on_put_back(&mut self, pending: P) -> Option<P> {
        match self {
            Self::Taken => {
                *self = Self::Waiting(pending);
                None
            }
            Self::Waiting(_) | Self::Over => Some(pending),
        }
    }

    /// The handle dies. What comes back was never answered: the caller ends it.
    pub(super) fn on_over(&mut self) -> Option<P> {
        match std::mem::replace(self, Self::Over) {
            Self::Waiting(pending) => Some(pending),
            Self::Taken | Self::Over => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Answer::{Over, Taken, Waiting};
    use super::*;

    type Event = fn(&mut Answer<u32>) -> Option<u32>;
    type Row = (fn() -> Answer<u32>, [(Option<u32>, Answer<u32>); 3]);

    #[test]
    fn every_event_in_every_state() {
        let events: [Event; 3] = [
            Answer::on_take,
            |answer| answer.on_put_back(2),
            Answer::on_over,
        ];
        let rows: [Row; 3] = [
            // (state, what take, put_back and over give and leave)
            (
                || Waiting(1),
                [(Some(1), Taken), (Some(2), Waiting(1)), (Some(1), Over)],
            ),
            (|| Taken, [(None, Taken), (None, Waiting(2)), (None, Over)]),
            (|| Over, [(None, Over), (Some(2), Over), (None, Over)]),
        ];
        for (state, expected) in rows {
            for (number, (event, (given, left))) in events.into_iter().zip(expected).enumerate() {
                let mut answer = state();
                assert_eq!(event(&mut answer), given, "event {number} in {:?}", state());
                assert_eq!(answer, left, "event {number} in {:?}", state());
            }
        }
    }
}
