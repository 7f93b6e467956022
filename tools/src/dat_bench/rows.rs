//! The table's rows, and what each is meant to reach.

use crate::case::Wire::{self, Loopback, LoopbackNoCrc, Veth, VethSegments};
use crate::case::Work::{
    self, BlockedPing, Connect, IdleEndpoints, SdpBlockedPing, SdpCopy, SdpPing, SdpWrite,
    SendPing, StreamRead, StreamSend, StreamWrite, UnattendedRead, UnattendedWrite, WritePing,
};
use crate::case::{Case, Unit};

/// What a row is meant to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// The contender to raw TCP of the same round, where less is better.
    RatioAtMost(f64),
    /// The contender to raw TCP of the same round, where more is better.
    RatioAtLeast(f64),
    /// The figure itself, in the row's unit.
    FigureAtLeast(f64),
    /// The same, where less is better.
    FigureAtMost(f64),
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) case: Case,
    /// A case that the caller made up has none.
    pub(crate) target: Option<Target>,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Every row, in the order of the table.
const ROWS: &[Row] = &[
    at_most(1.08, SendPing, 64, Loopback),
    at_most(1.10, SendPing, 4 * KIB, Loopback),
    at_most(1.02, SendPing, 64 * KIB, Loopback),
    at_most(1.12, WritePing, 64, Loopback),
    at_most(1.06, BlockedPing, 64, Loopback),
    at_least(2.5, StreamSend, 4 * KIB, Loopback),
    at_least(1.15, StreamSend, 64 * KIB, Loopback),
    at_least(1.15, StreamWrite, 64 * KIB, Loopback),
    at_least(1.05, StreamRead, 64 * KIB, Loopback),
    at_least(0.96, StreamSend, MIB, Loopback),
    at_least(0.96, StreamWrite, MIB, Loopback),
    at_least(0.93, StreamRead, MIB, Loopback),
    at_least(1.00, UnattendedWrite, 64 * KIB, Loopback),
    at_least(1.00, UnattendedRead, 64 * KIB, Loopback),
    million_messages(4.0, 16),
    million_messages(8.0, 64),
    at_most(1.02, SendPing, 64 * KIB, LoopbackNoCrc),
    at_least(1.15, StreamSend, 64 * KIB, LoopbackNoCrc),
    at_least(1.15, StreamWrite, 64 * KIB, LoopbackNoCrc),
    at_least(1.05, StreamRead, 64 * KIB, LoopbackNoCrc),
    at_least(0.96, StreamSend, MIB, LoopbackNoCrc),
    at_least(0.96, StreamWrite, MIB, LoopbackNoCrc),
    at_least(0.93, StreamRead, MIB, LoopbackNoCrc),
    at_most(1.08, SendPing, 64, Veth),
    at_most(1.10, SendPing, 4 * KIB, Veth),
    at_least(1.00, StreamSend, 64 * KIB, Veth),
    at_least(1.00, StreamWrite, 64 * KIB, Veth),
    at_least(0.95, StreamRead, 64 * KIB, Veth),
    at_least(0.96, StreamSend, MIB, Veth),
    at_least(0.96, StreamWrite, MIB, Veth),
    at_least(0.93, StreamRead, MIB, Veth),
    at_least(0.65, StreamSend, 64 * KIB, VethSegments),
    at_least(0.60, StreamSend, MIB, VethSegments),
    scale(Target::FigureAtLeast(15.0), Connect),
    scale(Target::FigureAtMost(8.0), IdleEndpoints),
    at_most(1.30, SdpPing, 64, Loopback),
    at_most(1.30, SdpBlockedPing, 64, Loopback),
    stream_at_least(0.88, SdpWrite, 64 * KIB, Loopback),
    stream_at_least(0.88, SdpWrite, MIB, Loopback),
    stream_at_least(0.88, SdpCopy, 64 * KIB, Loopback),
    stream_at_least(0.88, SdpCopy, MIB, Loopback),
    stream_at_least(0.88, SdpWrite, 64 * KIB, LoopbackNoCrc),
    stream_at_least(0.88, SdpWrite, MIB, LoopbackNoCrc),
];

/// A few seconds' worth.
const QUICK: [Case; 5] = [
    Case::new(SendPing, 64, 1, Loopback),
    Case::new(StreamSend, 64 * KIB, 16, Loopback),
    Case::new(StreamWrite, 64 * KIB, 16, Loopback),
    Case::new(SdpBlockedPing, 64, 1, Loopback),
    Case::new(SdpWrite, 64 * KIB, 1, Loopback),
];

