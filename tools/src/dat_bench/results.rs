//! The rows of a run as JSON, and as comma-separated values with the same data.

use anyhow::Result;
use serde_json::{Value, json};
use tool_args::bench::case::Case;
use tool_args::bench::spread::Spread;

use crate::laps::Latency;
use crate::measure::{Outcome, Plan};

/// A row that was measured.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) case: Case,
    pub(crate) outcome: Outcome,
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

/// The columns of the comma-separated values, and the JSON of each (RFC 6901).
const COLUMNS: [(&str, &str); 30] = [
    ("case", "/case"),
    ("work", "/work"),
    ("bytes", "/bytes"),
    ("depth", "/depth"),
    ("place", "/place"),
    ("stack", "/contender"),
    ("unit", "/unit"),
    ("better", "/better"),
    ("median", "/figure/median"),
    ("min", "/figure/min"),
    ("max", "/figure/max"),
    ("raw_median", "/raw/median"),
    ("raw_min", "/raw/min"),
    ("raw_max", "/raw/max"),
    ("ratio_median", "/ratio/median"),
    ("ratio_min", "/ratio/min"),
    ("ratio_max", "/ratio/max"),
    ("syscalls_here", "/syscalls/here"),
    ("syscalls_peer", "/syscalls/peer"),
    ("syscalls_raw", "/syscalls/raw"),
    ("copies_here", "/copies/here"),
    ("copies_peer", "/copies/peer"),
    ("processor_s_per_gib", "/processor_s_per_gib/contender"),
    ("processor_s_per_gib_raw", "/processor_s_per_gib/raw"),
    ("p50", "/latency/contender/p50"),
    ("p90", "/latency/contender/p90"),
    ("p99", "/latency/contender/p99"),
    ("p99_9", "/latency/contender/p99_9"),
    ("foreign_share", "/foreign_share"),
    ("not_run", "/not_run"),
];

/// The line with the names of the columns.
pub(crate) fn csv_head() -> Result<String> {
    csv_line(COLUMNS.map(|(name, _)| name.to_owned()))
}

fn csv_line(fields: [String; COLUMNS.len()]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(fields)?;
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

    /// The row's lines: one for the contender, and one for each other stack.
    pub(crate) fn csv(&self) -> Result<String> {
        let row = self.json();
        let mut lines = vec![row.clone()];
        let others = row["others"].as_array();
        lines.extend(others.into_iter().flatten().map(|other| {
            let mut line = row.clone();
            for part in ["syscalls", "copies", "processor_s_per_gib", "latency"] {
                line[part] = Value::Null;
            }
            line["foreign_share"] = Value::Null;
            line["contender"] = other["stack"].clone();
            line["figure"] = other["figure"].clone();
            line["ratio"] = other["to_raw"].clone();
            line
        }));
        let line = |row: &Value| csv_line(COLUMNS.map(|(_, place)| field(row.pointer(place))));
        lines.iter().map(line).collect()
    }
}

/// A value without the quotes of JSON. A value that is not known is an empty field.
fn field(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(number) => number.to_string(),
    }
}

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
        value["figure"] = spread(outcome.contender);
        value["raw"] = spread(outcome.raw);
        value["ratio"] = spread(outcome.ratio);
        value["syscalls"] = json!({ "here": here, "peer": peer, "raw": raw });
        value["others"] = json!(others);
        value["foreign_share"] = json!(self.foreign_share);
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
        "better": if case.unit().is_less_better() { "less" } else { "more" },
    })
}

/// Returns a median with its extremes. A number that is not known becomes `null`.
fn spread(spread: Spread) -> Value {
    json!({ "median": spread.median, "min": spread.min, "max": spread.max })
}

/// Returns the times of single operations.
fn latency(latency: Latency) -> Value {
    json!({
        "min": latency.min, "p50": latency.p50, "p90": latency.p90, "p99": latency.p99,
        "p99_9": latency.p99_9, "max": latency.max, "average": latency.average,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::measure::Other;
    use tool_args::bench::case::{Mechanism, Stack, Wire, Work};

    fn spread_of(median: f64) -> Spread {
        Spread {
            median,
            median_from: median,
            median_to: median,
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
        assert_eq!(field(0, "median"), "2.0");
        assert_eq!(field(0, "raw_min"), "4.0");
        assert_eq!(field(0, "syscalls_here"), "1.5");
        assert_eq!(field(0, "syscalls_peer"), "");
        assert_eq!(field(0, "copies_here"), "1.0");
        assert_eq!(field(0, "processor_s_per_gib"), "0.25");
        assert_eq!(
            (field(0, "p50"), field(0, "p99_9")),
            ("1.0".into(), "4.0".into())
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
