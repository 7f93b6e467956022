//! The life of a connection: its first frame, operation, and a graceful disconnect, in which posted
//! requests finish first, then our FIN is sent, then the peer's FIN is awaited.
//!
//! ```text
//!  AWAITS_FRAME ── first frame ──> ESTABLISHED ── disconnect ──> CLOSING ── FIN sent ──> FIN_SENT
//!       '───────────────────── disconnect ─────────────────────────^
//! ```
//!
//! A graceful disconnect waits for actions of the peer: room in its socket, answers to reads. It
//! waits as long as there is progress, and at most for `close_timeout_ms` without progress, because
//! a peer must not hold resources by silence (RFC 5042 section 6.4).

use std::os::fd::AsFd;
use std::time::Duration;

use iwarp_proto::{StreamState, peer};

use crate::carrier::{Carrier, Distance, Payloads};
use crate::engine::io;
use crate::memory::{MemoryTable, Stream};

use super::Conn;

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    /// A responder waits for the first frame, which causes `Established`.
    AwaitsFrame,
    /// `Established` is queued.
    Established,
    /// A disconnect was requested. Posted requests finish first; then the acknowledgement of the
    /// last data was checked `fin_polls` times.
    Closing { fin_polls: u32 },
    /// The FIN was sent; the peer's FIN is awaited.
    FinSent,
}

/// The purpose of a connection's timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Abort a start-up or a disconnect that makes no progress.
    Abort,
    /// Repeat the first frame, which a silent peer may have missed, up to `left` times.
    Repeat { left: u32 },
    /// Send the FIN, once everything before it is acknowledged.
    Finish,
    /// End the wait of a message for its receive.
    Receive,
    /// Abort a graceful disconnect that has made no progress since the timer was set.
    CheckProgress { since: Distance },
}

/// The number of repetitions of the first frame. The time before each one is four times as long as
/// before the last.
const REPEATS: u32 = 3;
const REPEAT_AFTER: Duration = Duration::from_millis(20);

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

impl Lifecycle {
    /// Returns true while no disconnect was requested, so that requests may be posted.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::AwaitsFrame | Self::Established)
    }

    /// Called when `Established` is queued.
    pub(crate) fn on_established(&mut self) {
        if *self == Self::AwaitsFrame {
            *self = Self::Established;
        }
    }

    /// Called when the consumer disconnects.
    pub(crate) fn on_disconnect(&mut self) {
        if self.is_open() {
            *self = Self::Closing { fin_polls: 0 };
        }
    }

    /// Called when the FIN could be sent, if it waits while data is `unacknowledged`. Returns the
    /// time until the next call; `None`: the FIN must be sent now.
    fn on_fin(&mut self, unacknowledged: bool) -> Option<Duration> {
        let Self::Closing { fin_polls } = self else {
            return None;
        };
        if !unacknowledged || *fin_polls >= FIN_POLLS_MAX {
            *self = Self::FinSent;
            return None;
        }
        let pause = FIN_PAUSE * (1 << (*fin_polls).min(FIN_DOUBLINGS));
        *fin_polls += 1;
        Some(pause)
    }
}

impl Conn {
    /// Returns true if this end has sent its FIN. TCP accepts no bytes after the FIN.
    pub(crate) fn has_sent_fin(&self) -> bool {
        self.lifecycle == Lifecycle::FinSent
    }

    /// Starts to wait for the first message of the peer after start-up
    /// ([`peer::repeats_first_frame`]). Returns the time of the first check.
    pub(crate) fn await_first_message(&self) -> Option<(Duration, Due)> {
        let config = self.proto.config();
        let due = Due::Repeat { left: REPEATS };
        peer::repeats_first_frame(config.role, config.rtr).then_some((REPEAT_AFTER, due))
    }

    /// True while the first frame must be repeated once more before this end may close.
    fn must_repeat_first_frame(&self) -> bool {
        matches!(self.deadline, Some((_, Due::Repeat { left: REPEATS })))
            && self.proto.has_sent()
            && !self.proto.has_received()
    }

