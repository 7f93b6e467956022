//! Received messages.

use super::Connection;
use crate::{
    ConnectionState, Event, Failure, OnCancel, ProtocolError, ReceiveHalf,
    exchange::{sink, source::Outcome},
    mode,
    wire::{Body, Flags, Message, Mid, Mode, ModeChange, SrcAvail, TargetHalf},
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
    /// An error has ended the connection. Messages after the end are ignored.
    pub fn handle_message(&mut self, head: &[u8], len: usize) -> Result<Inbound, ProtocolError> {
        match self.state {
            ConnectionState::HelloSent => {
                let mid = head.first().and_then(|byte| Mid::from_byte(*byte));
                let error = ProtocolError::NotEstablished(mid.unwrap_or(Mid::Data));
                return Err(self.violated(error));
            }
            ConnectionState::HelloAckSent => self.handle_established(),
            ConnectionState::Established => (),
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
        self.send_credits.on_told(message.bufs, message.ack)?;
        if message.flags.contains(Flags::OOB_PEND) {
            self.events.push_back(Event::UrgentComing);
        }
        tracing::trace!(?message, "received");
        self.dispatch(message)?;
        Ok(Inbound {
            payload_at: message.header_len() as u32,
            payload_len: message.payload_len,
            urgent: message.flags.contains(Flags::OOB_PRES),
        })
    }

    fn dispatch(&mut self, message: &Message) -> Result<(), ProtocolError> {
        match message.body {
            Body::Data => self.on_data(message),
            Body::SrcAvail(source) => self.on_src_avail(source, message),
            Body::DisConn => self.on_disconn(),
            Body::AbortConn => self.on_abort_conn(),
            Body::SendSm => {
                let outcome = self.source.on_send_sm(message.ack);
                self.on_outcome(outcome);
                Ok(())
            }
            Body::RdmaRdCompl(bytes) => {
                let outcome = self.source.on_read(bytes)?;
                self.on_outcome(outcome);
                Ok(())
            }
            Body::SrcAvailCancel => {
                self.sink.on_cancel();
                if let Some(cancel) = sink::held_back(&self.sink, message.seq) {
                    self.receive_credits.hold_back(cancel);
                }
                Ok(())
            }
            Body::ModeChange(change) => self.on_mode_change(change),
            // Resizing: the answer with the present size refuses the request.
            Body::ChRcvBuf(_) => {
                self.due.buffer_size = true;
                Ok(())
            }
            // Write Zcopy: a cancel of nothing is ignored, as the cancel of a source is.
            Body::SinkAvailCancel => Ok(()),
            // Write Zcopy: allowed in pipelined mode only, which our sending half never enters.
            Body::SinkAvail(_)
            | Body::RdmaWrCompl(_)
            | Body::SinkCancelAck
            // Resizing and suspend: answers to requests that we never send.
            | Body::ChRcvBufAck(_)
            | Body::SuspCommAck => Err(ProtocolError::Unexpected(message.body.mid())),
            // Suspend: no message can refuse it, and a peer that waits for an answer would hang.
            Body::SuspComm(_) => Err(ProtocolError::NotSpoken(Mid::SuspComm)),
        }
    }

    fn on_data(&mut self, message: &Message) -> Result<(), ProtocolError> {
        if message.payload_len == 0 {
            return Ok(());
        }
        if !self.sink.is_idle() {
            return Err(ProtocolError::DataDuringSrcAvail);
        }
        self.on_stream_bytes(Mid::Data)
    }

    fn on_src_avail(&mut self, source: SrcAvail, message: &Message) -> Result<(), ProtocolError> {
        if !self.sink.is_idle() {
            return Err(ProtocolError::TooManyAdverts);
        }
        let (mode, len, inline) = (self.receive_mode, source.len, message.payload_len);
        if !mode::admits_source(mode, len, inline) {
            return Err(ProtocolError::SrcAvail { mode, len, inline });
        }
        self.sink.on_offered(source, inline);
        self.on_stream_bytes(Mid::SrcAvail)
    }

    /// Bytes of the stream were received. Fails if the receiving half does not accept them.
    fn on_stream_bytes(&mut self, mid: Mid) -> Result<(), ProtocolError> {
        match self.receive_half {
            ReceiveHalf::Open => Ok(()),
            ReceiveHalf::Refusing => {
                self.fail(Failure::NobodyReads);
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
                self.receive_mode = mode;
            }
            TargetHalf::Send => self.send_mode = mode::changed(self.send_mode, change)?,
        }
        Ok(())
    }

    /// Handles the end of an exchange at the source.
    fn on_outcome(&mut self, outcome: Option<Outcome>) {
        match outcome {
            None => (),
            Some(Outcome::SendRest(offer)) => {
                let taken = offer.taken;
                self.queue.push_rest(offer.advert, taken);
            }
            Some(Outcome::Done(offer) | Outcome::TakenBack(offer)) => {
                self.events.push_back(Event::AdvertDone {
                    id: offer.advert.id,
                    taken: offer.taken,
                });
            }
        }
    }

    /// Takes back this end's advertisement when both ends advertise at the same time. Otherwise a
    /// user that does not read while it writes would leave both ends waiting.
    pub fn yield_advert(&mut self) {
        self.source.on_cancel(OnCancel::Send);
    }
}
