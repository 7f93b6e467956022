//! Receive buffers as credits.
//!
//! Every message consumes one receive buffer at the peer. So a sender counts its credits from the
//! values that the peer has sent: `Bufs − (last MSeq sent − MSeqAck)`. Two rules keep both sides
//! from waiting for each other:
//!
//! * *The last credit* (CA4-82) is spent only on a message that carries no payload and gives the
//!   peer new credits. So for each credit that one side loses, the other side gains at least one.
//! * *The reserve*: data does not use the last [`reserve`] buffers at the peer, so control messages
//!   pass even when the application does not read. The buffers of control messages are posted again
//!   in any case, those of data when the data is read. So a sender that decides about data counts
//!   only the data that is not acknowledged.
//!
//! Because of the reserve, one empty Data message per opened window is enough. If an update had to
//! be answered by an update because it consumed a buffer, two idle ends would exchange updates for
//! ever. With three buffers at both ends the reserve is two, and one update may need another in
//! return: that one waits for the engine's tick ([`CreditUpdate::AtTick`]).

use std::collections::VecDeque;

use crate::{BUFFERS_MIN, ProtocolError, Seq};

/// The number of buffers that data does not use when a side has `buffers` of them.
#[must_use]
pub const fn reserve(buffers: u16) -> u16 {
    if buffers > BUFFERS_MIN { 3 } else { 2 }
}

/// The credits of this end for messages to the peer.
#[derive(Debug)]
pub(crate) struct SendCredits {
    sent: Seq,
    acked: Seq,
    bufs: u16,
    reserve: u16,
    /// The numbers of the data messages that are not acknowledged.
    data: VecDeque<Seq>,
}

impl SendCredits {
    /// The credits at a peer whose Hello or HelloAck announced `bufs` buffers.
    pub(crate) fn new(bufs: u16) -> Self {
        Self {
            sent: Seq(0),
            acked: Seq(0),
            bufs,
            reserve: reserve(bufs),
            data: VecDeque::new(),
        }
    }

    /// The number of messages that the peer has room for, by the last values received.
    pub(crate) fn credits(&self) -> u32 {
        u32::from(self.bufs).saturating_sub(self.sent.since(self.acked))
    }

    /// True while the peer has not acknowledged all data.
    pub(crate) fn has_unacknowledged_data(&self) -> bool {
        !self.data.is_empty()
    }

    /// The number of messages with data that the peer has not acknowledged.
    pub(crate) fn unacknowledged_data(&self) -> usize {
        self.data.len()
    }

    /// True if data may be sent.
    pub(crate) fn allow_data(&self) -> bool {
        let for_data = usize::from(self.bufs).saturating_sub(self.data.len());
        self.credits() >= 2 && for_data > usize::from(self.reserve)
    }

    /// True if a message without payload may be sent. `gives_credits` is true if the message gives
    /// the peer credits.
    pub(crate) fn allow_control(&self, gives_credits: bool) -> bool {
        self.credits() >= if gives_credits { 1 } else { 2 }
    }

    /// Assigns the number of the next message.
    pub(crate) fn on_sent(&mut self, is_data: bool) -> Seq {
        self.sent = self.sent.next();
        if is_data {
            self.data.push_back(self.sent);
        }
        self.sent
    }

    /// Takes Bufs and MSeqAck of a received message.
    pub(crate) fn on_announced(&mut self, bufs: u16, ack: Seq) -> Result<(), ProtocolError> {
        if ack.since(self.acked) > self.sent.since(self.acked) {
            return Err(ProtocolError::Acknowledgement {
                from: self.acked,
                to: self.sent,
                found: ack,
            });
        }
        self.acked = ack;
        self.bufs = bufs;
        while self.data.front().is_some_and(|seq| ack.covers(*seq)) {
            self.data.pop_front();
        }
        Ok(())
    }
}

/// The decision whether receive buffers must be announced in a message of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CreditUpdate {
    /// No update is due: the peer has enough credits.
    NotDue,
    /// An update is due at the engine's next tick, if nothing else was sent until then.
    AtTick,
    /// An update is due now.
    Due,
}

/// The messages that were received since one was last sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Received {
    Nothing,
    UpdatesOnly,
    More,
}

/// The receive buffers of this end, and the credits that the peer counts.
#[derive(Debug)]
pub(crate) struct ReceiveCredits {
    buffers: u16,
    posted: u16,
    received: Seq,
    /// Bufs and MSeqAck of the last message sent.
    announced_bufs: u16,
    announced_ack: Seq,
    received_since: Received,
    /// The numbers of the data messages that were received after `announced_ack`.
    data: VecDeque<Seq>,
    /// The number of the cancel that must not be acknowledged yet.
    held_back: Option<Seq>,
}

