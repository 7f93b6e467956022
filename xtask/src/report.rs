//! One line per step, with its result, a detail and its duration; a summary at the end.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed {
        /// The number of individual tests or checks in the step that passed.
        count: usize,
        /// The number of tests or checks that reported that they could not run here.
        not_run: usize,
        /// A detail for the line, possibly empty.
        detail: String,
    },
    /// The step could not run here, and the reason. Such steps are counted and printed.
    NotRun(String),
}

impl Outcome {
    /// A step that passed, with its number of individual checks.
    pub(crate) fn passed(count: usize, detail: impl Display) -> Self {
        Self::passed_but(count, 0, detail)
    }

    /// A step that passed, except for some checks that could not run here; `detail` gives the
    /// reason.
    pub(crate) fn passed_but(count: usize, not_run: usize, detail: impl Display) -> Self {
        Self::Passed {
            count,
            not_run,
            detail: detail.to_string(),
        }
    }
}

/// Runs a step, and returns its result and its duration.
pub(crate) fn timed(run: impl FnOnce() -> Result<Outcome>) -> (Result<Outcome>, Duration) {
    let started = Instant::now();
    let result = run();
    (result, started.elapsed())
}

/// The results so far.
#[derive(Debug)]
pub(crate) struct Report {
    title: &'static str,
    started: Instant,
    passed: usize,
    checks: usize,
    checks_not_run: usize,
    failed: Vec<String>,
    not_run: Vec<String>,
}

impl Report {
    /// An empty report whose summary begins with `title`.
    pub(crate) fn new(title: &'static str) -> Self {
        Self {
            title,
            started: Instant::now(),
            passed: 0,
            checks: 0,
            checks_not_run: 0,
            failed: Vec::new(),
            not_run: Vec::new(),
        }
    }

    /// Runs one step and prints its line. Returns true if the step passed.
    pub(crate) fn step(&mut self, name: &str, run: impl FnOnce() -> Result<Outcome>) -> bool {
        show_running(name);
        let (result, duration) = timed(run);
        self.record(name, result, duration)
    }

    /// Prints the line of a step that has ended. Returns true if the step passed.
    pub(crate) fn record(
        &mut self,
        name: &str,
        result: Result<Outcome>,
        duration: Duration,
    ) -> bool {
        match result {
            Ok(Outcome::Passed {
                count,
                not_run,
                detail,
            }) => {
                self.passed += 1;
                self.checks += count;
                self.checks_not_run += not_run;
                print_line("ok", name, &with_count(count, &detail), duration);
                true
            }
            Ok(Outcome::NotRun(why)) => {
                print_line("----", name, &format!("not run: {why}"), duration);
                self.not_run.push(name.into());
                false
            }
            Err(error) => {
                print_line("FAIL", name, "", duration);
                println!("{}", indented(&format!("{error:#}")));
                self.failed.push(name.into());
                false
            }
        }
    }

    /// Prints the summary. Returns a failure if a step failed.
    pub(crate) fn finish(self) -> ExitCode {
        println!();
        if !self.failed.is_empty() {
            println!("{}: failed: {}", self.title, self.failed.join(", "));
        }
        if !self.not_run.is_empty() {
            println!(
                "{}: not run on this machine: {}",
                self.title,
                self.not_run.join(", ")
            );
        }
        let checks = match self.checks {
            0 => String::new(),
            checks => format!(" ({checks} checks)"),
        };
        println!(
            "{}: {} steps passed{checks}, {} failed, {} not run, {}",
            self.title,
            self.passed,
            self.failed.len(),
            counts(self.not_run.len(), self.checks_not_run),
            seconds(self.started.elapsed()),
        );
        if self.failed.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of steps that could not run here, and the number of individual checks that
/// could not run within other steps, as text.
fn counts(steps: usize, checks: usize) -> String {
    let counted = |number, what| match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    };
    match checks {
        0 => steps.to_string(),
        _ => format!(
            "{} and {}",
            counted(steps, "step"),
            counted(checks, "check")
        ),
    }
}

fn show_running(name: &str) {
    if stdout().is_terminal() {
        print!("  ...  {name}");
        // If the terminal cannot be flushed, only the progress mark is missing.
        let _ = stdout().flush();
    }
}

fn print_line(result: &str, name: &str, detail: &str, duration: Duration) {
    let back = if stdout().is_terminal() { "\r" } else { "" };
    println!(
        "{back}  {result:<4} {name:<25} {:>8}  {detail}",
        seconds(duration)
    );
}

fn with_count(count: usize, detail: &str) -> String {
    match (count, detail) {
        (0, _) => detail.into(),
        (_, "") => format!("{count} passed"),
        _ => format!("{count} passed, {detail}"),
    }
}

fn indented(text: &str) -> String {
    text.lines()
        .map(|line| format!("       {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_checks_that_were_not_run_are_counted() {
        assert_eq!(counts(0, 0), "0");
        assert_eq!(counts(2, 0), "2");
        assert_eq!(counts(0, 1), "0 steps and 1 check");
        assert_eq!(counts(1, 3), "1 step and 3 checks");
    }
}
