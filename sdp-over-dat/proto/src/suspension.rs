//! The suspension of a connection, which another process continues.
//!
//! An end requests it (SuspComm), and the message carries the service at which the other process
//! waits. The peer stops its data, takes its advertisements back and answers (SuspCommAck). Then
//! the end that made the request disconnects the transport, and the peer connects to the service.
//!
//! ```text
//!       wanted          SuspComm sent             SuspCommAck received
//! NONE ────────> WANTED ──────────────> REQUESTED ─────────────────────> STOPPED
//!      <────────
//!      the user writes no more
//!
//!               SuspComm received         SuspCommAck sent
//! NONE, WANTED ───────────────────> ASKED ─────────────────> STOPPED, to continue at the service
//! ```
//!
//! Each end may request a suspension. Requests that cross end the connection, because each end
//! would wait for the other one to connect.

/// The state of a suspension. The `on_*` methods are the only writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspension {
    /// No end has requested a suspension.
    None,
    /// This end is to send SuspComm, after everything that was written.
    Wanted { service: u64 },
    /// SuspComm was sent.
    Requested,
    /// SuspComm was received, and this end has not answered.
    Asked { service: u64 },
    /// SuspCommAck was sent or received. The connection continues at `service` of the peer, if this
    /// end has sent the answer.
    Stopped { service: Option<u64> },
}

impl Suspension {
    /// Called when this end requests a suspension. Returns false if there is one.
    pub(crate) const fn on_wanted(&mut self, service: u64) -> bool {
        let is_new = matches!(self, Self::None);
        if is_new {
            *self = Self::Wanted { service };
        }
        is_new
    }

    /// Called when the user writes no more. A request that was not sent is dropped, because no
    /// SuspComm may follow DisConn.
    pub(crate) const fn on_shut(&mut self) {
        if matches!(self, Self::Wanted { .. }) {
            *self = Self::None;
        }
    }

    /// Called when SuspComm is being sent.
    pub(crate) const fn on_requested(&mut self) {
        if matches!(self, Self::Wanted { .. }) {
            *self = Self::Requested;
        }
    }

    /// Called when SuspComm was received. Returns false if this end has sent or received one
    /// before. A request that this end has not sent is dropped.
    pub(crate) const fn on_asked(&mut self, service: u64) -> bool {
        let may_ask = matches!(self, Self::None | Self::Wanted { .. });
        if may_ask {
            *self = Self::Asked { service };
        }
        may_ask
    }

    /// Called when SuspCommAck was received. Returns false if it answers nothing.
    pub(crate) const fn on_answered(&mut self) -> bool {
        let is_answer = matches!(self, Self::Requested);
        if is_answer {
            *self = Self::Stopped { service: None };
        }
        is_answer
    }

    /// Called when SuspCommAck is being sent.
    pub(crate) const fn on_answer_sent(&mut self) {
        if let Self::Asked { service } = *self {
            *self = Self::Stopped {
                service: Some(service),
            };
        }
    }

    /// True while the user may write. The user of an end that requests a suspension has written
    /// its last byte; the user of its peer may write, and these bytes follow in the new connection.
    pub(crate) const fn permits_writes(self) -> bool {
        match self {
            Self::None | Self::Asked { .. } => true,
            Self::Wanted { .. } | Self::Requested => false,
            Self::Stopped { service } => service.is_some(),
        }
    }

    /// True while this end may send data.
    pub(crate) const fn permits_data(self) -> bool {
        matches!(self, Self::None | Self::Wanted { .. })
    }

    /// True while this end may advertise memory of its readers.
    pub(crate) const fn permits_sinks(self) -> bool {
        matches!(self, Self::None)
    }

    /// True while the peer may not send data.
    pub(crate) const fn forbids_peer_data(self) -> bool {
        matches!(self, Self::Asked { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::Suspension::{self, Asked, None, Requested, Stopped, Wanted};
    use crate::tests::transitions;

    const ASKED: Suspension = Asked { service: 7 };
    const WANTED: Suspension = Wanted { service: 5 };
    const HERE: Suspension = Stopped {
        service: Option::None,
    };
    const THERE: Suspension = Stopped { service: Some(7) };

    #[test]
    fn every_event_in_every_state() {
        let before = [None, WANTED, Requested, ASKED, HERE, THERE];
        transitions! { Suspension: before;
            "wanted": |it| _ = it.on_wanted(5) => [WANTED, WANTED, Requested, ASKED, HERE, THERE];
            "shut": |it| it.on_shut() => [None, None, Requested, ASKED, HERE, THERE];
            "requested": |it| it.on_requested() => [None, Requested, Requested, ASKED, HERE, THERE];
            "asked": |it| _ = it.on_asked(7) => [ASKED, ASKED, Requested, ASKED, HERE, THERE];
            "answered": |it| _ = it.on_answered() => [None, WANTED, HERE, ASKED, HERE, THERE];
            "answer sent": |it| it.on_answer_sent()
                => [None, WANTED, Requested, THERE, HERE, THERE];
        }
    }

    #[test]
    fn each_state_permits_the_right_operations() {
        for (state, writes, data, sinks, forbids) in [
            (None, true, true, true, false),
            (WANTED, false, true, false, false),
            (Requested, false, false, false, false),
            (ASKED, true, false, false, true),
            (HERE, false, false, false, false),
            (THERE, true, false, false, false),
        ] {
            assert_eq!(state.permits_writes(), writes, "{state:?}");
            assert_eq!(state.permits_data(), data, "{state:?}");
            assert_eq!(state.permits_sinks(), sinks, "{state:?}");
            assert_eq!(state.forbids_peer_data(), forbids, "{state:?}");
        }
    }
}
