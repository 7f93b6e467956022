//! The files with the results: one JSON object, or comma-separated values.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tool_args::bench::case::{Case, Stack};

use crate::measure::{Outcome, Plan, Spread};

/// The rows of a run.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) measured: Vec<Measured>,
    pub(crate) not_run: Vec<NotRun>,
    /// The number of rows that [`Results::end_of_place`] has completed.
    complete: usize,
}

/// A row that was measured.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) case: Case,
    pub(crate) outcome: Outcome,
    /// The figure divided by that of the row that the target compares with.
    pub(crate) to_other: Option<f64>,
    /// The target, and whether the row meets it, as the table prints them.
    pub(crate) target: Option<String>,
    pub(crate) verdict: Option<&'static str>,
    /// The share of the CPUs that other programs used, between 0 and 1.
    pub(crate) foreign_share: Option<f64>,
}

/// A row that was not run.
#[derive(Debug)]
pub(crate) struct NotRun {
    pub(crate) case: Case,
    pub(crate) reason: String,
}

impl Results {
    /// Completes the rows of a place. They all get the share of the CPUs that other programs used
    /// while the place was measured.
    pub(crate) fn end_of_place(&mut self, foreign_share: Option<f64>) {
        for row in &mut self.measured[self.complete..] {
            row.foreign_share = foreign_share;
        }
        self.complete = self.measured.len();
    }

    fn json(&self, plan: Plan, is_complete: bool) -> Value {
        let measured = self.measured.iter().map(Measured::json);
        let not_run = self.not_run.iter().map(|row| {
            let mut value = of_case(row.case);
            value["not_run"] = json!(row.reason);
            value
        });
        json!({
            "program": "dat-bench",
            "version": env!("CARGO_PKG_VERSION"),
            "complete": is_complete,
            "rounds": plan.rounds,
            "sample_s": plan.sample_s,
            "rows": measured.chain(not_run).collect::<Vec<Value>>(),
        })
    }

    fn csv(&self) -> Result<Vec<u8>> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(COLUMNS)?;
        for row in &self.measured {
            writer.write_record(row.line())?;
            for other in &row.outcome.others {
                let mut line = of_stack(row.case, other.stack, other.figure);
                line.extend(numbers(row.outcome.raw));
                line.extend(numbers(other.to_raw));
                writer.write_record(padded(line))?;
            }
        }
        for row in &self.not_run {
            let mut line = padded(described(row.case, row.case.contender()).into());
            line[COLUMNS.len() - 1].clone_from(&row.reason);
            writer.write_record(line)?;
        }
        Ok(writer
            .into_inner()
            .map_err(csv::IntoInnerError::into_error)?)
    }
}

/// The columns of the comma-separated values. A number that is not known is an empty field.
const COLUMNS: [&str; 28] = [
    "case",
    "work",
    "bytes",
    "depth",
    "place",
    "stack",
    "unit",
    "better",
    "median",
    "min",
    "max",
    "raw_median",
    "raw_min",
    "raw_max",
    "ratio_median",
    "ratio_min",
    "ratio_max",
    "target",
    "verdict",
    "syscalls_here",
    "syscalls_peer",
    "syscalls_raw",
    "copies_here",
    "copies_peer",
    "processor_s_per_gib",
    "processor_s_per_gib_raw",
    "foreign_share",
    "not_run",
];

impl Measured {
    fn json(&self) -> Value {
        let outcome = &self.outcome;
        let [here, peer, raw] = outcome.syscalls;
        let others: Vec<Value> = outcome
            .others
            .iter()
            .map(|other| {
                json!({
                    "stack": other.stack.to_string(),
                    "figure": spread(other.figure),
                    "to_raw": spread(other.to_raw),
                    "contender_to_it": spread(other.from_contender),
                })
            })
            .collect();
        let mut value = of_case(self.case);
        for (key, part) in [
            ("figure", spread(outcome.contender)),
            ("raw", spread(outcome.raw)),
            ("ratio", spread(outcome.ratio)),
            ("ratio_to_other_row", json!(self.to_other)),
            ("target", json!(self.target)),
            ("verdict", json!(self.verdict)),
            (
                "syscalls",
                json!({ "here": here, "peer": peer, "raw": raw }),
            ),
            ("others", json!(others)),
            ("foreign_share", json!(self.foreign_share)),
        ] {
            value[key] = part;
        }
        if let Some([here, peer]) = outcome.copies {
            value["copies"] = json!({ "here": here, "peer": peer });
        }
        if let Some([own, raw]) = outcome.processor {
            value["processor_s_per_gib"] = json!({ "contender": own, "raw": raw });
        }
        value
    }

