//! Closing in good order: what was posted first finishes, then our FIN, then the peer's.
//!
//! The consumer that disconnects gracefully waits for what only the peer can give: room in its
//! socket, answers to reads. It waits for that as long as there is progress, and no longer than
//! `close_timeout_ms` without any: a peer must not hold resources by silence (RFC 5042 section
//! 6.4).

use std::os::fd::AsFd;
use std::time::Duration;

use iwarp_proto::{StreamState, peer};

use crate::engine::io;

use super::{Conn, Due};

/// How far a graceful disconnect has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    /// Nobody wants to disconnect.
    No,
    /// Posted requests finish first.
    WhenIdle,
    /// Our FIN is out; the peer's is awaited.
    FinSent,
}

/// How soon the acknowledgement of the last data is looked for again; doubles up to 64 times that.
const FIN_PAUSE: Duration = Duration::from_millis(1);
const FIN_DOUBLINGS: u32 = 6;
/// Looks after which our FIN goes anyway: after a second. A peer that has acknowledged nothing by
/// then is gone, and each second more is one that its consumer waits for `DISCONNECTED`.
const FIN_LOOKS: u32 = 21;

/// How long a peer may take to answer our FIN.
const FIN_TIMEOUT: Duration = Duration::from_secs(5);

impl Conn {
    /// The peer had its time. Whether it has used it, so that it gets as much again.
    pub(crate) fn comes_further(&mut self) -> bool {
        let now = self.distance();
        std::mem::replace(&mut self.closing_at, now) != now
    }

    /// How long our FIN has to wait, if it has ([`peer::awaits_acknowledgement_before_fin`]).
    fn fin_pause(&mut self) -> Option<Duration> {
        let is_ours = self.proto.agreed_ulpdu().is_some();
        if !peer::awaits_acknowledgement_before_fin(is_ours)
            || self.fin_looks >= FIN_LOOKS
            || self.tcp.unacknowledged() == 0
        {
            return None;
        }
        let pause = FIN_PAUSE * (1 << self.fin_looks.min(FIN_DOUBLINGS));
        self.fin_looks += 1;
        Some(pause)
    }

    /// A graceful disconnect goes on when nothing is left to do. Returns how long it waits now, and
    /// for what. A peer has `patience` for coming any further, or for ever.
    pub(crate) fn close_when_idle(
        &mut self,
        patience: Option<Duration>,
    ) -> Option<(Duration, Due)> {
        if self.closing != Closing::WhenIdle {
            return None;
        }
        let idle = self.proto.is_idle() && !self.is_tx_pending() && self.outstanding.is_empty();
        // A responder that was never spoken to has nothing that could finish.
        let silent = self.proto.state() == StreamState::AwaitFirstFpdu;
        let waits = matches!(self.deadline, Some((_, Due::Finishing)));
        if !(idle || silent) || self.is_unheard() || waits {
            return self.wait_for_peer(patience);
        }
        if let Some(pause) = self.fin_pause() {
            return Some((pause, Due::Finishing));
        }
        self.closing = Closing::FinSent;
        io::finish(self.socket.as_fd());
        Some((FIN_TIMEOUT, Due::GivingUp))
    }

    /// Starts the peer's time, unless it runs or another timer does, whose end comes back here.
    fn wait_for_peer(&mut self, patience: Option<Duration>) -> Option<(Duration, Due)> {
        if self.deadline.is_some() {
            return None;
        }
        self.closing_at = self.distance();
        Some((patience?, Due::ComingFurther))
    }
}
