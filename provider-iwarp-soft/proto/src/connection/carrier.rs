//! The move of a connection from TCP to another carrier.
//!
//! Each direction moves separately. The last message that a direction sends over TCP is
//! [`CarrierMessage::Moved`]; the new carrier transmits the segments after it. The order of
//! operations does not change, because a receiver that has handled `Moved` takes segments from the
//! new carrier only.

use std::collections::VecDeque;

use crate::{
    CarrierMessage, Inbound, MpaError, RemoteOperation, SEGMENT_MAX, TerminateCode, TransmitFpdu,
    TransmitPayload, UntaggedError,
    wire::{
        carrier::{LEN_MAX, Malformed, OPCODE},
        ddp::{UNTAGGED_LEN, Untagged, qn},
        fpdu::{LENGTH_LEN, MULPDU_MIN},
        rdmap,
    },
};

use super::{
    Connection,
    inbound::{check_mo, check_msn},
};

/// The reason why a carrier message was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CarrierError {
    /// The ends have not agreed on carrier messages ([`Connection::has_agreed_carriers`]).
    #[error("the peer has not agreed on carrier messages")]
    NotAgreed,
    /// `Moved` was queued before, and no carrier message may follow it.
    #[error("this direction moves to another carrier already")]
    Moved,
    /// The stream has ended.
    #[error("the stream has ended")]
    Ended,
}

/// The state of the transmitting direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TxMove {
    /// Segments are transmitted over TCP.
    Tcp,
    /// `Moved` is queued. Segments are transmitted over TCP until `Moved` is transmitted.
    Queued,
    /// `Moved` was transmitted. Nothing may be transmitted until the new carrier takes over.
    Announced,
    /// Segments are transmitted by the new carrier.
    Moved,
}

impl TxMove {
    /// Records a carrier message to queue. Returns false if `Moved` was queued before it.
    pub(super) const fn on_queued(&mut self, message: CarrierMessage) -> bool {
        let may_queue = matches!(self, Self::Tcp);
        if may_queue && matches!(message, CarrierMessage::Moved) {
            *self = Self::Queued;
        }
        may_queue
    }

    /// Records that a carrier message was transmitted.
    pub(super) const fn on_transmitted(&mut self, message: CarrierMessage) {
        if matches!((*self, message), (Self::Queued, CarrierMessage::Moved)) {
            *self = Self::Announced;
        }
    }

    /// Records that the new carrier transmits from now on.
    pub(super) const fn on_moved(&mut self) {
        if matches!(self, Self::Announced) {
            *self = Self::Moved;
        }
    }

    /// Returns true if segments may be transmitted, by either carrier.
    pub(super) const fn may_transmit(self) -> bool {
        !matches!(self, Self::Announced)
    }
}

/// The state of the receiving direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RxMove {
    /// The peer transmits over TCP.
    Tcp,
    /// The peer has sent `Moved`: it sends its next segments by the new carrier.
    Moved,
}

impl RxMove {
    /// Records a received carrier message. Returns false if the peer has sent `Moved` before it.
    pub(super) const fn on_received(&mut self, message: CarrierMessage) -> bool {
        let is_legal = matches!(self, Self::Tcp);
        if matches!(message, CarrierMessage::Moved) {
            *self = Self::Moved;
        }
        is_legal
    }

    pub(super) const fn has_moved(self) -> bool {
        matches!(self, Self::Moved)
    }
}

/// The states of both directions, and the carrier messages that wait to be transmitted.
#[derive(Debug)]
pub(super) struct Carriers {
    pub(super) tx: TxMove,
    pub(super) rx: RxMove,
    /// Carrier messages to transmit, oldest first.
    queue: VecDeque<CarrierMessage>,
    /// The longest segment to transmit after the move, in bytes.
    segment_max: usize,
}

impl Carriers {
    pub(super) const fn new() -> Self {
        Self {
            tx: TxMove::Tcp,
            rx: RxMove::Tcp,
            queue: VecDeque::new(),
            segment_max: SEGMENT_MAX,
        }
    }

    /// Returns true while a carrier message waits to be transmitted.
    pub(super) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The limit that the new carrier sets; `None` before the move.
    pub(super) const fn segment_max(&self) -> Option<usize> {
        match self.tx {
            TxMove::Moved => Some(self.segment_max),
            TxMove::Tcp | TxMove::Queued | TxMove::Announced => None,
        }
    }
}

impl Connection {
    /// Returns true if both ends have agreed on carrier messages ([`super::OwnOffer`]). Before
    /// that, a carrier message is a protocol error, as RFC 5040 demands of an unassigned opcode.
    #[must_use]
    pub const fn has_agreed_carriers(&self) -> bool {
        self.agreement.has_carriers()
    }

    /// Queues a carrier message. [`Self::poll_transmit`] returns it as soon as no message is partly
    /// transmitted, ahead of all other work.
    ///
    /// # Errors
    ///
    /// See [`CarrierError`]; nothing is queued then.
    pub fn queue_carrier(&mut self, message: CarrierMessage) -> Result<(), CarrierError> {
        if self.state.has_ended() {
            return Err(CarrierError::Ended);
        }
        if !self.has_agreed_carriers() {
            return Err(CarrierError::NotAgreed);
        }
        if !self.carriers.tx.on_queued(message) {
            return Err(CarrierError::Moved);
        }
        self.carriers.queue.push_back(message);
        Ok(())
    }

    /// Returns true from the moment when [`Self::poll_transmit`] has returned `Moved` until
    /// [`Self::on_tx_moved`]. Nothing is transmitted in between.
    #[must_use]
    pub const fn is_tx_moving(&self) -> bool {
        matches!(self.carriers.tx, TxMove::Announced)
    }

