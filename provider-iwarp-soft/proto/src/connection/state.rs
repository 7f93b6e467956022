//! The states of a stream.

/// The state of a stream in full operation.
///
/// The `on_*` methods are the only writers. An event without a meaning in a state does not change
/// it: the first error of a stream is the one that counts (RFC 5040 section 7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamState {
    /// Responder, which sends nothing before it has received one valid FPDU (RFC 5044 section 7.1).
    AwaitFirstFpdu,
    /// Both directions are open.
    Operational,
    /// A fault was found; inbound data is dropped, and one Terminate message may still be sent.
    TerminateOwed,
    /// Our Terminate message was made; nothing may follow it.
    TerminateSent,
    /// The peer's Terminate message was received; nothing may be sent, not even one of ours.
    TerminateReceived,
    /// The transport connection has ended.
    Closed,
}

impl StreamState {
    /// True if inbound segments are handled.
    #[must_use]
    pub const fn accepts_input(self) -> bool {
        matches!(self, Self::AwaitFirstFpdu | Self::Operational)
    }

    /// True if work and answers may be transmitted.
    #[must_use]
    pub const fn may_transmit(self) -> bool {
        matches!(self, Self::Operational)
    }

    /// True if either side has ended the stream.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        !self.accepts_input()
    }

    /// Records that a valid FPDU was received.
    pub(super) const fn on_fpdu(&mut self) {
        if matches!(self, Self::AwaitFirstFpdu) {
            *self = Self::Operational;
        }
    }

    /// Records a fault of either side after which the stream cannot continue.
    pub(super) const fn on_violation(&mut self) {
        if self.accepts_input() {
            *self = Self::TerminateOwed;
        }
    }

    /// Records that a Terminate message is about to be made. Returns false if none may be made.
    pub(super) const fn on_terminate(&mut self) -> bool {
        let owed = matches!(self, Self::TerminateOwed);
        if owed {
            *self = Self::TerminateSent;
        }
        owed
    }

    /// Records that the peer's Terminate message was received.
    pub(super) const fn on_terminate_received(&mut self) {
        if self.accepts_input() {
            *self = Self::TerminateReceived;
        }
    }

    /// Records that the transport connection has ended.
    pub(super) const fn on_closed(&mut self) {
        *self = Self::Closed;
    }
}

#[cfg(test)]
mod tests {
    use super::StreamState::{self, *};
    use crate::tests::transitions;

    const ALL: [StreamState; 6] = [
        AwaitFirstFpdu,
        Operational,
        TerminateOwed,
        TerminateSent,
        TerminateReceived,
        Closed,
    ];

    /// Each row is an event, each column a state in the order of `ALL`.
    #[test]
    fn every_event_in_every_state() {
        transitions! { StreamState: ALL;
            "fpdu": |state| state.on_fpdu()
                => [Operational, Operational, TerminateOwed, TerminateSent, TerminateReceived,
                    Closed];
            "violation": |state| state.on_violation()
                => [TerminateOwed, TerminateOwed, TerminateOwed, TerminateSent, TerminateReceived,
                    Closed];
            "terminate": |state| {
                let before = *state;
                assert_eq!(state.on_terminate(), before == TerminateOwed);
            }
                => [AwaitFirstFpdu, Operational, TerminateSent, TerminateSent, TerminateReceived,
                    Closed];
            "terminate received": |state| state.on_terminate_received()
                => [TerminateReceived, TerminateReceived, TerminateOwed, TerminateSent,
                    TerminateReceived, Closed];
            "closed": |state| state.on_closed() => [Closed; 6];
        }
    }

    #[test]
    fn what_each_state_permits() {
        let input = ALL.map(StreamState::accepts_input);
        assert_eq!(input, [true, true, false, false, false, false]);
        let transmit = ALL.map(StreamState::may_transmit);
        assert_eq!(transmit, [false, true, false, false, false, false]);
    }
}
