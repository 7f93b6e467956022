//! Received messages.

use super::Connection;
use crate::{
    ConnectionState, Event, Failure, ProtocolError, ReceiveHalf, Seq,
    exchange::{
        read::{sink, source::Outcome},
        write::source::Verdict,
    },
    mode,
    wire::{Body, Flags, Message, Mid, Mode, ModeChange, SinkAvail, SrcAvail, TargetHalf},
};

/// The part of an accepted message that belongs to the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inbound {
    /// The offset of the payload in the message.
    pub payload_at: u32,
    /// The number of payload bytes. If it is 0, the buffer may be posted again at once.
    pub payload_len: u32,
    /// True if the last payload byte is urgent.
    pub urgent: bool,
}

impl Connection {
    /// Handles a received message of `len` bytes. `head` is its beginning: all of it, or at least
    /// [`crate::wire::HEADER_MAX`] bytes.
    ///
    /// The connection ends with the first error. Messages after the end are ignored.
    pub fn handle_message(&mut self, head: &[u8], len: usize) -> Result<Inbound, ProtocolError> {
        match self.state {
            ConnectionState::HelloSent => {
                let mid = head.first().and_then(|byte| Mid::from_byte(*byte));
                let error = ProtocolError::NotEstablished(mid.unwrap_or(Mid::Data));
                return Err(self.violated(error));
            }
            ConnectionState::HelloAckSent => self.handle_established(),
            ConnectionState::Established | ConnectionState::Suspended => (),
            ConnectionState::Disconnecting
            | ConnectionState::Aborting
            | ConnectionState::Closed
            | ConnectionState::Failed(_) => return Ok(Inbound::default()),
        }
        let result = Message::parse(head, len)
            .map_err(ProtocolError::Wire)
            .and_then(|message| self.accept_message(&message));
        result.map_err(|error| self.violated(error))
    }

    fn accept_message(&mut self, message: &Message) -> Result<Inbound, ProtocolError> {
        let is_data = message.payload_len > 0;
        let is_update = message.is_credit_update();
        self.receive_credits
            .on_received(message.seq, is_data, is_update)?;
        self.send_credits.on_announced(message.bufs, message.ack)?;
        self.on_acknowledged(message.ack);
        if message.flags.contains(Flags::OOB_PEND) {
            self.events.push_back(Event::UrgentComing);
        }
        tracing::trace!(?message, "received");
        self.check_suspension(message)?;
        self.dispatch(message)?;
        Ok(Inbound {
            payload_at: message.header_len() as u32,
            payload_len: message.payload_len,
            urgent: message.flags.contains(Flags::OOB_PRES),
        })
    }

    /// An end that has sent SuspComm sends no data, advertisement or DisConn any more, and nothing
    /// but credits follows SuspCommAck.
    fn check_suspension(&self, message: &Message) -> Result<(), ProtocolError> {
        let ends_or_moves_data = message.payload_len > 0
            || matches!(
                message.body,
                Body::SrcAvail(_) | Body::SinkAvail(_) | Body::RdmaWrCompl(_) | Body::DisConn
            );
        let has_stopped = self.state == ConnectionState::Suspended && !message.is_credit_update();
        if has_stopped || ends_or_moves_data && self.suspension.forbids_peer_data() {
            return Err(ProtocolError::DuringSuspension(message.body.mid()));
        }
        Ok(())
    }

    /// Called when the peer has received all messages up to `ack`.
    fn on_acknowledged(&mut self, ack: Seq) {
        self.write_source.on_acknowledged(ack);
        self.refused_at = self.refused_at.filter(|seq| !ack.covers(*seq));
        self.has_dropped &= self.refused_at.is_some();
        self.check_answer_known(ack);
    }

