//! The exchange at the source, whose memory is read.

use super::{Advert, OnCancel};
use crate::{ProtocolError, Seq};

/// The state of the advertisement that was sent to the peer.
///
/// The `on_*` methods are the only writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// No advertisement is outstanding.
    Idle,
    /// SrcAvail was sent.
    Offered(Offer),
    /// The advertisement is to be cancelled, and the peer has not been notified yet.
    CancelDue(Offer, OnCancel),
    /// SrcAvailCancel was sent.
    Cancelling(Offer, OnCancel),
}

/// An advertisement that was sent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) advert: Advert,
    /// The sequence number of its SrcAvail.
    seq: Seq,
    /// The number of bytes, from the front, that the peer has received.
    pub(crate) taken: u32,
}

/// The way in which an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The peer has received all of it.
    Done(Offer),
    /// The rest follows in Sends.
    SendRest(Offer),
    /// The rest was taken back and is not part of the stream.
    TakenBack(Offer),
}

impl Exchange {
    /// SrcAvail was sent, with `inline` bytes.
    pub(crate) fn on_offered(&mut self, advert: Advert, seq: Seq, inline: u32) {
        *self = Self::Offered(Offer {
            advert,
            seq,
            taken: inline,
        });
    }

    /// This end wants the memory back. A second call may change the fate of the rest: bytes that
    /// were to follow in Sends may still be taken back, but not the other way round.
    pub(crate) fn on_cancel(&mut self, then: OnCancel) {
        *self = match *self {
            Self::Idle => Self::Idle,
            Self::Offered(offer) => Self::CancelDue(offer, then),
            Self::CancelDue(offer, before) => Self::CancelDue(offer, firmer(before, then)),
            Self::Cancelling(offer, before) => Self::Cancelling(offer, firmer(before, then)),
        };
    }

    /// SrcAvailCancel was sent.
    pub(crate) fn on_cancel_sent(&mut self) {
        if let Self::CancelDue(offer, then) = *self {
            *self = Self::Cancelling(offer, then);
        }
    }

    /// RdmaRdCompl was received.
    pub(crate) fn on_read(&mut self, bytes: u32) -> Result<Option<Outcome>, ProtocolError> {
        let offer = match self {
            Self::Idle => return Err(over(bytes, 0)),
            Self::Offered(offer) | Self::CancelDue(offer, _) | Self::Cancelling(offer, _) => offer,
        };
        let outstanding = offer.advert.len - offer.taken;
        if bytes == 0 || bytes > outstanding {
            return Err(over(bytes, outstanding));
        }
        offer.taken += bytes;
        if bytes < outstanding {
            return Ok(None);
        }
        let offer = *offer;
        *self = Self::Idle;
        Ok(Some(Outcome::Done(offer)))
    }

    /// SendSm was received, acknowledging messages up to `ack`. A SendSm that does not acknowledge
    /// this advertisement is about an earlier one, and is ignored.
    pub(crate) fn on_send_sm(&mut self, ack: Seq) -> Option<Outcome> {
        let (offer, then) = match *self {
            Self::Idle => return None,
            Self::Offered(offer) => (offer, OnCancel::Send),
            Self::CancelDue(offer, then) | Self::Cancelling(offer, then) => (offer, then),
        };
        if !ack.covers(offer.seq) {
            return None;
        }
        *self = Self::Idle;
        Some(match then {
            OnCancel::Send => Outcome::SendRest(offer),
            OnCancel::TakeBack => Outcome::TakenBack(offer),
        })
    }

    /// True if no advertisement is outstanding.
    pub(crate) const fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }
}

const fn firmer(before: OnCancel, then: OnCancel) -> OnCancel {
    match before {
        OnCancel::TakeBack => OnCancel::TakeBack,
        OnCancel::Send => then,
    }
}

const fn over(reported: u32, outstanding: u32) -> ProtocolError {
    ProtocolError::ReadReport {
        reported,
        outstanding,
    }
}

#[cfg(test)]
mod tests {
    use super::{Exchange::*, OnCancel::*, Outcome::*, *};
    use crate::AdvertId;

    fn offer(taken: u32) -> Offer {
        Offer {
            advert: Advert {
                id: AdvertId(1),
                len: 100,
                stag: 7,
                address: 0x1000,
                inline: 10,
            },
            seq: Seq(5),
            taken,
        }
    }

    fn states() -> [Exchange; 6] {
        let offer = offer(10);
        [
            Idle,
            Offered(offer),
            CancelDue(offer, Send),
            CancelDue(offer, TakeBack),
            Cancelling(offer, Send),
            Cancelling(offer, TakeBack),
        ]
    }

    #[test]
    fn every_wish_of_this_end_in_every_state() {
        let [_, _, due_send, due_back, sent_send, sent_back] = states();
        type On = fn(&mut Exchange);
        let rows: [(&str, On, [Exchange; 6]); 3] = [
            (
                "cancel, the rest in Sends",
                |exchange| exchange.on_cancel(Send),
                [Idle, due_send, due_send, due_back, sent_send, sent_back],
            ),
            (
                "cancel, the rest taken back",
                |exchange| exchange.on_cancel(TakeBack),
                [Idle, due_back, due_back, due_back, sent_back, sent_back],
            ),
            (
                "cancel sent",
                |exchange| exchange.on_cancel_sent(),
                [
                    Idle,
                    Offered(offer(10)),
                    sent_send,
                    sent_back,
                    sent_send,
                    sent_back,
                ],
            ),
        ];
        for (name, on, after) in rows {
            for (before, expected) in states().into_iter().zip(after) {
                let mut exchange = before;
                on(&mut exchange);
                assert_eq!(exchange, expected, "{name} in {before:?}");
            }
        }
    }

    #[test]
    fn every_answer_of_the_peer_in_every_state() {
        for before in states() {
            let with = |taken| match before {
                Idle => Idle,
                Offered(_) => Offered(offer(taken)),
                CancelDue(_, then) => CancelDue(offer(taken), then),
                Cancelling(_, then) => Cancelling(offer(taken), then),
            };
            let is_idle = before == Idle;
            let mut part = before;
            let outcome = part.on_read(40);
            assert_eq!(outcome, if is_idle { Err(over(40, 0)) } else { Ok(None) });
            assert_eq!(part, with(50), "a part read in {before:?}");

            let mut all = before;
            let outcome = all.on_read(90);
            let done = Ok(Some(Done(offer(100))));
            assert_eq!(outcome, if is_idle { Err(over(90, 0)) } else { done });
            assert_eq!(all, Idle, "all read in {before:?}");

            for wrong in [0, 91, u32::MAX] {
                let mut more = before;
                assert!(more.on_read(wrong).is_err(), "{wrong} read in {before:?}");
                assert_eq!(more, before);
            }

            let mut stale = before;
            assert_eq!(stale.on_send_sm(Seq(4)), None);
            assert_eq!(stale, before, "an older SendSm in {before:?}");

            let mut refused = before;
            let expected = match before {
                Idle => None,
                Offered(_) | CancelDue(_, Send) | Cancelling(_, Send) => {
                    Some(Outcome::SendRest(offer(10)))
                }
                CancelDue(..) | Cancelling(..) => Some(TakenBack(offer(10))),
            };
            assert_eq!(refused.on_send_sm(Seq(5)), expected, "SendSm in {before:?}");
            assert_eq!(refused, Idle);
        }
    }
}
