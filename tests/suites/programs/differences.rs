//! Cases that do not pass, and the reasons. A row whose failure no longer occurs fails the run.

use anyhow::{Result, bail, ensure};
use stack_tests::OffloadProtocol;

use crate::arrangement::Arrangement;

/// The reason of programs whose acceptors are served over TCP.
const UNSEEN: &str = "the acceptor does not use the library, so its clients are served over TCP";

/// The reason of event loops that watch their listeners by io_uring.
const BY_RING: &str = "the event loop watches its listener by io_uring, so its clients are served \
                       over TCP";

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
        case: "uvloop: *",
        protocols: &["SDP", "local"],
        arrangements: &[Arrangement::Both, Arrangement::Mixed],
        message: "connections stayed on TCP",
        why: BY_RING,
    },
    Difference {
        case: "Node 24: *",
        protocols: &["SDP", "local"],
        arrangements: &[Arrangement::Both, Arrangement::Mixed],
        message: "connections stayed on TCP",
        why: BY_RING,
    },
    Difference {
        case: "PHP: *",
        protocols: &["SDP", "local"],
        arrangements: &[Arrangement::Both, Arrangement::Mixed],
        message: "connections stayed on TCP",
        why: UNSEEN,
    },
    Difference {
        case: "dovecot: *",
        protocols: &["SDP", "local"],
        arrangements: &[Arrangement::Both, Arrangement::Mixed],
        message: "connections stayed on TCP",
        why: UNSEEN,
    },
    Difference {
        case: "squid: *",
        protocols: &["SDP", "local"],
        arrangements: &[Arrangement::Both, Arrangement::Mixed],
        message: "connections stayed on TCP",
        why: "the program changes its user between the making of its socket and `listen`",
    },
    Difference {
        case: "Varnish: *",
        protocols: &["SDP", "local"],
        arrangements: &[Arrangement::Both, Arrangement::Mixed],
        message: "connections stayed on TCP",
        why: "the program listens after it has forked",
    },
    Difference {
        case: "pen: *",
        protocols: &["local"],
        arrangements: &[Arrangement::Both, Arrangement::Mixed],
        message: "connections stayed on TCP",
        why: "the kernel's TCP distributes among listeners with SO_REUSEPORT",
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
