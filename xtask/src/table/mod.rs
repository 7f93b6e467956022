//! Tables of `docs`: lines by configuration, and their results.
//!
//! A table is generated from the output of a suite; `page.rs` has the pages. The page keeps its
//! entry for a test that a run ignores. If a run's results differ from the page, the page is out of
//! date.

mod page;

pub(crate) use self::page::{Action, Page, Scope};

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};

const BEGIN: &str = "<!-- table: begin -->\n";
const END: &str = "<!-- table: end -->\n";

/// The text between a line and the reason for which it does not pass.
const DIFFERS: &str = ", differs: ";

const NO_PLACE: &str = "the page has no place for the table";

const PASS: &str = "pass";
const UNKNOWN: &str = "-";

/// The result of a line on a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cell {
    /// The line passes.
    Pass,
    /// The line does not pass, for this reason.
    Differs(String),
    /// The line was not run.
    Unknown,
}

/// A line of the suite's output.
#[derive(Debug, PartialEq, Eq)]
struct OutputLine<'a> {
    configuration: &'a str,
    line: &'a str,
    cell: Cell,
}

/// Lines and configurations, in the order in which they were first reported.
#[derive(Debug, Default, PartialEq, Eq)]
struct Table {
    configurations: Vec<String>,
    lines: Vec<String>,
    cells: BTreeMap<(String, String), Cell>,
}

impl Table {
    /// The table of a run of the suite.
    fn of_run(output: &str) -> Self {
        let mut table = Self::default();
        for line in output.lines().filter_map(OutputLine::of) {
            table.set(line.configuration, line.line, line.cell);
        }
        table
    }

    fn of_page(page: &str) -> Result<Self> {
        let (_, text, _) = parts(page)?;
        let reasons: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once(". "))
            .filter(|(number, _)| number.parse::<usize>().is_ok())
            .map(|(_, reason)| reason)
            .collect();
        let mut rows = text.lines().filter_map(row);
        let mut table = Self::default();
        let Some(configurations) = rows.next() else {
            return Ok(table);
        };
        for columns in rows.skip(1) {
            let line = columns[0].trim_matches('`');
            for (configuration, cell) in configurations.iter().zip(&columns).skip(1) {
                let number = || cell.parse::<usize>().ok()?.checked_sub(1);
                let reason = || number().and_then(|index| reasons.get(index));
                let cell = match (*cell, reason()) {
                    (PASS, _) => Cell::Pass,
                    (_, Some(reason)) => Cell::Differs((*reason).to_owned()),
                    _ => Cell::Unknown,
                };
                table.set(configuration, line, cell);
            }
        }
        Ok(table)
    }

    /// Merges the results of a run of the whole suite. Lines and configurations that are not in the
    /// run are removed. Remaining lines keep their order, because parallel tests end in any order.
    pub(crate) fn renewed_by(&self, run: &Self) -> Self {
        let mut table = Self::default();
        for line in in_order(&self.lines, &run.lines) {
            for configuration in in_order(&self.configurations, &run.configurations) {
                let found = match run.cell(configuration, line) {
                    Cell::Unknown => self.cell(configuration, line),
                    found => found,
                };
                table.set(configuration, line, found);
            }
        }
        table
    }

    /// Merges the results of a run of a part of the suite; all other entries stay.
    fn extended_by(&self, run: &Self) -> Self {
        let mut all = Self::default();
        for (configuration, line) in self.places().chain(run.places()) {
            all.set(configuration, line, run.cell(configuration, line));
        }
        self.renewed_by(&all)
    }

    fn places(&self) -> impl Iterator<Item = (&str, &str)> {
        let of_line = |line| {
            self.configurations
                .iter()
                .map(move |configuration| (configuration, line))
        };
        let places = self.lines.iter().flat_map(of_line);
        places.map(|(configuration, line): (&String, &String)| {
            (configuration.as_str(), line.as_str())
        })
    }

    /// Replaces the table of the page by this one, with its lines under `title`.
    fn written_into(&self, page: &str, title: &str) -> Result<String> {
        let (before, _, after) = parts(page)?;
        Ok(format!("{before}{}{after}", self.text(title)))
    }

    fn text(&self, title: &str) -> String {
        let mut reasons: Vec<&str> = Vec::new();
        let mut rows = String::new();
        for line in &self.lines {
            let _ = write!(rows, "| `{line}` |");
            for configuration in &self.configurations {
                let shown = match self.cells.get(&(configuration.clone(), line.clone())) {
                    None | Some(Cell::Unknown) => UNKNOWN.to_owned(),
                    Some(Cell::Pass) => PASS.to_owned(),
                    Some(Cell::Differs(reason)) => number_of(&mut reasons, reason).to_string(),
                };
                let _ = write!(rows, " {shown} |");
            }
            rows.push('\n');
        }
        let head = self.configurations.join(" | ");
        let rule = "---|".repeat(self.configurations.len() + 1);
        let mut text = format!("\n| {title} | {head} |\n|{rule}\n{rows}\n");
        for (index, reason) in reasons.iter().enumerate() {
            let _ = writeln!(text, "{}. {reason}", index + 1);
        }
        text
    }

    fn cell(&self, configuration: &str, line: &str) -> Cell {
        let place = (configuration.to_owned(), line.to_owned());
        self.cells.get(&place).cloned().unwrap_or(Cell::Unknown)
    }

    fn set(&mut self, configuration: &str, line: &str, cell: Cell) {
        for (known, name) in [
            (&mut self.configurations, configuration),
            (&mut self.lines, line),
        ] {
            if !known.iter().any(|other| other == name) {
                known.push(name.to_owned());
            }
        }
        self.cells
            .insert((configuration.to_owned(), line.to_owned()), cell);
    }
}

