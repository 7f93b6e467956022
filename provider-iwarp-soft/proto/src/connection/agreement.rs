//! The agreement between two ends of this implementation: long FPDUs, and carrier messages.
//!
//! RFC 5044 section 4.1 asks for FPDUs that fit one TCP segment, because the receiver may be
//! hardware that expects them there. A receiver that reads a byte stream is faster with long FPDUs,
//! but the start-up frames do not say which kind of receiver the peer is, and all their bytes are
//! assigned. Two fields are checked by no receiver: STag and TO of the zero-length RDMA Read that
//! signals "ready to receive" (RFC 6581 section 9.2; RFC 5041 section 5.2 exempts empty segments
//! from every check).
//!
//! * The initiator's zero-length Read has [`ASK`] as sink TO.
//! * A responder that runs this implementation answers with [`ANSWER`] as TO. Any other responder
//!   returns the TO of the request, as the RFC demands, and that is not an answer.
//!
//! Both numbers carry an offer: the low 16 bits are the longest ULPDU that the sender wants to
//! exchange, and [`CARRIERS`] is set if it understands carrier messages. A peer that runs another
//! implementation sees a legal message.

use crate::wire::fpdu::{MULPDU_MAX, MULPDU_MIN};

/// Sink TO of an initiator's zero-length Read, without the offer. An arbitrary number: other
/// initiators send zero or an address, and the highest bits of an address are all equal.
const ASK: u64 = 0x8C53_E1B7_2D9A_0000;
/// TO of the answer, without the offer. It differs from [`ASK`], so that no echo is an answer.
const ANSWER: u64 = 0x47F0_9B2E_D316_0000;
/// The bit that offers carrier messages.
const CARRIERS: u64 = 1 << 16;
/// The bits that hold the length.
const LEN_MASK: u64 = 0xFFFF;
/// The bits that hold the offer.
const OFFER_MASK: u64 = CARRIERS | LEN_MASK;

/// The offer of one end to a peer of this implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnOffer {
    /// The longest ULPDU to exchange, in bytes; kept within the bounds of RFC 5044 section 4.1.
    pub ulpdu_max: usize,
    /// True if this end understands carrier messages ([`crate::CarrierMessage`]).
    pub carriers: bool,
}

impl OwnOffer {
    pub(super) const fn new(ulpdu_max: usize, carriers: bool) -> Self {
        let ulpdu_max = if ulpdu_max < MULPDU_MIN {
            MULPDU_MIN
        } else if ulpdu_max > MULPDU_MAX {
            MULPDU_MAX
        } else {
            ulpdu_max
        };
        Self {
            ulpdu_max,
            carriers,
        }
    }

    const fn bits(self) -> u64 {
        self.ulpdu_max as u64 | if self.carriers { CARRIERS } else { 0 }
    }

    /// The offer in a TO that begins with `signature`.
    fn parse(signature: u64, to: u64) -> Option<Self> {
        let ulpdu_max = (to & LEN_MASK) as usize;
        let is_offer = to & !OFFER_MASK == signature && ulpdu_max >= MULPDU_MIN;
        is_offer.then_some(Self {
            ulpdu_max,
            carriers: to & CARRIERS != 0,
        })
    }

    /// The offer that both ends can keep.
    fn with(self, other: Self) -> Self {
        Self {
            ulpdu_max: self.ulpdu_max.min(other.ulpdu_max),
            carriers: self.carriers && other.carriers,
        }
    }
}

/// The agreement from the view of this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    /// This end offers nothing and answers no offer.
    Off,
    /// The peer has not shown that it runs this implementation.
    Open {
        /// The offer of this end.
        own: OwnOffer,
    },
    /// Responder: both ends run this implementation. The peer cannot know that before it receives
    /// the answer, which was not transmitted yet.
    Answering {
        /// The offer that both ends keep.
        common: OwnOffer,
    },
    /// Both ends run this implementation, and both know it before they receive anything that is
    /// transmitted from now on.
    Agreed {
        /// The offer that both ends keep.
        common: OwnOffer,
    },
}

impl Agreement {
    /// Records the offer of this end. After an agreement an offer has no effect.
    pub(super) const fn on_offer(&mut self, own: OwnOffer) {
        if matches!(self, Self::Off | Self::Open { .. }) {
            *self = Self::Open { own };
        }
    }

    /// Initiator: returns the sink TO of the zero-length Read to transmit.
    pub(super) const fn ask(self) -> u64 {
        match self {
            Self::Open { own } => ASK | own.bits(),
            Self::Off | Self::Answering { .. } | Self::Agreed { .. } => 0,
        }
    }

    /// Responder: handles the sink TO of the zero-length Read. Returns the TO of the answer.
    pub(super) fn on_asked(&mut self, sink_to: u64) -> u64 {
        let Self::Open { own } = *self else {
            return sink_to;
        };
        let Some(theirs) = OwnOffer::parse(ASK, sink_to) else {
            return sink_to;
        };
        let common = own.with(theirs);
        *self = Self::Answering { common };
        ANSWER | own.bits()
    }