/// One operation under way.
const fn at_most(ratio: f64, work: Work, size: usize, wire: Wire) -> Row {
    Row {
        case: Case::new(work, size, 1, wire),
        target: Some(Target::RatioAtMost(ratio)),
    }
}

/// Sixteen operations under way.
const fn at_least(ratio: f64, work: Work, size: usize, wire: Wire) -> Row {
    Row {
        case: Case::new(work, size, 16, wire),
        target: Some(Target::RatioAtLeast(ratio)),
    }
}

/// One write after the other.
const fn stream_at_least(ratio: f64, work: Work, size: usize, wire: Wire) -> Row {
    Row {
        case: Case::new(work, size, 1, wire),
        target: Some(Target::RatioAtLeast(ratio)),
    }
}

const fn million_messages(rate: f64, depth: usize) -> Row {
    Row {
        case: Case::new(StreamSend, 64, depth, Loopback),
        target: Some(Target::FigureAtLeast(rate)),
    }
}

/// Sixteen connections under way.
const fn scale(target: Target, work: Work) -> Row {
    Row {
        case: Case::new(work, 1, 16, Loopback),
        target: Some(target),
    }
}

impl Row {
    /// Every row of the table.
    pub(crate) fn all() -> Vec<Self> {
        ROWS.to_vec()
    }

    /// A few seconds' worth.
    pub(crate) fn quick() -> Vec<Self> {
        QUICK.map(Self::of).to_vec()
    }

    /// The row of a case, with its target if it is one of the table.
    pub(crate) fn of(case: Case) -> Self {
        let target = ROWS
            .iter()
            .find(|row| row.case == case)
            .and_then(|row| row.target);
        Self { case, target }
    }
}

impl Target {
    /// Whether a row with this ratio and this figure reaches it.
    pub(crate) fn is_met(self, ratio: f64, figure: f64) -> bool {
        match self {
            Self::RatioAtMost(most) => ratio <= most,
            Self::RatioAtLeast(least) => ratio >= least,
            Self::FigureAtLeast(least) => figure >= least,
            Self::FigureAtMost(most) => figure <= most,
        }
    }

    /// What the table prints for it.
    pub(crate) fn label(self, unit: Unit) -> String {
        match self {
            Self::RatioAtMost(most) => format!("<= {most:.2}"),
            Self::RatioAtLeast(least) => format!(">= {least:.2}"),
            Self::FigureAtLeast(least) => format!(">= {least} {}", unit.label()),
            Self::FigureAtMost(most) => format!("<= {most} {}", unit.label()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_stands_twice_and_each_has_a_target_that_suits_its_unit() {
        for (index, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..index].iter().all(|other| other.case != row.case));
            match (row.case.unit(), row.target.unwrap()) {
                (Unit::Microseconds, Target::RatioAtMost(_))
                | (Unit::Gigabytes, Target::RatioAtLeast(_))
                | (Unit::MegaMessages, Target::FigureAtLeast(_))
                | (Unit::KiloConnections, Target::FigureAtLeast(_))
                | (Unit::Kibibytes, Target::FigureAtMost(_)) => {}
                (unit, target) => panic!("{}: {target:?} of {unit:?}", row.case),
            }
        }
        assert!(Row::quick().iter().all(|row| row.target.is_some()));
    }

    #[test]
    fn a_target_is_met_from_its_value_on() {
        let most = Target::RatioAtMost(1.08);
        assert!(most.is_met(1.08, 0.0) && !most.is_met(1.0801, 0.0));
        let least = Target::RatioAtLeast(0.96);
        assert!(least.is_met(0.96, 0.0) && !least.is_met(0.9599, 9.0));
        let figure = Target::FigureAtLeast(4.0);
        assert!(figure.is_met(0.0, 4.0) && !figure.is_met(9.0, 3.99));
        let room = Target::FigureAtMost(8.0);
        assert!(room.is_met(0.0, 8.0) && !room.is_met(0.0, 8.01));
        assert!(!most.is_met(f64::NAN, 0.0) && !least.is_met(f64::NAN, 0.0));
        assert_eq!(figure.label(Unit::MegaMessages), ">= 4 M/s");
    }
}
