//! Receive buffers as credits.
//!
//! A message uses up one receive buffer at the peer, whatever it says, so a sender counts what the
//! peer has told it: `Bufs − (last MSeq sent − MSeqAck)`. Two rules keep both sides from waiting
//! for each other:
//!
//! * *The last credit* (CA4-82) is spent only on a message that carries no payload and gives the
//!   peer new credits. So a credit lost is at least one gained at the other side.
//! * *The reserve*: data leaves [`reserve`] buffers at the peer alone, so that control messages
//!   pass although nobody reads. The buffers of control messages are posted again at once, those
//!   of data when the data is read; so a sender that decides about data counts only the data that
//!   is not acknowledged.
//!
//! The reserve is why one empty Data message per opened window is enough. Were an update answered
//! by another because the first one used up a buffer, two idle ends would talk for ever. With three
//! buffers at both ends the reserve is two, and one update may need another in return: that one
//! waits for the engine's tick ([`CreditUpdate::AtTick`]).

use std::collections::VecDeque;

use crate::{BUFFERS_MIN, ProtocolError, Seq};

/// Buffers that data leaves alone when a side has `buffers` of them.
pub(crate) const fn reserve(buffers: u16) -> u16 {
    if buffers > BUFFERS_MIN { 3 } else { 2 }
}

/// What the peer can take.
#[derive(Debug)]
pub(crate) struct SendCredits {
    sent: Seq,
    acked: Seq,
    bufs: u16,
    reserve: u16,
    /// Data that is not acknowledged.
    data: VecDeque<Seq>,
}

impl SendCredits {
    /// Of a peer whose Hello or HelloAck said `bufs`.
    pub(crate) fn new(bufs: u16) -> Self {
        Self {
            sent: Seq(0),
            acked: Seq(0),
            bufs,
            reserve: reserve(bufs),
            data: VecDeque::new(),
        }
    }

    /// Messages that the peer has room for, as far as it is known.
    pub(crate) fn credits(&self) -> u32 {
        u32::from(self.bufs).saturating_sub(self.sent.since(self.acked))
    }

    /// True while the peer has not acknowledged all data.
    pub(crate) fn has_unacknowledged_data(&self) -> bool {
        !self.data.is_empty()
    }

    /// Whether data may leave.
    pub(crate) fn allow_data(&self) -> bool {
        let unread = self.data.len();
        let settled = usize::from(self.bufs).saturating_sub(unread);
        self.credits() >= 2 && settled > usize::from(self.reserve)
    }

    /// Whether a message without payload may leave, which gives the peer credits or does not.
    pub(crate) fn allow_control(&self, gives_credits: bool) -> bool {
        self.credits() >= if gives_credits { 1 } else { 2 }
    }

    /// Numbers the next message.
    pub(crate) fn on_sent(&mut self, is_data: bool) -> Seq {
        self.sent = self.sent.next();
        if is_data {
            self.data.push_back(self.sent);
        }
        self.sent
    }

    /// The peer told its buffers and how far it has come.
    pub(crate) fn on_told(&mut self, bufs: u16, ack: Seq) -> Result<(), ProtocolError> {
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

/// Whether the peer should be told of receive buffers in a message of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CreditUpdate {
    /// No: it knows enough.
    NotDue,
    /// At the engine's next tick, if nothing else was sent until then.
    AtTick,
    /// Yes.
    Due,
}

/// What came since a message was last sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    UpdatesOnly,
    More,
}

/// What this end can take, and what the peer knows of it.
#[derive(Debug)]
pub(crate) struct ReceiveCredits {
    buffers: u16,
    posted: u16,
    received: Seq,
    /// Bufs and MSeqAck of the last message sent.
    told_bufs: u16,
    told_ack: Seq,
    heard: Heard,
    /// Data that came behind `told_ack`.
    data: VecDeque<Seq>,
    /// The cancel that must not be acknowledged yet.
    held_back: Option<Seq>,
}

impl ReceiveCredits {
    /// Of an end that has posted `buffers` and says so in its Hello or HelloAck.
    pub(crate) fn new(buffers: u16) -> Self {
        Self {
            buffers,
            posted: buffers,
            received: Seq(0),
            told_bufs: buffers,
            told_ack: Seq(0),
            heard: Heard::Nothing,
            data: VecDeque::new(),
            held_back: None,
        }
    }

    /// A message came; it took a buffer.
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
        self.heard = match self.heard {
            Heard::Nothing | Heard::UpdatesOnly if is_update => Heard::UpdatesOnly,
            _ => Heard::More,
        };
        Ok(())
    }

    /// A buffer was posted again. Buffers that were never there are not believed.
    pub(crate) fn on_posted(&mut self) {
        self.posted = self.buffers.min(self.posted.saturating_add(1));
    }

    /// Buffers were added, and posted.
    pub(crate) fn on_added(&mut self, count: u16) {
        self.buffers = self.buffers.saturating_add(count);
        self.posted = self.buffers.min(self.posted.saturating_add(count));
    }

    /// Acknowledges nothing from `seq` on until [`Self::release`].
    pub(crate) fn hold_back(&mut self, seq: Seq) {
        self.held_back = Some(seq);
    }

    /// Acknowledges everything again.
    pub(crate) fn release(&mut self) {
        self.held_back = None;
    }

    /// Bufs and MSeqAck of the message that is being made.
    pub(crate) fn on_told(&mut self) -> (u16, Seq) {
        self.told_bufs = self.posted;
        self.told_ack = self.ack();
        self.heard = Heard::Nothing;
        while (self.data.front()).is_some_and(|seq| self.told_ack.covers(*seq)) {
            self.data.pop_front();
        }
        (self.told_bufs, self.told_ack)
    }

    /// Whether a message sent now gives the peer credits.
    pub(crate) fn has_news(&self) -> bool {
        self.would_know() > self.knows()
    }

    /// Whether the peer should be told by a message that says nothing else.
    pub(crate) fn credit_update(&self) -> CreditUpdate {
        let (knows, would) = (self.knows(), self.would_know());
        if would <= knows {
            return CreditUpdate::NotDue;
        }
        let reserve = usize::from(reserve(self.buffers));
        let settled = usize::from(self.told_bufs).saturating_sub(self.data.len());
        let window_opens = settled <= reserve && self.would_settle() > reserve;
        // Often enough that the peer need not stop where a reader keeps up with it.
        let step = u32::from(self.buffers / 4).max(2);
        match knows {
            _ if window_opens || would - knows >= step => CreditUpdate::Due,
            0 => CreditUpdate::Due,
            1 if self.heard == Heard::More => CreditUpdate::Due,
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

    /// Credits that the peer has by what it was told.
    fn knows(&self) -> u32 {
        u32::from(self.told_bufs).saturating_sub(self.received.since(self.told_ack))
    }

    /// Credits that it had if it were told now.
    fn would_know(&self) -> u32 {
        u32::from(self.posted).saturating_sub(self.received.since(self.ack()))
    }

    /// Buffers that it would count for data if it were told now.
    fn would_settle(&self) -> usize {
        let ack = self.ack();
        let behind = self.data.iter().filter(|seq| !ack.covers(**seq)).count();
        usize::from(self.posted).saturating_sub(behind)
    }
}

#[cfg(test)]
mod tests;
