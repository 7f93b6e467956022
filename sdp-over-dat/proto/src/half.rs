//! The two halves of a connection.

/// The half in which this end is the source. The `on_*` methods are the only writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendHalf {
    /// Bytes may be written.
    Open,
    /// The user writes no more; bytes that were written are still sent.
    Draining,
    /// DisConn was sent.
    FinSent,
    /// The transport has completed the Send of DisConn.
    Finished,
}

impl SendHalf {
    /// True if the user may write.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Open)
    }

    /// True if DisConn was sent.
    #[must_use]
    pub const fn has_sent_fin(self) -> bool {
        matches!(self, Self::FinSent | Self::Finished)
    }

    /// Called when the user writes no more.
    pub(crate) const fn on_shut(&mut self) {
        if matches!(self, Self::Open) {
            *self = Self::Draining;
        }
    }

    /// Called when DisConn is being sent.
    pub(crate) const fn on_fin_sent(&mut self) {
        if matches!(self, Self::Open | Self::Draining) {
            *self = Self::FinSent;
        }
    }

    /// Called when the connection continues over a new transport, where DisConn is sent again.
    pub(crate) const fn on_resumed(&mut self) {
        if self.has_sent_fin() {
            *self = Self::Draining;
        }
    }

    /// Called when the transport has completed DisConn.
    pub(crate) const fn on_fin_completed(&mut self) {
        if matches!(self, Self::FinSent) {
            *self = Self::Finished;
        }
    }
}

/// The half in which this end is the sink. The `on_*` methods are the only writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReceiveHalf {
    /// Bytes may be received.
    Open,
    /// The user reads no more: bytes that are received end the connection (RFC 1122 4.2.2.13).
    Refusing,
    /// The peer's DisConn was received.
    Ended,
}

impl ReceiveHalf {
    /// True if the peer's DisConn was received.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Ended)
    }

    /// Called when the user reads no more.
    pub(crate) const fn on_shut(&mut self) {
        if matches!(self, Self::Open) {
            *self = Self::Refusing;
        }
    }

    /// Called when the peer's DisConn was received.
    pub(crate) const fn on_fin(&mut self) {
        *self = Self::Ended;
    }
}

#[cfg(test)]
mod tests {
    use super::{ReceiveHalf, SendHalf};
    use crate::tests::transitions;

    #[test]
    fn every_event_in_every_state_of_the_sending_half() {
        use SendHalf::{Draining, FinSent, Finished, Open};
        let before = [Open, Draining, FinSent, Finished];
        transitions! { SendHalf: before;
            "shut": |half| half.on_shut() => [Draining, Draining, FinSent, Finished];
            "fin sent": |half| half.on_fin_sent() => [FinSent, FinSent, FinSent, Finished];
            "fin completed": |half| half.on_fin_completed() => [Open, Draining, Finished, Finished];
            "resumed": |half| half.on_resumed() => [Open, Draining, Draining, Draining];
        }
        assert_eq!(before.map(SendHalf::is_open), [true, false, false, false]);
        assert_eq!(
            before.map(SendHalf::has_sent_fin),
            [false, false, true, true]
        );
    }

    #[test]
    fn every_event_in_every_state_of_the_receiving_half() {
        use ReceiveHalf::{Ended, Open, Refusing};
        let before = [Open, Refusing, Ended];
        transitions! { ReceiveHalf: before;
            "shut": |half| half.on_shut() => [Refusing, Refusing, Ended];
            "fin": |half| half.on_fin() => [Ended, Ended, Ended];
        }
        assert_eq!(before.map(ReceiveHalf::has_ended), [false, false, true]);
    }
}
