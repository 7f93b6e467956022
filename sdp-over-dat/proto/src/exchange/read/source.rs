//! The exchange at the source, whose memory is read.

use std::collections::VecDeque;

use crate::{Advert, AdvertId, OnCancel, ProtocolError, Seq, exchange::Cancel};

/// The advertisements that were sent to the peer, oldest first, and their cancel.
///
/// The `on_*` methods are the only writers. A cancel ends with the last advertisement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    offers: VecDeque<Offer>,
    cancel: Cancel,
    /// The number of the SrcAvailCancel, once it was sent.
    cancelled_at: Seq,
}

/// An advertisement that was sent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) advert: Advert,
    /// The sequence number of its SrcAvail.
    seq: Seq,
    /// The number of bytes that were sent with it. Zero in pipelined mode.
    inline: u32,
    /// The number of bytes, from the front, that the peer has received.
    pub(crate) taken: u32,
    fate: Fate,
}

/// The fate of the rest of an advertisement that the peer does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The rest is advertised again if the peer has received nothing of it.
    Unchanged,
    Cancelled(OnCancel),
}

/// The way in which the exchange about an advertisement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The peer has received all bytes of the advertisement.
    Done(Offer),
    /// The advertisement is sent again.
    Again(Offer),
    /// The rest of the bytes follows in Sends.
    SendRest(Offer),
    /// The rest of the bytes was taken back and is not part of the stream.
    TakenBack(Offer),
}

impl Exchange {
    /// No advertisement is outstanding.
    pub(crate) const fn new() -> Self {
        Self {
            offers: VecDeque::new(),
            cancel: Cancel::None,
            cancelled_at: Seq(0),
        }
    }

    /// Called when SrcAvail was sent, with `inline` bytes.
    pub(crate) fn on_offered(&mut self, advert: Advert, seq: Seq, inline: u32) {
        self.offers.push_back(Offer {
            advert,
            seq,
            inline,
            taken: inline,
            fate: Fate::Unchanged,
        });
    }

    /// Called when this end wants the memory of advertisement `id` back, or of all advertisements.
    ///
    /// A SrcAvailCancel concerns all advertisements, so those that this end does not want back are
    /// sent again if the peer has received nothing of them. A second call may change the fate of
    /// the rest: bytes that were to follow in Sends may still be taken back, but not the other way
    /// round. Returns false if no such advertisement is outstanding.
    pub(crate) fn on_cancel(&mut self, id: Option<AdvertId>, then: OnCancel) -> bool {
        let mut is_found = false;
        for offer in &mut self.offers {
            if id.is_none_or(|id| id == offer.advert.id) {
                offer.fate = offer.fate.after_cancel(then);
                is_found = true;
            }
        }
        if is_found && self.cancel == Cancel::None {
            self.cancel = Cancel::Due;
        }
        is_found
    }

    /// Called when SrcAvailCancel was sent as message `seq`.
    pub(crate) fn on_cancel_sent(&mut self, seq: Seq) {
        if self.cancel == Cancel::Due {
            self.cancel = Cancel::Sent;
            self.cancelled_at = seq;
        }
    }

    /// Called when RdmaRdCompl was received, which is about the oldest advertisement.
    pub(crate) fn on_read(&mut self, bytes: u32) -> Result<Option<Outcome>, ProtocolError> {
        let Some(offer) = self.offers.front_mut() else {
            return Err(over(bytes, 0));
        };
        let outstanding = offer.advert.len - offer.taken;
        if bytes == 0 || bytes > outstanding {
            return Err(over(bytes, outstanding));
        }
        offer.taken += bytes;
        if bytes < outstanding {
            return Ok(None);
        }
        let done = self.offers.pop_front().map(Outcome::Done);
        self.end_cancel();
        Ok(done)
    }

    /// Called when SendSm was received, acknowledging messages up to `ack`. Returns the outcomes in
    /// stream order.
    ///
    /// SendSm refuses the advertisements that it acknowledges. The sink has also dropped the later
    /// advertisements without payload. If a cancel of these was sent, the sink answers the cancel
    /// with another SendSm. The refused advertisements then wait for that SendSm too, so that
    /// their bytes stay in order. A SendSm does not concern a later advertisement with payload.
    pub(crate) fn on_send_sm(&mut self, ack: Seq) -> Vec<Outcome> {
        let answers_cancel = self.cancel == Cancel::Sent && ack.covers(self.cancelled_at);
        let is_later = |offer: &Offer| offer.inline == 0 && !ack.covers(offer.seq);
        if self.cancel == Cancel::Sent && !answers_cancel && self.offers.iter().any(is_later) {
            let refused = |offer: &&mut Offer| ack.covers(offer.seq);
            for offer in self.offers.iter_mut().filter(refused) {
                offer.fate = offer.fate.after_cancel(OnCancel::Send);
            }
            return Vec::new();
        }
        let (mut outcomes, mut kept) = (Vec::new(), VecDeque::new());
        for offer in self.offers.drain(..) {
            let is_refused = ack.covers(offer.seq);
            if is_refused || offer.inline == 0 {
                outcomes.push(offer.outcome(is_refused && !answers_cancel));
            } else {
                kept.push_back(offer);
            }
        }
        self.offers = kept;
        self.end_cancel();
        outcomes
    }

