//! Graceful closing: posted requests finish first, then our FIN is sent, then the peer's FIN is
//! awaited.
//!
//! A graceful disconnect waits for actions of the peer: room in its socket, answers to reads. It
//! waits as long as there is progress, and at most for `close_timeout_ms` without progress, because
//! a peer must not hold resources by silence (RFC 5042 section 6.4).

use std::os::fd::AsFd;
use std::time::Duration;

use iwarp_proto::{StreamState, peer};

use crate::engine::io;

use super::{Conn, Due};

/// The progress of a graceful disconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    /// No disconnect was requested.
    No,
    /// Posted requests finish first.
    WhenIdle,
    /// The FIN was sent; the peer's FIN is awaited.
    FinSent,
}

/// The first pause between two polls for the acknowledgement of the last data. The pause doubles
/// with each poll, up to 64 ms.
const FIN_PAUSE: Duration = Duration::from_millis(1);
const FIN_DOUBLINGS: u32 = 6;
/// The number of polls after which the FIN is sent in any case: after a second. A peer that has
/// acknowledged nothing by then is gone, and each further second delays `DISCONNECTED` for the
/// consumer.
const FIN_POLLS_MAX: u32 = 21;

/// The time that a peer has to answer the FIN.
const FIN_TIMEOUT: Duration = Duration::from_secs(5);

impl Conn {
    /// Returns true if this end has sent its FIN. TCP accepts no bytes after the FIN.
    pub(crate) fn has_sent_fin(&self) -> bool {
        self.closing == Closing::FinSent
    }

    /// Returns true if there was progress since the last check, so that the peer gets the same time
    /// again.
    pub(crate) fn has_progressed(&mut self) -> bool {
        let now = self.distance();
        std::mem::replace(&mut self.closing_at, now) != now
    }

    /// The time for which the FIN must wait, if [`peer::awaits_acknowledgement_before_fin`]
    /// requires that.
    fn fin_pause(&mut self) -> Option<Duration> {
        let is_ours = self.proto.agreed_ulpdu().is_some();
        if !peer::awaits_acknowledgement_before_fin(is_ours)
            || self.fin_polls >= FIN_POLLS_MAX
            || self.tcp.unacknowledged() == 0
        {
            return None;
        }
        let pause = FIN_PAUSE * (1 << self.fin_polls.min(FIN_DOUBLINGS));
        self.fin_polls += 1;
        Some(pause)
    }

    /// Continues a graceful disconnect when no work is left. Returns the time of the next wait, and
    /// its purpose. The peer has `patience` to make progress; `None`: no limit.
    pub(crate) fn close_when_idle(
        &mut self,
        patience: Option<Duration>,
    ) -> Option<(Duration, Due)> {
        if self.closing != Closing::WhenIdle {
            return None;
        }
        let idle = self.proto.is_idle() && !self.is_tx_pending() && self.outstanding.is_empty();
        // A responder that has received nothing has no work that could finish.
        let silent = self.proto.state() == StreamState::AwaitFirstFpdu;
        let waits = matches!(self.deadline, Some((_, Due::Finish)));
        if !(idle || silent) || self.must_repeat_first_frame() || waits {
            return self.wait_for_peer(patience);
        }
        if let Some(pause) = self.fin_pause() {
            return Some((pause, Due::Finish));
        }
        self.closing = Closing::FinSent;
        io::finish(self.socket.as_fd());
        Some((FIN_TIMEOUT, Due::Abort))
    }

    /// Starts the peer's time, unless that time or another timer is running. The end of a timer
    /// calls this function again.
    fn wait_for_peer(&mut self, patience: Option<Duration>) -> Option<(Duration, Due)> {
        if self.deadline.is_some() {
            return None;
        }
        self.closing_at = self.distance();
        Some((patience?, Due::CheckProgress))
    }
}
