//! Two ways to do the same work, measured alternately.

use anyhow::Result;
pub(super) use tool_args::bench::spread::Spread;

/// The figures of both ways, one pair per round.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pairs {
    rounds: Vec<(f64, f64)>,
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
}
