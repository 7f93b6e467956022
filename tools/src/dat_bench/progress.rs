//! A bar on standard error that shows how far a run is, if standard error is a terminal.
//!
//! The bar is drawn between samples only, and by no thread of its own, so it does not disturb the
//! measurement.

use std::cell::Cell;

use indicatif::{HumanDuration, ProgressBar, ProgressFinish, ProgressState, ProgressStyle};

/// The bar. Its unit is a round of a row.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    rows: u64,
    rounds: u64,
    /// The rows that are complete or not run.
    done: Cell<u64>,
}

impl Progress {
    /// Prepares the bar of a run. Nothing is drawn before the first row.
    pub(crate) fn of(rows: usize, rounds: usize) -> Self {
        let (rows, rounds) = (rows as u64, rounds as u64);
        // An error is printed in the place of the bar.
        let bar = ProgressBar::new(rows * rounds).with_finish(ProgressFinish::AndClear);
        let template = "{prefix} {msg} [{bar:20}] {elapsed}{left}";
        // The template is valid; with any other the bar would keep its default form.
        if let Ok(style) = ProgressStyle::with_template(template) {
            let left = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
                // The first round has not been timed, and the last one has no time left.
                let left = state.eta();
                if state.pos() > 0 && left.as_secs() > 0 {
                    // Writing to the line of the bar does not fail.
                    let _ = write!(text, ", about {:#} left", HumanDuration(left));
                }
            };
            bar.set_style(style.progress_chars("=> ").with_key("left", left));
        }
        bar.set_prefix("preparing");
        Self {
            bar,
            rows,
            rounds,
            done: Cell::new(0),
        }
    }

    pub(crate) fn begin_row(&self, title: &str) {
        let number = self.done.get() + 1;
        self.bar
            .set_prefix(format!("row {number} of {}", self.rows));
        self.bar.set_message(title.to_owned());
        self.bar.tick();
    }

    /// Shows that a round of the row is complete.
    pub(crate) fn round(&self) {
        self.bar.inc(1);
    }

    /// Erases the bar while `print` writes to standard output.
    pub(crate) fn around<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Erases the bar for the rest of the run.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// Counts a row that is complete or not run.
    pub(crate) fn end_row(&self) {
        self.done.set(self.done.get() + 1);
        self.bar.set_position(self.done.get() * self.rounds);
    }
}
