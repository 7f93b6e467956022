//! The figures in the output of the programs that measure.

use anyhow::{Context, Result};
use serde_json::Value;

/// A row of `dat-bench` that was measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BenchRow {
    /// The case, as `dat-bench --cases` parses it.
    pub(crate) case: String,
    pub(crate) title: String,
    pub(crate) unit: String,
    /// The median of raw TCP; NaN if it was not measured.
    pub(crate) raw: f64,
    /// The median of the contender.
    pub(crate) own: f64,
    /// The median of the ratios of the rounds; NaN without raw TCP.
    pub(crate) ratio: f64,
    /// The share of the processors that other programs used meanwhile.
    pub(crate) foreign_share: f64,
}

impl BenchRow {
    /// Parses a line of the file of `dat-bench --json`. Returns `None` for lines that are no row,
    /// and for rows that were not measured.
    pub(crate) fn of(line: &str) -> Option<Self> {
        let row: Value = serde_json::from_str(line.trim_end_matches(',')).ok()?;
        let word = |key: &str| Some(row[key].as_str()?.to_owned());
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        Some(Self {
            case: word("case")?,
            title: word("title")?,
            unit: word("unit")?,
            raw: number(&row["raw"]["median"]),
            own: row["figure"]["median"].as_f64()?,
            ratio: number(&row["ratio"]["median"]),
            foreign_share: number(&row["foreign_share"]),
        })
    }
}

/// The figures of one run of `ucx_perftest -f -v` over all iterations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct UcxRun {
    /// Microseconds per message; an iteration of a ping-pong has two messages.
    pub(super) latency_us: f64,
    /// MiB per second.
    pub(super) bandwidth: f64,
    /// Messages per second.
    pub(super) rate: f64,
}

impl UcxRun {
    /// Parses a line of names, separated by commas, and the line of figures below it.
    pub(super) fn of(text: &str) -> Result<Self> {
        let column = |name| {
            below(text, "iterations,", name, ',')
                .with_context(|| missing("ucx_perftest", name, text))
        };
        Ok(Self {
            latency_us: column("overall_lat")?,
            bandwidth: column("overall_bw")?,
            rate: column("overall_mr")?,
        })
    }
}

/// Microseconds of half a round trip in the output of `fi_pingpong`.
pub(super) fn pingpong_us(text: &str) -> Result<f64> {
    let name = "usec/xfer";
    below(text, "bytes ", name, ' ').with_context(|| missing("fi_pingpong", name, text))
}

/// The figure of a program of perftest: the average latency in microseconds, or the average
/// bandwidth in MiB per second.
pub(super) fn perftest(text: &str) -> Result<f64> {
    // The names contain blanks before their units only.
    let text = text.replace("BW ", "BW_");
    let figure = |name| below(&text, "#bytes", name, ' ');
    figure("t_avg[")
        .or_else(|| figure("BW_average["))
        .with_context(|| missing("perftest", "average", &text))
}

/// The positive figure in the column `name`, on the line below the line of names, which begins with
/// `first`.
fn below(text: &str, first: &str, name: &str, separator: char) -> Option<f64> {
    let columns = |line: &'_ str| -> Vec<String> {
        let words = line.split(separator).map(str::trim);
        let words = words.filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    };
    let mut lines = text.lines().map(str::trim_start);
    let names = columns(lines.find(|line| line.starts_with(first))?);
    let at = names.iter().position(|other| other.starts_with(name))?;
    let figure: f64 = columns(lines.next()?).get(at)?.parse().ok()?;
    (figure > 0.0).then_some(figure)
}

fn missing(program: &str, name: &str, text: &str) -> String {
    format!("{program}: no {name} in {text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_dat_bench_are_distinguished_from_other_lines_of_the_file() {
        let line = r#"{"case":"send-ping:64:1","title":"64 B send ping-pong","unit":"us",
            "figure":{"median":0.405},"raw":{"median":2.689},"ratio":{"median":0.151},
            "foreign_share":null},"#;
        let row = BenchRow::of(line).unwrap();
        assert_eq!(
            (row.title.as_str(), row.unit.as_str()),
            ("64 B send ping-pong", "us")
        );
        assert_eq!((row.raw, row.own, row.ratio), (2.689, 0.405, 0.151));
        assert!(row.foreign_share.is_nan());
        assert_eq!(BenchRow::of(r#"{"program": "dat-bench", "rows": ["#), None);
        let not_run = r#"{"case":"connect:1:16","title":"x","unit":"k/s","not_run":"no right"}"#;
        assert_eq!(BenchRow::of(not_run), None);
    }

    #[test]
    fn the_overall_figures_of_ucx_are_read() {
        let text = "[1669374113.0] [host:1] perftest.c:12 UCX WARN something\n\
                    iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,\
                    overall_mr\n20000,1.256,1.700,1.744,35000.00,35842.38,570000,573478\n";
        let run = UcxRun::of(text).unwrap();
        assert_eq!(run.latency_us, 1.744);
        assert_eq!(run.bandwidth, 35842.38);
        assert_eq!(run.rate, 573478.0);
        assert!(UcxRun::of("UCX ERROR no active messages transport").is_err());
        assert!(UcxRun::of("iterations,overall_lat,overall_bw,overall_mr\n").is_err());
        assert!(UcxRun::of("iterations,overall_lat,overall_bw,overall_mr\n1,0,0,0\n").is_err());
    }

    #[test]
    fn the_averages_of_libfabric_and_perftest_are_read() {
        let text = "bytes  #sent  #ack  total  time   MB/sec  usec/xfer  Mxfers/sec\n\
                    64     20k    =20k  2.4m   0.05s  52.12   1.23       0.81\n";
        assert_eq!(pingpong_us(text).unwrap(), 1.23);
        assert!(pingpong_us("[error] util/pingpong.c:1119: cq_readerr: Success").is_err());
        let latency = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    \
                       t_avg[usec]\n 64      1000          0.30        9.10    0.50     0.60\n";
        assert_eq!(perftest(latency).unwrap(), 0.6);
        let bandwidth = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   \
                         MsgRate[Mpps]\n 65536      5000    12000.00     10000.00    0.160000\n";
        assert_eq!(perftest(bandwidth).unwrap(), 10000.0);
        assert!(perftest("Couldn't connect").is_err());
    }
}
