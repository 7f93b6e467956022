//! The rows that `dat-bench` measures, with the bounds that their figures are to reach.

use super::case::Case;
use super::case::Mechanism::{Chosen, Copied, Read, Registered, Written};
use super::case::Program::{Computes, Sleeps};
use super::case::Wire::{Local, Shaped, Tcp, TcpNoCrc, Veth, VethSegments};
use super::case::Work::{
    AfterPolls, BlockedPing, Connect, IdleEndpoints, ReadOtherEvd, ReadPing, SdpBlockedPing,
    SdpPing, SdpWrite, SendCost, SendPing, StreamRead, StreamSend, StreamWrite, UnattendedPing,
    UnattendedRead, UnattendedWrite, WritePing,
};
use Of::{Figure, Ratio, To};
use Target::{AtLeast, AtMost};

/// A bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// Less is better.
    AtMost(f64),
    /// More is better.
    AtLeast(f64),
}

impl Target {
    /// True if this value reaches the target; NaN reaches none.
    pub fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }

    /// The text of the target, and of the verdict on a value.
    pub fn verdict(self, value: f64) -> String {
        let word = if self.is_met(value) { "met" } else { "missed" };
        match self {
            Self::AtMost(most) => format!("<= {most:.2} {word}"),
            Self::AtLeast(least) => format!(">= {least:.2} {word}"),
        }
    }
}

/// The value that a target bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Of {
    /// The ratio to raw TCP.
    Ratio,
    /// The figure itself.
    Figure,
    /// The ratio to the figure of another case of the same run.
    To(Case),
}

/// A row, and its target: rows without one show the cost of one mechanism of SDP, or are measured
/// for comparison with another row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// The work, its sizes and its place.
    pub case: Case,
    /// The value that is bounded, and the bound.
    pub target: Option<(Of, Target)>,
}

