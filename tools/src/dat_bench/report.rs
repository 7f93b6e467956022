//! The table.

use crate::measure::{Outcome, Spread};

/// Prints the heads of the columns.
pub(crate) fn head() {
    println!(
        "{:<34} {:>5} {:>9} {:>9}   {:<22} {:>20}",
        "case", "unit", "raw TCP", "DAT", "DAT / raw  [min-max]", "syscalls/op DAT; raw"
    );
}

/// Prints one case, and its second line where there is a second yardstick.
pub(crate) fn line(outcome: &Outcome) {
    let unit = outcome.case.unit();
    let [ours, peers, raw] = outcome.syscalls.map(count);
    println!(
        "{:<34} {:>5} {:>9} {:>9}   {:<22} {:>20}",
        outcome.case.title(),
        unit.label(),
        figure(outcome.raw.median),
        figure(outcome.dat.median),
        spread(outcome.ratio),
        format!("{ours}+{peers}; {raw}"),
    );
    if let Some((raw, ratio)) = outcome.batch {
        println!(
            "{:<34} {:>5} {:>9} {:>9}   {:<22}",
            "  beside writev of 16 messages",
            unit.label(),
            figure(raw.median),
            figure(outcome.dat.median),
            spread(ratio),
        );
    }
}

/// Share of the CPUs in foreign hands above which figures are called disturbed.
const FOREIGN_SHARE_MAX: f64 = 0.05;

/// Says how to read it, and whether to believe it.
pub(crate) fn foot(foreign_share: Option<f64>) {
    println!();
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
    println!("us: half a round trip, less is better; GB/s and M/s: more is better.");
    println!("Figures are medians; a ratio is that of one round (raw, DAT, raw), then the median.");
    println!("syscalls/op: DAT here + DAT at the peer; raw TCP here. Polling counts as well.");
}

fn figure(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.3}"),
        value if value < 100.0 => format!("{value:.2}"),
        value => format!("{value:.1}"),
    }
}

fn spread(spread: Spread) -> String {
    format!(
        "{:.2}  [{:.2}-{:.2}]",
        spread.median, spread.min, spread.max
    )
}

fn count(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.2}"))
}
