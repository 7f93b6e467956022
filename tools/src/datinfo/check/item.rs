//! The result of a check.

use std::fmt;

use serde_json::{Value, json};
use tool_args::terminal::{Colour, painted};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    /// The part of the configuration, in one word.
    pub(super) subject: &'static str,
    /// The state that was found.
    pub(super) text: String,
    pub(super) outcome: Outcome,
}

/// The judgement on the state that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Problem {
        /// The action that solves the problem, in the imperative.
        fix: String,
    },
    /// The check is not possible for this user or on this system.
    NotChecked,
}

impl Item {
    pub(super) fn passed(subject: &'static str, text: impl Into<String>) -> Self {
        Self {
            subject,
            text: text.into(),
            outcome: Outcome::Passed,
        }
    }

    pub(super) fn problem(
        subject: &'static str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            subject,
            text: text.into(),
            outcome: Outcome::Problem { fix: fix.into() },
        }
    }

    pub(super) fn not_checked(subject: &'static str, text: impl Into<String>) -> Self {
        Self {
            subject,
            text: text.into(),
            outcome: Outcome::NotChecked,
        }
    }

    pub(super) fn is_problem(&self) -> bool {
        matches!(self.outcome, Outcome::Problem { .. })
    }

    pub(super) fn json(&self) -> Value {
        let mut value = json!({ "subject": self.subject, "text": self.text });
        value["result"] = json!(match &self.outcome {
            Outcome::Passed => "ok",
            Outcome::Problem { .. } => "problem",
            Outcome::NotChecked => "not checked",
        });
        if let Outcome::Problem { fix } = &self.outcome {
            value["fix"] = json!(fix);
        }
        value
    }
}

impl Item {
    /// The item as a line, with its first word in colour if the terminal has colours.
    pub(super) fn shown(&self, has_colours: bool) -> String {
        let colour = match &self.outcome {
            Outcome::Passed => Colour::Green,
            Outcome::Problem { .. } => Colour::Red,
            Outcome::NotChecked => Colour::Yellow,
        };
        let line = self.to_string();
        let (word, rest) = line.split_at(line.find(':').unwrap_or(0));
        format!("{}{rest}", painted(word, has_colours.then_some(colour)))
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = self.subject;
        // A text of another library may have several lines.
        let text = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        match &self.outcome {
            Outcome::Passed => write!(f, "ok: {subject}: {text}"),
            Outcome::Problem { fix } => write!(f, "problem: {subject}: {text}; fix: {fix}"),
            Outcome::NotChecked => write!(f, "not checked: {subject}: {text}"),
        }
    }
}

/// The last line of the output.
pub(super) fn total(problems: usize, checks: usize) -> String {
    match problems {
        0 => format!("no problem found in {checks} checks"),
        1 => format!("1 problem found in {checks} checks"),
        problems => format!("{problems} problems found in {checks} checks"),
    }
}

/// Checks that a printed item contains a text.
#[cfg(test)]
#[track_caller]
pub(super) fn assert_says(item: &str, text: &str) {
    assert!(item.contains(text), "{item}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_one_line() {
        let problem = Item::problem("device", "no\nfile", "load it");
        let shown = problem.to_string();
        assert_eq!(shown, "problem: device: no file; fix: load it");
        assert_eq!(problem.shown(false), shown);
        let coloured = problem.shown(true);
        assert!(coloured.starts_with("\x1b[31mproblem\x1b[0m: device"));
        assert_eq!(problem.json()["fix"], "load it");
        assert_eq!(problem.json()["result"], "problem");
        assert_eq!(Item::passed("a", "b").to_string(), "ok: a: b");
        let not_checked = Item::not_checked("a", "b");
        assert_eq!(not_checked.to_string(), "not checked: a: b");
        assert!(!not_checked.is_problem() && not_checked.json()["fix"].is_null());
        assert_eq!(total(1, 9), "1 problem found in 9 checks");
    }
}
