//! Suspension, see [`crate::suspension`], and the continuation of a suspended connection.

use std::net::{IpAddr, SocketAddr};

use super::{Connection, Peer};
use crate::{
    ConnectionState, Event, OnCancel, Payload, ProtocolError, Transmit,
    credit::ReceiveCredits,
    suspension::Suspension,
    wire::{Body, Hello, Mid},
};

impl Connection {
    /// Requests a suspension: another process of this end continues the connection at `service`,
    /// where it listens already. SuspComm is sent after everything that was written and after the
    /// last advertisement of this end, and nothing may be written any more. When the peer has
    /// answered and has sent its last byte, the state is [`ConnectionState::Suspended`], and the
    /// engine is asked to disconnect.
    ///
    /// Returns false if the sending half is shut, the connection is not established, or one end has
    /// requested a suspension before.
    pub fn suspend(&mut self, service: u64) -> bool {
        let may = self.state.is_established() && self.send_half.is_open();
        let is_wanted = may && self.suspension.on_wanted(service);
        if is_wanted {
            self.cancel_sinks();
        }
        is_wanted
    }

    /// The peer's service at which this end continues the connection, once the peer has suspended
    /// it. The engine calls [`Self::resume`] when the transport is gone.
    #[must_use]
    pub const fn continues_at(&self) -> Option<u64> {
        match (self.state, self.suspension) {
            (ConnectionState::Suspended, Suspension::Stopped { service }) => service,
            _ => None,
        }
    }

    /// Continues a connection that the peer has suspended: returns the Hello of the connection
    /// request to the peer's service. This end has `buffers` receive buffers, of which it has
    /// posted `posted`. Bytes that were written and not sent follow in the new connection. Modes
    /// are those of a new connection, and requests for other receive buffers are forgotten.
    ///
    /// Returns `None` unless [`Self::continues_at`] names a service.
    pub fn resume(
        &mut self,
        buffers: u16,
        posted: u16,
        local: SocketAddr,
        peer: IpAddr,
    ) -> Option<Hello> {
        self.continues_at()?;
        self.state.on_resumed();
        self.send_half.on_resumed();
        let fresh = Self::new(self.config, self.state, Peer::UNKNOWN);
        let suspended = std::mem::replace(self, fresh);
        self.send_half = suspended.send_half;
        self.receive_half = suspended.receive_half;
        self.receive_credits = ReceiveCredits::resumed(buffers, posted);
        self.queue = suspended.queue;
        self.events = suspended.events;
        Some(self.config.hello(posted, local, peer))
    }

    /// Called when SuspComm was received: this end stops its data and takes its advertisements
    /// back.
    pub(super) fn on_susp_comm(&mut self, service: u64) -> Result<(), ProtocolError> {
        if self.receive_half.has_ended() {
            return Err(ProtocolError::AfterDisConn(Mid::SuspComm));
        }
        if !self.suspension.on_asked(service) {
            return Err(ProtocolError::DuringSuspension(Mid::SuspComm));
        }
        self.queue.send_adverts();
        self.source.on_cancel(None, OnCancel::Send);
        self.cancel_sinks();
        Ok(())
    }

    /// Called when SuspCommAck was received: the peer has sent its last byte.
    pub(super) fn on_susp_comm_ack(&mut self) -> Result<(), ProtocolError> {
        if !self.suspension.on_answered() {
            return Err(ProtocolError::Unexpected(Mid::SuspCommAck));
        }
        self.state.on_suspended();
        self.events.push_back(Event::Disconnect);
        Ok(())
    }

    /// SuspComm or SuspCommAck, if it is due.
    pub(super) fn transmit_suspension(&mut self) -> Option<Transmit> {
        let has_no_advert = self.source.is_idle() && self.write_sink.len() == 0;
        if !has_no_advert || !self.allows_control() {
            return None;
        }
        match self.suspension {
            Suspension::Wanted { service } if self.is_drained() => {
                self.suspension.on_requested();
                Some(self.make(Body::SuspComm(service), Payload::Nothing))
            }
            Suspension::Asked { .. } if self.sink.is_idle() && self.write_source.len() == 0 => {
                let transmit = self.make(Body::SuspCommAck, Payload::Nothing);
                self.suspension.on_answer_sent();
                self.state.on_suspended();
                Some(transmit)
            }
            _ => None,
        }
    }
}
