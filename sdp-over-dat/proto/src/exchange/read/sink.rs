//! The exchange at the sink, which reads the memory.

use std::collections::VecDeque;

use crate::{Seq, wire::SrcAvail};

/// The peer's advertisements, oldest first.
///
/// The `on_*` methods are the only writers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// There is no advertisement.
    Idle,
    /// The user may read the advertised memory.
    Offered(Offers),
    /// The peer is to send the rest in Sends. SendSm is due once the bytes that were read are
    /// reported.
    Refusing(Offers),
    /// The peer has cancelled the advertisements. As `Refusing`, but the cancel is not acknowledged
    /// while reads are in progress.
    Cancelled(Offers),
}

type Offers = VecDeque<Offer>;

/// The rest of one of the peer's advertisements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) stag: u32,
    /// The address at which the next read starts.
    pub(crate) address: u64,
    /// Bytes for which no read has been started.
    pub(crate) left: u32,
    /// Bytes of reads in progress.
    pub(crate) reading: u32,
    /// Bytes that were read and not reported.
    pub(crate) unreported: u32,
    /// True while no read was ever started.
    untouched: bool,
}

impl Exchange {
    /// Called when SrcAvail was received, with `inline` bytes of the advertised memory.
    ///
    /// Returns false if the peer may not advertise more, because it has cancelled.
    pub(crate) fn on_offered(&mut self, source: SrcAvail, inline: u32) -> bool {
        let offer = Offer {
            stag: source.stag,
            address: source.address.wrapping_add(u64::from(inline)),
            left: source.len - inline,
            reading: 0,
            unreported: 0,
            untouched: true,
        };
        match self {
            Self::Idle => *self = Self::Offered([offer].into()),
            Self::Offered(offers) | Self::Refusing(offers) => offers.push_back(offer),
            Self::Cancelled(_) => return false,
        }
        true
    }

    /// Starts a read of at most `max` bytes. Returns STag, address and length.
    pub(crate) fn on_read(&mut self, max: u32) -> Option<(u32, u64, u32)> {
        let Self::Offered(offers) = self else {
            return None;
        };
        let offer = offers.iter_mut().find(|offer| offer.left > 0)?;
        let len = offer.left.min(max);
        if len == 0 {
            return None;
        }
        let read = (offer.stag, offer.address, len);
        offer.address = offer.address.wrapping_add(u64::from(len));
        offer.left -= len;
        offer.reading += len;
        offer.untouched = false;
        Some(read)
    }

    /// Called when the oldest read has completed, with `len` bytes.
    pub(crate) fn on_read_done(&mut self, len: u32) {
        let reading = |offer: &&mut Offer| offer.reading > 0;
        if let Some(offer) = self.offers_mut().and_then(|it| it.iter_mut().find(reading)) {
            let len = len.min(offer.reading);
            offer.reading -= len;
            offer.unreported += len;
        }
    }

    /// Called when the user wants the rest in Sends. Does nothing when no rest is left.
    pub(crate) fn on_refuse(&mut self) {
        if let Self::Offered(offers) = self
            && has_rest(offers)
        {
            *self = Self::Refusing(std::mem::take(offers));
        }
    }

    /// Called when SrcAvailCancel was received. It has no effect without an advertisement, or when
    /// reads for all of them have been started.
    pub(crate) fn on_cancel(&mut self) {
        if let Self::Offered(offers) | Self::Refusing(offers) = self
            && has_rest(offers)
        {
            *self = Self::Cancelled(std::mem::take(offers));
        }
    }

    /// Called when the source drops its advertisements and changes the mode. Returns true if that
    /// is allowed. It is not allowed once a read was started, because the two ends would not agree
    /// on the number of bytes read.
    pub(crate) fn on_dropped(&mut self) -> bool {
        match self {
            Self::Idle => true,
            Self::Offered(offers) if offers.iter().all(|offer| offer.untouched) => {
                *self = Self::Idle;
                true
            }
            Self::Offered(_) | Self::Refusing(_) | Self::Cancelled(_) => false,
        }
    }

    /// Called when RdmaRdCompl about the oldest advertisement is being sent. Returns the number of
    /// bytes that it reports.
    pub(crate) fn on_reported(&mut self) -> u32 {
        let Some(offers) = self.offers_mut() else {
            return 0;
        };
        let Some(offer) = offers.front_mut() else {
            return 0;
        };
        let bytes = std::mem::take(&mut offer.unreported);
        if offer.left == 0 && offer.reading == 0 {
            offers.pop_front();
            if offers.is_empty() {
                *self = Self::Idle;
            }
        }
        bytes
    }