    fn dispatch(&mut self, message: &Message) -> Result<(), ProtocolError> {
        match message.body {
            Body::Data => self.on_data(message),
            Body::SrcAvail(source) => self.on_src_avail(source, message),
            Body::DisConn => self.on_disconn(),
            Body::AbortConn => self.on_abort_conn(),
            Body::SendSm => {
                let outcomes = self.source.on_send_sm(message.ack);
                self.on_outcomes(outcomes);
                Ok(())
            }
            Body::RdmaRdCompl(bytes) => {
                let outcome = self.source.on_read(bytes)?;
                self.on_outcomes(outcome.into_iter().collect());
                if message.flags.contains(Flags::REQ_PIPE) {
                    self.go_pipelined();
                }
                Ok(())
            }
            Body::SrcAvailCancel => {
                self.sink.on_cancel();
                self.due.send_sm |= std::mem::take(&mut self.has_dropped);
                if let Some(cancel) = sink::held_back(&self.sink, message.seq) {
                    self.receive_credits.hold_back(cancel);
                }
                Ok(())
            }
            Body::ModeChange(change) => self.on_mode_change(change),
            Body::ChRcvBuf(size) => {
                self.on_buffers_asked(size);
                Ok(())
            }
            Body::ChRcvBufAck(size) => self.on_buffers_answered(size),
            Body::SinkAvail(advert) => self.on_sink_avail(advert, message),
            Body::RdmaWrCompl(bytes) => self.on_written(bytes),
            // Without an advertisement it has no effect, as SrcAvailCancel.
            Body::SinkAvailCancel => {
                self.write_source.on_cancel();
                Ok(())
            }
            Body::SinkCancelAck => {
                let free = self.write_sink.on_cancel_ack()?;
                self.release_sinks(free);
                Ok(())
            }
            Body::SuspComm(service) => self.on_susp_comm(service),
            Body::SuspCommAck => self.on_susp_comm_ack(),
        }
    }

    fn on_data(&mut self, message: &Message) -> Result<(), ProtocolError> {
        if message.payload_len == 0 {
            return Ok(());
        }
        if !self.sink.is_idle() {
            return Err(ProtocolError::DataDuringSrcAvail);
        }
        self.on_counted();
        self.on_stream_bytes(Mid::Data)
    }

    /// Called when a message was received that counts for NonDiscards.
    fn on_counted(&mut self) {
        let free = match self.write_sink.on_data() {
            Some(used) => [used].into(),
            None => self.write_sink.on_overtaken(),
        };
        self.release_sinks(free);
    }

    fn on_src_avail(&mut self, source: SrcAvail, message: &Message) -> Result<(), ProtocolError> {
        let (mode, len, inline) = (self.receive_mode, source.len, message.payload_len);
        if !mode::admits_source(mode, len, inline) {
            return Err(ProtocolError::SrcAvail { mode, len, inline });
        }
        self.on_stream_bytes(Mid::SrcAvail)?;
        if inline > 0 {
            self.on_counted();
        }
        let has_crossed_refusal = mode == Mode::Pipelined && self.refused_at.is_some();
        if has_crossed_refusal || self.write_sink.outstanding() > 0 {
            // The source offers the rest again, see `exchange`.
            self.has_dropped |= self.write_sink.outstanding() == 0;
            return Ok(());
        }
        let is_second = mode == Mode::Combined && !self.sink.is_idle();
        if is_second || self.is_full() || !self.sink.on_offered(source, inline) {
            return Err(ProtocolError::TooManyAdverts);
        }
        let free = self.write_sink.on_overtaken();
        self.release_sinks(free);
        Ok(())
    }

    /// True if the peer may not advertise more memory.
    fn is_full(&self) -> bool {
        self.sink.len() + self.write_source.len() >= usize::from(self.config.adverts_max)
    }

