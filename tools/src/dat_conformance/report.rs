//! A line for each case, and the sums.

use std::process::ExitCode;

use crate::case::Case;
use crate::differences::{Differences, Finding};
use crate::lead::Ran;

/// Prints and counts.
#[derive(Debug)]
pub(crate) struct Report {
    differences: Differences,
    /// Whether the table has to know of every case that cannot be run.
    strict: bool,
    ok: usize,
    failed: usize,
    differ: usize,
    not_run: usize,
}

impl Report {
    /// With the table for this ground, or without one.
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

    /// Whether a case may be run; one that may not is told.
    pub(crate) fn allows(&mut self, case: &Case) -> bool {
        let Some(reason) = self.differences.forbids(&case.name) else {
            return true;
        };
        println!("DIFFERS {} (not tried: {reason})", case.name);
        self.differ += 1;
        false
    }

    /// A case has run.
    pub(crate) fn case(&mut self, case: &Case, ran: Ran) {
        let (name, took) = (&case.name, ran.took.as_secs_f64());
        match self.differences.judge(name, ran.verdict) {
            Finding::Ok => {
                self.ok += 1;
                println!("ok      {name}  {took:.2} s");
            }
            Finding::Failed(why) => {
                self.failed += 1;
                println!("FAIL    {name}  {took:.2} s: {why}");
                println!("        ({})", case.about);
            }
            Finding::Differs { reason, seen } => {
                self.differ += 1;
                println!("DIFFERS {name}  {took:.2} s ({reason}): {seen}");
            }
            Finding::NotRun(what) => {
                self.not_run += 1;
                println!("NOT RUN {name}: {what}");
            }
        }
    }

    /// Prints the sums and says how the run went.
    pub(crate) fn finish(self) -> ExitCode {
        let outdated = self.differences.outdated();
        for row in &outdated {
            println!("OUTDATED {row}");
        }
        let unlisted = self.strict && self.not_run > 0;
        println!(
            "conformance: {} ok, {} failed, {} differ as listed, {} not run, {} outdated rows",
            self.ok,
            self.failed,
            self.differ,
            self.not_run,
            outdated.len()
        );
        if unlisted {
            println!("what the adapter lacks has to be listed in the table of differences");
        }
        if self.failed > 0 || !outdated.is_empty() || unlisted {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }
}
