//! The verdict on a part of a case, or on a whole case.

use std::fmt;

use anyhow::{Result, bail};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The behaviour is as DAT specifies.
    Ok,
    /// The behaviour is not as DAT specifies.
    Failed(String),
    /// The provider reports that it cannot do what the case checks.
    Lacks(String),
}

/// The error with which a part fails when the provider reports that it cannot do something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Lacks(pub(crate) &'static str);

/// The error that the other end has finished its part, so that the word for which this end waits
/// will not be received.
#[derive(Debug, thiserror::Error)]
#[error("{STOPPED}")]
pub(crate) struct PeerStopped;

impl Verdict {
    /// The verdict on the result of a part.
    pub(crate) fn of(outcome: Result<()>) -> Self {
        let Err(error) = outcome else {
            return Self::Ok;
        };
        let text = format!("{error:#}").replace('\n', " ");
        // Some calls return their argument with the error as its source.
        let call = error
            .chain()
            .find_map(|cause| cause.downcast_ref::<dat_api::Error>());
        if error.is::<Lacks>() || call.is_some_and(dat_api::Error::is_unsupported) {
            Self::Lacks(text)
        } else if error.is::<PeerStopped>() {
            Self::Failed(STOPPED.into())
        } else {
            Self::Failed(text)
        }
    }

    /// The verdict on a case whose ends ended with these verdicts. A feature that one end lacks
    /// also stops the other end, so it is the verdict on the case. Otherwise the failure that
    /// stopped one end takes precedence over the notice of the other end.
    pub(crate) fn of_case(client: Self, server: Self) -> Self {
        let at = |end: &str, text: &str| format!("{end}: {text}");
        match (client, server) {
            (Self::Lacks(text), _) => Self::Lacks(text),
            (_, Self::Lacks(text)) => Self::Lacks(at("server", &text)),
            (Self::Failed(text), Self::Failed(theirs)) if text == STOPPED => {
                Self::Failed(at("server", &theirs))
            }
            (Self::Failed(text), Self::Failed(theirs)) if theirs != STOPPED => Self::Failed(
                format!("{}; {}", at("client", &text), at("server", &theirs)),
            ),
            (Self::Failed(text), _) => Self::Failed(at("client", &text)),
            (Self::Ok, Self::Failed(text)) => Self::Failed(at("server", &text)),
            (Self::Ok, Self::Ok) => Self::Ok,
        }
    }

    /// Parses the text that `Display` writes.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match text.split_once(": ") {
            None if text == "ok" => Ok(Self::Ok),
            Some(("failed", why)) => Ok(Self::Failed(why.to_owned())),
            Some(("lacks", what)) => Ok(Self::Lacks(what.to_owned())),
            _ => bail!("{text:?} is not a verdict"),
        }
    }
}

/// The error text of an end that the other end stopped.
const STOPPED: &str = "the other end stopped";

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Failed(why) => write!(f, "failed: {why}"),
            Self::Lacks(what) => write!(f, "lacks: {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    fn failed(text: &str) -> Verdict {
        Verdict::Failed(text.into())
    }

    fn lacks(text: &str) -> Verdict {
        Verdict::Lacks(text.into())
    }

    #[test]
    fn verdicts_are_parsed_as_they_were_written() {
        for verdict in [Verdict::Ok, failed("a: b"), lacks("no windows")] {
            assert_eq!(Verdict::parse(&verdict.to_string()).unwrap(), verdict);
        }
        assert!(Verdict::parse("failed").is_err());
    }

    /// An error in the form of calls that return their argument together with the reason.
    #[derive(Debug, thiserror::Error)]
    #[error("the argument is returned: {0}")]
    struct Returned(#[source] dat_api::Error);

    #[test]
    fn a_missing_feature_of_a_provider_is_no_failure() {
        let lacking = Err(Lacks("no windows")).context("binding");
        assert!(matches!(Verdict::of(lacking), Verdict::Lacks(_)));
        let missing = dat_api::Error::Missing {
            call: "dat_csp_create",
        };
        for error in [missing.clone().into(), Returned(missing).into()] {
            assert!(matches!(Verdict::of(Err(error)), Verdict::Lacks(_)));
        }
        assert_eq!(Verdict::of(Err(anyhow!("no\nevent"))), failed("no event"));
    }

    #[test]
    fn the_end_that_failed_first_gives_the_reason() {
        let stopped = || failed(STOPPED);
        let of = Verdict::of_case;
        assert_eq!(of(Verdict::Ok, Verdict::Ok), Verdict::Ok);
        assert_eq!(of(failed("x"), stopped()), failed("client: x"));
        assert_eq!(of(stopped(), failed("x")), failed("server: x"));
        assert_eq!(of(failed("x"), failed("y")), failed("client: x; server: y"));
        assert_eq!(of(lacks("x"), stopped()), lacks("x"));
        assert_eq!(of(stopped(), lacks("x")), lacks("server: x"));
        assert_eq!(of(lacks("x"), failed("y")), lacks("x"));
        assert_eq!(of(failed("x"), Verdict::Ok), failed("client: x"));
        assert_eq!(of(Verdict::Ok, failed("x")), failed("server: x"));
    }
}
