//! What the engine asks for.

use super::Connection;
use crate::{
    Advert, AdvertId, ConnectionState, Event, Failure, OnCancel, SendHalf,
    exchange::source::Exchange,
    wire::{BSDH_LEN, Mode},
};

/// A read of the peer's memory that the engine is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The peer's R_Key or STag.
    pub stag: u32,
    /// The virtual address or tagged offset where it starts.
    pub address: u64,
    /// How many bytes.
    pub len: u32,
}

impl Connection {
    /// `len` more bytes were written, which the engine keeps in order until
    /// [`crate::Payload::Stream`] asks for them.
    ///
    /// Says whether they count: an end that has shut its sending half writes no more, nor does one
    /// whose connection has ended.
    pub fn write(&mut self, len: u32) -> bool {
        let is_open = self.may_write();
        if is_open {
            self.queue.push_stream(len, false);
        }
        is_open
    }

    /// One more byte was written, and it is urgent. It must not wait behind memory that the peer
    /// may never read, so advertisements before it are taken back and leave in Sends.
    pub fn write_urgent(&mut self) -> bool {
        let is_open = self.may_write();
        if is_open {
            self.queue.send_adverts();
            self.source.on_cancel(OnCancel::Send);
            self.queue.push_stream(1, true);
        }
        is_open
    }

    /// Memory was written: the peer may read it, until [`Event::AdvertDone`]. In buffered mode,
    /// and when it is too short for an advertisement, its bytes leave in Sends.
    pub fn advertise(&mut self, advert: Advert) -> bool {
        if advert.len < 2 || self.send_mode == Mode::Buffered || self.due.go_buffered {
            return self.lend(advert);
        }
        let counts = self.may_write() && advert.len > 0;
        if counts {
            self.queue.push_advert(advert);
        }
        counts
    }

    /// Memory was written whose bytes leave in Sends, from where they are; the engine keeps it
    /// until [`Event::AdvertDone`]. The peer hears nothing of the memory.
    pub fn lend(&mut self, advert: Advert) -> bool {
        let counts = self.may_write() && advert.len > 0;
        if counts {
            self.queue.push_rest_behind(advert);
        }
        counts
    }

    /// The engine wants the memory of `id` back; [`Event::AdvertDone`] says when it has it.
    pub fn cancel(&mut self, id: AdvertId, then: OnCancel) {
        let is_outstanding = match &self.source {
            Exchange::Idle => false,
            Exchange::Offered(offer)
            | Exchange::CancelDue(offer, _)
            | Exchange::Cancelling(offer, _) => offer.advert.id == id,
        };
        if is_outstanding {
            self.source.on_cancel(then);
        } else if let Some(taken) = self.queue.cancel(id, then) {
            self.events.push_back(Event::AdvertDone { id, taken });
        }
    }

    /// The user writes no more: DisConn follows what was written.
    pub fn shut_send(&mut self) {
        self.send_half.on_shut();
    }

    /// The user reads no more: bytes that still come end the connection.
    pub fn shut_receive(&mut self) {
        self.receive_half.on_shut();
        self.sink.on_refuse();
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

    /// Receive buffers were added to those of the set-up, and posted. The peer learns of them with
    /// the next message.
    pub fn handle_added(&mut self, count: u16) {
        self.receive_credits.on_added(count);
    }

    /// A message is to leave even if there is nothing to say: the peer waits for the first one.
    pub fn send_first(&mut self) {
        self.due.first_message = self.state.is_established();
    }

    /// Time has passed; see [`Self::wants_tick`].
    pub fn handle_tick(&mut self) {
        self.due.ticked = true;
    }

    /// Gives up. The peer sees a reset.
    pub fn abort(&mut self) {
        if self.state.has_ended() {
            return;
        }
        // AbortConn is for an end that has said DisConn; before that the transport's end says it.
        let may_say_so = self.send_half.has_said_fin() && !self.receive_half.has_ended();
        let gives = self.receive_credits.has_news();
        let says_so = may_say_so && self.send_credits.allow_control(gives);
        self.state.on_abort(says_so);
        if self.state.has_ended() {
            self.events.push_back(Event::Failed(Failure::Aborted));
            self.events.push_back(Event::Disconnect);
        }
    }

    /// The transport is gone.
    pub fn handle_disconnected(&mut self) {
        if self.state.has_ended() {
            return;
        }
        // A peer whose transport is gone does not wait for a DisConn without bytes before it.
        let owes_fin_alone = self.owes_fin() && self.is_delivered();
        let has_sent_all = self.send_half.has_said_fin() || owes_fin_alone;
        let is_clean = has_sent_all && self.receive_half.has_ended();
        self.state.on_disconnected(is_clean);
        self.events.push_back(match self.state {
            ConnectionState::Failed(failure) => Event::Failed(failure),
            _ => Event::Closed,
        });
    }

    /// Bytes of the peer's memory that come next in the stream, behind what was received.
    #[must_use]
    pub const fn readable(&self) -> u32 {
        if self.state.is_established() {
            self.sink.readable()
        } else {
            0
        }
    }

    /// Starts a read of at most `max` of them. Reads complete in the order in which they start.
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

    /// The rest of the peer's memory shall come in Sends.
    pub fn refuse_advert(&mut self) {
        self.sink.on_refuse();
    }

    /// The sending half uses no advertisements from now on, until the peer asks for them again.
    pub fn go_buffered(&mut self) {
        if self.send_mode == Mode::Combined {
            self.due.go_buffered = true;
            self.queue.send_adverts();
        }
    }

    /// The receiving half takes advertisements again.
    pub fn go_combined(&mut self) {
        self.due.go_combined = self.receive_mode == Mode::Buffered;
    }

    /// Whether the user may write.
    #[must_use]
    pub const fn may_write(&self) -> bool {
        let has_ended = matches!(
            self.state,
            ConnectionState::Aborting | ConnectionState::Closed | ConnectionState::Failed(_)
        );
        self.send_half.is_open() && !has_ended
    }

    /// Bytes of an advertisement that go with its message.
    pub(super) fn inline_len(&self, advert: &Advert) -> u32 {
        let room = self.payload_max() + BSDH_LEN as u32 - 32;
        advert.inline.clamp(1, room.min(advert.len - 1))
    }

    /// Whether DisConn is what comes next.
    pub(super) fn owes_fin(&self) -> bool {
        self.send_half == SendHalf::Draining && self.is_drained()
    }
}
