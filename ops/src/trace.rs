//! The steps of a decision, for a report to the user.

use std::fmt;

/// The part of a decision that a step belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The rule file.
    Rule,
    /// The route to the peer.
    Route,
    /// The offload protocol of this name.
    Protocol(String),
    /// The answer of the peer's port mapper.
    Peer,
    /// The result of the decision.
    Verdict,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule => f.pad("rule"),
            Self::Route => f.pad("route"),
            Self::Protocol(name) => f.pad(name),
            Self::Peer => f.pad("peer"),
            Self::Verdict => f.pad("verdict"),
        }
    }
}

/// A step of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The part of the decision that the step belongs to.
    pub subject: Subject,
    /// The finding, for the user to read.
    pub text: String,
}

/// The steps of one decision. By default no step is formatted or kept.
#[derive(Debug, Default)]
pub struct DecisionTrace {
    steps: Option<Vec<Step>>,
}

impl DecisionTrace {
    /// Returns a trace that keeps its steps.
    #[must_use]
    pub fn kept() -> Self {
        Self {
            steps: Some(Vec::new()),
        }
    }

    /// Returns the steps so far.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        self.steps.as_deref().unwrap_or_default()
    }

    /// True if the steps are kept for a reader.
    pub(crate) fn is_kept(&self) -> bool {
        self.steps.is_some()
    }

    pub(crate) fn note(&mut self, subject: Subject, text: impl FnOnce() -> String) {
        if let Some(steps) = &mut self.steps {
            let text = text();
            steps.push(Step { subject, text });
        }
    }
}