    /// Called when SendSm is being sent.
    pub(crate) fn on_send_sm(&mut self) {
        if self.is_send_sm_due() {
            *self = Self::Idle;
        }
    }

    /// True if RdmaRdCompl is due. The bytes that were read of the oldest advertisement are
    /// reported when no read of it is in progress.
    pub(crate) fn is_report_due(&self) -> bool {
        let oldest = self.offers().and_then(VecDeque::front);
        oldest.is_some_and(|offer| offer.unreported > 0 && offer.reading == 0)
    }

    /// True if SendSm is due.
    pub(crate) fn is_send_sm_due(&self) -> bool {
        match self {
            Self::Idle | Self::Offered(_) => false,
            Self::Refusing(offers) | Self::Cancelled(offers) => {
                let is_settled = |offer: &Offer| offer.unreported == 0 && offer.reading == 0;
                offers.iter().all(is_settled)
            }
        }
    }

    /// True while reads are in progress although the peer has cancelled the advertisements.
    pub(crate) fn delays_ack(&self) -> bool {
        matches!(self, Self::Cancelled(offers) if offers.iter().any(|offer| offer.reading > 0))
    }

    /// The number of bytes for which reads may be started.
    pub(crate) fn readable(&self) -> u32 {
        match self {
            Self::Offered(offers) => {
                let left = offers.iter().map(|offer| offer.left);
                left.fold(0, u32::saturating_add)
            }
            Self::Idle | Self::Refusing(_) | Self::Cancelled(_) => 0,
        }
    }

    /// The number of advertisements.
    pub(crate) fn len(&self) -> usize {
        self.offers().map_or(0, VecDeque::len)
    }

    /// True if there is no advertisement.
    pub(crate) const fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    const fn offers(&self) -> Option<&Offers> {
        match self {
            Self::Idle => None,
            Self::Offered(offers) | Self::Refusing(offers) | Self::Cancelled(offers) => {
                Some(offers)
            }
        }
    }

    const fn offers_mut(&mut self) -> Option<&mut Offers> {
        match self {
            Self::Idle => None,
            Self::Offered(offers) | Self::Refusing(offers) | Self::Cancelled(offers) => {
                Some(offers)
            }
        }
    }
}

fn has_rest(offers: &Offers) -> bool {
    offers.iter().any(|offer| offer.left > 0)
}

/// The number of the cancel whose acknowledgement is withheld, if any. Everything before the cancel
/// is acknowledged.
pub(crate) fn held_back(exchange: &Exchange, cancel: Seq) -> Option<Seq> {
    exchange.delays_ack().then_some(cancel)
}

#[cfg(test)]
mod tests {
    use super::{Exchange::*, *};

    const fn offer(left: u32, reading: u32, unreported: u32) -> Offer {
        Offer {
            stag: 7,
            address: 0x1000,
            left,
            reading,
            unreported,
            untouched: false,
        }
    }

    fn of(state: fn(Offers) -> Exchange, offers: &[(u32, u32, u32)]) -> Exchange {
        let offers = offers.iter();
        state(offers.map(|one| offer(one.0, one.1, one.2)).collect())
    }

    /// One advertisement in each state and phase of reading, then two.
    fn states() -> [Exchange; 13] {
        [
            Idle,
            of(Offered, &[(50, 0, 0)]),
            of(Offered, &[(50, 20, 0)]),
            of(Offered, &[(0, 20, 0)]),
            of(Offered, &[(0, 0, 20)]),
            of(Refusing, &[(50, 20, 0)]),
            of(Refusing, &[(50, 0, 0)]),
            of(Cancelled, &[(50, 20, 0)]),
            of(Cancelled, &[(50, 0, 0)]),
            of(Offered, &[(0, 20, 0), (50, 20, 0)]),
            of(Offered, &[(0, 0, 20), (50, 20, 0)]),
            of(Refusing, &[(0, 0, 20), (50, 0, 0)]),
            of(Cancelled, &[(0, 20, 0), (50, 0, 0)]),
        ]
    }

    type On = fn(&mut Exchange);

