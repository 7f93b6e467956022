//! The state of a connection.

use crate::Failure;

/// The state of a connection. Its halves have their own states ([`crate::SendHalf`],
/// [`crate::ReceiveHalf`]), which matter while the connection is established.
///
/// The `on_*` methods are the only writers. A final state does not change any more: the first cause
/// is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// Active side: Hello was sent, HelloAck is due.
    HelloSent,
    /// Passive side: HelloAck was sent. The transport reports when the peer has received it; the
    /// peer's first message may be received before that report.
    HelloAckSent,
    /// Data may flow.
    Established,
    /// Traffic has stopped after SuspCommAck. The end that has sent SuspComm disconnects, and its
    /// peer connects again.
    Suspended,
    /// Both halves have ended; the transport is being disconnected.
    Disconnecting,
    /// This end aborts and may still send AbortConn.
    Aborting,
    /// The transport ended after the peer had ended its stream, and all that this end had to send
    /// was sent.
    Closed,
    /// The connection failed.
    Failed(Failure),
}

impl ConnectionState {
    /// True while messages may be sent and received.
    #[must_use]
    pub const fn is_established(self) -> bool {
        matches!(self, Self::Established)
    }

    /// True in a final state.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Closed | Self::Failed(_))
    }

    /// Called when a valid HelloAck was received.
    pub(crate) const fn on_hello_ack(&mut self) {
        if matches!(self, Self::HelloSent) {
            *self = Self::Established;
        }
    }

    /// Called when the peer is ready: the transport reported it, or a message of the peer was
    /// received.
    pub(crate) const fn on_ready(&mut self) {
        if matches!(self, Self::HelloAckSent) {
            *self = Self::Established;
        }
    }

    /// Called when both halves have ended.
    pub(crate) const fn on_halves_ended(&mut self) {
        if matches!(self, Self::Established) {
            *self = Self::Disconnecting;
        }
    }

    /// Called when SuspCommAck was sent or received.
    pub(crate) const fn on_suspended(&mut self) {
        if matches!(self, Self::Established) {
            *self = Self::Suspended;
        }
    }

    /// Called when the connection continues with another Hello.
    pub(crate) const fn on_resumed(&mut self) {
        if matches!(self, Self::Suspended) {
            *self = Self::HelloSent;
        }
    }

    /// Called when this end aborts; `sends_abort` is true if AbortConn is to be sent.
    pub(crate) const fn on_abort(&mut self, sends_abort: bool) {
        match self {
            Self::Established if sends_abort => *self = Self::Aborting,
            Self::Closed | Self::Failed(_) => (),
            _ => *self = Self::Failed(Failure::Aborted),
        }
    }

    /// Called when a fault was found.
    pub(crate) const fn on_failure(&mut self, failure: Failure) {
        if !self.has_ended() {
            *self = Self::Failed(failure);
        }
    }

    /// Called when the transport has ended. `is_clean` is true if the peer has sent DisConn, and
    /// this end has sent DisConn too or had nothing else to send.
    pub(crate) const fn on_disconnected(&mut self, is_clean: bool) {
        match self {
            Self::HelloSent => *self = Self::Failed(Failure::Refused),
            Self::Suspended | Self::Disconnecting => *self = Self::Closed,
            Self::Established if is_clean => *self = Self::Closed,
            Self::HelloAckSent | Self::Established => *self = Self::Failed(Failure::Reset),
            Self::Aborting => *self = Self::Failed(Failure::Aborted),
            Self::Closed | Self::Failed(_) => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ConnectionState::{self, *};
    use crate::Failure::{self, Aborted, PeerAborted, Refused, Reset};
    use crate::tests::transitions;

    const fn failed(failure: Failure) -> ConnectionState {
        Failed(failure)
    }

    const ALL: [ConnectionState; 8] = [
        HelloSent,
        HelloAckSent,
        Established,
        Suspended,
        Disconnecting,
        Aborting,
        Closed,
        failed(PeerAborted),
    ];

    /// Rows are events, columns are states in the order of `ALL`.
    #[test]
    fn every_event_in_every_state() {
        transitions! { ConnectionState: ALL;
            "hello ack": |s| s.on_hello_ack()
                => [Established, HelloAckSent, Established, Suspended, Disconnecting, Aborting,
                    Closed, ALL[7]];
            "ready": |s| s.on_ready()
                => [HelloSent, Established, Established, Suspended, Disconnecting, Aborting,
                    Closed, ALL[7]];
            "halves ended": |s| s.on_halves_ended()
                => [HelloSent, HelloAckSent, Disconnecting, Suspended, Disconnecting, Aborting,
                    Closed, ALL[7]];
            "suspended": |s| s.on_suspended()
                => [HelloSent, HelloAckSent, Suspended, Suspended, Disconnecting, Aborting,
                    Closed, ALL[7]];
            "resumed": |s| s.on_resumed()
                => [HelloSent, HelloAckSent, Established, HelloSent, Disconnecting, Aborting,
                    Closed, ALL[7]];
            "abort": |s| s.on_abort(false)
                => [failed(Aborted), failed(Aborted), failed(Aborted), failed(Aborted),
                    failed(Aborted), failed(Aborted), Closed, ALL[7]];
            "abort with AbortConn": |s| s.on_abort(true)
                => [failed(Aborted), failed(Aborted), Aborting, failed(Aborted), failed(Aborted),
                    failed(Aborted), Closed, ALL[7]];
            "failure": |s| s.on_failure(Reset)
                => [failed(Reset), failed(Reset), failed(Reset), failed(Reset), failed(Reset),
                    failed(Reset), Closed, ALL[7]];
            "disconnected": |s| s.on_disconnected(false)
                => [failed(Refused), failed(Reset), failed(Reset), Closed, Closed,
                    failed(Aborted), Closed, ALL[7]];
            "disconnected after both DisConn": |s| s.on_disconnected(true)
                => [failed(Refused), failed(Reset), Closed, Closed, Closed, failed(Aborted),
                    Closed, ALL[7]];
        }
    }

    #[test]
    fn each_state_permits_the_right_operations() {
        let established = ALL.map(ConnectionState::is_established);
        assert_eq!(
            established,
            [false, false, true, false, false, false, false, false]
        );
        let ended = ALL.map(ConnectionState::has_ended);
        assert_eq!(
            ended,
            [false, false, false, false, false, false, true, true]
        );
    }
}
