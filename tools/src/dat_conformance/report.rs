//! The output: a line for each case, and the totals.

use std::process::ExitCode;

use tool_args::say;

use crate::case::Case;
use crate::differences::{Differences, Finding};
use crate::lead::CaseResult;

/// Prints the results and counts them.
#[derive(Debug)]
pub(crate) struct Report {
    differences: Differences,
    /// True if every case that cannot be run must be listed in the table.
    strict: bool,
    ok: usize,
    failed: usize,
    differ: usize,
    not_run: usize,
}

impl Report {
    /// A report with the table for this configuration, or without a table.
    pub(crate) fn new(differences: Option<Differences>) -> Self {
        Self {
            strict: differences.is_some(),
            differences: differences.unwrap_or_default(),
            ok: 0,
            failed: 0,
            differ: 0,
            not_run: 0,
        }
    }

    /// Returns true if a case may be run; prints a line for a case that may not.
    pub(crate) fn allows(&mut self, case: &Case) -> bool {
        let Some(reason) = self.differences.forbids(&case.name) else {
            return true;
        };
        say!("DIFFERS {} (not tried: {reason})", case.name);
        self.differ += 1;
        false
    }

    /// Prints and counts the result of a case.
    pub(crate) fn case(&mut self, case: &Case, result: CaseResult) {
        let (name, took) = (&case.name, result.took.as_secs_f64());
        match self.differences.judge(name, result.verdict) {
            Finding::Ok => {
                self.ok += 1;
                say!("ok      {name}  {took:.2} s");
            }
            Finding::Failed(why) => {
                self.failed += 1;
                say!("FAIL    {name}  {took:.2} s: {why}");
                say!("        ({})", case.about);
            }
            Finding::Differs { reason, seen } => {
                self.differ += 1;
                say!("DIFFERS {name}  {took:.2} s ({reason}): {seen}");
            }
            Finding::NotRun(what) => {
                self.not_run += 1;
                say!("NOT RUN {name}: {what}");
            }
        }
    }

    /// Prints the totals and returns the exit code of the run.
    pub(crate) fn finish(self) -> ExitCode {
        let outdated = self.differences.outdated();
        for row in &outdated {
            say!("OUTDATED {row}");
        }
        let unlisted = self.strict && self.not_run > 0;
        say!(
            "conformance: {} ok, {} failed, {} differ as listed, {} not run, {} outdated rows",
            self.ok,
            self.failed,
            self.differ,
            self.not_run,
            outdated.len()
        );
        if unlisted {
            say!("list the missing features in the table of differences");
        }
        if self.failed > 0 || !outdated.is_empty() || unlisted {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }
}
