//! How two ends of this implementation agree on FPDUs longer than a TCP segment.
//!
//! RFC 5044 section 4.1 wants FPDUs that fit one segment, because a receiver may be hardware that
//! looks for them there. A receiver that reads a byte stream is better served by long ones, but
//! nothing in the start-up frames says which it is, and every byte of them is spoken for. There is
//! one place that no receiver looks at: STag and TO of the zero-length RDMA Read that says "ready
//! to receive" (RFC 6581 section 9.2; RFC 5041 section 5.2 exempts empty segments from every
//! check).
//!
//! * The initiator's zero-length Read has [`ASK`] as sink TO.
//! * A responder of ours answers with [`ANSWER`] as TO, from then on both know. Any other returns
//!   the TO that it was given, which is what the RFC says and is no answer.
//!
//! The low 16 bits of both are the longest ULPDU that the sender wants to exchange. Whichever RTR
//! message another kind of peer prefers, it sees a legal one.

use crate::wire::fpdu::MULPDU_MIN;

/// Sink TO of an initiator's zero-length Read, without the length. An arbitrary number: what other
/// initiators put there is zero, or an address, which has its highest bits alike.
const ASK: u64 = 0x9E1D_6A43_C5B7_0000;
/// TO of its answer; no part of what was asked with, so that no echo is an answer.
const ANSWER: u64 = 0x62B8_31FC_0D59_0000;
/// The bits that hold the length.
const LEN_MASK: u64 = 0xFFFF;

/// What this end knows of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    /// Nothing was asked, and nothing is answered: FPDUs follow the segment size.
    Off,
    /// The peer has not shown that it is one of ours.
    Open {
        /// The longest ULPDU that this end wants.
        wanted: u16,
    },
    /// Both ends are ours.
    Agreed {
        /// The longest ULPDU that both want.
        ulpdu_max: u16,
    },
}

impl Agreement {
    /// This end wants ULPDUs up to `wanted`, if the peer is one of ours. Means nothing once that
    /// is settled.
    pub(super) const fn on_offer(&mut self, wanted: u16) {
        if !matches!(self, Self::Agreed { .. }) {
            *self = Self::Open { wanted };
        }
    }

    /// Initiator: the sink TO of the zero-length Read that it sends.
    pub(super) const fn ask(self) -> u64 {
        match self {
            Self::Open { wanted } => ASK | wanted as u64,
            Self::Off | Self::Agreed { .. } => 0,
        }
    }

    /// Responder: the zero-length Read came with this sink TO; returns the TO of its answer.
    pub(super) fn on_asked(&mut self, sink_to: u64) -> u64 {
        let own = match *self {
            Self::Open { wanted } => ANSWER | u64::from(wanted),
            Self::Off | Self::Agreed { .. } => return sink_to,
        };
        if self.settle(ASK, sink_to) {
            own
        } else {
            sink_to
        }
    }

    /// Initiator: the answer to the zero-length Read came with this TO.
    pub(super) fn on_answered(&mut self, to: u64) {
        self.settle(ANSWER, to);
    }

    fn settle(&mut self, signature: u64, to: u64) -> bool {
        let Self::Open { wanted } = *self else {
            return false;
        };
        let theirs = (to & LEN_MASK) as u16;
        let is_ours = to & !LEN_MASK == signature && usize::from(theirs) >= MULPDU_MIN;
        if is_ours {
            let ulpdu_max = wanted.min(theirs);
            *self = Self::Agreed { ulpdu_max };
        }
        is_ours
    }

    /// The length that was agreed on.
    pub(super) const fn agreed(self) -> Option<u16> {
        match self {
            Self::Agreed { ulpdu_max } => Some(ulpdu_max),
            Self::Off | Self::Open { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Agreement::{self, *};
    use super::*;

    const ALL: [Agreement; 3] = [Off, Open { wanted: 16_402 }, Agreed { ulpdu_max: 1_000 }];

    /// One row per event, one column per state in the order of `ALL`.
    #[test]
    fn every_event_in_every_state() {
        type Event = fn(&mut Agreement);
        let (off, open, agreed) = (ALL[0], ALL[1], ALL[2]);
        let rows: [(&str, Event, [Agreement; 3]); 8] = [
            (
                "offer",
                |state| state.on_offer(7_000),
                [Open { wanted: 7_000 }, Open { wanted: 7_000 }, agreed],
            ),
            (
                "asked by one of ours that wants less",
                |state| {
                    state.on_asked(ASK | 2_000);
                },
                [off, Agreed { ulpdu_max: 2_000 }, agreed],
            ),
            (
                "asked by one of ours that wants more",
                |state| {
                    state.on_asked(ASK | 60_000);
                },
                [off, Agreed { ulpdu_max: 16_402 }, agreed],
            ),
            (
                "asked by a stranger",
                |state| assert_eq!(state.on_asked(0xFFFF_8000_1234_5678), 0xFFFF_8000_1234_5678),
                ALL,
            ),
            (
                "asked for what no FPDU may be",
                |state| {
                    state.on_asked(ASK | 127);
                },
                ALL,
            ),
            (
                "answered by one of ours",
                |state| state.on_answered(ANSWER | 2_000),
                [off, Agreed { ulpdu_max: 2_000 }, agreed],
            ),
            (
                "answered by an echo",
                |state| state.on_answered(ASK | 16_402),
                [off, open, agreed],
            ),
            ("answered by nothing", |state| state.on_answered(0), ALL),
        ];
        for (name, event, after) in rows {
            for (before, expected) in ALL.into_iter().zip(after) {
                let mut state = before;
                event(&mut state);
                assert_eq!(state, expected, "{name} in {before:?}");
            }
        }
    }

    #[test]
    fn what_goes_on_the_wire() {
        assert_eq!(ALL.map(Agreement::ask), [0, ASK | 16_402, 0]);
        let answers = ALL.map(|mut state| state.on_asked(ASK | 2_000));
        assert_eq!(answers, [ASK | 2_000, ANSWER | 16_402, ASK | 2_000]);
        assert_eq!(ALL.map(Agreement::agreed), [None, None, Some(1_000)]);
    }
}