    /// The payload belongs to the half in which this end is the sink, the advertisement to the
    /// other half.
    fn on_sink_avail(&mut self, advert: SinkAvail, message: &Message) -> Result<(), ProtocolError> {
        if message.payload_len > 0 {
            if !self.sink.is_idle() {
                return Err(ProtocolError::DataDuringSrcAvail);
            }
            if self.write_sink.outstanding() > 0 {
                return Err(ProtocolError::DataDuringSinkAvail);
            }
            let free = self.write_sink.on_overtaken();
            self.release_sinks(free);
            self.on_stream_bytes(Mid::SinkAvail)?;
        }
        let is_late = self.write_source.may_be_late();
        let (mode, len, least) = (self.send_mode, advert.len, self.payload_max());
        if mode != Mode::Pipelined && !is_late || len < least {
            return Err(ProtocolError::SinkAvail { mode, len, least });
        }
        if self.send_half.has_sent_fin() {
            // The DisConn of this end retires the advertisement when the peer receives it.
            return Ok(());
        }
        let is_full = self.is_full();
        let crossing = self.send_credits.unacknowledged_data();
        let verdict = self.write_source.on_offered(advert, crossing)?;
        self.events.push_back(Event::SinkOffered);
        if verdict == Verdict::Valid {
            let outcomes = self.source.on_revoked();
            self.on_outcomes(outcomes);
            if is_full {
                return Err(ProtocolError::TooManyAdverts);
            }
        }
        Ok(())
    }

    fn on_written(&mut self, bytes: u32) -> Result<(), ProtocolError> {
        let advert = self.write_sink.on_written(bytes)?;
        self.events.push_back(Event::SinkDone {
            id: advert.id,
            written: bytes,
        });
        self.on_stream_bytes(Mid::RdmaWrCompl)
    }

    /// Called when bytes of the stream were received. Fails if the receiving half does not accept
    /// them.
    fn on_stream_bytes(&mut self, mid: Mid) -> Result<(), ProtocolError> {
        match self.receive_half {
            ReceiveHalf::Open => Ok(()),
            ReceiveHalf::Refusing => {
                self.fail(Failure::ReceivedAfterShutdown);
                Ok(())
            }
            ReceiveHalf::Ended => Err(ProtocolError::AfterDisConn(mid)),
        }
    }

    fn on_disconn(&mut self) -> Result<(), ProtocolError> {
        if self.receive_half.has_ended() {
            return Err(ProtocolError::AfterDisConn(Mid::DisConn));
        }
        // The source sends DisConn after its last advertisement was read or taken back.
        if !self.sink.is_idle() {
            return Err(ProtocolError::DataDuringSrcAvail);
        }
        self.receive_half.on_fin();
        let free = self.write_sink.on_retired();
        self.release_sinks(free);
        self.events.push_back(Event::EndOfStream);
        self.check_halves();
        Ok(())
    }

    fn on_abort_conn(&mut self) -> Result<(), ProtocolError> {
        if !self.receive_half.has_ended() {
            return Err(ProtocolError::AbortBeforeDisConn);
        }
        self.fail(if self.send_half.is_open() {
            Failure::PeerAborted
        } else {
            Failure::PeerAbortedUnread
        });
        Ok(())
    }

    fn on_mode_change(&mut self, change: ModeChange) -> Result<(), ProtocolError> {
        match change.half {
            TargetHalf::Receive => {
                let mode = mode::changed(self.receive_mode, change)?;
                let is_good = match (self.receive_mode, mode) {
                    (Mode::Pipelined, _) => self.sink.on_dropped(),
                    (_, Mode::Buffered) => self.sink.is_idle(),
                    _ => true,
                };
                if !is_good {
                    return Err(ProtocolError::DataDuringSrcAvail);
                }
                let free = self.write_sink.on_overtaken();
                self.release_sinks(free);
                self.receive_mode = mode;
            }
            TargetHalf::Send => self.send_mode = mode::changed(self.send_mode, change)?,
        }
        Ok(())
    }

    /// Handles the outcomes of exchanges in which this end is the source, in stream order.
    fn on_outcomes(&mut self, outcomes: Vec<Outcome>) {
        for outcome in outcomes.into_iter().rev() {
            match outcome {
                Outcome::Again(offer) => self.queue.push_advert_first(offer.advert),
                Outcome::SendRest(offer) => self.queue.push_rest(offer.advert, offer.taken),
                Outcome::Done(offer) | Outcome::TakenBack(offer) => {
                    self.events.push_back(Event::AdvertDone {
                        id: offer.advert.id,
                        taken: offer.taken,
                    });
                }
            }
        }
    }
}
