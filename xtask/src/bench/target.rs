//! The bound that a figure or a ratio is to reach, and the verdict on it.

/// A bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Target {
    /// Less is better.
    AtMost(f64),
    /// More is better.
    AtLeast(f64),
}

impl Target {
    /// True if this value reaches the target; NaN reaches none.
    pub(super) fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }

    /// The text of the target, and of the verdict on a value.
    pub(super) fn verdict(self, value: f64) -> String {
        let word = if self.is_met(value) { "met" } else { "missed" };
        match self {
            Self::AtMost(most) => format!("<= {most:.2} {word}"),
            Self::AtLeast(least) => format!(">= {least:.2} {word}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_from_its_value_on() {
        let least = Target::AtLeast(0.95);
        assert!(least.is_met(0.95) && !least.is_met(0.9499) && !least.is_met(f64::NAN));
        let most = Target::AtMost(3.0);
        assert!(most.is_met(3.0) && !most.is_met(3.001) && !most.is_met(f64::NAN));
        assert_eq!(
            (least.verdict(1.0), most.verdict(4.0)),
            (">= 0.95 met".into(), "<= 3.00 missed".into())
        );
    }
}