/// Declares rows: work, bytes, operations in flight and place, then the target.
macro_rules! rows {
    ($($work:expr, $size:expr, $depth:literal, $wire:ident $(: $of:expr, $target:expr)?;)+) => {
        &[$(Row {
            case: Case::new($work, $size, $depth, $wire),
            target: rows!(@target $($of, $target)?),
        }),+]
    };
    (@target) => { None };
    (@target $of:expr, $target:expr) => { Some(($of, $target)) };
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Every row, in the order of the table.
pub const ALL: &[Row] = rows! {
    SendPing, 64, 1, Local: Ratio, AtMost(0.15);
    WritePing, 64, 1, Local: Ratio, AtMost(0.15);
    BlockedPing, 64, 1, Local: Ratio, AtMost(0.80);
    StreamSend, 64 * KIB, 16, Local: Ratio, AtLeast(1.80);
    StreamWrite, 64 * KIB, 16, Local: Ratio, AtLeast(1.80);
    StreamRead, 64 * KIB, 16, Local: Ratio, AtLeast(1.80);
    StreamSend, MIB, 16, Local: Ratio, AtLeast(1.20);
    StreamWrite, MIB, 16, Local: Ratio, AtLeast(1.20);
    StreamRead, MIB, 16, Local: Ratio, AtLeast(1.20);
    UnattendedWrite, 64 * KIB, 16, Local: Ratio, AtLeast(1.00);
    UnattendedRead, 64 * KIB, 16, Local: Ratio, AtLeast(1.00);
    StreamSend, 64, 64, Local: Figure, AtLeast(10.0);
    UnattendedPing, 64, 1, Local: Ratio, AtMost(1.50);
    ReadPing, 8, 1, Local;
    ReadOtherEvd, 8, 1, Local: To(Case::new(ReadPing, 8, 1, Local)), AtMost(1.50);
    AfterPolls(Sleeps), 16 * KIB, 1, Local: Figure, AtMost(60.0);
    AfterPolls(Computes), 16 * KIB, 1, Local: Figure, AtMost(100.0);
    SendPing, 64, 1, Tcp: Ratio, AtMost(1.08);
    SendPing, 4 * KIB, 1, Tcp: Ratio, AtMost(1.10);
    SendPing, 64 * KIB, 1, Tcp: Ratio, AtMost(1.02);
    WritePing, 64, 1, Tcp: Ratio, AtMost(1.12);
    BlockedPing, 64, 1, Tcp: Ratio, AtMost(1.06);
    StreamSend, 4 * KIB, 16, Tcp: Ratio, AtLeast(2.5);
    StreamSend, 64 * KIB, 16, Tcp: Ratio, AtLeast(1.15);
    StreamWrite, 64 * KIB, 16, Tcp: Ratio, AtLeast(1.15);
    StreamRead, 64 * KIB, 16, Tcp: Ratio, AtLeast(1.05);
    StreamSend, MIB, 16, Tcp: Ratio, AtLeast(0.96);
    StreamWrite, MIB, 16, Tcp: Ratio, AtLeast(0.96);
    StreamRead, MIB, 16, Tcp: Ratio, AtLeast(0.93);
    UnattendedWrite, 64 * KIB, 16, Tcp: Ratio, AtLeast(1.00);
    UnattendedRead, 64 * KIB, 16, Tcp: Ratio, AtLeast(1.00);
    StreamSend, 64, 16, Tcp: Figure, AtLeast(4.0);
    StreamSend, 64, 64, Tcp: Figure, AtLeast(8.0);
    UnattendedPing, 64, 1, Tcp: Ratio, AtMost(1.50);
    ReadPing, 8, 1, Tcp;
    ReadOtherEvd, 8, 1, Tcp: To(Case::new(ReadPing, 8, 1, Tcp)), AtMost(1.50);
    AfterPolls(Sleeps), 16 * KIB, 1, Tcp;
    AfterPolls(Computes), 16 * KIB, 1, Tcp;
    SendPing, 64 * KIB, 1, TcpNoCrc: Ratio, AtMost(1.02);
    StreamSend, 64 * KIB, 16, TcpNoCrc: Ratio, AtLeast(1.15);
    StreamWrite, 64 * KIB, 16, TcpNoCrc: Ratio, AtLeast(1.15);
    StreamRead, 64 * KIB, 16, TcpNoCrc: Ratio, AtLeast(1.05);
    StreamSend, MIB, 16, TcpNoCrc: Ratio, AtLeast(0.96);
    StreamWrite, MIB, 16, TcpNoCrc: Ratio, AtLeast(0.96);
    StreamRead, MIB, 16, TcpNoCrc: Ratio, AtLeast(0.93);
    SendPing, 64, 1, Veth: Ratio, AtMost(1.08);
    SendPing, 4 * KIB, 1, Veth: Ratio, AtMost(1.10);
    StreamSend, 64 * KIB, 16, Veth: Ratio, AtLeast(1.00);
    StreamWrite, 64 * KIB, 16, Veth: Ratio, AtLeast(1.00);
    StreamRead, 64 * KIB, 16, Veth: Ratio, AtLeast(0.95);
    StreamSend, MIB, 16, Veth: Ratio, AtLeast(0.96);
    StreamWrite, MIB, 16, Veth: Ratio, AtLeast(0.96);
    StreamRead, MIB, 16, Veth: Ratio, AtLeast(0.93);
    StreamSend, 64 * KIB, 16, VethSegments: Ratio, AtLeast(0.65);
    StreamSend, MIB, 16, VethSegments: Ratio, AtLeast(0.60);
    StreamSend, MIB, 16, Shaped: Ratio, AtLeast(0.99);
    SendCost, MIB, 16, Shaped: Ratio, AtMost(1.50);
    Connect, 1, 16, Tcp: Figure, AtLeast(15.0);
    Connect, 1, 16, Local: To(Case::new(Connect, 1, 16, Tcp)), AtLeast(0.80);
    IdleEndpoints, 1, 16, Tcp: Figure, AtMost(8.0);
    IdleEndpoints, 1, 16, Local: Figure, AtMost(8.0);
    SdpPing, 64, 1, Local: Ratio, AtMost(0.40);
    SdpBlockedPing, 64, 1, Local: Ratio, AtMost(1.30);
    SdpWrite(Chosen), 64 * KIB, 1, Local: Ratio, AtLeast(1.20);
    SdpWrite(Chosen), MIB, 1, Local: Ratio, AtLeast(1.10);
    SdpWrite(Copied), 64 * KIB, 1, Local: Ratio, AtLeast(0.88);
    SdpWrite(Copied), MIB, 1, Local: Ratio, AtLeast(0.88);
    SdpWrite(Registered), 64 * KIB, 1, Local;
    SdpWrite(Registered), MIB, 1, Local;
    SdpWrite(Read), 64 * KIB, 1, Local;
    SdpWrite(Read), MIB, 1, Local;
    SdpWrite(Written), 64 * KIB, 1, Local;
    SdpWrite(Written), MIB, 1, Local;
    SdpPing, 64, 1, Tcp: Ratio, AtMost(1.30);
    SdpBlockedPing, 64, 1, Tcp: Ratio, AtMost(1.30);
    SdpWrite(Chosen), 64 * KIB, 1, Tcp: Ratio, AtLeast(0.88);
    SdpWrite(Chosen), MIB, 1, Tcp: Ratio, AtLeast(0.88);
    SdpWrite(Copied), 64 * KIB, 1, Tcp: Ratio, AtLeast(0.88);
    SdpWrite(Copied), MIB, 1, Tcp: Ratio, AtLeast(0.88);
    SdpWrite(Registered), 64 * KIB, 1, Tcp;
    SdpWrite(Registered), MIB, 1, Tcp;
    SdpWrite(Read), 64 * KIB, 1, Tcp;
    SdpWrite(Read), MIB, 1, Tcp;
    SdpWrite(Written), 64 * KIB, 1, Tcp;
    SdpWrite(Written), MIB, 1, Tcp;
    SdpWrite(Chosen), 64 * KIB, 1, TcpNoCrc: Ratio, AtLeast(0.88);
    SdpWrite(Chosen), MIB, 1, TcpNoCrc: Ratio, AtLeast(0.75);
    SdpWrite(Chosen), 64 * KIB, 1, Shaped: Ratio, AtLeast(0.99);
    SdpWrite(Chosen), MIB, 1, Shaped: Ratio, AtLeast(0.99);
};

/// The cases of a run of a few seconds.
pub const QUICK: [Case; 7] = [
    Case::new(SendPing, 64, 1, Local),
    Case::new(StreamSend, 64 * KIB, 16, Local),
    Case::new(StreamWrite, 64 * KIB, 16, Local),
    Case::new(StreamSend, 64 * KIB, 16, Tcp),
    Case::new(SdpWrite(Chosen), 64 * KIB, 1, Local),
    Case::new(SdpBlockedPing, 64, 1, Tcp),
    Case::new(SdpWrite(Chosen), 64 * KIB, 1, Tcp),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::case::Unit;

    fn has(case: Case) -> bool {
        ALL.iter().any(|row| row.case == case)
    }

    #[test]
    fn no_case_occurs_twice_and_the_quick_ones_are_among_all() {
        for (index, row) in ALL.iter().enumerate() {
            let is_same = |other: &Row| other.case == row.case;
            assert!(!ALL[..index].iter().any(is_same), "{}", row.case);
        }
        assert!(QUICK.into_iter().all(has));
    }

    #[test]
    fn every_case_within_the_host_is_measured_over_tcp_too() {
        for local in ALL.iter().filter(|row| row.case.wire == Local) {
            let over_tcp = Case {
                wire: Tcp,
                ..local.case
            };
            assert!(has(over_tcp), "{}", local.case);
        }
    }

    #[test]
    fn each_target_suits_the_unit_of_its_case() {
        for Row { case, target } in ALL {
            let Some((of, target)) = target else { continue };
            let is_bound_above = matches!(target, AtMost(_));
            assert_eq!(case.unit().is_less_better(), is_bound_above, "{case}");
            match of {
                Ratio => assert!(!matches!(case.unit(), Unit::MegaMessages), "{case}"),
                Figure => {}
                To(other) => assert!(has(*other) && other.unit() == case.unit(), "{case}"),
            }
        }
    }

    #[test]
    fn a_target_is_met_from_its_value_on() {
        let least = Target::AtLeast(0.95);
        assert!(least.is_met(0.95) && !least.is_met(0.9499) && !least.is_met(f64::NAN));
        let most = Target::AtMost(3.0);
        assert!(most.is_met(3.0) && !most.is_met(3.001) && !most.is_met(f64::NAN));
        assert_eq!(
            (least.verdict(1.0), most.verdict(4.0)),
            (">= 0.95 met".into(), "<= 3.00 missed".into())
        );
    }
}
