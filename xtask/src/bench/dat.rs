//! DAT and SDP streams compared with raw TCP: the table of `dat-bench`, and targets of its rows.

use std::collections::BTreeMap;
use std::fs;
use std::thread::available_parallelism;

use anyhow::{Context, Result};
use stack_tests::{StackEnv, Stage};

use super::figures::BenchRow;
use super::target::Target::{self, AtLeast, AtMost};
use crate::workspace::Workspace;

/// The value that a target bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Of {
    /// The ratio to raw TCP.
    Ratio,
    /// The figure itself.
    Figure,
    /// The ratio to the figure of another case of the same run.
    Case(&'static str),
}
use Of::{Figure, Ratio};

/// Declares targets: the case, the value and the bound.
macro_rules! targets {
    ($($case:literal: $of:expr, $target:expr;)+) => { &[$(($case, $of, $target)),+] };
}

/// The targets by case. Rows without one show the cost of one mechanism of SDP, or are measured for
/// comparison with another row.
const TARGETS: &[(&str, Of, Target)] = targets! {
    "send-ping:64:1": Ratio, AtMost(0.15);
    "write-ping:64:1": Ratio, AtMost(0.15);
    "blocked-ping:64:1": Ratio, AtMost(0.80);
    "send:65536:16": Ratio, AtLeast(1.80);
    "write:65536:16": Ratio, AtLeast(1.80);
    "read:65536:16": Ratio, AtLeast(1.80);
    "send:1048576:16": Ratio, AtLeast(1.20);
    "write:1048576:16": Ratio, AtLeast(1.20);
    "read:1048576:16": Ratio, AtLeast(1.20);
    "write-unattended:65536:16": Ratio, AtLeast(1.00);
    "read-unattended:65536:16": Ratio, AtLeast(1.00);
    "send:64:64": Figure, AtLeast(10.0);
    "write-unattended-ping:64:1": Ratio, AtMost(1.50);
    "read-other-evd:8:1": Of::Case("read-ping:8:1"), AtMost(1.50);
    "send-ping:64:1@tcp": Ratio, AtMost(1.08);
    "send-ping:4096:1@tcp": Ratio, AtMost(1.10);
    "send-ping:65536:1@tcp": Ratio, AtMost(1.02);
    "write-ping:64:1@tcp": Ratio, AtMost(1.12);
    "blocked-ping:64:1@tcp": Ratio, AtMost(1.06);
    "send:4096:16@tcp": Ratio, AtLeast(2.5);
    "send:65536:16@tcp": Ratio, AtLeast(1.15);
    "write:65536:16@tcp": Ratio, AtLeast(1.15);
    "read:65536:16@tcp": Ratio, AtLeast(1.05);
    "send:1048576:16@tcp": Ratio, AtLeast(0.96);
    "write:1048576:16@tcp": Ratio, AtLeast(0.96);
    "read:1048576:16@tcp": Ratio, AtLeast(0.93);
    "write-unattended:65536:16@tcp": Ratio, AtLeast(1.00);
    "read-unattended:65536:16@tcp": Ratio, AtLeast(1.00);
    "send:64:16@tcp": Figure, AtLeast(4.0);
    "send:64:64@tcp": Figure, AtLeast(8.0);
    "write-unattended-ping:64:1@tcp": Ratio, AtMost(1.50);
    "read-other-evd:8:1@tcp": Of::Case("read-ping:8:1@tcp"), AtMost(1.50);
    "send-ping:65536:1@no-crc": Ratio, AtMost(1.02);
    "send:65536:16@no-crc": Ratio, AtLeast(1.15);
    "write:65536:16@no-crc": Ratio, AtLeast(1.15);
    "read:65536:16@no-crc": Ratio, AtLeast(1.05);
    "send:1048576:16@no-crc": Ratio, AtLeast(0.96);
    "write:1048576:16@no-crc": Ratio, AtLeast(0.96);
    "read:1048576:16@no-crc": Ratio, AtLeast(0.93);
    "send-ping:64:1@veth": Ratio, AtMost(1.08);
    "send-ping:4096:1@veth": Ratio, AtMost(1.10);
    "send:65536:16@veth": Ratio, AtLeast(1.00);
    "write:65536:16@veth": Ratio, AtLeast(1.00);
    "read:65536:16@veth": Ratio, AtLeast(0.95);
    "send:1048576:16@veth": Ratio, AtLeast(0.96);
    "write:1048576:16@veth": Ratio, AtLeast(0.96);
    "read:1048576:16@veth": Ratio, AtLeast(0.93);
    "send:65536:16@veth-segments": Ratio, AtLeast(0.65);
    "send:1048576:16@veth-segments": Ratio, AtLeast(0.60);
    "send:1048576:16@10g": Ratio, AtLeast(0.99);
    "send-cost:1048576:16@10g": Ratio, AtMost(1.50);
    "connect:1:16@tcp": Figure, AtLeast(15.0);
    "connect:1:16": Of::Case("connect:1:16@tcp"), AtLeast(0.80);
    "idle-ep:1:16@tcp": Figure, AtMost(8.0);
    "idle-ep:1:16": Figure, AtMost(8.0);
    "sdp-ping:64:1": Ratio, AtMost(0.40);
    "sdp-blocked-ping:64:1": Ratio, AtMost(1.30);
    "sdp-write:65536:1": Ratio, AtLeast(1.20);
    "sdp-write:1048576:1": Ratio, AtLeast(1.10);
    "sdp-copy:65536:1": Ratio, AtLeast(0.88);
    "sdp-copy:1048576:1": Ratio, AtLeast(0.88);
    "sdp-ping:64:1@tcp": Ratio, AtMost(1.30);
    "sdp-blocked-ping:64:1@tcp": Ratio, AtMost(1.30);
    "sdp-write:65536:1@tcp": Ratio, AtLeast(0.88);
    "sdp-write:1048576:1@tcp": Ratio, AtLeast(0.88);
    "sdp-copy:65536:1@tcp": Ratio, AtLeast(0.88);
    "sdp-copy:1048576:1@tcp": Ratio, AtLeast(0.88);
    "sdp-write:65536:1@no-crc": Ratio, AtLeast(0.88);
    "sdp-write:1048576:1@no-crc": Ratio, AtLeast(0.75);
    "sdp-write:65536:1@10g": Ratio, AtLeast(0.99);
    "sdp-write:1048576:1@10g": Ratio, AtLeast(0.99);
};

