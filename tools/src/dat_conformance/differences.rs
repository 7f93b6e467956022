//! The table of known differences: the cases in which an adapter deviates from DAT, and the
//! reasons.
//!
//! ```text
//! # configuration  case             kind     reason
//! ofa-*            srq/watermark    lacks    OFA has no low watermarks
//! ```
//!
//! Configuration and case may contain `*`. A listed difference that does not occur is a fault of
//! the table, unless its kind is `varies`. A case that is listed as `kills` is not run.

use anyhow::{Context, Result, bail};

use crate::case::matches;
use crate::verdict::Verdict;

/// The rows of the table that apply to one configuration.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    line: usize,
    case: String,
    kind: Kind,
    reason: String,
    /// True once a case of this row has run.
    has_run: bool,
    /// True once a case of this row has differed.
    has_differed: bool,
}

/// The way in which a case differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The case fails.
    Fails,
    /// The provider reports that it cannot do what the case requires.
    Lacks,
    /// The case fails at times, or the provider reports at times that it cannot do what it
    /// requires.
    Varies,
    /// The case takes the machine or the run down, so it must not be run.
    Kills,
}

/// The verdict of a case, compared with the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The case passed.
    Ok,
    /// The case failed, and the table does not list it.
    Failed(String),
    /// The case differs, as the table lists.
    Differs { reason: String, seen: String },
    /// The provider reports that it cannot do what the case requires, and the table does not list
    /// it.
    NotRun(String),
}

impl Differences {
    pub(crate) fn parse(text: &str, configuration: &str) -> Result<Self> {
        let mut rows = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let row = Row::parse(index + 1, line, configuration)
                .with_context(|| format!("line {} of the table of differences", index + 1))?;
            rows.extend(row);
        }
        Ok(Self { rows })
    }

    /// The reason why a case must not be run, if there is one.
    pub(crate) fn forbids(&self, case: &str) -> Option<&str> {
        let forbids = |row: &&Row| row.kind == Kind::Kills && matches(&row.case, case);
        self.rows
            .iter()
            .find(forbids)
            .map(|row| row.reason.as_str())
    }

    /// Compares the verdict of a case with the table.
    pub(crate) fn judge(&mut self, case: &str, verdict: Verdict) -> Finding {
        let mut known = None;
        for row in &mut self.rows {
            if !matches(&row.case, case) {
                continue;
            }
            row.has_run = true;
            let applies = match &verdict {
                Verdict::Ok => false,
                Verdict::Failed(_) => row.kind != Kind::Lacks,
                Verdict::Lacks(_) => row.kind != Kind::Fails,
            };
            if applies {
                row.has_differed = true;
                known.get_or_insert_with(|| row.reason.clone());
            }
        }
        match (verdict, known) {
            (Verdict::Ok, _) => Finding::Ok,
            (Verdict::Failed(seen) | Verdict::Lacks(seen), Some(reason)) => {
                Finding::Differs { reason, seen }
            }
            (Verdict::Failed(why), None) => Finding::Failed(why),
            (Verdict::Lacks(what), None) => Finding::NotRun(what),
        }
    }

    /// Messages for the rows of which a case has run and no case has differed.
    pub(crate) fn outdated(&self) -> Vec<String> {
        let outdated = |row: &&Row| row.has_run && !row.has_differed && row.kind != Kind::Varies;
        let rows = self.rows.iter().filter(outdated);
        rows.map(|row| {
            format!(
                "line {}: {} no longer differs; remove the row ({})",
                row.line, row.case, row.reason
            )
        })
        .collect()
    }
}

impl Row {
    /// Parses a row; `None` for a row about another configuration.
    fn parse(line: usize, text: &str, our_configuration: &str) -> Result<Option<Self>> {
        let mut words = text.split_whitespace();
        let mut word = |what| words.next().with_context(|| format!("{what} is missing"));
        let (configuration, case) = (word("the configuration")?, word("the case")?);
        let kind = match word("the kind")? {
            "fails" => Kind::Fails,
            "lacks" => Kind::Lacks,
            "varies" => Kind::Varies,
            "kills" => Kind::Kills,
            other => bail!("{other:?} instead of fails, lacks, varies or kills"),
        };
        let reason: Vec<&str> = words.collect();
        if reason.is_empty() {
            bail!("the reason is missing");
        }
        Ok(matches(configuration, our_configuration).then(|| Self {
            line,
            case: case.to_owned(),
            kind,
            reason: reason.join(" "),
            has_run: false,
            has_differed: false,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# configuration case kind reason\n\n\
        ofa-*  srq/*   lacks   no queues there\n\
        ofa-*  evd/x   fails   forgets the event\n\
        siw    cm/*    varies  drops fast messages\n";

    fn failed() -> Verdict {
        Verdict::Failed("seen".into())
    }

    #[test]
    fn a_listed_difference_carries_its_reason() {
        let mut table = Differences::parse(TABLE, "ofa-rxe").unwrap();
        let Finding::Differs { reason, seen } = table.judge("evd/x", failed()) else {
            panic!("the listed difference is not reported");
        };
        assert_eq!(
            (reason.as_str(), seen.as_str()),
            ("forgets the event", "seen")
        );
        let lacks = table.judge("srq/a", Verdict::Lacks("none".into()));
        assert!(matches!(lacks, Finding::Differs { .. }));
    }

    #[test]
    fn another_configuration_case_or_kind_is_not_listed() {
        let mut table = Differences::parse(TABLE, "soft").unwrap();
        assert!(matches!(table.judge("evd/x", failed()), Finding::Failed(_)));
        let mut table = Differences::parse(TABLE, "ofa-siw").unwrap();
        assert!(matches!(table.judge("evd/y", failed()), Finding::Failed(_)));
        assert!(matches!(table.judge("srq/a", failed()), Finding::Failed(_)));
        let lacks = table.judge("evd/x", Verdict::Lacks("none".into()));
        assert!(matches!(lacks, Finding::NotRun(_)));
    }

    #[test]
    fn a_row_that_no_case_confirms_is_outdated() {
        let mut table = Differences::parse(TABLE, "ofa-rxe").unwrap();
        assert!(table.outdated().is_empty(), "no case has run");
        table.judge("srq/a", Verdict::Ok);
        table.judge("evd/x", failed());
        let outdated = table.outdated();
        assert!(outdated[0].starts_with("line 3: srq/*"), "{outdated:?}");
        assert_eq!(outdated.len(), 1);
        let mut table = Differences::parse(TABLE, "siw").unwrap();
        assert_eq!(table.judge("cm/a", Verdict::Ok), Finding::Ok);
        assert!(table.outdated().is_empty(), "it varies");
    }

    #[test]
    fn a_case_that_takes_the_machine_down_is_not_run() {
        let table = "siw read/empty kills the kernel follows a null pointer";
        let table = Differences::parse(table, "siw").unwrap();
        let reason = table.forbids("read/empty");
        assert_eq!(reason, Some("the kernel follows a null pointer"));
        assert_eq!(table.forbids("read/full"), None);
        assert!(table.outdated().is_empty());
    }

    #[test]
    fn faults_in_the_table_are_reported_with_their_line() {
        for (text, what) in [
            ("x", "the case is missing"),
            ("x y sometimes z", "instead of fails"),
            ("x y fails", "the reason is missing"),
        ] {
            let error = Differences::parse(&format!("\n{text}"), "x").unwrap_err();
            let message = format!("{error:#}");
            let is_named = message.contains("line 2") && message.contains(what);
            assert!(is_named, "{message}");
        }
    }
}
