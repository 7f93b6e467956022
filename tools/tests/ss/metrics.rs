//! A strict parser of the text format of OpenMetrics 1.0, for counters and gauges.
//!
//! It refuses what the specification calls a mistake: metadata that is repeated or that follows a
//! sample, a family whose lines are not adjacent, a suffix or unit that is missing, a set of labels
//! that occurs twice, an escape sequence that does not exist, a blank that is too many, and text
//! after `# EOF`.

use std::collections::{BTreeMap, BTreeSet};

type Result<T> = std::result::Result<T, String>;

/// A parsed text.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    pub(crate) samples: Vec<Sample>,
    pub(crate) units: BTreeMap<String, String>,
    types: BTreeMap<String, String>,
    helps: BTreeSet<String>,
    /// The family of the last line.
    current: Option<String>,
    /// True if a sample of that family was read.
    has_samples: bool,
    seen: BTreeSet<(String, BTreeMap<String, String>)>,
}

#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

pub(crate) fn parse(text: &str) -> Result<Exposition> {
    let body = text
        .strip_suffix("# EOF\n")
        .ok_or("no `# EOF` at the end")?;
    if !body.is_empty() && !body.ends_with('\n') {
        return Err("a line is not complete".to_owned());
    }
    let mut parsed = Exposition::default();
    for line in body.split_terminator('\n') {
        let read = match line.strip_prefix("# ") {
            Some(metadata) => parsed.metadata(metadata),
            None => parsed.sample(line),
        };
        read.map_err(|error| format!("{line:?}: {error}"))?;
    }
    Ok(parsed)
}

impl Exposition {
    fn metadata(&mut self, text: &str) -> Result<()> {
        let mut words = text.splitn(3, ' ');
        let (Some(kind), Some(name), Some(value)) = (words.next(), words.next(), words.next())
        else {
            return Err("metadata has three parts".to_owned());
        };
        check_name(name, true)?;
        if self.current.as_deref() != Some(name) {
            if self.types.contains_key(name) || self.helps.contains(name) {
                return Err("the family was left before".to_owned());
            }
            self.current = Some(name.to_owned());
            self.has_samples = false;
        }
        if self.has_samples {
            return Err("metadata follows a sample".to_owned());
        }
        let is_new = match kind {
            "TYPE" if matches!(value, "counter" | "gauge") => self
                .types
                .insert(name.to_owned(), value.to_owned())
                .is_none(),
            "UNIT" if name.ends_with(&format!("_{value}")) => self
                .units
                .insert(name.to_owned(), value.to_owned())
                .is_none(),
            "HELP" => {
                unescape(value, false)?;
                self.helps.insert(name.to_owned())
            }
            _ => return Err(format!("{kind} {value}")),
        };
        is_new.then_some(()).ok_or("repeated metadata".to_owned())
    }

    fn sample(&mut self, line: &str) -> Result<()> {
        let end = line.find(['{', ' ']).ok_or("no value")?;
        let (name, mut rest) = line.split_at(end);
        check_name(name, true)?;
        let mut labels = BTreeMap::new();
        if let Some(inner) = rest.strip_prefix('{') {
            (labels, rest) = parse_labels(inner)?;
        }
        let value = rest.strip_prefix(' ').ok_or("no blank before the value")?;
        if !value
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
        {
            return Err("a number that this program does not print".to_owned());
        }
        let family = self.current.clone().ok_or("a sample without a family")?;
        let suffix = match self.types.get(&family).map(String::as_str) {
            Some("counter") => "_total",
            Some(_) => "",
            None => return Err("a family without a type".to_owned()),
        };
        if name != format!("{family}{suffix}") {
            return Err(format!("a sample of {family} ends in {suffix:?}"));
        }
        if !self.seen.insert((name.to_owned(), labels.clone())) {
            return Err("the labels occur twice".to_owned());
        }
        self.has_samples = true;
        self.samples.push(Sample {
            name: name.to_owned(),
            labels,
            value: value.parse().map_err(|_| "no number")?,
        });
        Ok(())
    }
}

/// Parses labels up to the brace. Returns the labels and the rest of the line.
fn parse_labels(mut text: &str) -> Result<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        let (name, rest) = text.split_once("=\"").ok_or("no label")?;
        check_name(name, false)?;
        let end = closing_quote(rest).ok_or("an open quote")?;
        let value = unescape(&rest[..end], true)?;
        if labels.insert(name.to_owned(), value).is_some() {
            return Err(format!("label {name} occurs twice"));
        }
        let rest = &rest[end + 1..];
        if let Some(rest) = rest.strip_prefix('}') {
            return Ok((labels, rest));
        }
        text = rest.strip_prefix(',').ok_or("no comma between labels")?;
    }
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

fn unescape(text: &str, is_label: bool) -> Result<String> {
    let mut plain = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => match characters.next() {
                Some('\\') => '\\',
                Some('"') => '"',
                Some('n') => '\n',
                other => return Err(format!("the escape sequence \\{other:?}")),
            },
            '"' if is_label => return Err("a quote without a backslash".to_owned()),
            other => other,
        });
    }
    Ok(plain)
}

fn check_name(name: &str, is_metric: bool) -> Result<()> {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_first = |byte| is_letter(byte) || (is_metric && byte == b':');
    let good = name.bytes().next().is_some_and(is_first)
        && name
            .bytes()
            .all(|byte| is_first(byte) || byte.is_ascii_digit());
    good.then_some(()).ok_or(format!("the name {name:?}"))
}

#[test]
fn mistakes_are_refused() {
    let good = "# TYPE a counter\n# HELP a b\na_total{x=\"\\\\\\\"\\n\"} 1\na_total 2\n# EOF\n";
    assert_eq!(parse(good).unwrap().samples.len(), 2);
    for (part, mistake) in [
        ("# EOF\n", "# EOF"),
        ("# EOF\n", "# EOF\n\n"),
        ("a_total 2", "a 2"),
        ("a_total 2", "a_total  2"),
        ("a_total 2", "a_total two"),
        ("a_total 2", "a_total{x=\"1\" ,y=\"2\"} 2"),
        ("a_total 2", "a_total{x=\"1\",x=\"2\"} 2"),
        ("a_total 2", "a_total{x=\"\\t\"} 2"),
        ("a_total 2", "a_total{x=\"\\\\\\\"\\n\"} 2"),
        ("a_total 2", "# HELP a b\na_total 2"),
        ("a_total 2", "# TYPE b gauge\nb 1\n# HELP a b"),
        ("a_total 2", "b 2"),
        ("a_total 2", "\na_total 2"),
        ("# HELP a b", "# UNIT a bytes"),
        ("# HELP a b", "# HELP a b\n# HELP a c"),
        ("# TYPE a counter", "# TYPE a number"),
    ] {
        assert!(good.contains(part));
        let bad = good.replacen(part, mistake, 1);
        assert!(parse(&bad).is_err(), "{bad}");
    }
}
