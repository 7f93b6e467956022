//! The table's rows, and the target of each.

use tool_args::bench::case::Case;
use tool_args::bench::case::Mechanism::{self, Chosen, Copied, Read, Registered, Written};
use tool_args::bench::case::Wire::{self, Local, Shaped, Tcp, TcpNoCrc, Veth, VethSegments};
use tool_args::bench::case::Work::{
    self, BlockedPing, Connect, IdleEndpoints, ReadOtherEvd, ReadPing, SdpBlockedPing, SdpPing,
    SdpWrite, SendCost, SendPing, StreamRead, StreamSend, StreamWrite, UnattendedPing,
    UnattendedRead, UnattendedWrite, WritePing,
};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// The contender's figure divided by raw TCP's in the same round, where less is better.
    RatioAtMost(f64),
    /// The contender's figure divided by raw TCP's in the same round, where more is better.
    RatioAtLeast(f64),
    /// The figure itself, in the row's unit.
    FigureAtLeast(f64),
    /// The figure itself, where less is better.
    FigureAtMost(f64),
    /// The row's figure divided by that of another row of this run, where less is better.
    OtherRowAtMost(f64, Case),
    /// The row's figure divided by that of another row of this run, where more is better.
    OtherRowAtLeast(f64, Case),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) case: Case,
    /// The target; `None` for a case that the caller composed, for a row that is measured only
    /// because another row is compared with it, and for one mechanism of SDP.
    pub(crate) target: Option<Target>,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Every row, in the order of the table. A row that another one names in its target precedes it.
const ROWS: &[Row] = &[
    at_most(0.15, SendPing, 64, Local),
    at_most(0.15, WritePing, 64, Local),
    at_most(0.80, BlockedPing, 64, Local),
    at_least(1.80, StreamSend, 64 * KIB, Local),
    at_least(1.80, StreamWrite, 64 * KIB, Local),
    at_least(1.80, StreamRead, 64 * KIB, Local),
    at_least(1.20, StreamSend, MIB, Local),
    at_least(1.20, StreamWrite, MIB, Local),
    at_least(1.20, StreamRead, MIB, Local),
    at_least(1.00, UnattendedWrite, 64 * KIB, Local),
    at_least(1.00, UnattendedRead, 64 * KIB, Local),
    million_messages(10.0, 64, Local),
    at_most(1.50, UnattendedPing, 64, Local),
    yardstick(ReadPing, 8, Local),
    of_row(1.50, ReadOtherEvd, ReadPing, 8, Local),
    at_most(1.08, SendPing, 64, Tcp),
    at_most(1.10, SendPing, 4 * KIB, Tcp),
    at_most(1.02, SendPing, 64 * KIB, Tcp),
    at_most(1.12, WritePing, 64, Tcp),
    at_most(1.06, BlockedPing, 64, Tcp),
    at_least(2.5, StreamSend, 4 * KIB, Tcp),
    at_least(1.15, StreamSend, 64 * KIB, Tcp),
    at_least(1.15, StreamWrite, 64 * KIB, Tcp),
    at_least(1.05, StreamRead, 64 * KIB, Tcp),
    at_least(0.96, StreamSend, MIB, Tcp),
    at_least(0.96, StreamWrite, MIB, Tcp),
    at_least(0.93, StreamRead, MIB, Tcp),
    at_least(1.00, UnattendedWrite, 64 * KIB, Tcp),
    at_least(1.00, UnattendedRead, 64 * KIB, Tcp),
    million_messages(4.0, 16, Tcp),
    million_messages(8.0, 64, Tcp),
    at_most(1.50, UnattendedPing, 64, Tcp),
    yardstick(ReadPing, 8, Tcp),
    of_row(1.50, ReadOtherEvd, ReadPing, 8, Tcp),
    at_most(1.02, SendPing, 64 * KIB, TcpNoCrc),
    at_least(1.15, StreamSend, 64 * KIB, TcpNoCrc),
    at_least(1.15, StreamWrite, 64 * KIB, TcpNoCrc),
    at_least(1.05, StreamRead, 64 * KIB, TcpNoCrc),
    at_least(0.96, StreamSend, MIB, TcpNoCrc),
    at_least(0.96, StreamWrite, MIB, TcpNoCrc),
    at_least(0.93, StreamRead, MIB, TcpNoCrc),
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
    at_least(0.99, StreamSend, MIB, Shaped),
    row(Target::RatioAtMost(1.50), SendCost, MIB, 16, Shaped),
    row(Target::FigureAtLeast(15.0), Connect, 1, 16, Tcp),
    row(LOCAL_CONNECTS, Connect, 1, 16, Local),
    row(Target::FigureAtMost(8.0), IdleEndpoints, 1, 16, Tcp),
    row(Target::FigureAtMost(8.0), IdleEndpoints, 1, 16, Local),
    at_most(0.40, SdpPing, 64, Local),
    at_most(1.30, SdpBlockedPing, 64, Local),
    sdp_at_least(1.20, Chosen, 64 * KIB, Local),
    sdp_at_least(1.10, Chosen, MIB, Local),
    sdp_at_least(0.88, Copied, 64 * KIB, Local),
    sdp_at_least(0.88, Copied, MIB, Local),
    mechanism(Registered, 64 * KIB, Local),
    mechanism(Registered, MIB, Local),
    mechanism(Read, 64 * KIB, Local),
    mechanism(Read, MIB, Local),
    mechanism(Written, 64 * KIB, Local),
    mechanism(Written, MIB, Local),
    at_most(1.30, SdpPing, 64, Tcp),
    at_most(1.30, SdpBlockedPing, 64, Tcp),
    sdp_at_least(0.88, Chosen, 64 * KIB, Tcp),
    sdp_at_least(0.88, Chosen, MIB, Tcp),
    sdp_at_least(0.88, Copied, 64 * KIB, Tcp),
    sdp_at_least(0.88, Copied, MIB, Tcp),
    mechanism(Registered, 64 * KIB, Tcp),
    mechanism(Registered, MIB, Tcp),
    mechanism(Read, 64 * KIB, Tcp),
    mechanism(Read, MIB, Tcp),
    mechanism(Written, 64 * KIB, Tcp),
    mechanism(Written, MIB, Tcp),
    sdp_at_least(0.88, Chosen, 64 * KIB, TcpNoCrc),
    sdp_at_least(0.75, Chosen, MIB, TcpNoCrc),
    sdp_at_least(0.99, Chosen, 64 * KIB, Shaped),
    sdp_at_least(0.99, Chosen, MIB, Shaped),
];

