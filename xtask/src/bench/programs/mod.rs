//! Programs under `opsrun`, compared with the same programs without it.
//!
//! | File | Contents |
//! |---|---|
//! | `rows` | the rows of the table and their targets |
//! | `work` | the servers, the clients, and the figures that they print |
//! | `mod` | both ways of each row, alternately, and the table |

mod rows;
mod work;

use anyhow::{Context, Result};
use stack_tests::{OffloadProtocol, Stage};

use self::rows::{ROWS, Row, Target};
use self::work::{NEEDS, Setup};
use super::pairs::{Pairs, Spread};
use crate::install;
use crate::workspace::Workspace;

/// Measures every row and prints the table.
pub(super) fn measure(workspace: &Workspace, stage: &Stage, quick: bool, word: &str) -> Result<()> {
    install::provide(workspace, NEEDS)?;
    let absent = install::missing(NEEDS);
    if !absent.is_empty() {
        println!("programs: not run: {}", install::advice(&absent));
        return Ok(());
    }
    let is_default = |protocol: &&OffloadProtocol| protocol.name == "local";
    let protocol = OffloadProtocol::ALL.iter().find(is_default);
    let protocol = protocol.context("no protocol")?;
    let setup = Setup::new(stage, protocol, quick)?;
    println!(
        "{:<49} {:>6} {:>9} {:>9}  {:<21} target",
        "program", "unit", "plain", "opsrun", "ratio [interval]"
    );
    for row in ROWS.iter().filter(|row| row.title.contains(word)) {
        let pairs = setup
            .pairs(row.work, row.way)
            .with_context(|| row.title.to_owned())?;
        print_row(row, &pairs);
    }
    println!(
        "Figures are medians; a ratio is that of one round, then the median, with the interval in"
    );
    println!(
        "which the median is with a probability of 0.95. Offloaded is by the {}.",
        protocol.name
    );
    println!("The load of this machine is {} now.", super::load());
    Ok(())
}

fn print_row(row: &Row, pairs: &Pairs) {
    let (ratio, added) = (pairs.ratio(), pairs.difference());
    let target = match row.target {
        Target::Ratio(least) => format!(">= {least} {}", verdict(ratio.median >= least)),
        Target::RatioAtMost(most) => format!("<= {most} {}", verdict(ratio.median <= most)),
        Target::Adds(most) => {
            let unit = row.work.unit();
            let is_met = added.median <= most;
            format!(
                "adds {:.2} {unit} <= {most} {}",
                added.median,
                verdict(is_met)
            )
        }
    };
    println!(
        "{:<49} {:>6} {:>9} {:>9}  {:<21} {target}",
        row.title,
        row.work.unit(),
        figure(pairs.first()),
        figure(pairs.second()),
        match row.target {
            Target::Ratio(_) | Target::RatioAtMost(_) => format!(
                "{:.3} [{:.3}-{:.3}]",
                ratio.median, ratio.median_from, ratio.median_to
            ),
            Target::Adds(_) => "-".to_owned(),
        },
    );
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

fn figure(spread: Spread) -> String {
    match spread.median {
        value if value < 100.0 => format!("{value:.3}"),
        value => format!("{value:.0}"),
    }
}
