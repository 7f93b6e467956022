//! The rows of a run, as JSON and as comma-separated values.

use anyhow::Result;
use serde_json::{Value, json};
use tool_args::bench::case::{Case, Stack};

use crate::laps::Latency;
use crate::measure::{Outcome, Plan, Spread};

/// A row that was measured.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) case: Case,
    pub(crate) outcome: Outcome,
    /// The figure divided by that of the row that the target compares with.
    pub(crate) to_other: Option<f64>,
    /// The share of the CPUs that other programs used meanwhile, between 0 and 1.
    pub(crate) foreign_share: Option<f64>,
}

/// A row that was not run.
#[derive(Debug)]
pub(crate) struct NotRun {
    pub(crate) case: Case,
    pub(crate) reason: String,
}

/// A row of the files.
#[derive(Debug)]
pub(crate) enum Entry<'a> {
    Measured(&'a Measured),
    NotRun(&'a NotRun),
}

/// The part of the JSON object that precedes the rows.
pub(crate) fn json_head(plan: Plan) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let Plan { rounds, sample_s } = plan;
    format!(
        "{{\"program\": \"dat-bench\", \"version\": \"{version}\", \"rounds\": {rounds}, \
         \"sample_s\": {sample_s}, \"rows\": ["
    )
}

/// The line with the names of the columns.
pub(crate) fn csv_head() -> Result<String> {
    csv_text([COLUMNS.map(str::to_owned).into()])
}

fn csv_text(lines: impl IntoIterator<Item = Vec<String>>) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for line in lines {
        writer.write_record(padded(line))?;
    }
    let bytes = writer
        .into_inner()
        .map_err(csv::IntoInnerError::into_error)?;
    Ok(String::from_utf8(bytes)?)
}

impl Entry<'_> {
    pub(crate) fn json(&self) -> Value {
        match self {
            Self::Measured(row) => row.json(),
            Self::NotRun(row) => {
                let mut value = of_case(row.case);
                value["not_run"] = json!(row.reason);
                value
            }
        }
    }

    /// The row's lines.
    pub(crate) fn csv(&self) -> Result<String> {
        match self {
            Self::Measured(row) => {
                let mut lines = vec![row.line()];
                for other in &row.outcome.others {
                    let mut line = of_stack(row.case, other.stack, other.figure);
                    line.extend(numbers(row.outcome.raw));
                    line.extend(numbers(other.to_raw));
                    lines.push(line);
                }
                csv_text(lines)
            }
            Self::NotRun(row) => {
                let mut line = padded(described(row.case, row.case.contender()).into());
                line[COLUMNS.len() - 1].clone_from(&row.reason);
                csv_text([line])
            }
        }
    }
}

/// The columns of the comma-separated values. A number that is not known is an empty field.
const COLUMNS: [&str; 30] = [
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
    "syscalls_here",
    "syscalls_peer",
    "syscalls_raw",
    "copies_here",
    "copies_peer",
    "processor_s_per_gib",
    "processor_s_per_gib_raw",
    "p50",
    "p90",
    "p99",
    "p99_9",
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
        if let Some([own, raw]) = outcome.latency {
            value["latency"] = json!({ "contender": latency(own), "raw": latency(raw) });
        }
        value
    }

    /// The fields of the contender's line.
    fn line(&self) -> Vec<String> {
        let outcome = &self.outcome;
        let mut line = of_stack(self.case, self.case.contender(), outcome.contender);
        line.extend(numbers(outcome.raw));
        line.extend(numbers(outcome.ratio));
        line.extend(outcome.syscalls.map(optional));
        for pair in [outcome.copies, outcome.processor] {
            line.extend(match pair {
                Some(pair) => pair.map(number),
                None => [const { String::new() }; 2],
            });
        }
        line.extend(match outcome.latency {
            Some([own, _]) => percentiles(own).map(number),
            None => [const { String::new() }; 4],
        });
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

fn percentiles(latency: Latency) -> [f64; 4] {
    [latency.p50, latency.p90, latency.p99, latency.p99_9]
}

/// Returns the times of single operations.
fn latency(latency: Latency) -> Value {
    let [p50, p90, p99, p99_9] = percentiles(latency);
    json!({
        "min": latency.min, "p50": p50, "p90": p90, "p99": p99, "p99_9": p99_9,
        "max": latency.max, "average": latency.average,
    })
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::measure::Other;
    use tool_args::bench::case::{Mechanism, Wire, Work};

    fn spread_of(median: f64) -> Spread {
        Spread {
            median,
            min: median / 2.0,
            max: median * 2.0,
            mean: median,
        }
    }

    fn latency_of(p50: f64) -> Latency {
        Latency {
            min: p50 / 2.0,
            p50,
            p90: p50 * 2.0,
            p99: p50 * 3.0,
            p99_9: p50 * 4.0,
            max: p50 * 5.0,
            average: p50,
        }
    }

    pub(crate) fn measured() -> Measured {
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
            latency: Some([latency_of(1.0), latency_of(4.0)]),
            operations: 3000,
        };
        Measured {
            case: Case::new(Work::SendPing, 64, 1, Wire::Tcp),
            outcome,
            to_other: None,
            foreign_share: Some(0.02),
        }
    }

    pub(crate) fn not_run() -> NotRun {
        NotRun {
            case: Case::new(Work::SdpWrite(Mechanism::Chosen), 4096, 1, Wire::Veth),
            reason: "no \"right\"".to_owned(),
        }
    }

    #[test]
    fn the_json_has_each_row() {
        let row = Entry::Measured(&measured()).json();
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
        assert_eq!(row["latency"]["contender"]["p99"], 3.0);
        assert_eq!(row["latency"]["raw"]["p99_9"], 16.0);
        assert_eq!(row["foreign_share"], 0.02);
        let row = Entry::NotRun(&not_run()).json();
        assert_eq!(row["not_run"], "no \"right\"");
        assert_eq!(row["contender"], "sdp");
    }

    #[test]
    fn csv_fields_are_in_the_columns_of_their_names() {
        let mut text = csv_head().unwrap();
        text.push_str(&Entry::Measured(&measured()).csv().unwrap());
        text.push_str(&Entry::NotRun(&not_run()).csv().unwrap());
        let mut reader = csv::Reader::from_reader(text.as_bytes());
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
        assert_eq!(field(0, "syscalls_here"), "1.5");
        assert_eq!(field(0, "syscalls_peer"), "");
        assert_eq!(field(0, "copies_here"), "1");
        assert_eq!(field(0, "processor_s_per_gib"), "0.25");
        assert_eq!(
            (field(0, "p50"), field(0, "p99_9")),
            ("1".into(), "4".into())
        );
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
}
