//! The carriers of a connection: TCP and, once the connection moves ([`super::moving`]), the local
//! carrier. Each direction uses one at a time, and moves when the protocol says so.

use rnic::{Amount, Flow as Way, QpToken, Traffic, WcStatus, WhyTcp};

use super::Conn;
use super::moving::{Move, Owner};
use crate::carrier::local::bell::Drained;
use crate::carrier::local::link::LocalCarrier;
use crate::carrier::{Carrier, Distance, End, Flow, Payloads, Reception, TxFault};
use crate::memory::{MemoryTable, Stream};
use crate::work::Report;

/// Passes over what a peer has sent before the end of the transport: more than a full ring and a
/// full socket need.
pub(crate) const LAST_PASSES: usize = 128;

/// A carrier to receive from.
#[derive(Debug, Clone, Copy)]
enum From {
    Tcp,
    Local,
}

impl Conn {
    /// The local carrier, if it is ready.
    pub(crate) fn local(&mut self) -> Option<&mut LocalCarrier> {
        match &mut self.moving {
            Move::Local { carrier, .. } => Some(carrier),
            _ => None,
        }
    }

    /// The payload bytes of this connection, by carrier.
    pub(crate) fn traffic(&self, why_tcp: impl FnOnce() -> WhyTcp) -> Traffic {
        let mut traffic = Traffic::default();
        let mut bytes = self.inbox.placed();
        if let Move::Local { carrier: local, .. } = &self.moving {
            (traffic.ring, traffic.reference, traffic.direct) = local.traffic();
            let local = traffic.ring.received.bytes + traffic.reference.received.bytes;
            bytes = bytes.saturating_sub(local);
            traffic.moved_sending = u64::from(self.proto.has_tx_moved());
            traffic.moved_receiving = u64::from(self.proto.has_rx_moved());
        } else {
            traffic.add_on_tcp(why_tcp());
        }
        let received = Amount {
            segments: self.tcp.received(),
            bytes,
        };
        traffic.tcp = Way {
            sent: self.tcp.sent(),
            received,
        };
        traffic
    }

    /// Updates the view for polling threads, because the holder of the connection has finished for
    /// now.
    #[inline]
    pub(crate) fn update_watch(&self) {
        if let Move::Local { carrier: local, .. } = &self.moving {
            local.update_watch(self.burst.is_pending() || !self.fenced.is_empty());
        }
    }

    /// The carrier that transmits.
    pub(crate) fn tx(&mut self) -> &mut dyn Carrier {
        match &mut self.moving {
            Move::Local { carrier: local, .. } if self.proto.has_tx_moved() => &mut **local,
            _ => &mut self.tcp,
        }
    }

    /// True while segments wait for the transport.
    pub(crate) fn is_tx_pending(&self) -> bool {
        match &self.moving {
            Move::Local { carrier: local, .. } if self.proto.has_tx_moved() => local.is_pending(),
            _ => self.tcp.is_pending(),
        }
    }

    /// Returns true if the local carrier waits for room or for the peer to pull.
    pub(crate) fn waits_for_peer(&self) -> bool {
        matches!(self.moving, Move::Local { .. }) && self.is_tx_pending()
    }

    /// Handles a ring of the peer, or the closure of the peer's end of the bell. A closed end stays
    /// readable, so the bell is then removed from the set. The socket also reports the end of the
    /// peer.
    pub(super) fn answer_bell(&mut self) {
        if let Move::Local { carrier: local, .. } = &mut self.moving
            && local.answer_bell() == Drained::Gone
        {
            self.socket.unwatch(local.descriptor());
        }
    }

    /// The progress of both carriers.
    pub(crate) fn distance(&self) -> Distance {
        let tcp = self.tcp.distance();
        match &self.moving {
            Move::Local { carrier: local, .. } => {
                let local = local.distance();
                Distance {
                    sent: tcp.sent + local.sent,
                    received: tcp.received + local.received,
                }
            }
            _ => tcp,
        }
    }

