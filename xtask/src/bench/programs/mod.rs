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
use tool_args::bench::spread::figure;

use self::rows::{Of, ROWS, Row};
use self::work::{NEEDS, Setup};
use super::pairs::Pairs;
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
    let unit = row.work.unit();
    let (of, target) = row.target;
    let (ratio, verdict) = match of {
        Of::Ratio => {
            let ratio = pairs.ratio();
            let (from, to) = (ratio.median_from, ratio.median_to);
            let interval = format!("{:.3} [{from:.3}-{to:.3}]", ratio.median);
            (interval, target.verdict(ratio.median))
        }
        Of::Difference => {
            let added = pairs.difference().median;
            let verdict = target.verdict(added);
            ("-".to_owned(), format!("adds {added:.2} {unit} {verdict}"))
        }
    };
    println!(
        "{:<49} {unit:>6} {:>9} {:>9}  {ratio:<21} {verdict}",
        row.title,
        figure(pairs.first().median),
        figure(pairs.second().median),
    );
}
