//! Lines that do not pass on a ground, and whose fault that is. A row that no longer shows fails
//! the run.

use std::time::Duration;

/// What hangs is not waited for as long as what works.
const HANGS: &str = "still running after";
const HANGS_LIMIT: Duration = Duration::from_secs(12);

/// A line that does not pass.
#[derive(Debug)]
pub(crate) struct Difference {
    grounds: &'static [&'static str],
    /// The whole name, or its beginning where a star ends it.
    line: &'static str,
    /// Part of what its failure is told as.
    pub(crate) says: &'static str,
    /// The reason.
    pub(crate) why: &'static str,
}

/// Our provider over siw.
const IB_ON_SIW: &[&str] = &["ib-siw", "ib-siw-under-ofa"];

/// OFA's provider, below our library and below OFA's own.
const OFA: &[&str] = &["ofa-rxe", "ofa-siw", "pure-ofa-rxe", "pure-ofa-siw"];
const OFA_ON_SIW: &[&str] = &["ofa-siw", "pure-ofa-siw"];
const OFA_BELOW_OURS: &[&str] = &["ofa-rxe", "ofa-siw"];
/// OFA's library, above OFA's provider and above ours.
const BELOW_OFAS_LIBRARY: &[&str] = &[
    "pure-ofa-rxe",
    "pure-ofa-siw",
    "ib-rxe-under-ofa",
    "ib-siw-under-ofa",
];

const DIFFERENCES: &[Difference] = &[
    Difference {
        grounds: OFA,
        line: "dtestsrq*",
        says: HANGS,
        why: "the tool waits for the news that a queue pair takes no more from its SRQ, which \
              neither rdma_rxe nor siw gives OFA's provider",
    },
    Difference {
        grounds: IB_ON_SIW,
        line: "dtestx -q",
        says: "DAT_EXTENSION_INTERFACE=TRUE",
        why: "siw has neither atomics nor immediate data",
    },
    Difference {
        grounds: IB_ON_SIW,
        line: "dtestx*",
        says: "IB extension not supported",
        why: "siw has neither atomics nor immediate data",
    },
    Difference {
        grounds: OFA,
        line: "dapltest -T F -f mem",
        says: "failed in file",
        why: "OFA's provider hands a length of 0 to the device, whose refusal it reports, not \
              DAT_LENGTH_ERROR",
    },
    Difference {
        grounds: BELOW_OFAS_LIBRARY,
        line: "dapltest -T F -f queryinfo",
        says: "killed by signal 11",
        why: "OFA's library takes any number for a pointer, and the tool passes an IA's handle \
              where another belongs",
    },
    Difference {
        grounds: OFA_BELOW_OURS,
        line: "dapltest -T F -f queryinfo",
        says: "dapl_fft_queryinfo.c, line 286",
        why: "OFA's provider makes no memory window on a device that has none",
    },
    Difference {
        grounds: &["ib-siw"],
        line: "dapltest -T F -f queryinfo",
        says: "dapl_fft_queryinfo.c, line 286",
        why: "siw has no memory windows, and the tool asks for one",
    },
    Difference {
        grounds: OFA_ON_SIW,
        line: "dapltest -T L -w 16 -m 1000 limit_rsp",
        says: "DAPL ERR create_qp Invalid argument",
        why: "OFA's provider asks siw for a queue pair without receives, which siw refuses",
    },
    Difference {
        grounds: OFA_ON_SIW,
        line: "dtestx -q",
        says: "open_hca",
        why: "siw has neither atomics nor immediate data, and OFA's provider warns of being asked",
    },
    Difference {
        grounds: OFA_ON_SIW,
        line: "dtestx*",
        says: "IB extension not supported",
        why: "siw has neither atomics nor immediate data, so that OFA's provider has no extension",
    },
];

/// The row that speaks of a line on a ground.
pub(crate) fn difference(ground: &str, line: &str) -> Option<&'static Difference> {
    DIFFERENCES.iter().find(|row| {
        let is_line = match row.line.strip_suffix('*') {
            Some(start) => line.starts_with(start),
            None => line == row.line,
        };
        is_line && row.grounds.contains(&ground)
    })
}

impl Difference {
    /// How long to wait for what is known to hang.
    pub(crate) fn limit(&self) -> Option<Duration> {
        (self.says == HANGS).then_some(HANGS_LIMIT)
    }
}
