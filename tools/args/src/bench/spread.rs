//! Figures of several rounds, and their text.

/// A median, the interval in which it is, and the extremes; NaN if there are no values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Half of the values are above the median.
    pub median: f64,
    /// The lower end of the interval that contains the median of all possible rounds in 95 of 100
    /// runs.
    pub median_from: f64,
    /// The upper end of that interval.
    pub median_to: f64,
    /// The lowest value.
    pub min: f64,
    /// The highest value.
    pub max: f64,
    /// The mean.
    pub mean: f64,
}

impl Spread {
    /// The spread of the values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
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
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
        }
    }
}

/// The text of a figure in a table.
pub fn figure(value: f64) -> String {
    match value {
        value if value.is_nan() => "-".into(),
        value if value < 10.0 => format!("{value:.3}"),
        value if value < 100.0 => format!("{value:.2}"),
        value => format!("{value:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!((spread.median, spread.min, spread.max), (2.5, 1.0, 4.0));
        assert_eq!(
            (Spread::of([3.0, 1.0, 2.0]).median, spread.mean),
            (2.0, 2.5)
        );
        assert!(Spread::of([]).median.is_nan());
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
