//! The next message to send.

use super::{Connection, send_queue::Item};
use crate::{
    Advert, ConnectionState, Event, Failure, Payload, Transmit,
    credit::CreditUpdate,
    exchange::source,
    wire::{Body, Flags, Message, Mode, ModeChange, SrcAvail, TargetHalf},
};

impl Connection {
    /// The next message, if there is one that the credits allow. The engine must send it, because
    /// its sequence number is used up.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        match self.state {
            ConnectionState::Established => (),
            ConnectionState::Aborting => return Some(self.transmit_abort()),
            ConnectionState::HelloSent
            | ConnectionState::HelloAckSent
            | ConnectionState::Disconnecting
            | ConnectionState::Closed
            | ConnectionState::Failed(_) => return None,
        }
        self.transmit_control()
            .or_else(|| self.transmit_stream())
            .or_else(|| self.transmit_update())
    }

    /// AbortConn, the last message of this end.
    fn transmit_abort(&mut self) -> Transmit {
        let transmit = self.make(Body::AbortConn, Payload::Nothing, false);
        self.state.on_abort(false);
        self.events.push_back(Event::Failed(Failure::Aborted));
        self.events.push_back(Event::Disconnect);
        transmit
    }

    /// A control message that is due.
    fn transmit_control(&mut self) -> Option<Transmit> {
        let gives = self.receive_credits.has_news();
        if !self.send_credits.allow_control(gives) {
            return None;
        }
        let body = self.take_control()?;
        Some(self.make(body, Payload::Nothing, false))
    }

    fn take_control(&mut self) -> Option<Body> {
        if self.sink.owes_report() {
            return Some(Body::RdmaRdCompl(self.sink.on_reported()));
        }
        if self.sink.owes_send_sm() {
            self.sink.on_send_sm();
            self.receive_credits.release();
            return Some(Body::SendSm);
        }
        if matches!(self.source, source::Exchange::CancelDue(..)) {
            self.source.on_cancel_sent();
            return Some(Body::SrcAvailCancel);
        }
        if std::mem::take(&mut self.due.buffer_size) {
            return Some(Body::ChRcvBufAck(self.config.buffer_size));
        }
        if std::mem::take(&mut self.due.go_combined) {
            self.receive_mode = Mode::Combined;
            return Some(Body::ModeChange(ModeChange {
                half: TargetHalf::Send,
                mode: Mode::Combined,
            }));
        }
        if self.due.go_buffered && self.source.is_idle() && !self.send_half.has_said_fin() {
            self.due.go_buffered = false;
            self.send_mode = Mode::Buffered;
            return Some(Body::ModeChange(ModeChange {
                half: TargetHalf::Receive,
                mode: Mode::Buffered,
            }));
        }
        if self.owes_fin() {
            return Some(Body::DisConn);
        }
        None
    }

    /// The next bytes of the stream. Nothing may be sent after an outstanding advertisement,
    /// because the peer could not determine its position in the stream.
    fn transmit_stream(&mut self) -> Option<Transmit> {
        if !self.source.is_idle() || !self.send_credits.allow_data() {
            return None;
        }
        if let Item::Advert(advert) = *self.queue.front()? {
            self.queue.take_advert();
            return Some(self.transmit_advert(advert));
        }
        let near = self.queue.urgent_is_near();
        let piece = self.queue.take_piece(self.payload_max())?;
        let mut transmit = self.make(Body::Data, piece.payload, near);
        if piece.urgent {
            transmit = self.marked_urgent(transmit);
        }
        if let Some(advert) = piece.done {
            self.events.push_back(Event::AdvertDone {
                id: advert.id,
                taken: advert.len,
            });
        }
        Some(transmit)
    }

    fn transmit_advert(&mut self, advert: Advert) -> Transmit {
        let inline = self.inline_len(&advert);
        let body = Body::SrcAvail(SrcAvail {
            len: advert.len,
            stag: advert.stag,
            address: advert.address,
        });
        let payload = Payload::Advert {
            id: advert.id,
            offset: 0,
            len: inline,
        };
        let near = self.queue.urgent_is_near();
        let (transmit, seq) = self.number(body, payload, near);
        self.source.on_offered(advert, seq, inline);
        transmit
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
                .allow_control(self.receive_credits.has_news());
        let may = is_first || is_due && self.send_credits.allow_control(true);
        may.then(|| self.make(Body::Data, Payload::Nothing, self.queue.urgent_is_near()))
    }

    fn make(&mut self, body: Body, payload: Payload, urgent_is_near: bool) -> Transmit {
        let near = urgent_is_near || self.queue.urgent_is_near();
        self.number(body, payload, near).0
    }

    /// Numbers a message and announces the receive buffers in it.
    fn number(&mut self, body: Body, payload: Payload, near: bool) -> (Transmit, crate::Seq) {
        let (bufs, ack) = self.receive_credits.on_told();
        self.due.ticked = false;
        self.due.first_message = false;
        let seq = self.send_credits.on_sent(!payload.is_empty());
        let fin = matches!(body, Body::DisConn);
        if fin {
            self.send_half.on_fin_sent();
        }
        let flags = if near {
            Flags::OOB_PEND
        } else {
            Flags::default()
        };
        let message = Message {
            flags,
            bufs,
            seq,
            ack,
            body,
            payload_len: payload.len(),
        };
        tracing::trace!(?message, "sent");
        let transmit = Transmit {
            header: message.emit(),
            payload,
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

/// True if the message must wake a receiver that waits for solicited events only.
const fn is_solicited(body: &Body) -> bool {
    matches!(
        body,
        Body::SendSm
            | Body::SrcAvailCancel
            | Body::SinkAvailCancel
            | Body::SinkCancelAck
            | Body::AbortConn
            | Body::RdmaRdCompl(_)
            | Body::RdmaWrCompl(_)
    )
}
