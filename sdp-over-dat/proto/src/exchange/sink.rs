//! The exchange at the sink, which reads the memory.

use crate::{Seq, wire::SrcAvail};

/// The state of the peer's advertisement.
///
/// The `on_*` methods are the only writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// There is no advertisement.
    Idle,
    /// The user may read the advertised memory.
    Offered(Offer),
    /// The peer is to send the rest in Sends. SendSm is due once the bytes that were read are
    /// reported.
    Refusing(Offer),
    /// The peer has cancelled the advertisement. As `Refusing`, but the cancel is not acknowledged
    /// while reads are in progress.
    Cancelled(Offer),
}

/// The rest of the peer's advertisement.
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
    /// SrcAvail was received, with `inline` bytes of the advertised memory.
    pub(crate) fn on_offered(&mut self, source: SrcAvail, inline: u32) {
        *self = Self::Offered(Offer {
            stag: source.stag,
            address: source.address.wrapping_add(u64::from(inline)),
            left: source.len - inline,
            reading: 0,
            unreported: 0,
            untouched: true,
        });
    }

    /// Starts a read of at most `max` bytes. Returns STag, address and length.
    pub(crate) fn on_read(&mut self, max: u32) -> Option<(u32, u64, u32)> {
        let Self::Offered(offer) = self else {
            return None;
        };
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

    /// A read of `len` bytes has completed.
    pub(crate) fn on_read_done(&mut self, len: u32) {
        if let Self::Offered(offer) | Self::Refusing(offer) | Self::Cancelled(offer) = self {
            let len = len.min(offer.reading);
            offer.reading -= len;
            offer.unreported += len;
        }
    }

    /// The user wants the rest in Sends. Does nothing when no rest is left.
    pub(crate) fn on_refuse(&mut self) {
        if let Self::Offered(offer) = *self
            && offer.left > 0
        {
            *self = Self::Refusing(offer);
        }
    }

    /// SrcAvailCancel was received. It has no effect without an advertisement, or when reads for
    /// all of it have been started.
    pub(crate) fn on_cancel(&mut self) {
        if let Self::Offered(offer) | Self::Refusing(offer) = *self
            && offer.left > 0
        {
            *self = Self::Cancelled(offer);
        }
    }

    /// The source drops its advertisement and changes the mode. Returns true if that is allowed. It
    /// is not allowed once a read was started, because the two ends would not agree on the number
    /// of bytes read.
    pub(crate) fn on_dropped(&mut self) -> bool {
        match self {
            Self::Idle => true,
            Self::Offered(offer) if offer.untouched => {
                *self = Self::Idle;
                true
            }
            Self::Offered(_) | Self::Refusing(_) | Self::Cancelled(_) => false,
        }
    }

    /// RdmaRdCompl is being sent. Returns the number of bytes that it reports.
    pub(crate) fn on_reported(&mut self) -> u32 {
        let (Self::Offered(offer) | Self::Refusing(offer) | Self::Cancelled(offer)) = self else {
            return 0;
        };
        let bytes = std::mem::take(&mut offer.unreported);
        if offer.left == 0 && offer.reading == 0 {
            *self = Self::Idle;
        }
        bytes
    }

    /// SendSm is being sent.
    pub(crate) fn on_send_sm(&mut self) {
        if self.owes_send_sm() {
            *self = Self::Idle;
        }
    }

    /// True if RdmaRdCompl is due. The bytes that were read are reported when no read is in
    /// progress.
    pub(crate) const fn owes_report(&self) -> bool {
        match self {
            Self::Idle => false,
            Self::Offered(offer) | Self::Refusing(offer) | Self::Cancelled(offer) => {
                offer.unreported > 0 && offer.reading == 0
            }
        }
    }

    /// True if SendSm is due.
    pub(crate) const fn owes_send_sm(&self) -> bool {
        match self {
            Self::Idle | Self::Offered(_) => false,
            Self::Refusing(offer) | Self::Cancelled(offer) => {
                offer.unreported == 0 && offer.reading == 0
            }
        }
    }

    /// True while reads are in progress although the peer has cancelled the advertisement.
    pub(crate) const fn delays_ack(&self) -> bool {
        matches!(self, Self::Cancelled(offer) if offer.reading > 0)
    }

    /// The number of bytes for which a read may be started.
    pub(crate) const fn readable(&self) -> u32 {
        match self {
            Self::Offered(offer) => offer.left,
            Self::Idle | Self::Refusing(_) | Self::Cancelled(_) => 0,
        }
    }

    /// True if there is no advertisement.
    pub(crate) const fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }
}