/// The negotiation of shared memory must not make connections slow.
const LOCAL_CONNECTS: Target = Target::OtherRowAtLeast(0.80, Case::new(Connect, 1, 16, Tcp));

/// The cases of a run of a few seconds.
const QUICK: [Case; 7] = [
    Case::new(SendPing, 64, 1, Local),
    Case::new(StreamSend, 64 * KIB, 16, Local),
    Case::new(StreamWrite, 64 * KIB, 16, Local),
    Case::new(StreamSend, 64 * KIB, 16, Tcp),
    Case::new(SdpWrite(Chosen), 64 * KIB, 1, Local),
    Case::new(SdpBlockedPing, 64, 1, Tcp),
    Case::new(SdpWrite(Chosen), 64 * KIB, 1, Tcp),
];

const fn row(target: Target, work: Work, size: usize, depth: usize, wire: Wire) -> Row {
    Row {
        case: Case::new(work, size, depth, wire),
        target: Some(target),
    }
}

/// A row with one operation in flight.
const fn at_most(ratio: f64, work: Work, size: usize, wire: Wire) -> Row {
    row(Target::RatioAtMost(ratio), work, size, 1, wire)
}

/// A row with sixteen operations in flight.
const fn at_least(ratio: f64, work: Work, size: usize, wire: Wire) -> Row {
    row(Target::RatioAtLeast(ratio), work, size, 16, wire)
}

/// A row of writes to an SDP stream in sequence, one direction.
const fn sdp_at_least(ratio: f64, by: Mechanism, size: usize, wire: Wire) -> Row {
    row(Target::RatioAtLeast(ratio), SdpWrite(by), size, 1, wire)
}

/// A row of writes in sequence by one mechanism of SDP, which has no target.
const fn mechanism(by: Mechanism, size: usize, wire: Wire) -> Row {
    yardstick(SdpWrite(by), size, wire)
}

const fn million_messages(rate: f64, depth: usize, wire: Wire) -> Row {
    row(Target::FigureAtLeast(rate), StreamSend, 64, depth, wire)
}

/// A row that is measured because another one is compared with it.
const fn yardstick(work: Work, size: usize, wire: Wire) -> Row {
    Row {
        case: Case::new(work, size, 1, wire),
        target: None,
    }
}

/// A row with one operation in flight, compared with other work of the same size on the same wire.
const fn of_row(ratio: f64, work: Work, other: Work, size: usize, wire: Wire) -> Row {
    let other = Case::new(other, size, 1, wire);
    row(Target::OtherRowAtMost(ratio, other), work, size, 1, wire)
}

impl Row {
    /// Every row of the table.
    pub(crate) fn all() -> Vec<Self> {
        ROWS.to_vec()
    }

    /// The rows of a run of a few seconds.
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
    /// True if a row with this ratio to raw TCP, this figure, and this ratio to the other row
    /// reaches it.
    pub(crate) fn is_met(self, ratio: f64, figure: f64, to_other: f64) -> bool {
        match self {
            Self::RatioAtMost(most) => ratio <= most,
            Self::RatioAtLeast(least) => ratio >= least,
            Self::FigureAtLeast(least) => figure >= least,
            Self::FigureAtMost(most) => figure <= most,
            Self::OtherRowAtMost(most, _) => to_other <= most,
            Self::OtherRowAtLeast(least, _) => to_other >= least,
        }
    }

    /// The row that the target compares with, where that is not raw TCP.
    pub(crate) const fn other_row(self) -> Option<Case> {
        match self {
            Self::OtherRowAtMost(_, other) | Self::OtherRowAtLeast(_, other) => Some(other),
            _ => None,
        }
    }

