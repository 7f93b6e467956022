//! Requests for another size of receive buffers.
//!
//! The end that sends the data asks (ChRcvBuf), and the end that owns the buffers answers with the
//! size that they have from then on (ChRcvBufAck). Sizes include the base header.
//!
//! * Larger buffers: the owner answers after every posted buffer has the new size, so the sender
//!   may use it as soon as it receives the answer.
//! * Smaller buffers: the sender keeps to the smaller size from its request on. The owner answers
//!   at once, and posts smaller buffers only after the peer has acknowledged the answer.

use crate::Seq;

/// The request of this end for other buffers at the peer. The `on_*` methods are the only writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// No request is outstanding.
    Settled,
    /// ChRcvBuf with this size is to be sent.
    Due(u32),
    /// ChRcvBuf with this size was sent.
    Asked(u32),
}

/// The answer of this end to a request of the peer. The `on_*` methods are the only writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// No request was received, or the peer has acknowledged the answer.
    Settled,
    /// The engine is to answer.
    Asked,
    /// ChRcvBufAck with this size is to be sent.
    Due(u32),
    /// ChRcvBufAck with this size was sent with this number.
    Sent(u32, Seq),
}

impl Request {
    /// Called when the engine asks for buffers of `size` bytes. Returns false while an answer is
    /// outstanding.
    pub(crate) const fn on_wanted(&mut self, size: u32) -> bool {
        let may_ask = !matches!(self, Self::Asked(_));
        if may_ask {
            *self = Self::Due(size);
        }
        may_ask
    }

    /// Called when a message may be sent. Returns the size for ChRcvBuf, if that message is due.
    pub(crate) const fn on_sent(&mut self) -> Option<u32> {
        let Self::Due(size) = *self else {
            return None;
        };
        *self = Self::Asked(size);
        Some(size)
    }

    /// Called when ChRcvBufAck was received. Returns false if it answers nothing.
    pub(crate) const fn on_answered(&mut self) -> bool {
        let is_asked = matches!(self, Self::Asked(_));
        if is_asked {
            *self = Self::Settled;
        }
        is_asked
    }
}

impl Answer {
    /// Called when ChRcvBuf was received. One answer is enough for several requests.
    pub(crate) const fn on_asked(&mut self) {
        *self = Self::Asked;
    }

    /// Called when the engine answers with buffers of `size` bytes. Returns false if nothing was
    /// asked.
    pub(crate) const fn on_decided(&mut self, size: u32) -> bool {
        let is_asked = matches!(self, Self::Asked);
        if is_asked {
            *self = Self::Due(size);
        }
        is_asked
    }

    /// Called when ChRcvBufAck was sent as message `seq`.
    pub(crate) const fn on_sent(&mut self, seq: Seq) {
        if let Self::Due(size) = *self {
            *self = Self::Sent(size, seq);
        }
    }

    /// Called when the peer has acknowledged messages up to `ack`. Returns the size of the buffers
    /// if this is the first acknowledgement of ChRcvBufAck.
    pub(crate) const fn on_acknowledged(&mut self, ack: Seq) -> Option<u32> {
        match *self {
            Self::Sent(size, seq) if ack.covers(seq) => {
                *self = Self::Settled;
                Some(size)
            }
            _ => None,
        }
    }

    /// The size for the ChRcvBufAck that is due.
    pub(crate) const fn due(self) -> Option<u32> {
        match self {
            Self::Due(size) => Some(size),
            Self::Settled | Self::Asked | Self::Sent(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_in_every_state_of_a_request() {
        use Request::{Asked, Due, Settled};
        for (before, wanted, sent, answered) in [
            (Settled, (true, Due(9)), (None, Settled), (false, Settled)),
            (Due(5), (true, Due(9)), (Some(5), Asked(5)), (false, Due(5))),
            (
                Asked(5),
                (false, Asked(5)),
                (None, Asked(5)),
                (true, Settled),
            ),
        ] {
            let mut it = before;
            assert_eq!((it.on_wanted(9), it), wanted, "wanted in {before:?}");
            let mut it = before;
            assert_eq!((it.on_sent(), it), sent, "sent in {before:?}");
            let mut it = before;
            assert_eq!((it.on_answered(), it), answered, "answered in {before:?}");
        }
    }

    #[test]
    fn every_event_in_every_state_of_an_answer() {
        use Answer::{Asked, Due, Sent, Settled};
        let known = Sent(5, Seq(3));
        for (before, decided, sent, acknowledged) in [
            (Settled, (false, Settled), Settled, (None, Settled)),
            (Asked, (true, Due(9)), Asked, (None, Asked)),
            (Due(5), (false, Due(5)), Sent(5, Seq(7)), (None, Due(5))),
            (known, (false, known), known, (Some(5), Settled)),
        ] {
            let mut it = before;
            it.on_asked();
            assert_eq!(it, Asked, "asked in {before:?}");
            let mut it = before;
            assert_eq!((it.on_decided(9), it), decided, "decided in {before:?}");
            let mut it = before;
            it.on_sent(Seq(7));
            assert_eq!(it, sent, "sent in {before:?}");
            let mut it = before;
            assert_eq!(it.on_acknowledged(Seq(2)), None);
            assert_eq!(it, before, "an earlier acknowledgement in {before:?}");
            assert_eq!((it.on_acknowledged(Seq(3)), it), acknowledged, "{before:?}");
            assert_eq!(before.due().is_some(), matches!(before, Due(_)));
        }
    }
}