    /// The fields of the contender's line.
    fn line(&self) -> Vec<String> {
        let outcome = &self.outcome;
        let mut line = of_stack(self.case, self.case.contender(), outcome.contender);
        line.extend(numbers(outcome.raw));
        line.extend(numbers(outcome.ratio));
        line.push(self.target.clone().unwrap_or_default());
        line.push(self.verdict.unwrap_or_default().to_owned());
        line.extend(outcome.syscalls.map(optional));
        for pair in [outcome.copies, outcome.processor] {
            line.extend(match pair {
                Some(pair) => pair.map(number),
                None => [const { String::new() }; 2],
            });
        }
        line.push(optional(self.foreign_share));
        padded(line)
    }
}

fn of_case(case: Case) -> Value {
    json!({
        "case": case.to_string(),
        "title": case.title(),
        "work": case.work.name(),
        "bytes": case.size,
        "depth": case.depth,
        "place": case.wire.name(),
        "contender": case.contender().to_string(),
        "unit": case.unit().label(),
        "better": better(case),
    })
}

fn better(case: Case) -> &'static str {
    match case.unit().is_less_better() {
        true => "less",
        false => "more",
    }
}

/// Returns a median with its extremes. A number that is not known becomes `null`.
fn spread(spread: Spread) -> Value {
    json!({ "median": spread.median, "min": spread.min, "max": spread.max })
}

/// The fields that describe a line.
fn described(case: Case, stack: Stack) -> [String; 8] {
    [
        case.to_string(),
        case.work.name().to_owned(),
        case.size.to_string(),
        case.depth.to_string(),
        case.wire.name().to_owned(),
        stack.to_string(),
        case.unit().label().to_owned(),
        better(case).to_owned(),
    ]
}

fn of_stack(case: Case, stack: Stack, figure: Spread) -> Vec<String> {
    let mut line: Vec<String> = described(case, stack).into();
    line.extend(numbers(figure));
    line
}

fn numbers(spread: Spread) -> [String; 3] {
    [spread.median, spread.min, spread.max].map(number)
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(String::new, number)
}

fn number(value: f64) -> String {
    match value.is_finite() {
        true => value.to_string(),
        false => String::new(),
    }
}

/// A line with empty fields up to the last column.
fn padded(mut line: Vec<String>) -> Vec<String> {
    line.resize(COLUMNS.len(), String::new());
    line
}

/// The files that the caller named.
#[derive(Debug)]
pub(crate) struct Files {
    json: Option<(PathBuf, File)>,
    csv: Option<(PathBuf, File)>,
}

impl Files {
    pub(crate) fn create(json: Option<&Path>, csv: Option<&Path>) -> Result<Self> {
        let create = |path: Option<&Path>| {
            path.map(|path| {
                let file = File::create(path);
                let file = file.with_context(|| format!("creating {}", path.display()))?;
                anyhow::Ok((path.to_owned(), file))
            })
            .transpose()
        };
        Ok(Self {
            json: create(json)?,
            csv: create(csv)?,
        })
    }

    /// Replaces the content of the files by the rows so far.
    pub(crate) fn write(&mut self, results: &Results, plan: Plan, is_complete: bool) -> Result<()> {
        if let Some(file) = &mut self.json {
            let text = format!("{:#}\n", results.json(plan, is_complete));
            replace(file, text.as_bytes())?;
        }
        if let Some(file) = &mut self.csv {
            replace(file, &results.csv()?)?;
        }
        Ok(())
    }
}