    /// Responder: records that an answer to a Read was transmitted. The first one is the answer to
    /// the zero-length Read.
    pub(super) const fn on_answer_sent(&mut self) {
        if let Self::Answering { common } = *self {
            *self = Self::Agreed { common };
        }
    }

    /// Initiator: handles the TO of the answer to the zero-length Read.
    pub(super) fn on_answered(&mut self, to: u64) {
        if let Self::Open { own } = *self
            && let Some(theirs) = OwnOffer::parse(ANSWER, to)
        {
            let common = own.with(theirs);
            *self = Self::Agreed { common };
        }
    }

    /// The longest ULPDU that both ends have agreed on.
    pub(super) const fn ulpdu_max(self) -> Option<usize> {
        match self {
            Self::Answering { common } | Self::Agreed { common } => Some(common.ulpdu_max),
            Self::Off | Self::Open { .. } => None,
        }
    }

    /// Returns true if the peer runs this implementation, or may.
    pub(super) const fn is_possible(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Returns true if both ends accept carrier messages from now on.
    pub(super) const fn has_carriers(self) -> bool {
        matches!(self, Self::Agreed { common } if common.carriers)
    }
}

#[cfg(test)]
mod tests {
    use super::Agreement::{self, *};
    use super::*;
    use crate::tests::transitions;

    const OWN: OwnOffer = OwnOffer::new(16_402, true);
    const COMMON: OwnOffer = OwnOffer::new(1_000, true);
    const ALL: [Agreement; 4] = [
        Off,
        Open { own: OWN },
        Answering { common: COMMON },
        Agreed { common: COMMON },
    ];

    const fn agreed(ulpdu_max: usize, carriers: bool) -> Agreement {
        let common = OwnOffer::new(ulpdu_max, carriers);
        Agreed { common }
    }

    const fn answering(ulpdu_max: usize, carriers: bool) -> Agreement {
        let common = OwnOffer::new(ulpdu_max, carriers);
        Answering { common }
    }

    /// Each row is an event, each column a state in the order of `ALL`.
    #[test]
    fn every_event_in_every_state() {
        let [off, open, answers, agrees] = ALL;
        let own = OwnOffer::new(7_000, false);
        transitions! { Agreement: ALL;
            "offer": |state| state.on_offer(OwnOffer::new(7_000, false))
                => [Open { own }, Open { own }, answers, agrees];
            "asked by this implementation, which wants less":
                |state| _ = state.on_asked(ASK | 2_000)
                => [off, answering(2_000, false), answers, agrees];
            "asked by this implementation, which wants more":
                |state| _ = state.on_asked(ASK | CARRIERS | 60_000)
                => [off, answering(16_402, true), answers, agrees];
            "asked by another implementation":
                |state| assert_eq!(state.on_asked(0xFFFF_8000_1234_5678), 0xFFFF_8000_1234_5678)
                => ALL;
            "asked for a length that no FPDU may have": |state| _ = state.on_asked(ASK | 127)
                => ALL;
            "answer sent": |state| state.on_answer_sent() => [off, open, agrees, agrees];
            "answered with a length": |state| state.on_answered(ANSWER | 2_000)
                => [off, agreed(2_000, false), answers, agrees];
            "answered with a length and carriers":
                |state| state.on_answered(ANSWER | CARRIERS | 2_000)
                => [off, agreed(2_000, true), answers, agrees];
            "answered by an echo": |state| state.on_answered(ASK | CARRIERS | 16_402) => ALL;
            "answered with zero": |state| state.on_answered(0) => ALL;
        }
    }

    #[test]
    fn each_state_transmits_these_numbers() {
        assert_eq!(ALL.map(Agreement::ask), [0, ASK | CARRIERS | 16_402, 0, 0]);
        let asked = ASK | 2_000;
        let answers = ALL.map(|mut state| state.on_asked(asked));
        let own = ANSWER | CARRIERS | 16_402;
        assert_eq!(answers, [asked, own, asked, asked]);
    }

    #[test]
    fn carriers_wait_until_the_peer_will_be_notified() {
        let lengths = ALL.map(Agreement::ulpdu_max);
        assert_eq!(lengths, [None, None, Some(1_000), Some(1_000)]);
        let carriers = ALL.map(Agreement::has_carriers);
        assert_eq!(carriers, [false, false, false, true]);
        assert!(!agreed(1_000, false).has_carriers());
    }

    #[test]
    fn signatures_leave_room_for_every_offer() {
        let offer = OwnOffer::new(usize::MAX, true);
        for signature in [ASK, ANSWER] {
            assert_eq!(signature & OFFER_MASK, 0);
            let to = signature | offer.bits();
            assert_eq!(OwnOffer::parse(signature, to), Some(offer));
        }
        assert_eq!(OwnOffer::parse(ANSWER, ASK | offer.bits()), None);
    }
}