    /// Called when the sink has advertised its own memory, which revokes all these advertisements.
    /// Returns the outcomes in stream order.
    pub(crate) fn on_revoked(&mut self) -> Vec<Outcome> {
        let outcomes = self.offers.drain(..).map(|offer| offer.outcome(false));
        let outcomes = outcomes.collect();
        self.end_cancel();
        outcomes
    }

    fn end_cancel(&mut self) {
        if self.offers.is_empty() {
            self.cancel = Cancel::None;
        }
    }

    /// True if SrcAvailCancel is due.
    pub(crate) const fn is_cancel_due(&self) -> bool {
        matches!(self.cancel, Cancel::Due)
    }

    /// True while no cancel forbids another advertisement.
    pub(crate) const fn may_offer(&self) -> bool {
        matches!(self.cancel, Cancel::None)
    }

    /// The number of bytes of advertisement `id` that the peer has received so far, while the
    /// advertisement is outstanding.
    pub(crate) fn taken(&self, id: AdvertId) -> Option<u32> {
        let offer = self.offers.iter().find(|offer| offer.advert.id == id);
        offer.map(|offer| offer.taken)
    }

    /// The number of outstanding advertisements.
    pub(crate) fn len(&self) -> usize {
        self.offers.len()
    }

    /// True if no advertisement is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        self.offers.is_empty()
    }
}

impl Offer {
    fn outcome(self, is_refused: bool) -> Outcome {
        match self.fate {
            Fate::Cancelled(OnCancel::TakeBack) => Outcome::TakenBack(self),
            Fate::Cancelled(OnCancel::Send) => Outcome::SendRest(self),
            Fate::Unchanged if is_refused || self.taken > 0 => Outcome::SendRest(self),
            Fate::Unchanged => Outcome::Again(self),
        }
    }
}

