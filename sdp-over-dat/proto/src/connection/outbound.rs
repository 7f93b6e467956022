//! The next message to send.

use super::{Connection, send_queue::Item};
use crate::{
    Advert, ConnectionState, Event, Failure, Payload, PeerMemory, Seq, Transmit,
    credit::CreditUpdate,
    wire::{
        BSDH_LEN, Body, Flags, HEADER_MAX, Message, Mode, ModeChange, SinkAvail, SrcAvail,
        TargetHalf,
    },
};

impl Connection {
    /// Returns the next message, if there is one that the credits allow. The engine must send the
    /// message, because its sequence number is used up.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        match self.state {
            ConnectionState::Established => (),
            ConnectionState::Aborting => return Some(self.transmit_abort()),
            ConnectionState::HelloSent
            | ConnectionState::HelloAckSent
            | ConnectionState::Suspended
            | ConnectionState::Disconnecting
            | ConnectionState::Closed
            | ConnectionState::Failed(_) => return None,
        }
        self.transmit_control()
            .or_else(|| self.transmit_suspension())
            .or_else(|| self.transmit_sink_avail())
            .or_else(|| self.transmit_stream())
            .or_else(|| self.transmit_update())
    }

    /// AbortConn, the last message of this end.
    fn transmit_abort(&mut self) -> Transmit {
        let transmit = self.make(Body::AbortConn, Payload::Nothing);
        self.state.on_abort(false);
        self.events.push_back(Event::Failed(Failure::Aborted));
        self.events.push_back(Event::Disconnect);
        transmit
    }

    /// A control message that is due.
    fn transmit_control(&mut self) -> Option<Transmit> {
        if !self.allows_control() {
            return None;
        }
        let body = self.take_control()?;
        let (transmit, seq) = self.number(body, Payload::Nothing, None, false);
        match body {
            Body::SendSm => self.refused_at = Some(seq),
            Body::SrcAvailCancel => self.source.on_cancel_sent(seq),
            Body::ChRcvBufAck(size) => self.on_answer_sent(size, seq),
            Body::ModeChange(change) if change == to_receiver(Mode::Combined) => {
                self.write_source.on_left(seq);
            }
            _ => (),
        }
        Some(transmit)
    }

    /// True if the credits allow a message without payload.
    pub(super) fn allows_control(&self) -> bool {
        let gives = self.receive_credits.has_new_credits();
        self.send_credits.allow_control(gives)
    }

    fn take_control(&mut self) -> Option<Body> {
        // The answer to a cancel is first: DisConn retires the advertised memory as well, and the
        // peer does not expect an answer after DisConn.
        if self.write_source.on_ack_sent() {
            return Some(Body::SinkCancelAck);
        }
        if self.sink.is_report_due() {
            return Some(Body::RdmaRdCompl(self.sink.on_reported()));
        }
        if self.sink.is_send_sm_due() || std::mem::take(&mut self.due.send_sm) {
            self.sink.on_send_sm();
            self.receive_credits.release();
            return Some(Body::SendSm);
        }
        if self.source.is_cancel_due() {
            return Some(Body::SrcAvailCancel);
        }
        if self.write_sink.is_cancel_due() {
            self.write_sink.on_cancel_sent();
            return Some(Body::SinkAvailCancel);
        }
        if let Some(size) = self.answer.due() {
            return Some(Body::ChRcvBufAck(size));
        }
        if let Some(size) = self.take_request() {
            return Some(Body::ChRcvBuf(size));
        }
        if let Some(change) = self.take_mode_change() {
            return Some(Body::ModeChange(change));
        }
        if self.is_fin_due() {
            return Some(Body::DisConn);
        }
        None
    }

    fn take_mode_change(&mut self) -> Option<ModeChange> {
        if std::mem::take(&mut self.due.go_combined) {
            self.receive_mode = Mode::Combined;
            return Some(ModeChange {
                half: TargetHalf::Send,
                mode: Mode::Combined,
            });
        }
        if self.send_half.has_sent_fin() {
            return None;
        }
        let is_free = self.source.is_idle() && self.write_source.len() == 0;
        let to = match self.send_mode {
            Mode::Pipelined if self.is_leaving() && is_free => Mode::Combined,
            Mode::Combined if self.due.go_buffered && is_free => Mode::Buffered,
            Mode::Combined if self.wants_pipelined() => Mode::Pipelined,
            _ => return None,
        };
        match to {
            Mode::Combined => self.due.leave_pipelined = false,
            Mode::Buffered => self.due.go_buffered = false,
            Mode::Pipelined => self.due.go_pipelined = false,
        }
        self.send_mode = to;
        Some(to_receiver(to))
    }

    /// True while the sending half is to leave pipelined mode.
    const fn is_leaving(&self) -> bool {
        self.due.leave_pipelined || self.due.go_buffered
    }

    /// True if the sending half is to enter pipelined mode: the engine or the peer asks for it, or
    /// several advertisements wait.
    fn wants_pipelined(&self) -> bool {
        let has_cause = self.due.go_pipelined || self.queue.adverts() > 1;
        has_cause && self.has_pipelined() && !self.due.go_buffered
    }

    /// A SinkAvail, if a reader waits. The message also carries bytes of the stream, unless the
    /// peer may have advertised memory for these bytes.
    fn transmit_sink_avail(&mut self) -> Option<Transmit> {
        let may_send = self.write_sink.is_advert_due()
            && self.may_advertise_sinks()
            && self.adverts() < self.peer_adverts_max;
        if !may_send {
            return None;
        }
        // The payload maximum is that of Data. SinkAvail has a longer header.
        let room = self.payload_max() + BSDH_LEN as u32 - HEADER_MAX as u32;
        let may_carry = self.send_mode != Mode::Pipelined
            && self.write_source.len() == 0
            && !self.write_source.may_be_late()
            && self.source.is_idle()
            && self.send_credits.allow_data();
        let carried = if may_carry { self.queue.run() } else { 0 };
        let carried = u64::from(room).min(carried) as u32;
        if carried == 0 && !self.allows_control() {
            return None;
        }
        let (sink, non_discards) = self.write_sink.on_sent()?;
        // This advertisement ends a cancel of the peer.
        self.has_dropped = false;
        let body = Body::SinkAvail(SinkAvail {
            len: sink.len,
            stag: sink.stag,
            address: sink.address,
            non_discards,
        });
        let payload = self.take_run(carried);
        Some(self.make(body, payload))
    }

    /// The next bytes of the stream. No Data may be sent after an outstanding advertisement,
    /// because the peer could not determine the position of the data in the stream.
    fn transmit_stream(&mut self) -> Option<Transmit> {
        if !self.suspension.permits_data() {
            return None;
        }
        let front = *self.queue.front()?;
        if let Some(room) = self.write_source.room() {
            self.queue.send_first_advert();
            if self.queue.run() >= u64::from(self.config.write_min) {
                return self.transmit_write(room);
            }
            return self.transmit_data(room);
        }
        match front {
            Item::Advert(advert) => self.transmit_advert(advert),
            Item::Stream { .. } | Item::Rest { .. } => self.transmit_data(u32::MAX),
        }
    }

    /// Bytes in the peer's memory, and the report about them.
    fn transmit_write(&mut self, room: u32) -> Option<Transmit> {
        if !self.source.is_idle() || !self.allows_control() {
            return None;
        }
        let len = self.queue.run().min(u64::from(room)) as u32;
        let target = self.write_source.on_written()?;
        let into = PeerMemory {
            stag: target.stag,
            address: target.address,
        };
        let payload = self.take_run(len);
        let body = Body::RdmaWrCompl(payload.len());
        Some(self.number(body, payload, Some(into), false).0)
    }

    /// At most `max` bytes in a Data message.
    fn transmit_data(&mut self, max: u32) -> Option<Transmit> {
        if !self.source.is_idle() || !self.send_credits.allow_data() {
            return None;
        }
        let near = self.queue.urgent_is_near();
        let piece = self.queue.take_piece(self.payload_max().min(max))?;
        let mut transmit = self.number(Body::Data, piece.payload, None, near).0;
        if piece.urgent {
            transmit = self.marked_urgent(transmit);
        }
        self.report_sent(piece.done);
        Some(transmit)
    }

    /// Takes `len` bytes that are not urgent.
    fn take_run(&mut self, len: u32) -> Payload {
        let piece = (len > 0).then(|| self.queue.take_piece(len)).flatten();
        let Some(piece) = piece else {
            return Payload::Nothing;
        };
        self.report_sent(piece.done);
        piece.payload
    }

    fn report_sent(&mut self, done: Option<Advert>) {
        if let Some(advert) = done {
            self.events.push_back(Event::AdvertDone {
                id: advert.id,
                taken: advert.len,
            });
        }
    }

    fn transmit_advert(&mut self, advert: Advert) -> Option<Transmit> {
        let is_idle = self.source.is_idle();
        let is_full = self.adverts() >= self.peer_adverts_max;
        let (may, inline) = match self.send_mode {
            _ if is_idle && is_full => (false, 0),
            Mode::Buffered => (false, 0),
            Mode::Combined if !is_idle || !self.send_credits.allow_data() => return None,
            Mode::Combined => (true, self.inline_len(&advert)),
            Mode::Pipelined if is_full || !self.may_offer() || !self.allows_control() => {
                return None;
            }
            Mode::Pipelined => (true, 0),
        };
        if !may {
            self.queue.send_first_advert();
            return self.transmit_data(u32::MAX);
        }
        self.queue.take_advert();
        let body = Body::SrcAvail(SrcAvail {
            len: advert.len,
            stag: advert.stag,
            address: advert.address,
        });
        let payload = match inline {
            0 => Payload::Nothing,
            len => Payload::Advert {
                id: advert.id,
                offset: 0,
                len,
            },
        };
        let (transmit, seq) = self.number(body, payload, None, false);
        self.source.on_offered(advert, seq, inline);
        Some(transmit)
    }

    /// True while a SrcAvail may be sent in pipelined mode. The peer decides by the acknowledgement
    /// in a SrcAvail whether its SendSm has crossed that SrcAvail.
    fn may_offer(&self) -> bool {
        self.source.may_offer() && !self.receive_credits.holds_back() && !self.is_leaving()
    }

    /// An empty Data message, when receive buffers must be announced to the peer.
    fn transmit_update(&mut self) -> Option<Transmit> {
        let ticked = std::mem::take(&mut self.due.ticked);
        let is_due = match self.receive_credits.credit_update() {
            CreditUpdate::NotDue => false,
            CreditUpdate::AtTick => ticked,
            CreditUpdate::Due => true,
        };
        let is_first = self.due.first_message
            && self
                .send_credits
                .allow_control(self.receive_credits.has_new_credits());
        let may = is_first || is_due && self.send_credits.allow_control(true);
        may.then(|| self.make(Body::Data, Payload::Nothing))
    }

    pub(super) fn make(&mut self, body: Body, payload: Payload) -> Transmit {
        self.number(body, payload, None, false).0
    }

    /// Numbers a message and announces the receive buffers in it. The payload is written to `into`,
    /// if there is such memory; otherwise the message carries it. `was_near` is true if an urgent
    /// byte was near before the payload was taken from the queue.
    fn number(
        &mut self,
        body: Body,
        payload: Payload,
        into: Option<PeerMemory>,
        was_near: bool,
    ) -> (Transmit, Seq) {
        let near = was_near || self.queue.urgent_is_near();
        let payload_len = if into.is_none() { payload.len() } else { 0 };
        let (bufs, ack) = self.receive_credits.announce();
        self.due.ticked = false;
        self.due.first_message = false;
        let seq = self.send_credits.on_sent(payload_len > 0);
        if payload_len > 0 && matches!(body, Body::Data | Body::SrcAvail(_)) {
            self.write_source.on_data_sent();
        }
        let fin = matches!(body, Body::DisConn);
        if fin {
            self.send_half.on_fin_sent();
            self.write_source.on_fin_sent();
        }
        let mut flags = Flags::default();
        if near {
            flags = flags.with(Flags::OOB_PEND);
        }
        if matches!(body, Body::RdmaRdCompl(_)) && std::mem::take(&mut self.due.ask_pipelined) {
            flags = flags.with(Flags::REQ_PIPE);
        }
        let message = Message {
            flags,
            bufs,
            seq,
            ack,
            body,
            payload_len,
        };
        tracing::trace!(?message, "sent");
        let transmit = Transmit {
            header: message.emit(),
            payload,
            into,
            solicited: is_solicited(&body) || near,
            fin,
        };
        (transmit, seq)
    }

    /// The message with its last byte marked as urgent.
    fn marked_urgent(&self, transmit: Transmit) -> Transmit {
        Transmit {
            header: transmit
                .header
                .with_flags(Flags::OOB_PRES.with(Flags::OOB_PEND)),
            solicited: true,
            ..transmit
        }
    }
}

/// The change of a half whose source is the sender of the message.
const fn to_receiver(mode: Mode) -> ModeChange {
    ModeChange {
        half: TargetHalf::Receive,
        mode,
    }
}

/// True if the message must wake a receiver that waits for solicited events only.
const fn is_solicited(body: &Body) -> bool {
    matches!(
        body,
        Body::SendSm
            | Body::SrcAvailCancel
            | Body::SinkAvailCancel
            | Body::SinkCancelAck
            | Body::AbortConn
            | Body::SuspComm(_)
            | Body::SuspCommAck
            | Body::RdmaRdCompl(_)
            | Body::RdmaWrCompl(_)
    )
}
