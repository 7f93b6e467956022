//! The times of the single operations of a run, and their distribution.

use std::time::{Duration, Instant};

use tool_args::bench::case::Case;

/// The begin of each operation of one run.
#[derive(Debug)]
pub(crate) struct Laps {
    /// `None` in a run that is timed as a whole, because reading the clock takes time too.
    begins: Option<Vec<Instant>>,
}

/// The distribution of the times of single operations, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Latency {
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p99_9: f64,
    pub(crate) max: f64,
    pub(crate) average: f64,
}

impl Laps {
    /// Takes no times.
    pub(crate) const fn off() -> Self {
        Self { begins: None }
    }

    /// Takes the times of up to `count` operations.
    pub(crate) fn on(count: usize) -> Self {
        Self {
            begins: Some(Vec::with_capacity(count + 1)),
        }
    }

    /// Marks the begin of an operation, which is the end of the one before.
    #[inline]
    pub(crate) fn mark(&mut self) {
        if let Some(begins) = &mut self.begins {
            begins.push(Instant::now());
        }
    }

    /// The distribution; `None` if no operation was timed.
    pub(crate) fn latency(&self, case: Case) -> Option<Latency> {
        let begins = self.begins.as_deref()?;
        let pairs = begins.windows(2);
        let mut laps: Vec<Duration> = pairs.map(|pair| pair[1] - pair[0]).collect();
        laps.sort_unstable();
        let microseconds = |lap: Duration| lap.as_nanos() as f64 / 1e3 / case.parts();
        let total: Duration = laps.iter().sum();
        let count = laps.len();
        let least = |share: f64| {
            // The least time that at least this share of the operations does not exceed.
            let rank = (count as f64 * share).ceil() as usize;
            laps[rank.clamp(1, count) - 1]
        };
        (count > 0).then(|| Latency {
            min: microseconds(laps[0]),
            p50: microseconds(least(0.5)),
            p90: microseconds(least(0.9)),
            p99: microseconds(least(0.99)),
            p99_9: microseconds(least(0.999)),
            max: microseconds(laps[count - 1]),
            average: microseconds(total) / count as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tool_args::bench::case::{Wire, Work};

    #[test]
    fn percentiles_are_ranks_of_the_sorted_times() {
        let start = Instant::now();
        let mut at = Duration::ZERO;
        let mut laps = Laps::on(1000);
        // 1000 operations of 2, 4, ... 2000 microseconds, in an order that is not sorted.
        let order = (0..1000u64).map(|i| i * 3 % 1000 + 1);
        let begins = order.map(|i| {
            at += Duration::from_micros(2 * i);
            start + at
        });
        laps.begins = Some([start].into_iter().chain(begins).collect());
        let latency = laps.latency(Case::new(Work::SendPing, 64, 1, Wire::Tcp));
        let expected = Latency {
            min: 1.0,
            p50: 500.0,
            p90: 900.0,
            p99: 990.0,
            p99_9: 999.0,
            max: 1000.0,
            average: 500.5,
        };
        assert_eq!(latency, Some(expected));
    }

    #[test]
    fn a_run_without_laps_has_no_distribution() {
        let case = Case::new(Work::SendPing, 64, 1, Wire::Tcp);
        let mut off = Laps::off();
        off.mark();
        assert_eq!(off.latency(case), None);
        let mut one = Laps::on(1);
        one.mark();
        assert_eq!(one.latency(case), None);
    }
}