impl ReceiveCredits {
    /// The buffers of an end that has posted `buffers` and announces them in its Hello or HelloAck.
    pub(crate) fn new(buffers: u16) -> Self {
        Self {
            buffers,
            posted: buffers,
            received: Seq(0),
            announced_bufs: buffers,
            announced_ack: Seq(0),
            received_since: Received::Nothing,
            data: VecDeque::new(),
            held_back: None,
        }
    }

    /// The buffers of an end that continues a connection. Bytes that were not read are in the
    /// buffers that are not posted.
    pub(crate) fn resumed(buffers: u16, posted: u16) -> Self {
        Self {
            buffers,
            ..Self::new(posted)
        }
    }

    /// Records that a message was received and consumed a buffer.
    pub(crate) fn on_received(
        &mut self,
        seq: Seq,
        is_data: bool,
        is_update: bool,
    ) -> Result<(), ProtocolError> {
        let expected = self.received.next();
        if seq != expected {
            return Err(ProtocolError::Sequence {
                expected,
                found: seq,
            });
        }
        let posted = self.posted.checked_sub(1);
        self.posted = posted.ok_or(ProtocolError::CreditOverrun)?;
        self.received = seq;
        if is_data {
            self.data.push_back(seq);
        }
        self.received_since = match self.received_since {
            Received::Nothing | Received::UpdatesOnly if is_update => Received::UpdatesOnly,
            _ => Received::More,
        };
        Ok(())
    }

    /// Records that a buffer was posted again. The count never exceeds the number of buffers.
    pub(crate) fn on_posted(&mut self) {
        self.posted = self.buffers.min(self.posted.saturating_add(1));
    }

    /// Records that buffers were added and posted.
    pub(crate) fn on_added(&mut self, count: u16) {
        self.buffers = self.buffers.saturating_add(count);
        self.posted = self.buffers.min(self.posted.saturating_add(count));
    }

    /// Withholds the acknowledgement from `seq` on until [`Self::release`].
    pub(crate) fn hold_back(&mut self, seq: Seq) {
        self.held_back = Some(seq);
    }

    /// True while an acknowledgement is withheld.
    pub(crate) const fn holds_back(&self) -> bool {
        self.held_back.is_some()
    }

    /// Acknowledges everything again.
    pub(crate) fn release(&mut self) {
        self.held_back = None;
    }

    /// Bufs and MSeqAck for the message that is being built.
    pub(crate) fn announce(&mut self) -> (u16, Seq) {
        self.announced_bufs = self.posted;
        self.announced_ack = self.ack();
        self.received_since = Received::Nothing;
        while (self.data.front()).is_some_and(|seq| self.announced_ack.covers(*seq)) {
            self.data.pop_front();
        }
        (self.announced_bufs, self.announced_ack)
    }

    /// True if a message sent now gives the peer credits.
    pub(crate) fn has_new_credits(&self) -> bool {
        self.peer_credits_if_announced() > self.peer_credits()
    }

    /// Decides whether to announce credits in a message that carries nothing else.
    pub(crate) fn credit_update(&self) -> CreditUpdate {
        let current = self.peer_credits();
        let announced = self.peer_credits_if_announced();
        if announced <= current {
            return CreditUpdate::NotDue;
        }
        let reserve = usize::from(reserve(self.buffers));
        let for_data = usize::from(self.announced_bufs).saturating_sub(self.data.len());
        let window_opens = for_data <= reserve && self.buffers_for_data_if_announced() > reserve;
        // Frequent enough that the peer is not stopped while the reader keeps up with it.
        let step = u32::from(self.buffers / 4).max(2);
        match current {
            _ if window_opens || announced - current >= step => CreditUpdate::Due,
            0 => CreditUpdate::Due,
            1 if self.received_since == Received::More => CreditUpdate::Due,
            1 => CreditUpdate::AtTick,
            _ => CreditUpdate::NotDue,
        }
    }

    fn ack(&self) -> Seq {
        match self.held_back {
            Some(seq) => Seq(seq.0.wrapping_sub(1)),
            None => self.received,
        }
    }

    /// The credits that the peer counts by the values last sent.
    fn peer_credits(&self) -> u32 {
        u32::from(self.announced_bufs).saturating_sub(self.received.since(self.announced_ack))
    }

    /// The credits that the peer would count if the values were sent now.
    fn peer_credits_if_announced(&self) -> u32 {
        u32::from(self.posted).saturating_sub(self.received.since(self.ack()))
    }

    /// The buffers that the peer would count for data if the values were sent now.
    fn buffers_for_data_if_announced(&self) -> usize {
        let ack = self.ack();
        let unacknowledged = self.data.iter().filter(|seq| !ack.covers(**seq)).count();
        usize::from(self.posted).saturating_sub(unacknowledged)
    }
}

#[cfg(test)]
mod tests;