impl<'a> OutputLine<'a> {
    /// Parses `test CONFIGURATION: LINE[, differs: REASON] ... RESULT`. Returns `None` for other
    /// tests and for failed ones, which the run itself reports.
    fn of(text: &'a str) -> Option<Self> {
        let (name, result) = text.strip_prefix("test ")?.rsplit_once(" ... ")?;
        let (configuration, line) = name.trim_end().split_once(": ")?;
        let (line, reason) = match line.split_once(DIFFERS) {
            Some((line, reason)) => (line, Some(reason)),
            None => (line, None),
        };
        let cell = match (result, reason) {
            ("ok", None) => Cell::Pass,
            ("ok", Some(reason)) => Cell::Differs(reason.to_owned()),
            ("ignored", _) => Cell::Unknown,
            _ => return None,
        };
        Some(Self {
            configuration,
            line,
            cell,
        })
    }
}

/// The names of `now`: first those in `before`, in the same order.
fn in_order<'a>(before: &'a [String], now: &'a [String]) -> impl Iterator<Item = &'a String> {
    let kept = before.iter().filter(|name| now.contains(name));
    kept.chain(now.iter().filter(|name| !before.contains(name)))
}

/// The page before the table, the table, and the page after it.
fn parts(page: &str) -> Result<(&str, &str, &str)> {
    let begin = page.find(BEGIN).context(NO_PLACE)? + BEGIN.len();
    let end = begin + page[begin..].find(END).context(NO_PLACE)?;
    Ok((&page[..begin], &page[begin..end], &page[end..]))
}

/// The columns of a row, of which there must be at least two.
fn row(line: &str) -> Option<Vec<&str>> {
    let inside = line.strip_prefix('|')?.strip_suffix('|')?;
    let columns: Vec<&str> = inside.split('|').map(str::trim).collect();
    (columns.len() > 1).then_some(columns)
}

/// The position of a reason in the list, counted from 1.
fn number_of<'a>(reasons: &mut Vec<&'a str>, reason: &'a str) -> usize {
    let known = reasons.iter().position(|other| *other == reason);
    known.unwrap_or_else(|| {
        reasons.push(reason);
        reasons.len() - 1
    }) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "running 6 tests\n\
        test job rping                           ... ok\n\
        test rxe: dtest -w                       ... ok\n\
        test rxe: dtest -p, differs: it is slow  ... ok\n\
        test siw: dtest -w                       ... ignored\n\
        test siw: dtest -p                       ... FAILED\n\
        test result: FAILED. 3 passed; 1 failed; 1 ignored;\n";

    const EMPTY: &str = "# Head\n\n<!-- table: begin -->\n<!-- table: end -->\nFoot.\n";

    fn differs(reason: &str) -> Cell {
        Cell::Differs(reason.to_owned())
    }

    #[test]
    fn a_run_has_the_result_of_each_line() {
        let table = Table::of_run(RUN);
        assert_eq!(table.configurations, ["rxe", "siw"]);
        assert_eq!(table.lines, ["dtest -w", "dtest -p"]);
        assert_eq!(table.cell("rxe", "dtest -w"), Cell::Pass);
        assert_eq!(table.cell("rxe", "dtest -p"), differs("it is slow"));
        assert_eq!(table.cell("siw", "dtest -w"), Cell::Unknown);
        assert_eq!(table.cell("siw", "dtest -p"), Cell::Unknown);
    }

    #[test]
    fn a_page_contains_the_table_that_was_written() {
        let table = Table::of_run(RUN).renewed_by(&Table::of_run(RUN));
        let page = table.written_into(EMPTY, "Line").unwrap();
        assert!(page.starts_with("# Head\n") && page.ends_with("\nFoot.\n"));
        assert!(page.contains("| `dtest -p` | 1 | - |\n"), "{page}");
        assert!(page.contains("\n1. it is slow\n"), "{page}");
        assert_eq!(Table::of_page(&page).unwrap(), table);
        assert_eq!(table.written_into(&page, "Line").unwrap(), page);
        assert!(table.written_into("no place", "Line").is_err());
    }

    #[test]
    fn an_ignored_line_keeps_its_result_and_a_missing_line_is_removed() {
        let before = "test siw: dtest -w ... ok\ntest siw: gone ... ok\n";
        let renewed = Table::of_run(before).renewed_by(&Table::of_run(RUN));
        assert_eq!(renewed.cell("siw", "dtest -w"), Cell::Pass);
        assert_eq!(renewed.lines, ["dtest -w", "dtest -p"]);
    }

    #[test]
    fn remaining_lines_keep_their_order() {
        let page = Table::of_run("test rxe: b ... ok\ntest siw: a ... ok\n");
        let run = Table::of_run("test siw: a ... ok\ntest siw: c ... ok\ntest rxe: b ... ok\n");
        let renewed = page.renewed_by(&run);
        assert_eq!(renewed.lines, ["b", "a", "c"]);
        assert_eq!(renewed.configurations, ["rxe", "siw"]);
    }

    #[test]
    fn a_part_of_the_suite_removes_nothing() {
        let before = Table::of_run("test siw: dtest -w ... ok\ntest siw: more ... ok\n");
        let extended = before.extended_by(&Table::of_run(RUN));
        assert_eq!(extended.configurations, ["siw", "rxe"]);
        assert_eq!(extended.lines, ["dtest -w", "more", "dtest -p"]);
        assert_eq!(extended.cell("siw", "more"), Cell::Pass);
        assert_eq!(extended.cell("siw", "dtest -w"), Cell::Pass);
        assert_eq!(extended.cell("rxe", "dtest -p"), differs("it is slow"));
        assert_eq!(extended.cell("rxe", "more"), Cell::Unknown);
    }
}
