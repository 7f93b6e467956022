//! Cases whose connections stay on TCP although both sides run under `opsrun`, and the reasons. A
//! row whose failure no longer occurs fails the run.

use anyhow::{Result, bail, ensure};
use stack_tests::OffloadProtocol;

use crate::arrangement::Arrangement;

/// A case that does not pass where both sides may offload.
pub(crate) struct Difference {
    /// The whole name, or a prefix that ends with a star.
    case: &'static str,
    protocols: &'static [&'static str],
    pub(crate) why: &'static str,
}

const ALL: &[&str] = &["SDP", "local"];
const LOCAL: &[&str] = &["local"];

const UNSEEN: &str = "the acceptor does not use the library, so its clients are served over TCP";
const BY_RING: &str = "the event loop watches its listener by io_uring, so its clients are served \
                       over TCP";
const SHARED: &str = "the kernel's TCP distributes among listeners with SO_REUSEPORT";
const OTHER_USER: &str =
    "the program changes its user between the making of its socket and `listen`";

const DIFFERENCES: &[Difference] = &[
    row(
        "Go: *",
        LOCAL,
        "the program makes its system calls without the C library",
    ),
    row("uvloop: *", ALL, BY_RING),
    row("Node 24: *", ALL, BY_RING),
    row("PHP: *", ALL, UNSEEN),
    row("dovecot: *", ALL, UNSEEN),
    row("squid: *", ALL, OTHER_USER),
    row("Varnish: *", ALL, "the program listens after it has forked"),
    row("pen: *", LOCAL, SHARED),
    row("haproxy: TCP by splice, SO_REUSEPORT", LOCAL, SHARED),
    row("nginx: 2 workers, reuseport", LOCAL, SHARED),
];

const fn row(
    case: &'static str,
    protocols: &'static [&'static str],
    why: &'static str,
) -> Difference {
    Difference {
        case,
        protocols,
        why,
    }
}

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
        is_case && row.protocols.contains(&protocol.name) && arrangement.may_offload()
    })
}

impl Difference {
    /// Passes when the case failed because its connections stayed on TCP.
    pub(crate) fn shows(&self, result: Result<()>) -> Result<()> {
        match result {
            Ok(()) => bail!("passes now: remove its row from differences.rs"),
            Err(error) => {
                let text = format!("{error:#}");
                ensure!(
                    text.contains("segments of data went over TCP"),
                    "fails otherwise than listed: {text}"
                );
                Ok(())
            }
        }
    }
}