    /// Repeats the first frame, unless the peer has sent something. `left` repetitions remain.
    /// Returns the time of the next check.
    pub(crate) fn repeat_first_frame(&mut self, left: u32) -> Option<(Duration, Due)> {
        if self.proto.has_received() {
            return None;
        }
        if self.proto.has_sent() && !self.tcp.is_pending() {
            self.proto.repeat_first_frame();
        }
        let left = left.saturating_sub(1);
        let after = REPEAT_AFTER * 4_u32.pow(REPEATS - left);
        (left > 0).then_some((after, Due::Repeat { left }))
    }

    /// Returns an empty Write for a peer that may have missed the first frame and must not receive
    /// the FIN before; `None` if no such frame can be sent.
    pub(crate) fn late_frame(&mut self, stream: Stream, table: &MemoryTable) -> Option<Vec<u8>> {
        if !self.must_repeat_first_frame() {
            return None;
        }
        self.proto.repeat_first_frame();
        let fpdu = self.proto.poll_transmit()?;
        let payloads = Payloads {
            table,
            stream,
            outstanding: &self.outstanding,
        };
        self.tcp.lone_frame(&fpdu, &payloads)
    }

    /// Continues a graceful disconnect when no work is left. Returns the time of the next wait, and
    /// its purpose. The peer has `patience` to make progress; `None`: no limit.
    pub(crate) fn close_when_idle(
        &mut self,
        patience: Option<Duration>,
    ) -> Option<(Duration, Due)> {
        if !matches!(self.lifecycle, Lifecycle::Closing { .. }) {
            return None;
        }
        let idle = self.proto.is_idle() && !self.is_tx_pending() && self.outstanding.is_empty();
        // A responder that has received nothing has no work that could finish.
        let silent = self.proto.state() == StreamState::AwaitFirstFpdu;
        let waits = matches!(self.deadline, Some((_, Due::Finish)));
        if !(idle || silent) || self.must_repeat_first_frame() || waits {
            return self.wait_for_peer(patience);
        }
        let is_ours = self.proto.agreed_ulpdu().is_some();
        let waits = peer::awaits_acknowledgement_before_fin(is_ours);
        if let Some(pause) = self
            .lifecycle
            .on_fin(waits && self.tcp.unacknowledged() > 0)
        {
            return Some((pause, Due::Finish));
        }
        io::finish(self.socket.as_fd());
        Some((FIN_TIMEOUT, Due::Abort))
    }

    /// Starts the timer within which the peer must make progress, unless a timer is running
    /// already. When a timer expires, this function is called again.
    fn wait_for_peer(&self, patience: Option<Duration>) -> Option<(Duration, Due)> {
        if self.deadline.is_some() {
            return None;
        }
        let since = self.distance();
        Some((patience?, Due::CheckProgress { since }))
    }
}

#[cfg(test)]
mod tests {
    use super::Lifecycle::*;
    use super::*;

    #[test]
    fn every_event_in_every_phase() {
        let [begun, checked, last] = [0, 1, FIN_POLLS_MAX].map(|fin_polls| Closing { fin_polls });
        let events: [fn(&mut Lifecycle); 4] = [
            Lifecycle::on_established,
            Lifecycle::on_disconnect,
            |phase| _ = phase.on_fin(false),
            |phase| _ = phase.on_fin(true),
        ];
        let table = [
            (AwaitsFrame, [Established, begun, AwaitsFrame, AwaitsFrame]),
            (Established, [Established, begun, Established, Established]),
            (begun, [begun, begun, FinSent, checked]),
            (last, [last, last, FinSent, FinSent]),
            (FinSent, [FinSent; 4]),
        ];
        for (before, results) in table {
            for (event, after) in events.iter().zip(results) {
                let mut phase = before;
                event(&mut phase);
                assert_eq!(phase, after, "{before:?}");
            }
        }
    }
}
