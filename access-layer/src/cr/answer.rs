//! State of the answer to a connection request.

/// The request that waits for an answer, and its state. The `on_*` methods are the only writers.
///
/// ```text
///            take            over
///    Waiting ────▶ Taken ──────────▶ Over
///         │  ◀──return                 ▲
///         └────────────over────────────┘
/// ```
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer<P> {
    /// The first answer takes the request.
    Waiting(P),
    /// A thread has taken the request and answers it.
    Taken,
    /// Answered, handed off or ended.
    Over,
}

impl<P> Answer<P> {
    /// Called when a thread begins to answer.
    pub(super) fn on_take(&mut self) -> Option<P> {
        match std::mem::replace(self, Self::Taken) {
            Self::Waiting(pending) => Some(pending),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Called when the answer failed. Returns the request if it has ended meanwhile, so that the
    /// caller ends it.
    pub(super) fn on_return(&mut self, pending: P) -> Option<P> {
        match self {
            Self::Taken => {
                *self = Self::Waiting(pending);
                None
            }
            Self::Waiting(_) | Self::Over => Some(pending),
        }
    }

    /// Called when the handle is retired. Returns the request if it was never answered, so that the
    /// caller ends it.
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
            |answer| answer.on_return(2),
            Answer::on_over,
        ];
        let rows: [Row; 3] = [
            // (state, results and next states of take, put_back and over)
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
