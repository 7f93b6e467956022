//! The states of a queue pair's connection.

/// The state of a queue pair's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Lifecycle {
    /// No connection; receives may be posted.
    Idle,
    /// The connection manager is establishing a connection.
    Connecting,
    /// Both directions may be used.
    Connected,
    /// The device flushes all posted work. Requests posted now are recorded, and flushed with that
    /// work.
    Ending,
    /// Everything has completed. Requests posted now complete as flushed at once.
    Disconnected,
}

/// The states, indexed by their numbers.
const STATES: [Lifecycle; 5] = [
    Lifecycle::Idle,
    Lifecycle::Connecting,
    Lifecycle::Connected,
    Lifecycle::Ending,
    Lifecycle::Disconnected,
];

impl Lifecycle {
    /// Called when the connection manager begins to use the queue pair.
    pub(crate) fn on_attempt(self) -> Option<Self> {
        (self == Self::Idle).then_some(Self::Connecting)
    }

    /// Called when the attempt failed before anything was sent.
    pub(crate) fn on_abandon(self) -> Option<Self> {
        (self == Self::Connecting).then_some(Self::Idle)
    }

    /// Called when the connection is established.
    pub(crate) fn on_establish(self) -> Option<Self> {
        (self == Self::Connecting).then_some(Self::Connected)
    }

    /// Called when the connection, or the attempt, is over.
    pub(crate) fn on_end(self) -> Option<Self> {
        matches!(self, Self::Connecting | Self::Connected).then_some(Self::Ending)
    }

    /// Called when everything posted has completed.
    pub(crate) fn on_drained(self) -> Option<Self> {
        (self == Self::Ending).then_some(Self::Disconnected)
    }

    /// Called when the queue pair was replaced by a new one.
    pub(crate) fn on_reset(self) -> Option<Self> {
        (self == Self::Disconnected).then_some(Self::Idle)
    }

    pub(crate) fn from_u8(word: u8) -> Self {
        STATES[usize::from(word)]
    }
}

#[cfg(test)]
mod tests {
    use super::Lifecycle::{self, *};
    use super::STATES;

    macro_rules! rows {
        ($($name:literal: $event:expr => $after:expr;)+) => { [$(($name, $event, $after)),+] };
    }

    #[test]
    fn every_pair_of_state_and_event() {
        type On = fn(Lifecycle) -> Option<Lifecycle>;
        let events: [(&str, On, [Option<Lifecycle>; 5]); 6] = rows! {
            "attempt": Lifecycle::on_attempt => [Some(Connecting), None, None, None, None];
            "abandon": Lifecycle::on_abandon => [None, Some(Idle), None, None, None];
            "establish": Lifecycle::on_establish => [None, Some(Connected), None, None, None];
            "end": Lifecycle::on_end => [None, Some(Ending), Some(Ending), None, None];
            "drained": Lifecycle::on_drained => [None, None, None, Some(Disconnected), None];
            "reset": Lifecycle::on_reset => [None, None, None, None, Some(Idle)];
        };
        for (name, on_event, expected) in events {
            assert_eq!(STATES.map(on_event), expected, "{name}");
        }
    }

    #[test]
    fn states_are_decoded_as_encoded() {
        for state in STATES {
            assert_eq!(Lifecycle::from_u8(state as u8), state);
        }
    }
}
