//! Reading libtest's summaries.

/// The maximum number of printed lines of the output of failed tests. The log has all lines.
const REPORT_LINES: usize = 80;

/// Sums of the `test result:` lines of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Tests marked as ignored.
    pub(crate) ignored: usize,
    /// Tests that the arguments of the run exclude.
    pub(crate) filtered: usize,
    /// Tests that reported that they could not run here; the test harness counts them as passed.
    pub(crate) not_run: usize,
}

/// The text with which a test of `tests/` reports that it cannot run on this machine.
pub(super) const NOT_RUN: &str = "NOT RUN: ";

impl Counts {
    /// Adds up the output of one or many test binaries.
    pub(crate) fn of(text: &str) -> Self {
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("test result: "));
        let not_run = text
            .lines()
            .filter(|line| line.starts_with(NOT_RUN))
            .count();
        let start = Self {
            not_run,
            ..Self::default()
        };
        let sum = lines.fold(start, |sum, line| Self {
            passed: sum.passed + number_before(line, " passed"),
            failed: sum.failed + number_before(line, " failed"),
            ignored: sum.ignored + number_before(line, " ignored"),
            filtered: sum.filtered + number_before(line, " filtered out"),
            ..sum
        });
        Self {
            passed: sum.passed.saturating_sub(not_run),
            ..sum
        }
    }

    /// The number of tests that have a result.
    pub(crate) fn ran(self) -> usize {
        self.passed + self.failed + self.ignored + self.not_run
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
pub(crate) fn failures(text: &str) -> Vec<&str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("test "));
    lines
        .filter_map(|line| line.strip_suffix(" ... FAILED"))
        .collect()
}

/// The output of the failed tests: for each, the block below the line `---- name stdout ----` of
/// libtest, or `---- name ----` of libtest-mimic.
pub(super) fn failure_reports(text: &str) -> String {
    let mut inside = false;
    let mut reports = Vec::new();
    for line in text.lines() {
        if line.starts_with("---- ") && line.ends_with(" ----") {
            inside = true;
        } else if line == "failures:" {
            inside = false;
        }
        if inside && reports.len() < REPORT_LINES {
            reports.push(line);
        }
    }
    reports.join("\n")
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
                ignored: 3,
                filtered: 0,
                not_run: 0,
            }
        );
    }

    #[test]
    fn failed_tests_are_named() {
        assert_eq!(failures(TEXT), ["a::c"]);
    }

    #[test]
    fn only_the_blocks_of_failed_tests_are_shown() {
        let text = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nError: why\n\n\
                    failures:\n    a\n\ntest result: FAILED. 0 passed; 1 failed;\nnoise\n";
        assert_eq!(failure_reports(text), "---- a stdout ----\nError: why\n");
        let of_data = text.replace("a stdout", "dtest -p");
        assert_eq!(
            failure_reports(&of_data),
            "---- dtest -p ----\nError: why\n"
        );
        assert_eq!(failure_reports(TEXT), "");
    }

    #[test]
    fn a_test_that_could_not_run_has_not_passed() {
        let text = "NOT RUN: one: no IPv6\ntest result: ok. 3 passed; 0 failed; 0 ignored\n";
        let counts = Counts::of(text);
        assert_eq!((counts.passed, counts.not_run), (2, 1));
    }
}