impl Fate {
    const fn after_cancel(self, then: OnCancel) -> Self {
        match self {
            Self::Cancelled(OnCancel::TakeBack) => self,
            Self::Unchanged | Self::Cancelled(OnCancel::Send) => Self::Cancelled(then),
        }
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
    use super::{Cancel, Fate::*, OnCancel::*, Outcome::*, *};

    const fn offer(id: u64, seq: u32, inline: u32, taken: u32, fate: Fate) -> Offer {
        Offer {
            advert: Advert {
                id: AdvertId(id),
                len: 100,
                stag: 7,
                address: 0x1000,
                inline: 10,
            },
            seq: Seq(seq),
            inline,
            taken,
            fate,
        }
    }

    fn exchange(offers: &[Offer], cancel: Cancel) -> Exchange {
        Exchange {
            offers: offers.iter().copied().collect(),
            cancel,
            cancelled_at: Seq(if cancel == Cancel::Sent { 9 } else { 0 }),
        }
    }

    /// Without and with an advertisement of combined mode, and with two of pipelined mode.
    fn states() -> Vec<Exchange> {
        let one = |fate, cancel| exchange(&[offer(1, 5, 10, 10, fate)], cancel);
        let two = |fate, cancel| {
            exchange(
                &[offer(1, 5, 0, 0, fate), offer(2, 6, 0, 0, Unchanged)],
                cancel,
            )
        };
        let mut states = vec![exchange(&[], Cancel::None)];
        for of in [&one as &dyn Fn(Fate, Cancel) -> Exchange, &two] {
            states.push(of(Unchanged, Cancel::None));
            for cancel in [Cancel::Due, Cancel::Sent] {
                states.push(of(Cancelled(Send), cancel));
                states.push(of(Cancelled(TakeBack), cancel));
            }
        }
        states
    }

    #[test]
    fn every_cancel_in_every_state() {
        for before in states() {
            for then in [Send, TakeBack] {
                let mut after = before.clone();
                assert_eq!(after.on_cancel(Some(AdvertId(1)), then), !before.is_idle());
                assert!(!after.on_cancel(Some(AdvertId(3)), then));
                let Some(first) = before.offers.front() else {
                    assert_eq!(after, before);
                    continue;
                };
                let fate = match (first.fate, then) {
                    (Cancelled(TakeBack), _) | (_, TakeBack) => Cancelled(TakeBack),
                    _ => Cancelled(Send),
                };
                assert_eq!(after.offers[0].fate, fate, "{before:?}");
                let others = after.offers.iter().skip(1);
                assert!(others.eq(before.offers.iter().skip(1)), "the others stay");
                let expected = match before.cancel {
                    Cancel::None => Cancel::Due,
                    other => other,
                };
                assert_eq!(after.cancel, expected);
            }
            let mut sent = before.clone();
            sent.on_cancel_sent(Seq(9));
            let expected = match before.cancel {
                Cancel::Due => Cancel::Sent,
                other => other,
            };
            assert_eq!(sent, exchange(&Vec::from(before.offers), expected));
        }
    }

    #[test]
    fn every_report_of_the_peer_in_every_state() {
        for before in states() {
            let rest = before.offers.front().map_or(0, |first| 100 - first.taken);
            for wrong in [0, rest + 1, u32::MAX] {
                let mut after = before.clone();
                assert_eq!(after.on_read(wrong), Err(over(wrong, rest)));
                assert_eq!(after, before);
            }
            if before.is_idle() {
                continue;
            }
            let mut part = before.clone();
            assert_eq!(part.on_read(40), Ok(None));
            assert_eq!(part.offers[0].taken, before.offers[0].taken + 40);
            assert_eq!(part.taken(AdvertId(1)), Some(part.offers[0].taken));
            assert_eq!(part.taken(AdvertId(3)), None);
            assert_eq!(part.cancel, before.cancel);

            let mut all = before.clone();
            let done = Offer {
                taken: 100,
                ..before.offers[0]
            };
            assert_eq!(all.on_read(rest), Ok(Some(Done(done))));
            assert_eq!(all.len(), before.len() - 1);
            let expected = if all.is_idle() {
                Cancel::None
            } else {
                before.cancel
            };
            assert_eq!(all.cancel, expected, "a cancel ends with the last one");
        }
    }

    #[test]
    fn every_refusal_in_every_state() {
        for before in states() {
            // 4: before all, 5: the first, 6: both, 9: the cancel.
            for ack in [4, 5, 6, 9] {
                let mut after = before.clone();
                let outcomes = after.on_send_sm(Seq(ack));
                let expected = expected(&before, ack);
                assert_eq!(outcomes, expected, "{ack} in {before:?}");
                assert_eq!(after.len() + expected.len(), before.len());
                assert!(!after.is_idle() || after.may_offer());
            }
        }
    }

    fn expected(before: &Exchange, ack: u32) -> Vec<Outcome> {
        let answers_cancel = ack == 9 && before.cancel == Cancel::Sent;
        let is_later = |one: &Offer| one.inline == 0 && one.seq.0 > ack;
        let awaits_another =
            ack < 9 && before.cancel == Cancel::Sent && before.offers.iter().any(is_later);
        let has_ended = |one: &&Offer| (one.seq.0 <= ack || one.inline == 0) && !awaits_another;
        let ended = before.offers.iter().filter(has_ended);
        let outcome = |one: &Offer| match one.fate {
            Cancelled(Send) => SendRest(*one),
            Cancelled(TakeBack) => TakenBack(*one),
            Unchanged if one.inline > 0 => SendRest(*one),
            Unchanged if one.seq.0 <= ack && !answers_cancel => SendRest(*one),
            Unchanged => Outcome::Again(*one),
        };
        ended.map(outcome).collect()
    }

    #[test]
    fn a_revocation_in_every_state() {
        for before in states() {
            let mut after = before.clone();
            let outcomes = after.on_revoked();
            let outcome = |one: &Offer| match one.fate {
                Cancelled(Send) => SendRest(*one),
                Cancelled(TakeBack) => TakenBack(*one),
                Unchanged if one.inline > 0 => SendRest(*one),
                Unchanged => Outcome::Again(*one),
            };
            let expected: Vec<_> = before.offers.iter().map(outcome).collect();
            assert_eq!(outcomes, expected, "{before:?}");
            assert!(after.is_idle() && after.may_offer());
        }
    }

    #[test]
    fn each_state_requires_and_permits_its_messages() {
        for state in states() {
            assert_eq!(state.is_cancel_due(), state.cancel == Cancel::Due);
            assert_eq!(state.may_offer(), state.cancel == Cancel::None);
        }
        let mut exchange = Exchange::new();
        exchange.on_offered(offer(1, 5, 0, 0, Unchanged).advert, Seq(5), 10);
        assert_eq!(exchange, states()[1]);
    }
}
