//! The tables of a measurement between hosts, with the names and units of perftest.

use tool_args::bench::case::{Case, Stack, Work};
use tool_args::bench::spread::{Spread, figure};
use tool_args::say;

use crate::measure::Outcome;
use crate::results::Measured;

/// Prints rows, and the names of the columns above the first row of each work.
pub(crate) struct Table {
    stack: Stack,
    work: Option<Work>,
}

impl Table {
    pub(crate) fn new(stack: Stack) -> Self {
        Self { stack, work: None }
    }

    pub(crate) fn row(&mut self, row: &Measured) {
        if self.work.replace(row.case.work) != Some(row.case.work) {
            say!("\n{}", head(self.stack, row.case));
        }
        say!("{}", line(row.case, &row.outcome));
    }
}

fn head(stack: Stack, case: Case) -> String {
    let (stack, work) = (stack.title(), case.work.name());
    if case.is_ping() {
        let part = if case.parts() > 1.0 {
            "half a"
        } else {
            "a whole"
        };
        return format!(
            "{stack}, {work}: latency in usec, {part} round trip\n\
             {:>8}{:>12}{:>9}{:>11}{:>9}{:>9}{:>9}{:>9}{:>9}{:>15}{:>7}",
            "#bytes",
            "#iterations",
            "t_min",
            "t_typical",
            "t_avg",
            "90%",
            "99%",
            "99.9%",
            "t_max",
            "TCP t_typical",
            "ratio"
        );
    }
    format!(
        "{stack}, {work}: bandwidth in MiB/sec\n\
         {:>8}{:>12}{:>12}{:>12}{:>15}{:>14}{:>7}",
        "#bytes", "#iterations", "BW peak", "BW average", "MsgRate[Mpps]", "TCP average", "ratio"
    )
}

fn line(case: Case, outcome: &Outcome) -> String {
    let (size, count, ratio) = (case.size, outcome.operations, outcome.ratio.median);
    match outcome.latency {
        Some([own, raw]) => {
            let [min, typical, average] = [own.min, own.p50, own.average].map(figure);
            let [p90, p99, p99_9] = [own.p90, own.p99, own.p99_9].map(figure);
            format!(
                "{size:>8}{count:>12}{min:>9}{typical:>11}{average:>9}{p90:>9}{p99:>9}{p99_9:>9}\
                 {:>9}{:>15}{ratio:>7.2}",
                figure(own.max),
                figure(raw.p50)
            )
        }
        None => {
            let rates = |spread: Spread| [spread.max, spread.mean].map(|figure| rate(case, figure));
            let ([peak, average], [_, raw]) = (rates(outcome.contender), rates(outcome.raw));
            let mebibytes = |rate: f64| rate * size as f64 / f64::from(1u32 << 20);
            format!(
                "{size:>8}{count:>12}{:>12.2}{:>12.2}{:>15.6}{:>14.2}{ratio:>7.2}",
                mebibytes(peak),
                mebibytes(average),
                average / 1e6,
                mebibytes(raw)
            )
        }
    }
}

/// Messages per second, from the figure of a bandwidth case.
fn rate(case: Case, figure: f64) -> f64 {
    match case.is_message_rate() {
        true => figure * 1e6,
        false => figure * 1e9 / case.size as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::measured;
    use tool_args::bench::case::Wire;

    /// Returns the words of the line below the names, which ends where the names end.
    fn words(case: Case, outcome: &Outcome) -> Vec<String> {
        let (head, line) = (head(Stack::Dat, case), line(case, outcome));
        let names = head.lines().nth(1).unwrap();
        assert_eq!(names.len(), line.len(), "{head}\n{line}");
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn figures_are_below_their_names_in_mebibytes_and_microseconds() {
        let case = |work, size| Case::new(work, size, 16, Wire::Network);
        let mut outcome = measured().outcome;
        let ping = words(case(Work::SendPing, 64), &outcome);
        assert_eq!(ping[..4], ["64", "3000", "0.500", "1.000"]);
        outcome.latency = None;
        let bulk = words(case(Work::StreamSend, 1 << 20), &outcome);
        // 4 and 2 GB/s, and 8 GB/s of TCP.
        let expected = ["3814.70", "1907.35", "0.001907", "7629.39", "0.25"];
        assert_eq!(bulk[2..], expected);
        let small = words(case(Work::StreamSend, 64), &outcome);
        // 2 million messages of 64 bytes per second.
        assert_eq!(small[3..5], ["122.07", "2.000000"]);
    }
}
