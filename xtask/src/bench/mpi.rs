//! Intel MPI over DAPL, compared with Intel MPI over its own TCP and shared memory.
//!
//! Every round runs the loops of `tests/c/mpi_loops.c` over each fabric, so that a change over time
//! affects all of them; a ratio belongs to one round. The ranks are bound to two processors.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use stack_tests::{CProgram, IA_NAME, IntelMpi, StackEnv, Stage};

use super::pairs::Spread;
use super::peers::{cpus, shown};
use super::target::Target::{self, AtLeast, AtMost};
use crate::install::{self, CC, PIP, PYTHON};
use crate::workspace::Workspace;

/// A time far beyond the length of a run.
const DEADLINE: Duration = Duration::from_secs(240);

/// A transport of Intel MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fabric {
    Dapl,
    Tcp,
    Shm,
}

impl Fabric {
    const ALL: [Self; 3] = [Self::Dapl, Self::Tcp, Self::Shm];

    /// The value of `I_MPI_FABRICS`.
    fn name(self) -> &'static str {
        match self {
            Self::Dapl => "dapl",
            Self::Tcp => "tcp",
            Self::Shm => "shm",
        }
    }
}

/// A loop of `mpi_loops` with a length of its messages.
struct Row {
    title: &'static str,
    ranks: u32,
    /// The name and the length, as the program prints them.
    figure: &'static str,
    unit: &'static str,
    /// The bound on the ratio of DAPL's figure to TCP's.
    target: Option<Target>,
}

/// Declares rows: the title, the ranks, the figure, the unit and the target.
macro_rules! rows {
    ($($title:literal: $ranks:literal, $figure:literal, $unit:literal, $target:expr;)+) => {
        &[$(Row {
            title: $title,
            ranks: $ranks,
            figure: $figure,
            unit: $unit,
            target: $target,
        }),+]
    };
}

const ROWS: &[Row] = rows! {
    "8 B latency": 2, "latency 8", "us", Some(AtMost(0.15));
    "4 KiB latency": 2, "latency 4096", "us", None;
    "64 KiB latency": 2, "latency 65536", "us", Some(AtMost(0.7));
    "8 B messages, 64 in flight": 2, "rate 8", "M/s", Some(AtLeast(10.0));
    "64 KiB messages, 16 in flight": 2, "bandwidth 65536", "GB/s", None;
    "1 MiB messages, 16 in flight": 2, "bandwidth 1048576", "GB/s", Some(AtLeast(1.4));
    "8 B put": 2, "put 8", "us", None;
    "4 KiB put": 2, "put 4096", "us", None;
    "8 B get": 2, "get 8", "us", None;
    "4 ranks, 8 B alltoall": 4, "alltoall 8", "us", None;
    "4 ranks, 1 KiB alltoall": 4, "alltoall 1024", "us", Some(AtMost(1.0));
    "4 ranks, 32 KiB alltoall": 4, "alltoall 32768", "us", Some(AtMost(1.0));
};

/// The figures of one run, by loop and length.
type Figures = BTreeMap<String, f64>;

/// The runs of one round, by ranks and fabric.
type Round = BTreeMap<(u32, Fabric), Figures>;

struct Setup {
    env: StackEnv,
    mpi: IntelMpi,
    program: CProgram,
    /// The processors of the ranks.
    processors: String,
    milliseconds: u32,
}

/// Measures every row and prints the table.
pub(super) fn measure(workspace: &Workspace, stage: &Stage, quick: bool) -> Result<()> {
    let needs = [CC, PYTHON, PIP];
    install::provide(workspace, &needs)?;
    let absent = install::missing(&needs);
    if !absent.is_empty() {
        println!("mpi: not run: {}", install::advice(&absent));
        return Ok(());
    }
    let root = match IntelMpi::install(stage) {
        Ok(root) => root,
        Err(why) => {
            println!("mpi: not run: {why:#}");
            return Ok(());
        }
    };
    let mpi = IntelMpi::at(root)?;
    let (first, last) = cpus()?;
    let (count, milliseconds) = if quick { (3, 50) } else { (7, 150) };
    let setup = Setup {
        program: mpi.compile("mpi_loops")?,
        mpi,
        env: StackEnv::at(stage.clone())?,
        processors: format!("{first},{last}"),
        milliseconds,
    };
    let rounds: Vec<Round> = (0..count)
        .map(|round| setup.round(round))
        .collect::<Result<_>>()?;
    print_table(&rounds);
    Ok(())
}

