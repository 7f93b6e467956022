//! Cases that do not pass, and the reasons. A row whose failure no longer occurs fails the run.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use stack_tests::OffloadProtocol;

use crate::arrangement::Arrangement;

/// The text of a timeout. The time limit of a case that hangs is shorter than that of others.
const HANGS: &str = "still running after";
const HANGS_LIMIT: Duration = Duration::from_secs(8);

/// A case that does not pass.
pub(crate) struct Difference {
    /// The whole name, or a prefix that ends with a star.
    case: &'static str,
    protocols: &'static [&'static str],
    arrangements: &'static [Arrangement],
    /// Part of the text that reports the failure.
    message: &'static str,
    pub(crate) why: &'static str,
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        case: "Go: *",
        protocols: &["local"],
        arrangements: &[Arrangement::Both, Arrangement::Mixed],
        message: "connections stayed on TCP",
        why: "the program makes its system calls without the C library",
    },
    Difference {
        case: "haproxy: TCP by splice, SO_REUSEPORT",
        protocols: &["local"],
        arrangements: &[Arrangement::Both, Arrangement::Mixed],
        message: "connections stayed on TCP",
        why: "the kernel's TCP distributes among listeners with SO_REUSEPORT",
    },
    Difference {
        case: "nginx: 2 workers, reuseport",
        protocols: &["local"],
        arrangements: &[Arrangement::Both, Arrangement::Mixed],
        message: "connections stayed on TCP",
        why: "the kernel's TCP distributes among listeners with SO_REUSEPORT",
    },
];

/// The row for a case.
pub(crate) fn difference(
    case: &str,
    protocol: &OffloadProtocol,
    arrangement: Arrangement,
) -> Option<&'static Difference> {
    DIFFERENCES.iter().find(|row| {
        let is_case = match row.case.strip_suffix('*') {
            Some(start) => case.starts_with(start),
            None => case == row.case,
        };
        is_case && row.protocols.contains(&protocol.name) && row.arrangements.contains(&arrangement)
    })
}

impl Difference {
    /// The time limit of a case that is known to hang.
    pub(crate) fn limit(&self) -> Option<Duration> {
        (self.message == HANGS).then_some(HANGS_LIMIT)
    }

    /// Passes when the case failed as the row says.
    pub(crate) fn shows(&self, result: Result<()>) -> Result<()> {
        match result {
            Ok(()) => bail!("passes now: remove its row from differences.rs"),
            Err(error) => {
                let text = format!("{error:#}");
                ensure!(
                    text.contains(self.message),
                    "fails otherwise than listed: {text}"
                );
                Ok(())
            }
        }
    }
}
