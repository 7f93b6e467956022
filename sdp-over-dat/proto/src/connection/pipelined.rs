//! Pipelined mode, and memory of a reader that the peer writes.

use std::collections::VecDeque;

use super::Connection;
use crate::{Event, ReceiveHalf, SinkAdvert, wire::BSDH_LEN, wire::Mode};

impl Connection {
    /// The sending half changes to pipelined mode, in which the peer may advertise memory for it.
    /// Has no effect with a peer that accepts a single advertisement, and in buffered mode.
    pub fn go_pipelined(&mut self) {
        self.due.go_pipelined = self.send_mode == Mode::Combined && self.has_pipelined();
    }

    /// The sending half changes from pipelined to combined mode as soon as no memory is advertised
    /// for it.
    pub fn leave_pipelined(&mut self) {
        self.due.leave_pipelined = self.send_mode == Mode::Pipelined;
    }

    /// Asks the source of the receiving half to change to pipelined mode. The next report of bytes
    /// that were read carries the request, and the peer may ignore it.
    pub fn ask_pipelined(&mut self) {
        self.due.ask_pipelined = self.receive_mode == Mode::Combined && self.has_pipelined();
    }

    /// True if both ends accept as many advertisements as pipelined mode needs.
    pub(super) const fn has_pipelined(&self) -> bool {
        self.config.adverts_max > 1 && self.peer_adverts_max > 1
    }

    /// A reader waits with registered memory, and the next bytes of the stream may be written
    /// there. The memory is in use until [`Event::SinkDone`]. The engine has handed all received
    /// bytes to readers before.
    ///
    /// Returns false if the memory cannot be advertised: the half is not in pipelined mode, the
    /// peer has advertised memory itself, a cancel is not complete, too much is advertised already,
    /// or the memory is shorter than [`Self::sink_min`].
    pub fn advertise_sink(&mut self, advert: SinkAdvert) -> bool {
        let is_short = advert.len < self.sink_min();
        let outstanding = self.source.len() + self.write_sink.len();
        let may = self.may_advertise_sinks()
            && self.write_sink.may_add()
            && outstanding < self.peer_adverts_max
            && !is_short;
        if may {
            self.write_sink.on_added(advert);
        }
        may
    }

    /// The length in bytes of the memory into which the next bytes of the stream are written, if a
    /// reader of the peer has advertised some.
    #[must_use]
    pub fn sink_room(&self) -> Option<u32> {
        self.write_source.room()
    }

    /// The shortest memory of a reader that may be advertised, in bytes: the payload of the longest
    /// message that may cross the advertisement.
    #[must_use]
    pub const fn sink_min(&self) -> u32 {
        self.config.buffer_size - BSDH_LEN as u32
    }

    /// The engine wants the memory of all readers back. [`Event::SinkDone`] reports when it is
    /// free. After the end of the connection there is no such event.
    pub fn cancel_sinks(&mut self) {
        if self.state.has_ended() {
            return;
        }
        let free = self.write_sink.on_cancel();
        self.release_sinks(free);
    }

    /// True while nothing forbids to send a SinkAvail.
    pub(super) fn may_advertise_sinks(&self) -> bool {
        self.state.is_established()
            && self.suspension.permits_sinks()
            && self.receive_mode == Mode::Pipelined
            && self.receive_half == ReceiveHalf::Open
            && self.sink.is_idle()
            && !self.receive_credits.holds_back()
    }

    /// Reports memory that the peer has not written.
    pub(super) fn release_sinks(&mut self, free: VecDeque<SinkAdvert>) {
        for advert in free {
            self.events.push_back(Event::SinkDone {
                id: advert.id,
                written: 0,
            });
        }
    }
}
