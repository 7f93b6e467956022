//! Doorbells: when this end rings, and when it lets the peer ring.

use std::time::Instant;

use super::{LocalCarrier, corrupt_rx};
use crate::carrier::local::bell::{self, Drained};
use crate::carrier::{Carrier as _, End};

impl LocalCarrier {
    /// Receives the bytes by which the peer has rung.
    pub(crate) fn answer_bell(&mut self) -> Drained {
        bell::drain(&self.conn)
    }

    /// Called when every poll drives the connection from now on, so that the peer need not ring.
    pub(crate) fn start_polling(&mut self) {
        self.is_polled = true;
        self.consumer.wake();
        self.producer.end_wait();
    }

    /// Makes the peer ring from now on, for segments to receive and, while segments wait for the
    /// transport, for room. Returns `true` if there is work already. While the front segment
    /// `is_unready`, segments are no work: it waits for a receive.
    pub(crate) fn arm(&mut self, is_unready: bool) -> Result<bool, End> {
        self.is_polled = false;
        if !is_unready && self.consumer.announce_sleep() {
            return Ok(true);
        }
        if self.consumer.must_notify() {
            bell::ring(&self.conn);
        }
        self.producer.return_pages();
        if !self.is_pending() {
            return Ok(false);
        }
        // Several threads may arm a connection before one of them drives it. The producer reports
        // room once, so every further wait must end as well: the peer does not ring for a release
        // that it made before the wait.
        if !self.must_transmit {
            self.must_transmit = self.producer.announce_wait().map_err(corrupt_rx)?;
        }
        if !self.must_transmit && self.must_supply() {
            self.producer.end_wait();
            self.must_transmit = true;
        }
        Ok(self.must_transmit)
    }

    pub(super) fn publish(&mut self) {
        self.producer.publish();
        self.awaits_answer = true;
        if std::mem::take(&mut self.is_answering) {
            self.producer.expedite();
        }
        if self.producer.must_ring() {
            self.settled = self.producer.tail();
            bell::ring(&self.conn);
        }
    }

    /// Rings, once for the records so far, if a record waits and the peer, which has not requested
    /// doorbells, has stopped polling. Called at intervals by a thread that polls.
    ///
    /// Looks at the words of the peer only if nothing was sent since the last call, because each
    /// look moves their line from the peer's processor to this one and back.
    pub(crate) fn rouse_peer(&mut self) {
        let tail = self.producer.tail();
        if self.settled == tail || std::mem::replace(&mut self.checked, tail) != tail {
            return;
        }
        let is_taken = self.attention.has_taken(tail);
        // A peer that reads a payload does not poll meanwhile.
        if !is_taken
            && (self.producer.is_pulled() || !self.attention.is_unattended_at(Instant::now()))
        {
            return;
        }
        self.settled = tail;
        if !is_taken {
            bell::ring(&self.conn);
        }
    }
}
