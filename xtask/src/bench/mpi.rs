//! Intel MPI over DAPL, compared with Intel MPI over its own TCP and shared memory.
//!
//! Every round runs the loops of `tests/c/mpi_loops.c` over each fabric, so that a change over time
//! affects all of them; a ratio belongs to one round. The ranks are bound to two processors.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use stack_tests::{CProgram, IA_NAME, IntelMpi, StackEnv, Stage};

use super::contest::{self, Compared, Series, Table, rounds};
use super::peers::cpus;
use crate::install::{self, CC, PIP, PYTHON};
use crate::workspace::Workspace;
use tool_args::bench::rows::Target::{self, AtLeast, AtMost};

/// A time far beyond the length of a run.
const DEADLINE: Duration = Duration::from_secs(240);

/// The transports of Intel MPI: the heads of their columns, and the values of `I_MPI_FABRICS`.
const FABRICS: [(&str, &str); 3] = [("TCP", "tcp"), ("shm", "shm"), ("DAPL", "dapl")];
/// The comparison of DAPL with TCP.
const COMPARED: Compared = Compared::Ratio(2, 0);

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

/// The figures of one round of a fabric, by ranks, loop and length.
type Figures = BTreeMap<(u32, String), f64>;

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
    let measured = rounds(count, FABRICS.len(), |way| {
        let mut figures = setup.run(2, FABRICS[way].1)?;
        figures.append(&mut setup.run(4, FABRICS[way].1)?);
        Ok(figures)
    });
    let mut table = Table::begin("Intel MPI", FABRICS.map(|(head, _)| head).to_vec());
    ROWS.iter().for_each(|row| table.print(&row.of(&measured)));
    table.end(
        "Latency is half a round trip; a put or get includes its flush. TCP and shm are those of \
         Intel MPI.",
    );
    Ok(())
}

impl Setup {
    fn run(&self, ranks: u32, fabric: &str) -> Result<Figures> {
        let mut loops: Vec<&str> = ROWS
            .iter()
            .filter(|row| row.ranks == ranks)
            .filter_map(|row| row.figure.split(' ').next())
            .collect();
        loops.dedup();
        let finished = self
            .mpi
            .launcher(&self.env, fabric)
            .env("I_MPI_DAPL_PROVIDER", IA_NAME)
            .env("I_MPI_PIN_PROCESSOR_LIST", &self.processors)
            .args_line(&format!("-n {ranks}"))
            .arg(self.program.file())
            .args_line(&format!("{} {}", self.milliseconds, loops.join(" ")))
            .run(DEADLINE)
            .and_then(|run| run.prints("MEASURED"))
            .with_context(|| format!("{ranks} ranks over {fabric}"))?;
        Ok(figures(ranks, &finished.text))
    }
}

/// The figures of the lines `FIGURE loop length figure unit`.
fn figures(ranks: u32, text: &str) -> Figures {
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("FIGURE ")?.rsplit_once(' '));
    lines
        .filter_map(|(line, _unit)| {
            let (name, figure) = line.rsplit_once(' ')?;
            Some(((ranks, name.to_owned()), figure.parse().ok()?))
        })
        .collect()
}

impl Row {
    /// The row with the figures of each fabric.
    fn of(&self, measured: &[Series<Figures>]) -> contest::Row {
        let key = (self.ranks, self.figure.to_owned());
        let of_fabric = |rounds: &Series<Figures>| -> Series {
            let rounds = rounds.as_ref().map_err(Clone::clone)?;
            let figures = rounds.iter().map(|round| round.get(&key).copied());
            let figures: Option<Vec<f64>> = figures.collect();
            figures.ok_or_else(|| format!("no figure of {}", self.figure))
        };
        contest::Row {
            title: self.title.to_owned(),
            unit: self.unit,
            series: measured.iter().map(of_fabric).map(Some).collect(),
            compared: COMPARED,
            target: self.target,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_figures_of_its_loop_and_ranks() {
        let run = |figure| figures(2, &format!("x\nFIGURE latency 8 {figure} us\n"));
        let measured = [
            Ok(vec![run(4.0), run(5.0)]),
            Err("no library".to_owned()),
            Ok(vec![figures(4, "FIGURE latency 8 1 us\n")]),
        ];
        let row = ROWS[0].of(&measured);
        assert_eq!(row.series[0], Some(Ok(vec![4.0, 5.0])));
        assert_eq!(row.series[1], Some(Err("no library".into())));
        assert_eq!(row.series[2], Some(Err("no figure of latency 8".into())));
    }

    #[test]
    fn every_row_has_a_figure_of_its_own() {
        for (index, row) in ROWS.iter().enumerate() {
            let is_same = |other: &Row| (other.figure, other.ranks) == (row.figure, row.ranks);
            assert!(!ROWS[..index].iter().any(is_same), "{}", row.title);
        }
    }
}
