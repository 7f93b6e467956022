//! The printed table.

use std::fmt;

use tool_args::bench::case::{Case, Stack};

use crate::laps::Latency;
use crate::measure::{Outcome, Spread};
use crate::results::{Measured, NotRun};
use crate::rows::{Row, Target};

/// Counts of the rows by verdict.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    met: usize,
    missed: usize,
    /// Rows without a target, or with a target that cannot be judged here.
    without: usize,
    not_run: usize,
    /// True if the targets are printed.
    has_targets: bool,
    /// True if there is a processor that neither process is bound to.
    has_third_cpu: bool,
    /// The medians of the contender in the rows so far.
    figures: Vec<(Case, f64)>,
}

/// The judgement on the target of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Met,
    Missed,
    /// The machine has too few processors for the row.
    NoThirdCpu,
    /// The row that the target compares with has not been measured yet.
    NoOtherRow,
}

impl Tally {
    pub(crate) fn new(has_third_cpu: bool, has_targets: bool) -> Self {
        Self {
            has_third_cpu,
            has_targets,
            ..Self::default()
        }
    }

    /// Prints the heads of the columns.
    pub(crate) fn head(&self, contender: Stack) {
        let name = contender.title();
        let ratio = format!("{name} / raw [min-max]");
        println!(
            "{:<35} {:>5} {:>9} {:>9}  {:<21} {}syscalls/op {name}; raw",
            "case",
            "unit",
            "raw TCP",
            name,
            ratio,
            self.target_cell("target")
        );
    }

    /// The cell of the column of targets; nothing if the targets are not printed.
    fn target_cell(&self, text: &str) -> String {
        match self.has_targets {
            true => format!("{text:<27} "),
            false => String::new(),
        }
    }

    /// Prints a row, and a further line for each other contender. Returns the row of the files.
    pub(crate) fn row(
        &mut self,
        row: Row,
        outcome: Outcome,
        foreign_share: Option<f64>,
    ) -> Measured {
        let to_other = self.to_other(row, outcome.contender.median);
        let verdict = row.target.map(|target| {
            let figure = outcome.contender.median;
            (
                target,
                self.judge(row.case, target, (outcome.ratio.median, figure, to_other)),
            )
        });
        self.count(verdict.map(|(_, verdict)| verdict));
        self.figures.push((row.case, outcome.contender.median));
        let [ours, peers, raw] = outcome.syscalls.map(count);
        line(
            row.case,
            &row.case.title(),
            (outcome.raw, outcome.contender),
            outcome.ratio,
            &format!(
                "{}{ours}+{peers}; {raw}",
                self.target_cell(&target(row.case, verdict))
            ),
        );
        if let (Some(other), Some(to_other)) = (row.target.and_then(Target::other_row), to_other) {
            println!("  to {other}: {to_other:.3}");
        }
        print_others(row.case, &outcome);
        if let Some([own, raw]) = outcome.latency {
            println!("  {}; raw TCP {}", percentiles(own), percentiles(raw));
        }
        if let Some([ours, peers]) = outcome.copies {
            println!("  copies of a byte: {ours:.2} here, {peers:.2} at the peer");
        }
        if let Some([own, raw]) = outcome.processor {
            println!("  processor time: {own:.3} s/GiB, raw TCP {raw:.3} s/GiB");
        }
        Measured {
            case: row.case,
            to_other,
            outcome,
            foreign_share,
        }
    }

    /// The row's figure divided by that of the row that its target compares with.
    fn to_other(&self, row: Row, figure: f64) -> Option<f64> {
        let other = row.target?.other_row()?;
        let (_, others) = self.figures.iter().find(|(case, _)| *case == other)?;
        Some(figure / others)
    }

    fn judge(
        &self,
        case: Case,
        target: Target,
        (ratio, figure, to_other): (f64, f64, Option<f64>),
    ) -> Verdict {
        if case.needs_third_cpu() && !self.has_third_cpu {
            return Verdict::NoThirdCpu;
        }
        match (target.other_row(), to_other) {
            (Some(_), None) => Verdict::NoOtherRow,
            _ if target.is_met(ratio, figure, to_other.unwrap_or(f64::NAN)) => Verdict::Met,
            _ => Verdict::Missed,
        }
    }

    fn count(&mut self, verdict: Option<Verdict>) {
        *match verdict {
            Some(Verdict::Met) => &mut self.met,
            Some(Verdict::Missed) => &mut self.missed,
            Some(Verdict::NoThirdCpu | Verdict::NoOtherRow) | None => &mut self.without,
        } += 1;
    }

