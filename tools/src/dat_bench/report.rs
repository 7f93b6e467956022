//! The table.

use std::fmt;

use crate::case::{Case, Stack};
use crate::measure::{Outcome, Spread};
use crate::rows::{Row, Target};

/// What has become of the rows.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    met: usize,
    missed: usize,
    without: usize,
    not_run: usize,
}

/// Prints the heads of the columns.
pub(crate) fn head(contender: Stack) {
    let name = contender.title();
    let ratio = format!("{name} / raw [min-max]");
    println!(
        "{:<35} {:>4} {:>9} {:>9}  {:<21} {:<17} syscalls/op {name}; raw",
        "case", "unit", "raw TCP", name, ratio, "target"
    );
}

impl Tally {
    /// Prints a row, and a further line for each other contender.
    pub(crate) fn row(&mut self, row: Row, outcome: &Outcome) {
        let verdict = row.target.map(|target| {
            let met = target.is_met(outcome.ratio.median, outcome.contender.median);
            *(if met { &mut self.met } else { &mut self.missed }) += 1;
            (target, met)
        });
        self.without += usize::from(verdict.is_none());
        let [ours, peers, raw] = outcome.syscalls.map(count);
        line(
            row.case,
            &row.case.title(),
            (outcome.raw, outcome.contender),
            outcome.ratio,
            &format!("{:<17} {ours}+{peers}; {raw}", target(row.case, verdict)),
        );
        for beside in &outcome.besides {
            let (title, figures, ratio) = match beside.stack {
                Stack::Framed => (
                    "  bare MPA framing with CRC, to raw",
                    (outcome.raw, beside.figure),
                    beside.to_raw,
                ),
                _ => (
                    "  DAT beside writev of 16 messages",
                    (beside.figure, outcome.contender),
                    beside.from_contender,
                ),
            };
            line(row.case, title, figures, ratio, "");
        }
        if let Some([ours, peers]) = outcome.copies {
            println!("  copies of a byte: {ours:.2} here, {peers:.2} at the peer");
        }
    }

    /// Prints why a row is not run.
    pub(crate) fn not_run(&mut self, case: Case, why: &str) {
        self.not_run += 1;
        println!("{:<35} not run: {why}", case.title());
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "targets: {} met, {} missed", self.met, self.missed)?;
        if self.without > 0 {
            write!(f, "; rows without: {}", self.without)?;
        }
        write!(f, "; rows not run: {}", self.not_run)
    }
}

/// One line: two figures and their ratio.
fn line(case: Case, title: &str, (left, right): (Spread, Spread), ratio: Spread, rest: &str) {
    let text = format!(
        "{title:<35} {:>4} {:>9} {:>9}  {:<21} {rest}",
        case.unit().label(),
        figure(left.median),
        figure(right.median),
        spread(ratio),
    );
    println!("{}", text.trim_end());
}

fn target(case: Case, verdict: Option<(Target, bool)>) -> String {
    let Some((target, met)) = verdict else {
        return "-".into();
    };
    let met = if met { "met" } else { "missed" };
    format!("{} {met}", target.label(case.unit()))
}

/// Share of the CPUs in foreign hands above which figures are called disturbed.
const FOREIGN_SHARE_MAX: f64 = 0.05;

/// Says whether to believe the lines above.
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

/// Says how to read it, and what has come out.
pub(crate) fn foot(tally: &Tally) {
    println!("us: half a round trip, less is better; GB/s, M/s, k/s: more is better.");
    println!(
        "Figures are medians; a ratio is that of one round (raw, contender, raw), then the median."
    );
    println!(
        "syscalls/op: the contender's here + at the peer; raw TCP here. Polling counts as well."
    );
    println!("{tally}");
}

fn figure(value: f64) -> String {
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
