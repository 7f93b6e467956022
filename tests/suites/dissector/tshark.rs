//! Runs tshark with the dissector, and reads the fields that it prints.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use stack_tests::{DEADLINE, Program, Stage};

/// The prefix of the names of all fields.
const PREFIX: &str = "sdp_iwarp.";
/// The separator of fields, and that of several values of a field.
const SEPARATORS: [char; 2] = ['|', ';'];
/// The prefix of the names of fields of messages that break a rule.
const EXPERT: &str = "expert.";

/// The fields of a packet, without the prefix of their names; each has a value for each message.
pub(crate) type Fields = BTreeMap<String, Vec<String>>;

#[derive(Debug)]
pub(crate) struct Dissector {
    script: PathBuf,
    names: Vec<String>,
}

impl Dissector {
    pub(crate) fn staged() -> Result<Self> {
        let script = Stage::find()?
            .share()
            .join("dat-rs/wireshark/sdp-iwarp.lua");
        let text =
            fs::read_to_string(&script).with_context(|| format!("reading {}", script.display()))?;
        let names = text
            .split('"')
            .filter_map(|word| word.strip_prefix(PREFIX))
            .map(str::to_owned)
            .collect();
        Ok(Self { script, names })
    }

    /// The names of all fields that messages without faults may have.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.names.iter().map(String::as_str);
        names.filter(|name| !name.starts_with(EXPERT))
    }

    /// The fields of each packet in which the dissector found something, in order.
    pub(crate) fn fields(&self, capture: &Path) -> Result<Vec<Fields>> {
        self.fields_with(
            capture,
            "-o iwarp_ddp_rdmap.reassemble_iwarp_rdma_send:FALSE",
        )
    }

    /// As `fields`, with these options instead of the recommended one.
    pub(crate) fn fields_with(&self, capture: &Path, options: &str) -> Result<Vec<Fields>> {
        let [separator, between] = SEPARATORS;
        let mut tshark = self
            .tshark(capture, options)
            .args_line("-Y sdp_iwarp -T fields")
            .arg("-E")
            .arg(format!("separator={separator}"))
            .arg("-E")
            .arg(format!("aggregator={between}"));
        for name in &self.names {
            tshark = tshark.arg("-e").arg(format!("{PREFIX}{name}"));
        }
        let text = tshark.run(DEADLINE)?.text;
        ensure!(!text.contains("Lua"), "{text}");
        text.lines()
            .filter(|line| line.contains(separator))
            .map(|line| self.parse(line))
            .collect()
    }

    /// The texts of the column Info, one for each packet in which the dissector found something.
    pub(crate) fn texts(&self, capture: &Path) -> Result<Vec<String>> {
        let tshark = self
            .tshark(
                capture,
                "-o iwarp_ddp_rdmap.reassemble_iwarp_rdma_send:FALSE",
            )
            .args_line("-Y sdp_iwarp -T fields -e _ws.col.Protocol -e _ws.col.Info");
        let text = tshark.run(DEADLINE)?.text;
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("SDP/iWARP\t"));
        Ok(lines.map(str::to_owned).collect())
    }

    /// The segments of `capture` that TCP repeated or that were captured out of order, one line
    /// each.
    pub(crate) fn irregular_segments(&self, capture: &Path) -> Result<String> {
        let tshark = self
            .tshark(capture, "-Y")
            .arg("tcp.analysis.flags && !tcp.analysis.window_update");
        Ok(tshark.run(DEADLINE)?.text)
    }

    fn tshark(&self, capture: &Path, options: &str) -> Program {
        Program::new("tshark")
            .arg("-X")
            .arg(format!("lua_script:{}", self.script.display()))
            .args_line("-o tcp.try_heuristic_first:TRUE")
            // The kernel may record segments of one connection out of order when the sender moves
            // to another processor. Without this option all FPDUs that such a segment completes
            // are missing.
            .args_line("-o tcp.reassemble_out_of_order:TRUE")
            .arg("-r")
            .arg(capture)
            .args_line(options)
    }

    fn parse(&self, line: &str) -> Result<Fields> {
        let [separator, between] = SEPARATORS;
        let values: Vec<&str> = line.split(separator).collect();
        ensure!(values.len() == self.names.len(), "{line}");
        let fields = self.names.iter().zip(values);
        Ok(fields
            .filter(|(_, values)| !values.is_empty())
            .map(|(name, values)| (name.clone(), values.split(between).map(plain).collect()))
            .collect())
    }
}

/// Versions of tshark differ in how they print truth values.
fn plain(value: &str) -> String {
    match value {
        "True" => "1".into(),
        "False" => "0".into(),
        value => value.into(),
    }
}

/// True if this tshark can run scripts.
pub(crate) fn has_lua() -> Result<bool> {
    let version = Program::new("tshark").arg("-v").spawn()?.finish(DEADLINE)?;
    Ok(version.success()?.text.contains("with Lua"))
}
