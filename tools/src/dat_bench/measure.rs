//! Interleaved rounds: raw, DAT, raw; ratios within a round, medians over the rounds.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::case::{BATCH, Case, Stack};
use crate::control::{Counted, Peer};
use crate::dat::DatLink;
use crate::raw::RawLink;
use crate::syscalls::{Counting, SyscallCounter};

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    /// Length of one sample in seconds.
    pub(crate) sample_s: f64,
}

/// This side of both connections, and the peer.
pub(crate) struct Bench {
    pub(crate) peer: Peer,
    pub(crate) raw: RawLink,
    pub(crate) dat: DatLink,
    pub(crate) counter: SyscallCounter,
}

/// System calls an operation, of one run.
#[derive(Debug, Clone, Copy)]
struct Calls {
    ours: Option<f64>,
    peers: Option<f64>,
}

/// Median with its extremes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// What a case gave.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) case: Case,
    pub(crate) raw: Spread,
    pub(crate) dat: Spread,
    /// DAT to raw of the same round.
    pub(crate) ratio: Spread,
    /// DAT to raw with sixteen messages a `writev`, for message rates.
    pub(crate) batch: Option<(Spread, Spread)>,
    /// System calls an operation: DAT here, DAT at the peer, raw here.
    pub(crate) syscalls: [Option<f64>; 3],
}

impl Bench {
    /// Measures one case.
    pub(crate) fn case(&mut self, case: Case, plan: Plan) -> Result<Outcome> {
        let raw_count = self.calibrate(Stack::Raw, case, plan)?;
        let dat_count = self.calibrate(Stack::Dat, case, plan)?;
        let batch_count = if case.is_message_rate() {
            Some(self.calibrate(Stack::RawBatch, case, plan)?)
        } else {
            None
        };
        let (mut raws, mut dats, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let (mut batches, mut batch_ratios) = (Vec::new(), Vec::new());
        for _ in 0..plan.rounds {
            let before = self.sample(Stack::Raw, case, raw_count)?;
            let dat = self.sample(Stack::Dat, case, dat_count)?;
            if let Some(count) = batch_count {
                let batch = self.sample(Stack::RawBatch, case, count)?;
                batch_ratios.push(dat / batch);
                batches.push(batch);
            }
            let after = self.sample(Stack::Raw, case, raw_count)?;
            ratios.push(dat * 2.0 / (before + after));
            raws.extend([before, after]);
            dats.push(dat);
        }
        let dat_calls = self.count(Stack::Dat, case, dat_count)?;
        let raw_calls = self.count(Stack::Raw, case, raw_count)?;
        Ok(Outcome {
            case,
            raw: Spread::of(raws),
            dat: Spread::of(dats),
            ratio: Spread::of(ratios),
            batch: batch_count.map(|_| (Spread::of(batches), Spread::of(batch_ratios))),
            syscalls: [dat_calls.ours, dat_calls.peers, raw_calls.ours],
        })
    }

    /// How many operations fill a sample; also warms the path up.
    fn calibrate(&mut self, stack: Stack, case: Case, plan: Plan) -> Result<u64> {
        let mut count = BATCH as u64;
        loop {
            let seconds = self.run(stack, case, count)?;
            if seconds > plan.sample_s / 8.0 || count >= 1 << 24 {
                let wanted = count as f64 * plan.sample_s / seconds;
                return Ok((wanted as u64)
                    .next_multiple_of(BATCH as u64)
                    .max(BATCH as u64));
            }
            count *= 4;
        }
    }

    fn sample(&mut self, stack: Stack, case: Case, count: u64) -> Result<f64> {
        Ok(case.figure(count, self.run(stack, case, count)?))
    }

    /// Counts the system calls of one more run, shorter than a sample.
    fn count(&mut self, stack: Stack, case: Case, sample: u64) -> Result<Calls> {
        let count = (sample / 4).next_multiple_of(BATCH as u64);
        self.peer.arm(stack, case, count, Counted::Yes)?;
        let counting = self.counter.begin();
        self.drive(stack, case, count)?;
        let ours = counting.and_then(Counting::end);
        let per_op = |calls: Option<u64>| calls.map(|calls| calls as f64 / count as f64);
        Ok(Calls {
            ours: per_op(ours),
            peers: per_op(self.peer.done()?),
        })
    }

    /// One run; how many seconds it took.
    fn run(&mut self, stack: Stack, case: Case, count: u64) -> Result<f64> {
        self.peer.arm(stack, case, count, Counted::No)?;
        let begin = Instant::now();
        self.drive(stack, case, count)?;
        let seconds = begin.elapsed().as_secs_f64();
        self.peer.done()?;
        Ok(seconds)
    }

    fn drive(&mut self, stack: Stack, case: Case, count: u64) -> Result<()> {
        let driven = match stack {
            Stack::Raw | Stack::RawBatch => self.raw.drive(stack, case, count),
            Stack::Dat => self.dat.drive(case, count),
        };
        driven.or_else(|error| {
            // What the peer saw is often the cause.
            let peers = self
                .peer
                .done()
                .err()
                .map_or_else(String::new, |e| format!(" ({e:#})"));
            bail!("{error:#}{peers}");
        })
    }
}

impl Spread {
    /// Of at least one value.
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let len = values.len();
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let median = (at((len.max(1) - 1) / 2) + at(len / 2)) / 2.0;
        Self {
            median,
            min: at(0),
            max: at(len.max(1) - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers_of_rounds() {
        let odd = Spread::of(vec![3.0, 1.0, 2.0]);
        assert_eq!(
            odd,
            Spread {
                median: 2.0,
                min: 1.0,
                max: 3.0
            }
        );
        let even = Spread::of(vec![4.0, 1.0, 2.0, 3.0]);
        assert_eq!(
            even,
            Spread {
                median: 2.5,
                min: 1.0,
                max: 4.0
            }
        );
        assert!(Spread::of(Vec::new()).median.is_nan());
    }
}