/// The work whose target's program and provider need a processor each, in addition to the
/// initiator's.
const ON_THREE_PROCESSORS: &str = "write-unattended-ping";

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
    for (case, of, target) in TARGETS {
        if case.starts_with(ON_THREE_PROCESSORS) && processors < 3 {
            continue;
        }
        let Some(row) = rows.get(*case) else {
            continue;
        };
        let (value, what) = match of {
            Ratio => (row.ratio, String::new()),
            Figure => (row.own, String::new()),
            Of::Case(other) => {
                let other_figure = rows.get(*other).map_or(f64::NAN, |other| other.own);
                (row.own / other_figure, format!(" of {other}"))
            }
        };
        let verdict = target.verdict(value);
        text += &format!("target: {case:<35} {value:>7.3} {verdict}{what}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tool_args::bench::case::{Case, Unit};

    use super::*;

    #[test]
    fn each_target_is_for_one_case_and_suits_its_unit() {
        for (index, (name, of, target)) in TARGETS.iter().enumerate() {
            let case: Case = name.parse().unwrap();
            assert_eq!(&case.to_string(), name);
            assert!(TARGETS[..index].iter().all(|other| other.0 != *name));
            let is_bound_above = matches!(target, AtMost(_));
            assert_eq!(case.unit().is_less_better(), is_bound_above, "{name}");
            match of {
                Ratio => assert!(!matches!(case.unit(), Unit::MegaMessages), "{name}"),
                Figure => {}
                Of::Case(other) => {
                    let other: Case = other.parse().unwrap();
                    assert_eq!(other.unit(), case.unit(), "{name}");
                }
            }
        }
    }

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