/// The number of the cancel whose acknowledgement is withheld, if any. Everything before the cancel
/// is acknowledged.
pub(crate) const fn held_back(exchange: &Exchange, cancel: Seq) -> Option<Seq> {
    if exchange.delays_ack() {
        Some(cancel)
    } else {
        None
    }
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

    const STATES: [Exchange; 9] = [
        Idle,
        Offered(offer(50, 0, 0)),
        Offered(offer(50, 20, 0)),
        Offered(offer(0, 20, 0)),
        Offered(offer(0, 0, 20)),
        Refusing(offer(50, 20, 0)),
        Refusing(offer(50, 0, 0)),
        Cancelled(offer(50, 20, 0)),
        Cancelled(offer(50, 0, 0)),
    ];

    type On = fn(&mut Exchange);

    /// Rows are events, columns are states in the order of `STATES`.
    #[rustfmt::skip]
    const ROWS: [(&str, On, [Exchange; 9]); 5] = [
        ("20 read", |e| e.on_read_done(20), [
            Idle, STATES[1], Offered(offer(50, 0, 20)), STATES[4], STATES[4],
            Refusing(offer(50, 0, 20)), STATES[6], Cancelled(offer(50, 0, 20)), STATES[8],
        ]),
        ("refuse", |e| e.on_refuse(), [
            Idle, STATES[6], STATES[5], STATES[3], STATES[4],
            STATES[5], STATES[6], STATES[7], STATES[8],
        ]),
        ("cancel", |e| e.on_cancel(), [
            Idle, STATES[8], STATES[7], STATES[3], STATES[4],
            STATES[7], STATES[8], STATES[7], STATES[8],
        ]),
        ("reported", |e| { e.on_reported(); }, [
            Idle, STATES[1], STATES[2], STATES[3], Idle,
            STATES[5], STATES[6], STATES[7], STATES[8],
        ]),
        ("SendSm", |e| e.on_send_sm(), [
            Idle, STATES[1], STATES[2], STATES[3], STATES[4],
            STATES[5], Idle, STATES[7], Idle,
        ]),
    ];

    #[test]
    fn every_event_in_every_state() {
        for (name, on, after) in ROWS {
            for (before, expected) in STATES.into_iter().zip(after) {
                let mut exchange = before;
                on(&mut exchange);
                assert_eq!(exchange, expected, "{name} in {before:?}");
            }
        }
    }

    #[test]
    fn what_each_state_owes_and_permits() {
        let readable = STATES.map(|state| state.readable());
        assert_eq!(readable, [0, 50, 50, 0, 0, 0, 0, 0, 0]);
        let reports = STATES.map(|state| state.owes_report());
        assert_eq!(
            reports,
            [false, false, false, false, true, false, false, false, false]
        );
        let refusals = STATES.map(|state| state.owes_send_sm());
        assert_eq!(
            refusals,
            [false, false, false, false, false, false, true, false, true]
        );
        let delays = STATES.map(|state| state.delays_ack());
        assert_eq!(
            delays,
            [false, false, false, false, false, false, false, true, false]
        );
        let reads = STATES.map(|mut state| state.on_read(30));
        let read = Some((7, 0x1000, 30));
        assert_eq!(
            reads,
            [None, read, read, None, None, None, None, None, None]
        );
    }

    #[test]
    fn an_advertisement_that_nobody_touched_may_be_dropped() {
        let source = SrcAvail {
            len: 100,
            stag: 7,
            address: 0x1000,
        };
        let mut exchange = Idle;
        exchange.on_offered(source, 10);
        assert_eq!(exchange.readable(), 90);
        assert!(exchange.on_dropped());
        assert_eq!(exchange, Idle);
        exchange.on_offered(source, 10);
        assert_eq!(exchange.on_read(40), Some((7, 0x100a, 40)));
        assert!(!exchange.on_dropped());
    }
}
