//! Two ways to do the same work, measured alternately.

use anyhow::Result;

/// The figures of both ways, one pair per round.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pairs {
    rounds: Vec<(f64, f64)>,
}

/// The median, how well it is known, and the extremes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    /// Half of the values are above the median.
    pub(super) median: f64,
    /// The lower end of the interval that contains the median of all possible rounds in 95 of 100
    /// runs.
    pub(super) median_from: f64,
    /// The upper end of that interval.
    pub(super) median_to: f64,
    /// The lowest value.
    pub(super) min: f64,
    /// The highest value.
    pub(super) max: f64,
}

impl Pairs {
    /// Measures both ways in each round. The first way is measured first in one round and last in
    /// the next, so that a change over time affects both equally.
    pub(super) fn measure(
        rounds: usize,
        mut first: impl FnMut() -> Result<f64>,
        mut second: impl FnMut() -> Result<f64>,
    ) -> Result<Self> {
        let mut taken = Vec::with_capacity(rounds);
        for round in 0..rounds {
            taken.push(if round % 2 == 0 {
                let before = first()?;
                (before, second()?)
            } else {
                let before = second()?;
                (first()?, before)
            });
        }
        Ok(Self { rounds: taken })
    }

    /// The figures of the first way.
    pub(super) fn first(&self) -> Spread {
        Spread::of(self.rounds.iter().map(|(first, _)| *first))
    }

    /// The figures of the second way.
    pub(super) fn second(&self) -> Spread {
        Spread::of(self.rounds.iter().map(|(_, second)| *second))
    }

    /// The second way's figure divided by the first's, round by round.
    pub(super) fn ratio(&self) -> Spread {
        Spread::of(self.rounds.iter().map(|(first, second)| second / first))
    }

    /// The second way's figure minus the first's, round by round.
    pub(super) fn difference(&self) -> Spread {
        Spread::of(self.rounds.iter().map(|(first, second)| second - first))
    }
}

impl Spread {
    /// The spread of the values; if there are none, its numbers are NaN.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let last = sorted.len().saturating_sub(1);
        // The number of values below the true median has a binomial distribution, whose standard
        // deviation is half the root of the number of values.
        let to_each_side = (0.98 * (sorted.len() as f64).sqrt()).ceil() as usize;
        Self {
            median: (at(last / 2) + at(last.div_ceil(2))) / 2.0,
            median_from: at((last / 2).saturating_sub(to_each_side)),
            median_to: at((last.div_ceil(2) + to_each_side).min(last)),
            min: at(0),
            max: at(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_ways_alternate_in_being_first() {
        let order = RefCell::new(String::new());
        let way = |name, value| {
            order.borrow_mut().push(name);
            Ok(value)
        };
        let pairs = Pairs::measure(3, || way('a', 2.0), || way('b', 5.0)).unwrap();
        assert_eq!(order.borrow().as_str(), "abbaab");
        assert_eq!(pairs.ratio().median, 2.5);
        assert_eq!(pairs.difference().max, 3.0);
    }

    #[test]
    fn a_failed_measurement_ends_the_run() {
        let failing = || anyhow::bail!("no server");
        assert!(Pairs::measure(1, || Ok(1.0), failing).is_err());
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0].into_iter());
        assert_eq!((spread.median, spread.min, spread.max), (2.5, 1.0, 4.0));
        assert_eq!(Spread::of([7.0].into_iter()).median, 7.0);
        assert!(Spread::of(std::iter::empty()).median.is_nan());
    }

    #[test]
    fn more_values_make_the_median_better_known() {
        let of = |count: u32| Spread::of((0..=count).map(f64::from));
        let few = of(4);
        assert_eq!((few.median_from, few.median_to), (0.0, 4.0));
        let many = of(400);
        assert_eq!((many.median_from, many.median_to), (180.0, 220.0));
    }
}