impl Setup {
    /// Runs the loops over every fabric; each round begins with another one.
    fn round(&self, round: usize) -> Result<Round> {
        let mut order = Fabric::ALL;
        order.rotate_left(round % Fabric::ALL.len());
        let runs = [2, 4].into_iter().flat_map(|ranks| {
            let runs = order.map(|fabric| (ranks, fabric));
            runs.into_iter()
        });
        runs.map(|(ranks, fabric)| {
            let figures = self.run(ranks, fabric);
            let figures = figures.with_context(|| format!("{ranks} ranks over {}", fabric.name()));
            Ok(((ranks, fabric), figures?))
        })
        .collect()
    }

    fn run(&self, ranks: u32, fabric: Fabric) -> Result<Figures> {
        let mut loops: Vec<&str> = ROWS
            .iter()
            .filter(|row| row.ranks == ranks)
            .filter_map(|row| row.figure.split(' ').next())
            .collect();
        loops.dedup();
        let finished = self
            .mpi
            .launcher(&self.env, fabric.name())
            .env("I_MPI_DAPL_PROVIDER", IA_NAME)
            .env("I_MPI_PIN_PROCESSOR_LIST", &self.processors)
            .args_line(&format!("-n {ranks}"))
            .arg(self.program.file())
            .args_line(&format!("{} {}", self.milliseconds, loops.join(" ")))
            .run(DEADLINE)?
            .prints("MEASURED")?;
        Ok(figures(&finished.text))
    }
}

/// The figures of the lines `FIGURE loop length figure unit`.
fn figures(text: &str) -> Figures {
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("FIGURE ")?.rsplit_once(' '));
    lines
        .filter_map(|(line, _unit)| {
            let (name, figure) = line.rsplit_once(' ')?;
            Some((name.to_owned(), figure.parse().ok()?))
        })
        .collect()
}

fn print_table(rounds: &[Round]) {
    println!(
        "{:<30} {:>5} {:>9} {:>9} {:>9}  {:<22} target",
        "Intel MPI", "unit", "TCP", "shm", "DAPL", "DAPL / TCP [min-max]"
    );
    ROWS.iter().for_each(|row| println!("{}", row.line(rounds)));
    println!(
        "\
us: less is better, latency is half a round trip, a put or get includes its flush; M/s, GB/s: more
is better. Figures are medians of {} rounds; a ratio is that of one round. TCP and shm are Intel
MPI's own. The load of this machine is {} now.",
        rounds.len(),
        super::load()
    );
}

impl Row {
    /// The row's line of the table.
    fn line(&self, rounds: &[Round]) -> String {
        let of = |fabric| {
            let runs = rounds
                .iter()
                .filter_map(move |round| round.get(&(self.ranks, fabric)));
            runs.map(|figures| figures.get(self.figure).copied().unwrap_or(f64::NAN))
        };
        let median = |fabric| shown(Spread::of(of(fabric)).median);
        let ratio = of(Fabric::Dapl).zip(of(Fabric::Tcp));
        let ratio = Spread::of(ratio.map(|(dapl, tcp)| dapl / tcp));
        let verdict = self.target.map(|target| target.verdict(ratio.median));
        let verdict = verdict.unwrap_or_else(|| "-".to_owned());
        format!(
            "{:<30} {:>5} {:>9} {:>9} {:>9}  {:<22} {verdict}",
            self.title,
            self.unit,
            median(Fabric::Tcp),
            median(Fabric::Shm),
            median(Fabric::Dapl),
            format!("{:.3} [{:.2}-{:.2}]", ratio.median, ratio.min, ratio.max),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(dapl: f64) -> Round {
        let figure = |value| figures(&format!("x\nFIGURE latency 8 {value} us\n"));
        let fabrics = [
            (Fabric::Dapl, dapl),
            (Fabric::Tcp, 4.0),
            (Fabric::Shm, 0.25),
        ];
        fabrics
            .map(|(fabric, value)| ((2, fabric), figure(value)))
            .into()
    }

    #[test]
    fn a_row_has_the_median_of_its_rounds_and_a_verdict() {
        let words = |rounds: &[Round]| {
            let line = ROWS[0].line(rounds);
            let words: Vec<&str> = line.split_whitespace().collect();
            words.join(" ")
        };
        assert_eq!(
            words(&[round(0.5), round(0.4), round(1.0)]),
            "8 B latency us 4.000 0.250 0.500 0.125 [0.10-0.25] <= 0.15 met"
        );
        assert!(words(&[round(2.0)]).ends_with("missed"));
        assert!(words(&[Round::new()]).ends_with("missed"), "no figure");
    }

    #[test]
    fn every_row_has_a_figure_of_its_own() {
        for (index, row) in ROWS.iter().enumerate() {
            let is_same = |other: &Row| (other.figure, other.ranks) == (row.figure, row.ranks);
            assert!(!ROWS[..index].iter().any(is_same), "{}", row.title);
        }
    }
}
