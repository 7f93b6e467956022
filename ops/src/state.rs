//! The state machine of a socket.

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
/// No transition leads from `Offloaded` to `Native`: once a connection is established, its failures
/// are reported to the program. `Native` is final as well, because the switch no longer handles the
/// socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketState {
    /// The socket spans every stack.
    Fresh,
    /// The socket is bound to the same address on every stack.
    Bound,
    /// The socket listens on every stack.
    Listening,
    /// An offload protocol tries to connect; `bound` selects the state after a refusal.
    Connecting {
        /// True if the socket was bound before.
        bound: bool,
    },
    /// The kernel's TCP carries the socket.
    Native,
    /// An offload protocol carries the socket.
    Offloaded,
}

/// An event in the life of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The program binds the socket.
    Bind,
    /// The program listens on the socket.
    Listen,
    /// The program connects the socket.
    Connect,
    /// An offload protocol has connected the socket.
    Offloaded,
    /// The connection falls back to TCP.
    FellBack,
    /// No protocol connected, and TCP is not permitted.
    Refused,
}

impl SocketState {
    /// Returns the state after an event.
    ///
    /// # Errors
    /// The error of the program's call on a TCP socket in the same state. For an event that no
    /// program causes, the error is `EINVAL` and indicates a fault of the switch.
    pub fn on(self, event: Event) -> Result<Self, Errno> {
        use Event::{Bind, Connect, FellBack, Listen, Offloaded, Refused};
        match (self, event) {
            (Self::Fresh, Bind) => Ok(Self::Bound),
            // The kernel chooses the address of a socket that listens without being bound.
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
