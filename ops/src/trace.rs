//! How a decision was made, for those who ask.

use std::fmt;

/// What a step is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The rule file.
    Rule,
    /// The way to the peer.
    Route,
    /// The offload protocol of this name.
    Protocol(String),
    /// What the peer answers.
    Peer,
    /// What comes of it.
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

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What it is about.
    pub subject: Subject,
    /// What was found.
    pub text: String,
}

/// The steps of one decision. Where nobody asks, nothing is written.
#[derive(Debug, Default)]
pub struct DecisionTrace {
    steps: Option<Vec<Step>>,
}

impl DecisionTrace {
    /// One that keeps its steps.
    #[must_use]
    pub fn kept() -> Self {
        Self {
            steps: Some(Vec::new()),
        }
    }

    /// The steps so far.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        self.steps.as_deref().unwrap_or_default()
    }

    /// True if somebody reads the steps.
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
