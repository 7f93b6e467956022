//! Programs of perftest under `verbsrun`, compared with the same work over DAT.
//!
//! Every round measures `dat-bench`, which measures raw TCP before and after DAT, and then the
//! program. A ratio belongs to one round.

use anyhow::{Context, Result};
use stack_tests::Stage;

use super::pairs::Spread;
use super::peers::{Ours, Setup, TASKSET, one_line, shown};
use super::target::Target;
use crate::install::{self, PERFTEST};
use crate::workspace::Workspace;

/// A program, and the case of `dat-bench` that does the same work.
struct Row {
    program: &'static str,
    size: u32,
    case: &'static str,
}

/// Declares rows: the program, the size of its messages and the case.
macro_rules! rows {
    ($($program:literal, $size:literal, $case:literal;)+) => {
        &[$(Row { program: $program, size: $size, case: $case }),+]
    };
}

const ROWS: &[Row] = rows! {
    "ib_write_lat", 64, "write-ping:64:1";
    "ib_send_lat", 64, "send-ping:64:1";
    "ib_write_bw", 65536, "write:65536:16";
    "ib_write_bw", 1048576, "write:1048576:16";
    "ib_send_bw", 65536, "send:65536:16";
    "ib_send_bw", 1048576, "send:1048576:16";
};

/// The figures of one round.
struct Round {
    ours: Ours,
    verbs: f64,
}

/// Measures every row and prints the table.
pub(super) fn measure(workspace: &Workspace, stage: &Stage, quick: bool) -> Result<()> {
    let needs = [PERFTEST, TASKSET];
    install::provide(workspace, &needs)?;
    let absent = install::missing(&needs);
    if !absent.is_empty() {
        println!("verbs: not run: {}", install::advice(&absent));
        return Ok(());
    }
    let (count, sample_ms) = if quick { (3, 120) } else { (7, 150) };
    let setup = Setup::new(stage.clone(), sample_ms)?;
    println!(
        "{:<13} {:>8} {:<26} {:>5} {:>9} {:>9} {:>9}  {:<21} target",
        "perftest", "bytes", "DAT", "unit", "raw TCP", "DAT", "verbs", "verbs / DAT [min-max]"
    );
    let mut disturbed = 0;
    for row in ROWS {
        let rounds = (0..count).map(|_| row.round(&setup));
        match rounds.collect::<Result<Vec<Round>>>() {
            Ok(rounds) => {
                disturbed += rounds.iter().filter(|it| it.ours.is_disturbed).count();
                println!("{}", row.line(&rounds));
            }
            Err(why) => println!(
                "{:<13} {:>8} not run: {}",
                row.program,
                row.size,
                one_line(&why)
            ),
        }
    }
    println!(
        "\
us: half a round trip, less is better; GB/s: more is better. Figures are medians of {count} rounds.
Programs of perftest under verbsrun, with 16 messages in flight in rows of bandwidth, as DAT.
disturbed: other programs used much of the CPUs in {disturbed} of {} rounds.",
        count * ROWS.len()
    );
    Ok(())
}

impl Row {
    fn is_latency(&self) -> bool {
        self.program.ends_with("_lat")
    }

    fn target(&self) -> Target {
        match self.is_latency() {
            true => Target::AtMost(1.1),
            false => Target::AtLeast(0.95),
        }
    }

    fn round(&self, setup: &Setup) -> Result<Round> {
        let ours = setup.ours(self.case)?;
        let depth = if self.is_latency() { "" } else { " -t 16" };
        let line = format!("{} -s {}{depth}", self.program, self.size);
        let text = setup.perftest(&line, self.microseconds(ours.dat))?;
        Ok(Round {
            verbs: self.figure(&text)?,
            ours,
        })
    }

    /// The time of one iteration of the program if it has DAT's figure.
    fn microseconds(&self, figure: f64) -> f64 {
        match self.is_latency() {
            true => 2.0 * figure,
            false => f64::from(self.size) / (figure * 1e3),
        }
    }

