//! Parses the figures in the output of the programs that measure.

use anyhow::{Context, Result};

/// The width of the titles in the rows of `dat-bench`.
const TITLE_WIDTH: usize = 35;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BenchRow<'a> {
    /// The row's title.
    pub(crate) title: &'a str,
    /// The unit of both figures.
    pub(crate) unit: &'a str,
    /// The median of raw TCP.
    pub(crate) raw: f64,
    /// The median of the contender.
    pub(crate) own: f64,
    /// The median of the ratios of the rounds.
    pub(crate) ratio: f64,
}

impl<'a> BenchRow<'a> {
    /// Parses a row. Returns `None` for other lines, such as the indented rows of further
    /// contenders.
    pub(crate) fn of(line: &'a str) -> Option<Self> {
        let (title, rest) = line.split_at_checked(TITLE_WIDTH)?;
        let mut columns = rest.split_whitespace();
        let unit = columns.next()?;
        let mut number = || columns.next()?.parse::<f64>().ok();
        let (raw, own, ratio) = (number()?, number()?, number()?);
        let title = title.trim_end();
        (!title.starts_with(' ')).then_some(Self {
            title,
            unit,
            raw,
            own,
            ratio,
        })
    }
}

/// The measurements of one run of `ucx_perftest -f -v` over all iterations.
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
        let mut lines = text.lines();
        let names = lines.find(|line| line.starts_with("iterations,"));
        let figures = names.and_then(|_| lines.next());
        let column = |name: &str| {
            let at = names?.split(',').position(|column| column == name)?;
            figures?.split(',').nth(at)?.trim().parse::<f64>().ok()
        };
        let column = |name| {
            let figure = column(name).filter(|figure| *figure > 0.0);
            figure.with_context(|| format!("ucx_perftest: no {name} in {text:?}"))
        };
        Ok(Self {
            latency_us: column("overall_lat")?,
            bandwidth: column("overall_bw")?,
            rate: column("overall_mr")?,
        })
    }
}

/// Microseconds of half a round trip in the output of `fi_pingpong`, which has a line of names and
/// a line of figures below it.
pub(super) fn pingpong_us(text: &str) -> Result<f64> {
    let mut lines = text.lines();
    let names = lines.find(|line| line.starts_with("bytes "));
    let at = names.and_then(|names| {
        let mut names = names.split_whitespace();
        names.position(|name| name == "usec/xfer")
    });
    let figure = at.and_then(|at| lines.next()?.split_whitespace().nth(at)?.parse().ok());
    figure
        .filter(|figure| *figure > 0.0)
        .with_context(|| format!("fi_pingpong: no usec/xfer in {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_dat_bench_are_distinguished_from_its_other_lines() {
        let line = "64 B send ping-pong                    us     2.689     0.405  0.151 \
                    [0.14-0.16]   <= 0.15 missed              11.66+11.25; 12.18";
        let row = BenchRow::of(line).unwrap();
        assert_eq!((row.title, row.unit), ("64 B send ping-pong", "us"));
        assert_eq!((row.raw, row.own, row.ratio), (2.689, 0.405, 0.151));
        let other =
            "  bare MPA framing with CRC, to raw    us     2.689     3.055  1.136 [1.1-1.2]";
        assert_eq!(BenchRow::of(other), None);
        assert_eq!(BenchRow::of("shared memory: in use"), None);
        let not_run = "64 B send ping-pong                 not run: no right to make networks";
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
    fn the_time_of_a_transfer_of_libfabric_is_read() {
        let text = "bytes  #sent  #ack  total  time   MB/sec  usec/xfer  Mxfers/sec\n\
                    64     20k    =20k  2.4m   0.05s  52.12   1.23       0.81\n";
        assert_eq!(pingpong_us(text).unwrap(), 1.23);
        assert!(pingpong_us("[error] util/pingpong.c:1119: cq_readerr: Success").is_err());
    }
}
