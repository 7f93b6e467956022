//! UCX and libfabric on the work of `dat-bench`, in the same rounds and in one table.
//!
//! - `rows.rs` lists the cases and the peers with which they are compared.
//! - `runs.rs` runs one sample.
//!
//! Every round measures `dat-bench`, which measures raw TCP before and after DAT, and then each
//! peer. A ratio belongs to one round.

mod rows;
mod runs;

use anyhow::Result;
use stack_tests::Stage;
pub(super) use tool_args::bench::spread::figure as shown;

use self::rows::{Peer, ROWS, Row};
pub(super) use self::runs::{Ours, Setup, cpus};
use super::pairs::Spread;
use crate::install::{self, Need};
use crate::workspace::Workspace;

const UCX: Need = Need::new("ucx_perftest", "ucx-utils");
const FABRIC: Need = Need::new("fi_pingpong", "libfabric-bin");
pub(super) const TASKSET: Need = Need::new("taskset", "util-linux");

/// The figures of one column of a row: one per round, or the reason why there are none.
type Series = Result<Vec<f64>, String>;

#[derive(Debug)]
struct Figures {
    ours: Vec<Ours>,
    peers: Vec<(Peer, Series)>,
}

/// The numbers of the summary.
#[derive(Debug, Default, PartialEq)]
struct Tally {
    met: usize,
    missed: usize,
    without: usize,
    rounds: usize,
    /// Rounds in which other programs used much of the processors.
    disturbed: usize,
    /// Columns of rows that could not be measured, and the reasons.
    not_run: Vec<String>,
}

/// Measures every row and prints the table.
pub(super) fn measure(workspace: &Workspace, stage: &Stage, quick: bool) -> Result<()> {
    if let Err(why) = install::provide(workspace, &[UCX, FABRIC, TASKSET]) {
        println!("peers: not installed: {why:#}");
    }
    let (rounds, sample_ms) = if quick { (3, 120) } else { (7, 150) };
    let setup = Setup::new(stage.clone(), sample_ms)?;
    print_head();
    let mut tally = Tally::default();
    for row in ROWS {
        let figures = Figures::measure(&setup, row, rounds)?;
        println!("{}", figures.line(row, &mut tally));
    }
    print_foot(&tally);
    Ok(())
}

/// The reason why a peer cannot be measured on this machine.
fn absence(peer: Peer) -> Option<String> {
    let tool = match peer {
        Peer::FabricShm => FABRIC,
        _ => UCX,
    };
    let missing = install::missing(&[tool, TASKSET]);
    (!missing.is_empty()).then(|| install::advice(&missing))
}

impl Figures {
    fn measure(setup: &Setup, row: &Row, rounds: usize) -> Result<Self> {
        let mut peers: Vec<(Peer, Series, u64)> = Vec::new();
        for peer in Peer::ALL.into_iter().filter(|peer| row.has(*peer)) {
            let count = match absence(peer) {
                Some(why) => Err(why),
                None => setup.calibrate(peer, row).map_err(|why| one_line(&why)),
            };
            match count {
                Ok(count) => peers.push((peer, Ok(Vec::new()), count)),
                Err(why) => peers.push((peer, Err(why), 0)),
            }
        }
        let mut ours = Vec::new();
        for _ in 0..rounds {
            ours.push(setup.ours(row.case)?);
            for (peer, series, count) in &mut peers {
                let Ok(figures) = series else { continue };
                match setup.sample(*peer, row, *count) {
                    Ok(figure) => figures.push(figure),
                    Err(why) => *series = Err(one_line(&why)),
                }
            }
        }
        let peers = peers.into_iter().map(|(peer, series, _)| (peer, series));
        Ok(Self {
            ours,
            peers: peers.collect(),
        })
    }

    /// Formats the row's line of the table, and counts its verdict and gaps.
    fn line(&self, row: &Row, tally: &mut Tally) -> String {
        let Some(first) = self.ours.first() else {
            return String::new();
        };
        tally.rounds += self.ours.len();
        tally.disturbed += self.ours.iter().filter(|ours| ours.is_disturbed).count();
        let is_shared = self.ours.iter().all(|ours| ours.is_shared);
        let median = |figures: &mut dyn Iterator<Item = f64>| shown(Spread::of(figures).median);
        let mut line = format!(
            "{:<30} {:>5} {:>9} {:>9}{}",
            first.title,
            first.unit,
            median(&mut self.ours.iter().map(|ours| ours.raw)),
            median(&mut self.ours.iter().map(|ours| ours.dat)),
            if is_shared { " " } else { "*" },
        );
        for peer in Peer::ALL {
            let cell = match self.series(peer) {
                None => String::new(),
                Some(Ok(figures)) => median(&mut figures.iter().copied()),
                Some(Err(why)) => {
                    let (case, title) = (row.case, peer.title());
                    tally.not_run.push(format!("{title}, {case}: {why}"));
                    "not run".to_owned()
                }
            };
            line.push_str(&format!(" {cell:>9}"));
        }
        line.push_str(&self.verdict(row, tally));
        line.trim_end().to_owned()
    }

