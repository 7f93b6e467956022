//! The engine's commands.

use super::Connection;
use crate::{
    Advert, AdvertId, ConnectionState, Event, Failure, OnCancel, SendHalf,
    suspension::Suspension,
    wire::{BSDH_LEN, Mode},
};

/// A read of the peer's memory that the engine must carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The peer's R_Key or STag.
    pub stag: u32,
    /// The virtual address or tagged offset of the first byte.
    pub address: u64,
    /// The number of bytes.
    pub len: u32,
}

impl Connection {
    /// The user has written `len` more bytes. The engine keeps them in order until
    /// [`crate::Payload::Stream`] asks for them.
    ///
    /// Returns false if the bytes are refused: the sending half is shut, or the connection has
    /// ended.
    pub fn write(&mut self, len: u32) -> bool {
        let is_open = self.may_write();
        if is_open {
            self.queue.push_stream(len, false);
        }
        is_open
    }

    /// The user has written one more byte, and it is urgent. The byte must not wait behind memory
    /// that the peer may never read, so earlier advertisements are cancelled and their bytes are
    /// sent in Sends. Returns false as [`Self::write`] does.
    pub fn write_urgent(&mut self) -> bool {
        let is_open = self.may_write();
        if is_open {
            self.queue.send_adverts();
            self.source.on_cancel(None, OnCancel::Send);
            self.queue.push_stream(1, true);
        }
        is_open
    }

    /// The user has written registered memory. The peer may read it until [`Event::AdvertDone`]. In
    /// buffered mode, or when the memory is too short for an advertisement, its bytes are sent in
    /// Sends. Returns false if the bytes are refused.
    pub fn advertise(&mut self, advert: Advert) -> bool {
        if advert.len < 2 || self.send_mode == Mode::Buffered || self.due.go_buffered {
            return self.write_registered(advert);
        }
        let counts = self.may_write() && advert.len > 0;
        if counts {
            self.queue.push_advert(advert);
        }
        counts
    }

    /// The user has written registered memory whose bytes are sent in Sends, straight from that
    /// memory. The engine keeps it registered until [`Event::AdvertDone`]. The memory is not
    /// advertised to the peer. Returns false if the bytes are refused.
    pub fn write_registered(&mut self, advert: Advert) -> bool {
        let counts = self.may_write() && advert.len > 0;
        if counts {
            self.queue.push_rest_last(advert);
        }
        counts
    }

    /// The engine wants the memory of `id` back; [`Event::AdvertDone`] reports when it is free.
    pub fn cancel(&mut self, id: AdvertId, then: OnCancel) {
        if self.source.on_cancel(Some(id), then) {
            return;
        }
        if let Some(taken) = self.queue.cancel(id, then) {
            self.events.push_back(Event::AdvertDone { id, taken });
        }
    }

    /// The number of bytes of advertised memory that the peer has received so far, while the
    /// advertisement is outstanding.
    #[must_use]
    pub fn taken(&self, id: AdvertId) -> Option<u32> {
        self.source.taken(id)
    }

    /// The user writes no more: DisConn is sent after the bytes that were written.
    pub fn shut_send(&mut self) {
        self.send_half.on_shut();
        self.suspension.on_shut();
    }

    /// The user reads no more: bytes that are received from now on end the connection.
    pub fn shut_receive(&mut self) {
        self.receive_half.on_shut();
        self.sink.on_refuse();
        self.cancel_sinks();
    }

    /// The transport has completed the Send of DisConn.
    pub fn handle_fin_completed(&mut self) {
        self.send_half.on_fin_completed();
        self.check_halves();
    }

    /// A receive buffer was posted again.
    pub fn handle_posted(&mut self) {
        self.receive_credits.on_posted();
    }

    /// Receive buffers were added to those of the set-up, and posted. The next message announces
    /// them to the peer.
    pub fn handle_added(&mut self, count: u16) {
        self.receive_credits.on_added(count);
    }

