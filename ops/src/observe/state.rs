//! The states of a socket.

use std::fmt;

/// The state of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// An offload protocol is trying to connect.
    Connecting = 1,
    /// Both sides may send.
    Established = 2,
    /// The program has shut down its sending side.
    LocalEnded = 3,
    /// The peer has shut down its sending side.
    PeerEnded = 4,
    /// Both sides have shut down sending.
    Ended = 5,
    /// The connection failed.
    Broken = 6,
    /// A listening socket.
    Listening = 7,
    /// A kernel socket, also that of a connection within the host. The kernel alone has its state.
    Native = 8,
}

impl State {
    /// All states.
    pub const ALL: [Self; 8] = [
        Self::Connecting,
        Self::Established,
        Self::LocalEnded,
        Self::PeerEnded,
        Self::Ended,
        Self::Broken,
        Self::Listening,
        Self::Native,
    ];

    /// Returns the state of a number in a record.
    #[must_use]
    pub fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u32 == number)
    }
}

impl fmt::Display for State {
    /// Writes the name that `ss` uses, if it has one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Connecting => "SYN-SENT",
            Self::Established => "ESTAB",
            Self::LocalEnded => "FIN-WAIT-2",
            Self::PeerEnded => "CLOSE-WAIT",
            Self::Ended => "CLOSING",
            Self::Broken => "RESET",
            Self::Listening => "LISTEN",
            Self::Native => "-",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_reads_back() {
        for state in State::ALL {
            assert_eq!(State::of(state as u32), Some(state));
        }
        assert_eq!(State::of(0), None, "zero is a free record");
        assert_eq!(State::of(9), None);
    }
}
