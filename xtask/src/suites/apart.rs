//! Suites whose tests run in processes of their own, several at a time.
//!
//! The tests of such a suite change state of their process, such as its environment or its limit of
//! descriptors, so that two of them cannot run in one process at the same time. Most of them wait
//! most of their time. cargo-nextest runs tests in this way too, but every fresh machine
//! would have to install it from the network before it could run the tests.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use anyhow::{Result, ensure};
use stack_tests::Finished;

use super::combined;
use super::count::Counts;
use crate::at_once;
use crate::job::Job;

/// The number of processes at a time.
const AT_ONCE: usize = 4;

/// The exit status of a test program whose test failed.
const TEST_FAILED: i32 = 101;

/// Runs every test of the program that `job` starts in a process of its own. Returns their output
/// combined, as of one run.
pub(super) fn run(job: impl Fn() -> Job + Sync) -> Result<Finished> {
    let listed = job().args("--list --format terse").check()?;
    let names = names_of_tests(&listed.text);
    let combined = combined(at_once::map(AT_ONCE, &names, |name| {
        result_of(name, job().args("--exact").arg(name).finish())
    }))?;
    let ran = Counts::of(&combined.text).ran();
    ensure!(
        ran == names.len(),
        "{ran} of {} tests have a result",
        names.len()
    );
    job().record(&combined.text)?;
    Ok(combined)
}

/// The names in libtest's list of tests.
fn names_of_tests(list: &str) -> Vec<&str> {
    list.lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .collect()
}

/// The output of one test's process. A process without a result, because it was killed or was still
/// running at the deadline, has failed; the output then has the form of a failed test.
fn result_of(name: &str, finished: Result<Finished>) -> Finished {
    let why = match finished {
        Ok(finished) if Counts::of(&finished.text).ran() == 1 => return finished,
        Ok(finished) => format!("{}\n{}", finished.status, finished.tail()),
        Err(error) => format!("{error:#}"),
    };
    Finished {
        name: name.to_owned(),
        status: ExitStatus::from_raw(TEST_FAILED << 8),
        text: format!(
            "test {name} ... FAILED\n\nfailures:\n\n---- {name} stdout ----\n{why}\n\n\
             failures:\n    {name}\n\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::count::{failure_reports, failures};
    use super::*;

    fn finished(text: &str, status: i32) -> Finished {
        Finished {
            name: "suite".to_owned(),
            status: ExitStatus::from_raw(status),
            text: text.to_owned(),
        }
    }

    #[test]
    fn tests_are_listed_without_benchmarks() {
        let list = "a::b: test\nc: benchmark\nd: test\n\n2 tests, 1 benchmark\n";
        assert_eq!(names_of_tests(list), ["a::b", "d"]);
    }

    #[test]
    fn a_process_that_dies_is_a_failed_test() {
        let passed =
            "test a ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 9 filtered\n";
        let parts = vec![
            result_of("a", Ok(finished(passed, 0))),
            result_of("b", Ok(finished("running 1 test\nsome words\n", 6))),
            result_of("c", Err(anyhow::anyhow!("still running"))),
        ];
        let whole = combined(parts).unwrap();
        assert!(!whole.status.success());
        let counts = Counts::of(&whole.text);
        assert_eq!((counts.passed, counts.failed, counts.ran()), (1, 2, 3));
        assert_eq!(failures(&whole.text), ["b", "c"]);
        let reports = failure_reports(&whole.text);
        assert!(reports.contains("some words"), "{reports}");
        assert!(reports.contains("still running"), "{reports}");
    }
}
