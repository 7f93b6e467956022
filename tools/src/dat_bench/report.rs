//! The printed table.

use tool_args::bench::case::{Case, Stack};
use tool_args::bench::spread::{Spread, figure};
use tool_args::say;

use crate::laps::Latency;
use crate::measure::Outcome;
use crate::results::Measured;

/// Prints the heads of the columns.
pub(crate) fn head(contender: Stack) {
    let name = contender.title();
    let ratio = format!("{name} / raw [min-max]");
    say!(
        "{:<35} {:>5} {:>9} {:>9}  {ratio:<21} syscalls/op {name}; raw",
        "case",
        "unit",
        "raw TCP",
        name
    );
}

/// Prints a row, and a further line for each other contender.
pub(crate) fn row(row: &Measured) {
    let (case, outcome) = (row.case, &row.outcome);
    let [ours, peers, raw] = outcome.syscalls.map(count);
    line(
        case,
        &case.title(),
        (outcome.raw, outcome.contender),
        outcome.ratio,
        &format!("{ours}+{peers}; {raw}"),
    );
    print_others(case, outcome);
    if let Some([own, raw]) = outcome.latency {
        say!("  {}; raw TCP {}", percentiles(own), percentiles(raw));
    }
    if let Some([ours, peers]) = outcome.copies {
        say!("  copies of a byte: {ours:.2} here, {peers:.2} at the peer");
    }
    if let Some([own, raw]) = outcome.processor {
        say!("  processor time: {own:.3} s/GiB, raw TCP {raw:.3} s/GiB");
    }
}

/// Prints why a row is not run.
pub(crate) fn not_run(case: Case, why: &str) {
    say!("{:<35} not run: {why}", case.title());
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
    say!("{}", text.trim_end());
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
        say!(
            "{verdict}other programs took {:.0} % of the CPUs meanwhile.",
            share * 100.0
        );
    }
    say!("");
}

/// Prints the carrier of the traffic of the rows above, where the provider chooses it.
pub(crate) fn carrier(is_shared: bool) {
    say!(
        "shared memory: {}",
        match is_shared {
            true => "in use",
            false => "NOT in use, the connection stayed on TCP",
        }
    );
}

/// Prints how to read the table, and the number of rows that were not run.
pub(crate) fn foot(not_run: usize) {
    say!("us: half a round trip, less is better; GB/s, M/s, k/s: more is better.");
    say!("us where the target polls memory: from the post until it sees the write, by one clock.");
    say!("s/GiB: processor seconds of both processes, less is better.");
    say!(
        "Figures are medians; a ratio is that of one round (raw, contender, raw), then the median."
    );
    say!("syscalls/op: the contender's here + at the peer; raw TCP here. Polling counts as well.");
    if not_run > 0 {
        say!("rows not run: {not_run}");
    }
}

/// The percentiles of single operations.
fn percentiles(latency: Latency) -> String {
    let all = [latency.p50, latency.p90, latency.p99, latency.p99_9].map(figure);
    let [p50, p90, p99, p99_9] = all;
    format!("p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p99_9} us")
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
