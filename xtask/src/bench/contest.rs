//! Several ways to do the same work, measured in the same rounds, and the table of their figures.

use anyhow::Result;
use tool_args::bench::spread::{Spread, figure};

use tool_args::bench::rows::Target;

/// The figures of one way, one per round, or the reason why there are none.
pub(super) type Series<T = f64> = Result<Vec<T>, String>;

/// Measures each way in each round. Every round begins with another way, so that a change over time
/// affects all of them equally. A way that has failed is not measured again.
pub(super) fn rounds<T>(
    count: usize,
    ways: usize,
    mut measure: impl FnMut(usize) -> Result<T>,
) -> Vec<Series<T>> {
    let mut all: Vec<Series<T>> = (0..ways).map(|_| Ok(Vec::new())).collect();
    for turn in (0..count).flat_map(|round| (0..ways).map(move |turn| round + turn)) {
        let series = &mut all[turn % ways];
        if let Ok(figures) = series {
            match measure(turn % ways) {
                Ok(figure) => figures.push(figure),
                Err(why) => *series = Err(one_line(&why)),
            }
        }
    }
    all
}

pub(super) fn one_line(why: &anyhow::Error) -> String {
    format!("{why:#}").replace('\n', " ")
}

/// A kind of work, done in several ways.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) title: String,
    pub(super) unit: &'static str,
    /// The figures by column; `None` for a way that cannot do the work.
    pub(super) series: Vec<Option<Series>>,
    /// The columns that are compared, round by round.
    pub(super) compared: Compared,
    pub(super) target: Option<Target>,
}

/// A comparison of two columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compared {
    /// The first column divided by the second one.
    Ratio(usize, usize),
    /// The first column minus the second one, in the unit of the row.
    Difference(usize, usize),
}

/// A table that is printed row by row.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<&'static str>,
    met: usize,
    missed: usize,
    /// Figures that could not be measured, with the reasons.
    not_run: Vec<String>,
}

impl Table {
    /// Prints the heads of the columns.
    pub(super) fn begin(title: &str, columns: Vec<&'static str>) -> Self {
        let heads: String = columns.iter().map(|head| format!(" {head:>9}")).collect();
        println!("{title:<49} {:>6}{heads}  compared [interval]", "unit");
        Self {
            columns,
            met: 0,
            missed: 0,
            not_run: Vec::new(),
        }
    }

    pub(super) fn print(&mut self, row: &Row) {
        println!("{}", self.line(row));
    }

    fn line(&mut self, row: &Row) -> String {
        let mut line = format!("{:<49} {:>6}", row.title, row.unit);
        for (column, series) in self.columns.iter().zip(&row.series) {
            let cell = match series {
                None => String::new(),
                Some(Ok(figures)) => figure(Spread::of(figures.iter().copied()).median),
                Some(Err(why)) => {
                    self.not_run.push(format!("{column}, {}: {why}", row.title));
                    "not run".to_owned()
                }
            };
            line += &format!(" {cell:>9}");
        }
        let (sign, first, second) = match row.compared {
            Compared::Ratio(first, second) => ('/', first, second),
            Compared::Difference(first, second) => ('-', first, second),
        };
        let names = format!("{} {sign} {}", self.columns[first], self.columns[second]);
        let figures = |column: usize| row.series[column].as_ref()?.as_ref().ok();
        let Some((firsts, seconds)) = figures(first).zip(figures(second)) else {
            return format!("{line}  {names:<16} -");
        };
        let pairs = firsts.iter().zip(seconds);
        let value = Spread::of(pairs.map(|(first, second)| match row.compared {
            Compared::Ratio(..) => first / second,
            Compared::Difference(..) => first - second,
        }));
        let verdict = row.target.map_or_else(String::new, |target| {
            *match target.is_met(value.median) {
                true => &mut self.met,
                false => &mut self.missed,
            } += 1;
            target.verdict(value.median)
        });
        let Spread {
            median,
            median_from,
            median_to,
            ..
        } = value;
        let value = format!("{median:.3} [{median_from:.3}-{median_to:.3}]");
        format!("{line}  {names:<16} {value:<21} {verdict}")
            .trim_end()
            .to_owned()
    }

    /// Prints how to read the table, and its summary.
    pub(super) fn end(&self, note: &str) {
        println!(
            "\
Figures are medians; a comparison is that of one round, then the median, with the interval in which
the median is with a probability of 0.95. The load of this machine is {} now.
{note}",
            super::load()
        );
        for why in &self.not_run {
            println!("not run: {why}");
        }
        println!("targets: {} met, {} missed", self.met, self.missed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_way_and_a_failed_way_is_not_measured_again() {
        let mut order = String::new();
        let all = rounds(3, 2, |way| {
            order.push(['a', 'b'][way]);
            Ok(way)
        });
        assert_eq!(order, "abbaab");
        assert_eq!(all, [Ok(vec![0; 3]), Ok(vec![1; 3])]);
        let all = rounds(2, 2, |way| {
            anyhow::ensure!(way == 0, "no\nserver");
            Ok(1.0)
        });
        assert_eq!(all, [Ok(vec![1.0; 2]), Err("no server".to_owned())]);
    }

    #[test]
    fn a_line_has_the_medians_the_comparison_of_its_rounds_and_a_verdict() {
        let mut table = Table::begin("", vec!["raw TCP", "DAT", "UCX"]);
        let mut row = Row {
            title: "64 B send".into(),
            unit: "us",
            series: vec![
                Some(Ok(vec![4.0, 4.0, 4.0])),
                Some(Ok(vec![9.0, 8.0, 10.0])),
                None,
            ],
            compared: Compared::Ratio(1, 0),
            target: Some(Target::AtMost(2.0)),
        };
        let words = |line: String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            words(table.line(&row)),
            "64 B send us 4.000 9.000 DAT / raw TCP 2.250 [2.000-2.500] <= 2.00 missed"
        );
        row.compared = Compared::Difference(1, 0);
        row.target = None;
        assert!(
            table
                .line(&row)
                .ends_with("DAT - raw TCP    5.000 [4.000-6.000]")
        );
        row.series[1] = Some(Err("no adapter".into()));
        assert!(words(table.line(&row)).ends_with("4.000 not run DAT - raw TCP -"));
        assert_eq!(table.not_run, ["DAT, 64 B send: no adapter"]);
        assert_eq!((table.met, table.missed), (0, 1));
    }
}