    fn series(&self, peer: Peer) -> Option<&Series> {
        let found = self.peers.iter().find(|(other, _)| *other == peer);
        found.map(|(_, series)| series)
    }

    /// The ratio to the row's main peer, and the verdict.
    fn verdict(&self, row: &Row, tally: &mut Tally) -> String {
        let Some(Ok(figures)) = self.series(row.against) else {
            tally.without += 1;
            return format!("  {:<9} {:<19} -", row.against.title(), "-");
        };
        let rounds = self.ours.iter().zip(figures);
        let ratio = Spread::of(rounds.map(|(ours, peer)| ours.dat / peer));
        let verdict = match row.target {
            None => {
                tally.without += 1;
                "-".to_owned()
            }
            Some(target) => {
                *match target.is_met(ratio.median) {
                    true => &mut tally.met,
                    false => &mut tally.missed,
                } += 1;
                target.verdict(ratio.median)
            }
        };
        let spread = format!("{:.3} [{:.2}-{:.2}]", ratio.median, ratio.min, ratio.max);
        format!("  {:<9} {spread:<19} {verdict}", row.against.title())
    }
}

fn print_head() {
    let peers = Peer::ALL
        .map(|peer| format!("{:>9}", peer.title()))
        .join(" ");
    println!(
        "{:<30} {:>5} {:>9} {:>9}  {peers}  {:<9} {:<19} target",
        "other implementations", "unit", "raw TCP", "DAT", "DAT to", "ratio [min-max]"
    );
}

fn print_foot(tally: &Tally) {
    println!(
        "\
us: half a round trip, less is better; GB/s, M/s: more is better. Figures are medians.
* DAT stayed on TCP: shared memory was not in use in every round.
UCX cma, UCX posix, UCX tcp: ucx_perftest with UCX_TLS=posix,cma,self, posix,self and tcp, on
memory of the program (UCX_ALLOC_PRIO=heap), as a program registers it with DAT. UCX own:
posix,cma,self on memory that UCX has allocated and both processes map; a put or a get is then a
memcpy of one process.
fi shm: libfabric's provider shm. Of libfabric's tools Debian packages fi_pingpong alone, so it has
figures in the rows of a ping-pong only."
    );
    for why in &tally.not_run {
        println!("not run: {why}");
    }
    if tally.disturbed > 0 {
        let Tally {
            disturbed, rounds, ..
        } = tally;
        println!(
            "disturbed: other programs used much of the CPUs in {disturbed} of {rounds} rounds."
        );
    }
    println!("{}", tally.summary());
}

impl Tally {
    fn summary(&self) -> String {
        format!(
            "targets: {} met, {} missed; rows without a verdict: {}; figures not run: {}",
            self.met,
            self.missed,
            self.without,
            self.not_run.len()
        )
    }
}

pub(super) fn one_line(why: &anyhow::Error) -> String {
    format!("{why:#}").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(cma: Series) -> Figures {
        let ours = |dat| Ours {
            title: "64 KiB send, 16 queued".into(),
            unit: "GB/s".into(),
            raw: 5.0,
            dat,
            is_shared: dat > 8.0,
            is_disturbed: dat > 9.0,
        };
        Figures {
            ours: vec![ours(9.0), ours(10.0), ours(8.0)],
            peers: vec![(Peer::UcxCma, cma), (Peer::UcxTcp, Ok(vec![2.0]))],
        }
    }

    fn row() -> &'static Row {
        ROWS.iter().find(|row| row.case == "send:65536:16").unwrap()
    }

    #[test]
    fn a_row_has_the_medians_and_the_ratio_of_its_rounds() {
        let mut tally = Tally::default();
        let line = figures(Ok(vec![9.0, 8.0, 10.0])).line(row(), &mut tally);
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "64 KiB send, 16 queued GB/s 5.000 9.000* 9.000 2.000 UCX cma 1.000 [0.80-1.25] \
             >= 0.95 met"
        );
        let of_one = Tally {
            met: 1,
            rounds: 3,
            disturbed: 1,
            ..Tally::default()
        };
        assert_eq!(tally, of_one);
    }

    #[test]
    fn figures_that_cannot_be_measured_are_reported_and_counted() {
        let mut tally = Tally::default();
        let line = figures(Err("ucx_perftest missing".into())).line(row(), &mut tally);
        assert!(line.contains("not run"), "{line}");
        assert_eq!(
            tally.not_run,
            ["UCX cma, send:65536:16: ucx_perftest missing"]
        );
        assert_eq!(
            tally.summary(),
            "targets: 0 met, 0 missed; rows without a verdict: 1; figures not run: 1"
        );
    }
}