    /// The text of the target in the row of `case`.
    pub(crate) fn label(self, case: Case) -> String {
        let unit = case.unit().label();
        match self {
            Self::RatioAtMost(most) => format!("<= {most:.2}"),
            Self::RatioAtLeast(least) => format!(">= {least:.2}"),
            Self::FigureAtLeast(least) => format!(">= {least} {unit}"),
            Self::FigureAtMost(most) => format!("<= {most} {unit}"),
            Self::OtherRowAtMost(most, other) => format!("<= {most:.2} of {}", short(case, other)),
            Self::OtherRowAtLeast(least, other) => {
                format!(">= {least:.2} of {}", short(case, other))
            }
        }
    }
}

/// The part of the name of `other` by which it differs from `case`.
fn short(case: Case, other: Case) -> String {
    match other.wire {
        wire if wire == case.wire => other.work.name().to_owned(),
        wire => format!("@{}", wire.name()),
    }
}

#[cfg(test)]
mod tests {
    use tool_args::bench::case::{Unit, Work};

    use super::*;

    /// True for writes to an SDP stream that uses one mechanism alone without a copy. Such a row
    /// shows the cost of the mechanism and has no target, because streams choose the mechanism
    /// themselves.
    const fn is_of_one_mechanism(case: Case) -> bool {
        let Work::SdpWrite(mechanism) = case.work else {
            return false;
        };
        !matches!(mechanism, Chosen | Copied)
    }

    #[test]
    fn no_row_occurs_twice_and_each_has_a_target_that_suits_its_unit() {
        for (index, row) in ROWS.iter().enumerate() {
            let before = &ROWS[..index];
            assert!(before.iter().all(|other| other.case != row.case));
            let Some(target) = row.target else {
                let is_other = |next: &Row| {
                    let other = next.target.and_then(Target::other_row);
                    other == Some(row.case)
                };
                let is_compared = ROWS[index..].iter().any(is_other);
                assert!(is_compared || is_of_one_mechanism(row.case), "{}", row.case);
                continue;
            };
            match (row.case.unit(), target) {
                (Unit::Microseconds | Unit::SecondsPerGib, Target::RatioAtMost(_))
                | (Unit::Gigabytes, Target::RatioAtLeast(_))
                | (Unit::MegaMessages, Target::FigureAtLeast(_))
                | (Unit::KiloConnections, Target::FigureAtLeast(_))
                | (Unit::Kibibytes, Target::FigureAtMost(_)) => {}
                (Unit::Microseconds, Target::OtherRowAtMost(_, other))
                | (Unit::KiloConnections, Target::OtherRowAtLeast(_, other)) => {
                    assert!(before.iter().any(|row| row.case == other), "{}", row.case);
                }
                (unit, target) => panic!("{}: {target:?} of {unit:?}", row.case),
            }
        }
        assert!(Row::quick().iter().all(|row| row.target.is_some()));
    }

    #[test]
    fn every_row_of_local_bulk_and_latency_is_measured_over_tcp_too() {
        let over_tcp = |row: &&Row| row.case.wire == Tcp;
        for local in ROWS.iter().filter(|row| row.case.wire == Local) {
            let is_same = |tcp: &Row| {
                Case {
                    wire: Local,
                    ..tcp.case
                } == local.case
            };
            assert!(ROWS.iter().filter(over_tcp).any(is_same), "{}", local.case);
        }
    }

    #[test]
    fn a_target_is_met_from_its_value_on() {
        let most = Target::RatioAtMost(1.08);
        assert!(most.is_met(1.08, 0.0, 0.0) && !most.is_met(1.0801, 0.0, 0.0));
        let least = Target::RatioAtLeast(0.96);
        assert!(least.is_met(0.96, 0.0, 0.0) && !least.is_met(0.9599, 9.0, 9.0));
        let figure = Target::FigureAtLeast(4.0);
        assert!(figure.is_met(0.0, 4.0, 0.0) && !figure.is_met(9.0, 3.99, 9.0));
        let room = Target::FigureAtMost(8.0);
        assert!(room.is_met(0.0, 8.0, 0.0) && !room.is_met(0.0, 8.01, 0.0));
        assert!(LOCAL_CONNECTS.is_met(0.0, 0.0, 0.8) && !LOCAL_CONNECTS.is_met(9.0, 9.0, 0.79));
        let nan = f64::NAN;
        assert!(!most.is_met(nan, 0.0, 0.0) && !least.is_met(nan, 0.0, 0.0));
        assert!(!LOCAL_CONNECTS.is_met(9.0, 9.0, nan));
    }

    #[test]
    fn a_target_names_what_it_compares_with() {
        let rate = Case::new(StreamSend, 64, 64, Tcp);
        assert_eq!(Target::FigureAtLeast(4.0).label(rate), ">= 4 M/s");
        let connect = Case::new(Connect, 1, 16, Local);
        assert_eq!(LOCAL_CONNECTS.label(connect), ">= 0.80 of @tcp");
        let row = of_row(1.5, ReadOtherEvd, ReadPing, 8, Tcp);
        let label = row.target.unwrap().label(row.case);
        assert_eq!(label, "<= 1.50 of read-ping");
    }
}