    /// Requests a message even if there is nothing to send, because the peer waits for the first
    /// one.
    pub fn send_first(&mut self) {
        self.due.first_message = self.state.is_established();
    }

    /// Time has passed; see [`Self::wants_tick`].
    pub fn handle_tick(&mut self) {
        self.due.ticked = true;
    }

    /// Aborts the connection. The peer sees a reset.
    pub fn abort(&mut self) {
        if self.state.has_ended() {
            return;
        }
        // AbortConn is allowed only after DisConn. Before that, the end of the transport notifies
        // the peer.
        let is_abort_allowed = self.send_half.has_sent_fin() && !self.receive_half.has_ended();
        let gives = self.receive_credits.has_new_credits();
        let sends_abort = is_abort_allowed && self.send_credits.allow_control(gives);
        self.state.on_abort(sends_abort);
        if self.state.has_ended() {
            self.events.push_back(Event::Failed(Failure::Aborted));
            self.events.push_back(Event::Disconnect);
        }
    }

    /// The transport has ended.
    pub fn handle_disconnected(&mut self) {
        if self.state.has_ended() || self.continues_at().is_some() {
            return;
        }
        // A peer whose transport has ended does not wait for a DisConn that no bytes precede.
        let is_only_fin_missing = self.is_fin_due() && self.is_delivered();
        let has_sent_all = self.send_half.has_sent_fin() || is_only_fin_missing;
        let is_clean = has_sent_all && self.receive_half.has_ended();
        self.state.on_disconnected(is_clean);
        self.events.push_back(match self.state {
            ConnectionState::Failed(failure) => Event::Failed(failure),
            _ => Event::Closed,
        });
    }

    /// The number of bytes of the peer's memory that are next in the stream, after those received.
    #[must_use]
    pub fn readable(&self) -> u32 {
        if self.state.is_established() {
            self.sink.readable()
        } else {
            0
        }
    }

    /// Starts a read of at most `max` of the readable bytes. Reads complete in the order in which
    /// they start.
    pub fn begin_read(&mut self, max: u32) -> Option<Read> {
        let (stag, address, len) = self.sink.on_read(max.min(self.readable()))?;
        Some(Read { stag, address, len })
    }

    /// A read of `len` bytes has completed.
    pub fn finish_read(&mut self, len: u32) {
        self.sink.on_read_done(len);
        if !self.sink.delays_ack() {
            self.receive_credits.release();
        }
    }

    /// Asks the peer to send the rest of its memory in Sends.
    pub fn refuse_advert(&mut self) {
        self.sink.on_refuse();
    }

    /// The sending half stops using advertisements, until the peer asks for them again.
    pub fn go_buffered(&mut self) {
        if self.send_mode != Mode::Buffered {
            self.due.go_buffered = true;
            self.due.go_pipelined = false;
            self.queue.send_adverts();
        }
    }

    /// The receiving half accepts advertisements again.
    pub fn go_combined(&mut self) {
        self.due.go_combined = self.receive_mode == Mode::Buffered;
    }

    /// True if the user may write.
    #[must_use]
    pub const fn may_write(&self) -> bool {
        let has_ended = matches!(
            self.state,
            ConnectionState::Aborting | ConnectionState::Closed | ConnectionState::Failed(_)
        );
        self.send_half.is_open() && !has_ended && self.suspension.permits_writes()
    }

    /// The number of bytes of an advertisement that are sent with its message in combined mode.
    pub(super) fn inline_len(&self, advert: &Advert) -> u32 {
        let room = self.payload_max() + BSDH_LEN as u32 - 32;
        advert.inline.clamp(1, room.min(advert.len - 1))
    }

    /// True if DisConn is the next message to send.
    pub(super) fn is_fin_due(&self) -> bool {
        let may_end = self.suspension != Suspension::Requested;
        self.send_half == SendHalf::Draining && self.is_drained() && may_end
    }
}
