//! DAT and SDP streams compared with raw TCP: the table of `dat-bench`, and targets of its rows.

use std::collections::BTreeMap;
use std::fs;
use std::thread::available_parallelism;

use anyhow::{Context, Result};
use stack_tests::{StackEnv, Stage};
use tool_args::bench::case::Work;
use tool_args::bench::rows::{ALL, Of, Row};

use super::figures::BenchRow;
use crate::workspace::Workspace;

/// The work whose target's program and provider need a processor each, in addition to the
/// initiator's.
const ON_THREE_PROCESSORS: Work = Work::UnattendedPing;

/// Measures the rows of one contender, which `dat-bench` prints, and prints a verdict on each
/// target.
pub(super) fn measure(
    workspace: &Workspace,
    stage: &Stage,
    contender: &str,
    quick: bool,
) -> Result<()> {
    let env = StackEnv::at(stage.clone())?;
    let file = env.registry.dir().join("rows.json");
    let quick = if quick { " --quick" } else { "" };
    let line = format!("--only {contender}{quick} --json {}", file.display());
    super::measure(workspace, &env, &line)?;
    let rows = fs::read_to_string(&file).context("reading the rows of dat-bench")?;
    let processors = available_parallelism().map_or(1, usize::from);
    print!("{}", verdicts(&rows, processors));
    Ok(())
}

/// A line for each target whose rows are in the text of a file of `dat-bench --json`.
fn verdicts(file: &str, processors: usize) -> String {
    let rows = file.lines().filter_map(BenchRow::of);
    let rows: BTreeMap<String, BenchRow> = rows.map(|row| (row.case.clone(), row)).collect();
    let mut text = String::new();
    for Row { case, target } in ALL {
        let Some((of, target)) = target else { continue };
        let Some(row) = rows.get(&case.to_string()) else {
            continue;
        };
        if case.work == ON_THREE_PROCESSORS && processors < 3 {
            continue;
        }
        let (value, what) = match of {
            Of::Ratio => (row.ratio, String::new()),
            Of::Figure => (row.own, String::new()),
            Of::To(other) => {
                let others = rows.get(&other.to_string());
                let others = others.map_or(f64::NAN, |other| other.own);
                (row.own / others, format!(" of {other}"))
            }
        };
        let case = case.to_string();
        let verdict = target.verdict(value);
        text += &format!("target: {case:<35} {value:>7.3} {verdict}{what}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn verdicts_are_on_the_rows_of_the_run() {
        let row = |case: &str, figure: f64, ratio: f64| {
            let (figure, ratio) = (json!({ "median": figure }), json!({ "median": ratio }));
            json!({ "case": case, "title": "", "unit": "", "figure": figure, "ratio": ratio })
        };
        let run = [
            row("send-ping:64:1", 2.0, 0.25),
            row("send:64:64", 12.0, 1.0),
            row("read-ping:8:1", 2.0, 1.0),
            row("read-other-evd:8:1", 2.5, 1.0),
            row("write-unattended-ping:64:1", 2.5, 9.0),
            json!({ "case": "connect:1:16", "not_run": "no right" }),
        ];
        let run = run.map(|row| format!("{row},\n")).concat();
        let text = verdicts(&run, 2);
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let expected = [
            "target: send-ping:64:1 0.250 <= 0.15 missed",
            "target: send:64:64 12.000 >= 10.00 met",
            "target: read-other-evd:8:1 1.250 <= 1.50 met of read-ping:8:1",
        ];
        assert_eq!(lines, expected);
        assert_eq!(verdicts(&run, 3).lines().count(), 4);
    }
}
