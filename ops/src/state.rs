//! The states of a socket as its program sees it.

use rustix::io::Errno;

/// The state of a socket. [`SocketState::on`] is the only writer.
///
/// ```text
///   Fresh ──bind──> Bound ──listen──> Listening
///     │               │
///     └──── connect ──┴──> Connecting ──offloaded──> Offloaded
///            ^                  ├──────fell back───> Native
///            └───── refused ────┘
/// ```
///
/// From `Offloaded` no way leads to `Native`: once a connection stands, its failures are its
/// program's. `Native` is decided for good as well; the switch has no part in it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketState {
    /// It spans every stack.
    Fresh,
    /// Every stack has given it the same address.
    Bound,
    /// Every stack listens.
    Listening,
    /// An offload protocol tries; `bound` says where it goes back to.
    Connecting {
        /// Whether it had an address before.
        bound: bool,
    },
    /// The kernel's, and nobody else's.
    Native,
    /// Connected by an offload protocol.
    Offloaded,
}

/// What happens to a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The program binds it.
    Bind,
    /// The program listens on it.
    Listen,
    /// The program connects it.
    Connect,
    /// An offload protocol has connected it.
    Offloaded,
    /// It is left to TCP.
    FellBack,
    /// It may not use TCP and nothing else came about.
    Refused,
}

impl SocketState {
    /// What an event makes of it.
    ///
    /// # Errors
    /// The number that the program's call fails with on a TCP socket in the same state. For events
    /// that no program causes it is `EINVAL`, and says that the switch is at fault.
    pub fn on(self, event: Event) -> Result<Self, Errno> {
        use Event::{Bind, Connect, FellBack, Listen, Offloaded, Refused};
        match (self, event) {
            (Self::Fresh, Bind) => Ok(Self::Bound),
            // The kernel chooses an address for one that listens without.
            (Self::Fresh | Self::Bound | Self::Listening, Listen) => Ok(Self::Listening),
            (Self::Fresh, Connect) => Ok(Self::Connecting { bound: false }),
            (Self::Bound, Connect) => Ok(Self::Connecting { bound: true }),
            (Self::Connecting { .. }, Connect) => Err(Errno::ALREADY),
            (Self::Listening | Self::Native | Self::Offloaded, Connect) => Err(Errno::ISCONN),
            (Self::Connecting { .. }, Offloaded) => Ok(Self::Offloaded),
            (Self::Fresh | Self::Bound | Self::Connecting { .. }, FellBack) => Ok(Self::Native),
            (Self::Connecting { bound: false }, Refused) => Ok(Self::Fresh),
            (Self::Connecting { bound: true }, Refused) => Ok(Self::Bound),
            _ => Err(Errno::INVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Event::{self, *};
    use super::SocketState::{self, *};
    use rustix::io::Errno;

    #[test]
    fn every_event_in_every_state() {
        let events = [Bind, Listen, Connect, Event::Offloaded, FellBack, Refused];
        let (free, bound) = (Connecting { bound: false }, Connecting { bound: true });
        let no: Result<SocketState, Errno> = Err(Errno::INVAL);
        let already = Err(Errno::ALREADY);
        let connected = Err(Errno::ISCONN);
        let rows: [(SocketState, [Result<SocketState, Errno>; 6]); 7] = [
            (
                Fresh,
                [Ok(Bound), Ok(Listening), Ok(free), no, Ok(Native), no],
            ),
            (Bound, [no, Ok(Listening), Ok(bound), no, Ok(Native), no]),
            (Listening, [no, Ok(Listening), connected, no, no, no]),
            (
                free,
                [
                    no,
                    no,
                    already,
                    Ok(SocketState::Offloaded),
                    Ok(Native),
                    Ok(Fresh),
                ],
            ),
            (
                bound,
                [
                    no,
                    no,
                    already,
                    Ok(SocketState::Offloaded),
                    Ok(Native),
                    Ok(Bound),
                ],
            ),
            (Native, [no, no, connected, no, no, no]),
            (SocketState::Offloaded, [no, no, connected, no, no, no]),
        ];
        for (state, expected) in rows {
            for (event, expected) in events.into_iter().zip(expected) {
                assert_eq!(state.on(event), expected, "{state:?} {event:?}");
            }
        }
    }
}
