//! Reading libtest's summaries.

/// Sums of the `test result:` lines of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    /// Tests that passed.
    pub(super) passed: usize,
    /// Tests that failed.
    pub(super) failed: usize,
    /// Tests marked as ignored.
    pub(super) ignored: usize,
}

impl Counts {
    /// Adds up the output of one or many test binaries.
    pub(super) fn of(text: &str) -> Self {
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("test result: "));
        lines.fold(Self::default(), |sum, line| Self {
            passed: sum.passed + number_before(line, " passed"),
            failed: sum.failed + number_before(line, " failed"),
            ignored: sum.ignored + number_before(line, " ignored"),
        })
    }
}

fn number_before(line: &str, word: &str) -> usize {
    let before = line.split(word).next().unwrap_or_default();
    before
        .rsplit(' ')
        .next()
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

/// Names of the tests that failed.
pub(super) fn failures(text: &str) -> Vec<&str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("test "));
    lines
        .filter_map(|line| line.strip_suffix(" ... FAILED"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "running 2 tests\n\
        test a::b ... ok\n\
        test a::c ... FAILED\n\
        test result: FAILED. 1 passed; 1 failed; 3 ignored; 0 measured; 0 filtered out\n\
        test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";

    #[test]
    fn results_of_all_binaries_are_summed() {
        assert_eq!(
            Counts::of(TEXT),
            Counts {
                passed: 41,
                failed: 1,
                ignored: 3
            }
        );
    }

    #[test]
    fn failed_tests_are_named() {
        assert_eq!(failures(TEXT), ["a::c"]);
    }
}