fn replace((path, file): &mut (PathBuf, File), content: &[u8]) -> Result<()> {
    // A pipe or a terminal cannot be rewound, and shows each state.
    let is_plain = file.metadata().is_ok_and(|metadata| metadata.is_file());
    let rewound = match is_plain {
        true => file.rewind().and_then(|()| file.set_len(0)),
        false => Ok(()),
    };
    rewound
        .and_then(|()| file.write_all(content))
        .with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Other;
    use tool_args::bench::case::{Mechanism, Wire, Work};

    const PLAN: Plan = Plan {
        rounds: 3,
        sample_s: 0.12,
    };

    fn spread_of(median: f64) -> Spread {
        Spread {
            median,
            min: median / 2.0,
            max: median * 2.0,
        }
    }

    fn results() -> Results {
        let outcome = Outcome {
            raw: spread_of(8.0),
            contender: spread_of(2.0),
            ratio: spread_of(0.25),
            others: vec![Other {
                stack: Stack::Framed,
                figure: spread_of(9.0),
                to_raw: spread_of(1.125),
                from_contender: spread_of(0.5),
            }],
            syscalls: [Some(1.5), None, Some(2.0)],
            copies: Some([1.0, 0.5]),
            processor: Some([0.25, 0.125]),
        };
        let mut results = Results {
            measured: vec![Measured {
                case: Case::new(Work::SendPing, 64, 1, Wire::Tcp),
                outcome,
                to_other: None,
                target: Some("<= 0.15, and more".to_owned()),
                verdict: Some("missed"),
                foreign_share: None,
            }],
            not_run: vec![NotRun {
                case: Case::new(Work::SdpWrite(Mechanism::Chosen), 4096, 1, Wire::Veth),
                reason: "no \"right\"".to_owned(),
            }],
            complete: 0,
        };
        results.end_of_place(Some(0.02));
        results
    }

    #[test]
    fn the_json_has_each_row() {
        let value = results().json(PLAN, true);
        assert_eq!(
            (&value["rounds"], &value["complete"]),
            (&json!(3), &json!(true))
        );
        let row = &value["rows"][0];
        assert_eq!(row["case"], "send-ping:64:1@tcp");
        assert_eq!(
            (&row["unit"], &row["better"]),
            (&json!("us"), &json!("less"))
        );
        assert_eq!(row["figure"]["median"], 2.0);
        assert_eq!(row["raw"]["max"], 16.0);
        assert_eq!(row["syscalls"]["peer"], Value::Null);
        assert_eq!(row["others"][0]["stack"], "framed");
        assert_eq!(row["copies"]["peer"], 0.5);
        assert_eq!(row["processor_s_per_gib"]["raw"], 0.125);
        assert_eq!(row["foreign_share"], 0.02);
        assert_eq!(value["rows"][1]["not_run"], "no \"right\"");
        assert_eq!(value["rows"][1]["contender"], "sdp");
    }

    #[test]
    fn csv_fields_are_in_the_columns_of_their_names() {
        let bytes = results().csv().unwrap();
        let mut reader = csv::Reader::from_reader(bytes.as_slice());
        let columns = reader.headers().unwrap().clone();
        let lines: Vec<csv::StringRecord> = reader.records().map(|line| line.unwrap()).collect();
        let field = |line: usize, name: &str| {
            let column = columns.iter().position(|column| column == name).unwrap();
            lines[line][column].to_owned()
        };
        assert_eq!(lines.len(), 3);
        assert_eq!(field(0, "stack"), "dat");
        assert_eq!(field(0, "median"), "2");
        assert_eq!(field(0, "raw_min"), "4");
        assert_eq!(field(0, "target"), "<= 0.15, and more");
        assert_eq!(field(0, "syscalls_here"), "1.5");
        assert_eq!(field(0, "syscalls_peer"), "");
        assert_eq!(field(0, "copies_here"), "1");
        assert_eq!(field(0, "processor_s_per_gib"), "0.25");
        assert_eq!(field(0, "foreign_share"), "0.02");
        assert_eq!(
            (field(1, "stack"), field(1, "ratio_median")),
            ("framed".into(), "1.125".into())
        );
        assert_eq!(field(2, "not_run"), "no \"right\"");
        assert_eq!(
            (field(2, "place"), field(2, "median")),
            ("veth".into(), String::new())
        );
    }

    #[test]
    fn a_file_has_the_last_state_and_an_error_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let [json, csv] = ["a.json", "a.csv"].map(|name| dir.path().join(name));
        let mut files = Files::create(Some(&json), Some(&csv)).unwrap();
        files.write(&results(), PLAN, false).unwrap();
        files.write(&Results::default(), PLAN, true).unwrap();
        let text = std::fs::read_to_string(json).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["rows"], json!([]));
        assert_eq!(std::fs::read_to_string(csv).unwrap().lines().count(), 1);
        let error = Files::create(None, Some(Path::new("/nonexistent/a"))).unwrap_err();
        assert_eq!(error.to_string(), "creating /nonexistent/a");
    }
}