    /// Rows are events, columns are states in the order of `states`.
    #[rustfmt::skip]
    fn rows() -> [(&'static str, On, [Exchange; 13]); 5] {
        let s = states();
        let at = |index: usize| s[index].clone();
        [
            ("20 read", |e| e.on_read_done(20), [
                Idle, at(1), of(Offered, &[(50, 0, 20)]), at(4), at(4),
                of(Refusing, &[(50, 0, 20)]), at(6), of(Cancelled, &[(50, 0, 20)]), at(8),
                of(Offered, &[(0, 0, 20), (50, 20, 0)]), of(Offered, &[(0, 0, 20), (50, 0, 20)]),
                at(11), of(Cancelled, &[(0, 0, 20), (50, 0, 0)]),
            ]),
            ("refuse", |e| e.on_refuse(), [
                Idle, at(6), at(5), at(3), at(4), at(5), at(6), at(7), at(8),
                of(Refusing, &[(0, 20, 0), (50, 20, 0)]), of(Refusing, &[(0, 0, 20), (50, 20, 0)]),
                at(11), at(12),
            ]),
            ("cancel", |e| e.on_cancel(), [
                Idle, at(8), at(7), at(3), at(4), at(7), at(8), at(7), at(8),
                of(Cancelled, &[(0, 20, 0), (50, 20, 0)]),
                of(Cancelled, &[(0, 0, 20), (50, 20, 0)]),
                of(Cancelled, &[(0, 0, 20), (50, 0, 0)]), at(12),
            ]),
            ("reported", |e| { e.on_reported(); }, [
                Idle, at(1), at(2), at(3), Idle, at(5), at(6), at(7), at(8),
                at(9), of(Offered, &[(50, 20, 0)]), at(6), at(12),
            ]),
            ("SendSm", |e| e.on_send_sm(), [
                Idle, at(1), at(2), at(3), at(4), at(5), Idle, at(7), Idle,
                at(9), at(10), at(11), at(12),
            ]),
        ]
    }

    #[test]
    fn every_event_in_every_state() {
        for (name, on, after) in rows() {
            for (before, expected) in states().into_iter().zip(after) {
                let mut exchange = before.clone();
                on(&mut exchange);
                assert_eq!(exchange, expected, "{name} in {before:?}");
            }
        }
    }

    #[test]
    fn each_state_requires_and_permits_its_messages() {
        let readable = states().map(|state| state.readable());
        assert_eq!(readable, [0, 50, 50, 0, 0, 0, 0, 0, 0, 50, 50, 0, 0]);
        let that = |which: fn(&Exchange) -> bool| {
            let indices = (0..).zip(states());
            let chosen = indices.filter(|(_, state)| which(state));
            chosen.map(|(index, _)| index).collect::<Vec<_>>()
        };
        assert_eq!(that(Exchange::is_report_due), [4, 10, 11]);
        assert_eq!(that(Exchange::is_send_sm_due), [6, 8]);
        assert_eq!(that(Exchange::delays_ack), [7, 12]);
        let reads = states().map(|mut state| state.on_read(30));
        let indices = (0..).zip(reads);
        let begun = indices.filter(|(_, read)| *read == Some((7, 0x1000, 30)));
        assert!(begun.map(|(index, _)| index).eq([1, 2, 9, 10]));
        assert_eq!(reads.iter().flatten().count(), 4);
        let lens = states().map(|state| state.len());
        assert_eq!(lens, [0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2]);
    }

    const SOURCE: SrcAvail = SrcAvail {
        len: 100,
        stag: 7,
        address: 0x1000,
    };

    #[test]
    fn another_advertisement_in_every_state() {
        for before in states() {
            let mut after = before.clone();
            let is_taken = after.on_offered(SOURCE, 0);
            assert_eq!(is_taken, !matches!(before, Cancelled(_)), "{before:?}");
            assert_eq!(after.len(), before.len() + usize::from(is_taken));
        }
    }

    #[test]
    fn an_unused_advertisement_may_be_dropped() {
        let mut exchange = Idle;
        exchange.on_offered(SOURCE, 10);
        assert_eq!(exchange.readable(), 90);
        assert!(exchange.on_dropped());
        assert_eq!(exchange, Idle);
        exchange.on_offered(SOURCE, 10);
        assert_eq!(exchange.on_read(40), Some((7, 0x100a, 40)));
        assert!(!exchange.on_dropped());
    }

    #[test]
    fn reads_pass_from_one_advertisement_to_the_next() {
        let mut exchange = Idle;
        exchange.on_offered(SOURCE, 0);
        exchange.on_offered(SrcAvail { stag: 8, ..SOURCE }, 0);
        assert_eq!(exchange.on_read(1_000), Some((7, 0x1000, 100)));
        assert_eq!(exchange.on_read(70), Some((8, 0x1000, 70)));
        exchange.on_read_done(100);
        assert!(exchange.is_report_due());
        assert_eq!(exchange.on_reported(), 100);
        assert!(!exchange.is_report_due(), "the other one is being read");
        exchange.on_read_done(70);
        assert_eq!(exchange.on_reported(), 70);
        assert_eq!((exchange.len(), exchange.readable()), (1, 30));
    }
}