    /// Transmits by the carrier of the current stage of the move.
    pub(super) fn transmit_by_carrier(
        &mut self,
        stream: Stream,
        table: &MemoryTable,
    ) -> Result<Flow, TxFault> {
        let payloads = Payloads {
            table,
            stream,
            outstanding: &self.outstanding,
        };
        let mut flow = Flow::Drained;
        if !self.proto.has_tx_moved() {
            flow = self.tcp.transmit(&mut self.proto, &payloads)?;
            if !self.proto.is_tx_moving() || self.tcp.is_pending() {
                return Ok(flow);
            }
        }
        if let Move::Local { carrier: local, .. } = &mut self.moving {
            if self.proto.is_tx_moving() {
                // TCP has accepted the last byte.
                self.proto.set_segment_max(local.segment_max());
                self.proto.on_tx_moved();
                if self.proto.has_rx_moved() {
                    self.socket.watch_by(local.watch());
                }
            }
            local.transmit(&mut self.proto, &payloads)?;
        }
        Ok(flow)
    }

    /// Receives pending data by the carriers that the peer uses, and records the requests that the
    /// local carrier has finished. Returns `false` if there was neither.
    pub(crate) fn receive(&mut self, qp: &dyn Owner) -> Result<bool, End> {
        let (reaped, is_ready) = match &mut self.moving {
            Move::Local { carrier, is_ready } => {
                (carrier.reap(&mut self.proto), std::mem::take(is_ready))
            }
            _ => (Ok(false), false),
        };
        let mut any = reaped.map_err(|fault| self.end_of_tx(fault))?;
        let mut end = None;
        if !self.proto.has_rx_moved() || is_ready {
            match self.receive_from(qp, From::Tcp) {
                Ok(received) => any |= received,
                Err(ended) => end = Some(ended),
            }
        }
        if self.proto.has_rx_moved() || end.is_some() {
            // The records in the ring were sent before the socket ended.
            let passes = if end.is_some() { LAST_PASSES } else { 1 };
            for _ in 0..passes {
                if !self.receive_from(qp, From::Local)? {
                    break;
                }
                any = true;
            }
        }
        end.map_or(Ok(any), Err)
    }

    fn receive_from(&mut self, qp: &dyn Owner, from: From) -> Result<bool, End> {
        let mut reception = Reception {
            table: qp.table(),
            stream: qp.stream(),
            source: qp,
            proto: &mut self.proto,
            outstanding: &mut self.outstanding,
            completions: &mut self.recv_done,
            inbox: &mut self.inbox,
        };
        let received = match (from, &mut self.moving) {
            (From::Tcp, _) => self.tcp.receive(&mut reception),
            (From::Local, Move::Local { carrier: local, .. }) => local.receive(&mut reception),
            (From::Local, _) => Ok(false),
        };
        for stag in self.inbox.take_invalidated() {
            qp.table().end_invalidated(stag);
        }
        received
    }

    /// Moves the submitted requests that a transport has accepted to the list of completions, the
    /// oldest first. Returns their number.
    pub(super) fn reap_submitted(&mut self, qp: QpToken) -> u32 {
        let mut count = 0;
        let mut reap = |finished: &mut Vec<Report>| {
            count += finished.len() as u32;
            // All three lists keep their capacity, so that no post allocates.
            let done = finished.drain(..);
            let done = done.filter_map(|report| report.completion(qp, WcStatus::Success));
            self.send_done.extend(done);
        };
        reap(self.tcp.finished());
        if let Move::Local { carrier: local, .. } = &mut self.moving {
            reap(local.finished());
        }
        count
    }

    /// Removes the reports of submitted segments that no transport has accepted.
    pub(crate) fn take_unfinished(&mut self) -> Vec<Report> {
        let mut reports = self.tcp.take_unfinished();
        if let Move::Local { carrier: local, .. } = &mut self.moving {
            reports.append(&mut local.take_unfinished());
        }
        reports
    }
}