    /// Records that TCP has taken the last byte of `Moved`. The new carrier transmits from now on.
    pub const fn on_tx_moved(&mut self) {
        self.carriers.tx.on_moved();
    }

    /// Returns true if the new carrier transmits the segments of this end.
    #[must_use]
    pub const fn has_tx_moved(&self) -> bool {
        matches!(self.carriers.tx, TxMove::Moved)
    }

    /// Returns true if the peer has sent `Moved`, and so sends its segments by the new carrier
    /// ([`Self::handle_segment`]). An FPDU that is received over TCP after that is a protocol
    /// error.
    #[must_use]
    pub const fn has_rx_moved(&self) -> bool {
        self.carriers.rx.has_moved()
    }

    /// Sets the longest DDP segment to transmit after the move, in bytes, headers included. After
    /// the move, this limit replaces the MULPDU. Without this call the limit is [`SEGMENT_MAX`].
    pub fn set_segment_max(&mut self, bytes: usize) {
        self.carriers.segment_max = bytes.clamp(MULPDU_MIN, SEGMENT_MAX);
    }

    /// The longest segment to transmit now.
    pub(super) fn segment_max(&self) -> usize {
        self.carriers.segment_max().unwrap_or(self.config.mulpdu)
    }

    /// Returns true if a carrier message can be transmitted now.
    pub(super) fn is_carrier_ready(&self) -> bool {
        self.carriers.has_queued() && !self.is_within_message()
    }

    /// Returns the oldest carrier message as an FPDU, if it can be transmitted now.
    pub(super) fn transmit_carrier(&mut self) -> Option<TransmitFpdu> {
        if !self.is_carrier_ready() {
            return None;
        }
        let message = self.carriers.queue.pop_front()?;
        self.carriers.tx.on_transmitted(message);
        let msn = self.tx.next_carrier();
        let header = Untagged {
            last: true,
            rdmap: rdmap::control(OPCODE),
            rsvd_ulp: 0,
            qn: qn::CARRIER,
            msn,
            mo: 0,
        };
        let at = LENGTH_LEN + UNTAGGED_LEN;
        let mut fpdu = TransmitFpdu::new(at + message.wire_len(), TransmitPayload::None, None);
        header.emit(fpdu.part(LENGTH_LEN));
        message.emit(fpdu.part::<LEN_MAX>(at));
        Some(fpdu)
    }

    /// Handles a segment with the opcode and the queue of carrier messages, from a peer that may
    /// send them.
    pub(super) fn handle_carrier<P>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
    ) -> Result<Inbound<P>, TerminateCode> {
        if !header.last {
            return Err(TerminateCode::Untagged(UntaggedError::TooLong));
        }
        check_msn(header, self.rx.next_carrier())?;
        check_mo(header, 0)?;
        let message = CarrierMessage::parse(payload).map_err(|malformed| match malformed {
            Malformed::Kind => UNEXPECTED,
            Malformed::TooShort => TerminateCode::Mpa(MpaError::Length),
            Malformed::TooLong => TerminateCode::Untagged(UntaggedError::TooLong),
        })?;
        // The sender transmits carrier messages between two messages. A message that is cut by
        // `Moved` would continue on another carrier.
        if self.has_partial_message() || !self.carriers.rx.on_received(message) {
            return Err(UNEXPECTED);
        }
        self.rx.on_carrier(header.msn);
        Ok(Inbound::Carrier(message))
    }
}

const UNEXPECTED: TerminateCode = TerminateCode::RemoteOperation(RemoteOperation::UnexpectedOpcode);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::transitions;

    const OFFER: CarrierMessage = CarrierMessage::Offer {
        name: [7; 16],
        token: 9,
    };
    const ALL: [TxMove; 4] = [
        TxMove::Tcp,
        TxMove::Queued,
        TxMove::Announced,
        TxMove::Moved,
    ];

    /// Each row is an event, each column a state in the order of `ALL`.
    #[test]
    fn every_event_in_every_state_of_the_transmitting_direction() {
        use TxMove::{Announced, Moved, Queued, Tcp};
        transitions! { TxMove: ALL;
            "offer queued": |state| assert_eq!(state.on_queued(OFFER), *state == Tcp) => ALL;
            "move queued": |state| {
                let before = *state;
                let queued = state.on_queued(CarrierMessage::Moved);
                assert_eq!(queued, before == Tcp);
            } => [Queued, Queued, Announced, Moved];
            "offer transmitted": |state| state.on_transmitted(OFFER) => ALL;
            "move transmitted": |state| state.on_transmitted(CarrierMessage::Moved)
                => [Tcp, Announced, Announced, Moved];
            "moved": |state| state.on_moved() => [Tcp, Queued, Moved, Moved];
        }
        let transmits = ALL.map(TxMove::may_transmit);
        assert_eq!(transmits, [true, true, false, true]);
    }

    #[test]
    fn every_message_in_every_state_of_the_receiving_direction() {
        let rows = [
            (RxMove::Tcp, OFFER, RxMove::Tcp, true),
            (RxMove::Tcp, CarrierMessage::Moved, RxMove::Moved, true),
            (RxMove::Moved, OFFER, RxMove::Moved, false),
            (RxMove::Moved, CarrierMessage::Moved, RxMove::Moved, false),
        ];
        for (before, message, after, is_legal) in rows {
            let mut state = before;
            assert_eq!(
                state.on_received(message),
                is_legal,
                "{message:?} in {before:?}"
            );
            assert_eq!(state, after, "{message:?} in {before:?}");
        }
    }
}
