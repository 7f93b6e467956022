//! The long run of the suite `guest`, in parts: each boots a guest of its own, and some run at the
//! same time. One after another they take three hours, most of which is waiting for time limits.

use std::ffi::OsString;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use stack_tests::Finished;

use super::{Job, Kernel, Machine, Output};
use crate::at_once;
use crate::suites::{Counts, combined, failures};
use crate::workspace::Workspace;

/// The number of guests that run at the same time. Each keeps about half a processor busy.
const AT_ONCE: usize = 3;

/// A part of the suite, selected by the names of its tests.
#[derive(Debug, Clone, Copy)]
struct Part {
    name: &'static str,
    /// A word that the names contain.
    contains: &'static str,
    /// Words that the names do not contain.
    skips: &'static [&'static str],
}

/// One part per configuration of the suite (provider, device and registry library), the longest
/// ones first; and one for the tests that belong to no configuration.
const PARTS: &[Part] = &[
    configuration("ofa-siw", "ofa-siw: ", &["pure-"]),
    configuration("ofa-rxe", "ofa-rxe: ", &["pure-"]),
    configuration("ib-siw", "ib-siw: ", &[]),
    configuration("ib-rxe", "ib-rxe: ", &[]),
    configuration("pure-ofa-siw", "pure-ofa-siw: ", &[]),
    configuration("pure-ofa-rxe", "pure-ofa-rxe: ", &[]),
    configuration("ib-siw-under-ofa", "ib-siw-under-ofa: ", &[]),
    configuration("ib-rxe-under-ofa", "ib-rxe-under-ofa: ", &[]),
    configuration("soft-lo", "soft-lo: ", &[]),
    configuration("soft-veth", "soft-veth: ", &[]),
    configuration(
        "jobs",
        "",
        &["-rxe: ", "-siw: ", "-ofa: ", "soft-lo: ", "soft-veth: "],
    ),
];

const fn configuration(
    name: &'static str,
    contains: &'static str,
    skips: &'static [&'static str],
) -> Part {
    Part {
        name,
        contains,
        skips,
    }
}

impl Part {
    fn arguments(self) -> Vec<OsString> {
        // One argument, because the skipped word may begin with a hyphen.
        let skips = self.skips.iter().map(|skip| format!("--skip={skip}"));
        let contains = (!self.contains.is_empty()).then(|| self.contains.to_owned());
        skips.chain(contains).map(Into::into).collect()
    }
}

/// Runs all parts, `job` with the arguments of each. Returns their output combined, as of one run.
/// Each part is reported on standard output when it has ended.
pub(super) fn run(
    workspace: &Workspace,
    kernel: &Kernel,
    job: impl Fn(&[OsString]) -> Job + Sync,
) -> Result<Finished> {
    let ended = at_once::map(AT_ONCE, PARTS, |part| {
        let begun = Instant::now();
        let finished = Machine::new(workspace, kernel).run(&job(&part.arguments()), Output::Kept);
        print_result(part, &finished, begun);
        finished.context(part.name)
    });
    combine(ended.into_iter().collect::<Result<Vec<_>>>()?)
}

fn print_result(part: &Part, finished: &Result<Finished>, begun: Instant) {
    let result = match finished {
        Ok(finished) => {
            let mut lines = finished.text.lines();
            lines
                .rfind(|line| line.starts_with(RESULT))
                .unwrap_or("no result")
                .to_owned()
        }
        Err(error) => format!("{error:#}"),
    };
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    println!("    | {:<16} {minutes:>5.1} min  {result}", part.name);
    let text = finished.as_ref().map_or("", |finished| &finished.text);
    for name in failures(text) {
        println!("    |   failed: {name}");
    }
}

/// The beginning of the line that reports the result of a part.
const RESULT: &str = "test result: ";

/// Combines the output of the parts into that of one run.
fn combine(parts: Vec<Finished>) -> Result<Finished> {
    let counts: Vec<Counts> = parts.iter().map(|part| Counts::of(&part.text)).collect();
    let ran: usize = counts.iter().map(|part| part.ran()).sum();
    // Each part reports the number of all tests.
    let all = counts.first().map_or(0, |part| part.ran() + part.filtered);
    ensure!(
        ran == all,
        "the parts ran {ran} of {all} tests: PARTS must name every configuration"
    );
    combined(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn finished(passed: usize, filtered: usize, status: i32) -> Finished {
        Finished {
            name: "guest".to_owned(),
            status: ExitStatus::from_raw(status << 8),
            text: format!(
                "test a ... ok\ntest result: ok. {passed} passed; 1 failed; 2 ignored; 0 measured; \
                 {filtered} filtered out; finished in 1.00s\n"
            ),
        }
    }

    #[test]
    fn parts_combine_only_if_they_ran_every_test() {
        let parts = vec![finished(4, 8, 0), finished(5, 7, 3)];
        let whole = combine(parts).unwrap();
        assert_eq!(whole.status.code(), Some(3));
        assert_eq!(whole.text.lines().count(), 4);
        let missing = combine(vec![finished(4, 8, 0), finished(4, 8, 0)]).unwrap_err();
        assert!(missing.to_string().contains("14 of 15"), "{missing}");
    }

    #[test]
    fn a_part_selects_its_tests_by_name() {
        let part = PARTS[0];
        assert_eq!(part.arguments(), ["--skip=pure-", "ofa-siw: "]);
        let rest = PARTS.last().unwrap().arguments();
        assert!(!rest.is_empty());
        let is_one_word = |argument: &OsString| argument.to_string_lossy().starts_with("--skip=");
        assert!(rest.iter().all(is_one_word), "{rest:?}");
    }
}