    /// Prints why a row is not run. Returns the row of the files.
    pub(crate) fn not_run(&mut self, case: Case, why: &str) -> NotRun {
        self.not_run += 1;
        println!("{:<35} not run: {why}", case.title());
        NotRun {
            case,
            reason: why.to_owned(),
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_targets {
            write!(f, "targets: {} met, {} missed", self.met, self.missed)?;
            if self.without > 0 {
                write!(f, "; rows without a verdict: {}", self.without)?;
            }
            f.write_str("; ")?;
        }
        write!(f, "rows not run: {}", self.not_run)
    }
}

/// Prints the lines of the other contenders of a row.
fn print_others(case: Case, outcome: &Outcome) {
    for other in &outcome.others {
        let (title, figures, ratio) = match other.stack {
            Stack::Framed => (
                "  bare MPA framing with CRC, to raw",
                (outcome.raw, other.figure),
                other.to_raw,
            ),
            _ => (
                "  DAT, to writev of 16 messages",
                (other.figure, outcome.contender),
                other.from_contender,
            ),
        };
        line(case, title, figures, ratio, "");
    }
}

/// A line: two figures and their ratio.
fn line(case: Case, title: &str, (left, right): (Spread, Spread), ratio: Spread, rest: &str) {
    let text = format!(
        "{title:<35} {:>5} {:>9} {:>9}  {:<21} {rest}",
        case.unit().label(),
        figure(left.median),
        figure(right.median),
        spread(ratio),
    );
    println!("{}", text.trim_end());
}

fn target(case: Case, verdict: Option<(Target, Verdict)>) -> String {
    let Some((target, verdict)) = verdict else {
        return "-".into();
    };
    format!("{} {}", target.label(case), verdict.label())
}

impl Verdict {
    fn label(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::NoThirdCpu => "no third CPU",
            Self::NoOtherRow => "not run",
        }
    }
}

/// The share of the CPUs used by other processes above which figures are called disturbed.
const FOREIGN_SHARE_MAX: f64 = 0.05;

/// Prints whether the lines above are reliable.
pub(crate) fn disturbance(foreign_share: Option<f64>) {
    if let Some(share) = foreign_share {
        let verdict = if share > FOREIGN_SHARE_MAX {
            "disturbed: "
        } else {
            ""
        };
        println!(
            "{verdict}other programs took {:.0} % of the CPUs meanwhile.",
            share * 100.0
        );
    }
    println!();
}

/// Prints the carrier of the traffic of the rows above, where the provider chooses it.
pub(crate) fn carrier(is_shared: bool) {
    println!(
        "shared memory: {}",
        match is_shared {
            true => "in use",
            false => "NOT in use, the connection stayed on TCP",
        }
    );
}

/// Prints how to read the table, and the counts of verdicts.
pub(crate) fn foot(tally: &Tally) {
    println!("us: half a round trip, less is better; GB/s, M/s, k/s: more is better.");
    println!(
        "us where the target polls memory: from the post until it sees the write, by one clock."
    );
    println!("s/GiB: processor seconds of both processes, less is better.");
    println!(
        "Figures are medians; a ratio is that of one round (raw, contender, raw), then the median."
    );
    println!(
        "syscalls/op: the contender's here + at the peer; raw TCP here. Polling counts as well."
    );
    if tally.has_targets || tally.not_run > 0 {
        println!("{tally}");
    }
}

/// The percentiles of single operations.
fn percentiles(latency: Latency) -> String {
    let all = [latency.p50, latency.p90, latency.p99, latency.p99_9].map(figure);
    let [p50, p90, p99, p99_9] = all;
    format!("p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p99_9} us")
}

pub(crate) fn figure(value: f64) -> String {
    match value {
        value if value.is_nan() => "-".into(),
        value if value < 10.0 => format!("{value:.3}"),
        value if value < 100.0 => format!("{value:.2}"),
        value => format!("{value:.1}"),
    }
}

fn spread(spread: Spread) -> String {
    if spread.median.is_nan() {
        return "-".into();
    }
    format!("{:.3} [{:.2}-{:.2}]", spread.median, spread.min, spread.max)
}

fn count(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tool_args::bench::case::{Wire, Work};

    #[test]
    fn a_row_is_judged_by_another_one_only_after_that_one() {
        let other = Case::new(Work::Connect, 1, 16, Wire::Tcp);
        let case = Case::new(Work::Connect, 1, 16, Wire::Local);
        let row = Row::of(case);
        let target = row.target.unwrap();
        let mut tally = Tally::new(false, true);
        assert_eq!(tally.to_other(row, 20.0), None);
        let verdict = tally.judge(case, target, (1.2, 20.0, None));
        assert_eq!(verdict, Verdict::NoOtherRow);
        tally.figures.push((other, 25.0));
        assert_eq!(tally.to_other(row, 20.0), Some(0.8));
        let verdict = tally.judge(case, target, (1.2, 20.0, Some(0.79)));
        assert_eq!(verdict, Verdict::Missed);
        let verdict = tally.judge(case, target, (1.2, 20.0, Some(0.81)));
        assert_eq!(verdict, Verdict::Met);
    }

    #[test]
    fn a_row_that_needs_three_processors_is_not_judged_on_two() {
        let row = Row::of(Case::new(Work::UnattendedPing, 64, 1, Wire::Local));
        let judge = |has_third_cpu| {
            let figures = (9.0, 30.0, None);
            Tally::new(has_third_cpu, true).judge(row.case, row.target.unwrap(), figures)
        };
        assert_eq!(judge(false), Verdict::NoThirdCpu);
        assert_eq!(judge(true), Verdict::Missed);
        let mut tally = Tally::new(false, true);
        tally.count(Some(judge(false)));
        tally.not_run += 1;
        let text = tally.to_string();
        assert_eq!(
            text,
            "targets: 0 met, 0 missed; rows without a verdict: 1; rows not run: 1"
        );
        tally.has_targets = false;
        assert_eq!(tally.to_string(), "rows not run: 1");
        assert_eq!(tally.target_cell("target"), "");
    }
}