    /// The figure that the program prints: the average latency, as DAT's is one, or the average
    /// bandwidth, which perftest counts in MiB.
    fn figure(&self, text: &str) -> Result<f64> {
        let (column, factor) = match self.is_latency() {
            true => (5, 1.0),
            false => (3, f64::from(1 << 20) / 1e9),
        };
        let figures = text.lines().find_map(|line| {
            let columns = line.split_whitespace().map(|column| column.parse().ok());
            let columns = columns.collect::<Option<Vec<f64>>>()?;
            (columns.first() == Some(&self.size.into())).then_some(columns)
        });
        let figure = figures.and_then(|columns| columns.get(column).copied());
        figure
            .map(|figure| figure * factor)
            .filter(|figure| *figure > 0.0)
            .with_context(|| {
                format!(
                    "{}: no line of {} bytes in {text:?}",
                    self.program, self.size
                )
            })
    }

    /// The row's line of the table.
    fn line(&self, rounds: &[Round]) -> String {
        let median = |of: fn(&Round) -> f64| shown(Spread::of(rounds.iter().map(of)).median);
        let ratio = Spread::of(rounds.iter().map(|round| round.verbs / round.ours.dat));
        let target = self.target();
        let (title, unit) = rounds.first().map_or(("", ""), |round| {
            (round.ours.title.as_str(), round.ours.unit.as_str())
        });
        format!(
            "{:<13} {:>8} {title:<26} {unit:>5} {:>9} {:>9} {:>9}  {:<21} {}",
            self.program,
            self.size,
            median(|round| round.ours.raw),
            median(|round| round.ours.dat),
            median(|round| round.verbs),
            format!("{:.3} [{:.2}-{:.2}]", ratio.median, ratio.min, ratio.max),
            target.verdict(ratio.median),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: &str = "\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]
 64      1000          0.30           9.10         0.50               0.60
";
    const BANDWIDTH: &str = "\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      5000             12000.00            10000.00           0.160000
";

    fn row(program: &str) -> &'static Row {
        ROWS.iter().find(|row| row.program == program).unwrap()
    }

    #[test]
    fn the_figures_of_perftest_get_the_units_of_ours() {
        assert_eq!(row("ib_send_lat").figure(LATENCY).unwrap(), 0.6);
        let bandwidth = row("ib_write_bw").figure(BANDWIDTH).unwrap();
        assert_eq!(bandwidth, 10.48576);
        assert!(row("ib_write_bw").figure(LATENCY).is_err());
        assert!(row("ib_send_lat").figure("Couldn't connect").is_err());
    }

    #[test]
    fn a_sample_has_as_many_iterations_as_dat_would_carry() {
        assert_eq!(row("ib_send_lat").microseconds(0.5), 1.0);
        assert_eq!(row("ib_write_bw").microseconds(65.536), 1.0);
    }

    #[test]
    fn every_row_names_the_case_of_its_size() {
        for row in ROWS {
            let words: Vec<&str> = row.case.split(':').collect();
            assert_eq!(words[1], row.size.to_string());
            assert_eq!(words[0].ends_with("ping"), row.is_latency());
            let verb = row.program.split('_').nth(1).unwrap();
            assert!(words[0].starts_with(verb), "{}", row.case);
        }
    }

    #[test]
    fn a_row_has_the_medians_of_its_rounds_and_a_verdict() {
        let round = |verbs| Round {
            ours: Ours {
                title: "64 B send ping-pong".into(),
                unit: "us".into(),
                raw: 3.0,
                dat: 0.5,
                is_shared: true,
                is_disturbed: false,
            },
            verbs,
        };
        let line = row("ib_send_lat").line(&[round(0.5), round(0.45), round(1.0)]);
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "ib_send_lat 64 64 B send ping-pong us 3.000 0.500 0.500 1.000 [0.90-2.00] <= 1.10 met"
        );
        assert!(
            row("ib_send_lat").line(&[]).ends_with("missed"),
            "no figure"
        );
    }
}
