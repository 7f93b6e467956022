//! Lines that do not pass on a ground, and the component at fault. A row whose failure no longer
//! occurs fails the run.

use std::time::Duration;

/// The text of a timeout. The time limit of a line that hangs is shorter than that of others.
pub(crate) const HANGS: &str = "still running after";
const HANGS_LIMIT: Duration = Duration::from_secs(12);

/// A line that does not pass.
#[derive(Debug)]
pub(crate) struct Difference {
    grounds: &'static [&'static str],
    /// Whole names, or prefixes that end with a star.
    lines: &'static [&'static str],
    /// Part of the text that reports the failure.
    pub(crate) says: &'static str,
    /// The reason.
    pub(crate) why: &'static str,
}

/// The provider of dat-rs over siw.
const IB_ON_SIW: &[&str] = &["ib-siw", "ib-siw-under-ofa"];

/// The provider of dat-rs over both devices.
const OURS_ON_DEVICES: &[&str] = &["ib-rxe", "ib-siw", "ib-rxe-under-ofa", "ib-siw-under-ofa"];

/// OFA's provider, below the library of dat-rs and below OFA's library.
const OFA: &[&str] = &["ofa-rxe", "ofa-siw", "pure-ofa-rxe", "pure-ofa-siw"];
const OFA_ON_RXE: &[&str] = &["ofa-rxe", "pure-ofa-rxe"];
const OFA_ON_SIW: &[&str] = &["ofa-siw", "pure-ofa-siw"];
const OFA_BELOW_OURS: &[&str] = &["ofa-rxe", "ofa-siw"];
/// OFA's library, above OFA's provider and above the provider of dat-rs.
const BELOW_OFAS_LIBRARY: &[&str] = &[
    "pure-ofa-rxe",
    "pure-ofa-siw",
    "ib-rxe-under-ofa",
    "ib-siw-under-ofa",
];

/// The kernel maps a queue at an offset that libsiw (rdma-core 44 and later) uses as the mark for
/// no queue. The provider of dat-rs avoids this offset (`provider-ib`, `offset_guard`).
const NO_QUEUE: &str =
    "libsiw maps no queue at one offset, which OFA's provider meets after 48 endpoints or less";

const NO_BYTES: &str =
    "no device of the kernel's registers a region of no bytes, and the tool asks for one";

const DIFFERENCES: &[Difference] = &[
    Difference {
        grounds: OFA_ON_SIW,
        lines: &[
            "dtestsrq -c 100",
            "dtestcm plain",
            "dtestcm -m -c 100 -b 10",
            "dtestcm -w",
        ],
        says: "DAPL ERR create_qp Invalid argument",
        why: NO_QUEUE,
    },
    Difference {
        grounds: OFA_ON_SIW,
        lines: &["dapltest -T L -w 16 -m 1000 limit_evd"],
        says: "killed by signal 11",
        why: NO_QUEUE,
    },
    Difference {
        grounds: OFA_ON_SIW,
        lines: &[
            "dapltest -T L -w 8 -m 100 limit_ep",
            "dapltest -T L -w 16 -m 1000 limit_ep",
            "dapltest -T L -w 16 -m 1000 limit_rsp",
            "dapltest -T L -w 16 -m 1000 limit_psp",
            "dapltest -T L -w 16 -m 1000 limit_lmr",
            "dapltest -T L -w 16 -m 1000 limit_size_lmr",
            "dapltest -T L -w 16 -m 1000 limit_rpost",
        ],
        says: "DAPL ERR create_qp Invalid argument",
        why: NO_QUEUE,
    },
    Difference {
        grounds: OFA,
        lines: &["dtest -b 0*"],
        says: "DAPL ERR reg_mr Cannot allocate memory",
        why: NO_BYTES,
    },
    Difference {
        grounds: OFA_ON_RXE,
        lines: &["dtestx -q"],
        says: "open_hca",
        why: "OFA's provider warns of being opened to be asked, and Debian builds it without \
              counters",
    },
    Difference {
        grounds: OFA,
        lines: &["dtestsrq plain", "dtestsrq -c*", "dtestsrq -b*"],
        says: HANGS,
        why: "the tool waits for the news that a queue pair takes no more from its SRQ, which \
              neither rdma_rxe nor siw gives OFA's provider",
    },
    Difference {
        grounds: OURS_ON_DEVICES,
        lines: &["dtest -b 0*"],
        says: "Error registering Receive RDMA buffer: DAT_INVALID_PARAMETER",
        why: NO_BYTES,
    },
    Difference {
        grounds: IB_ON_SIW,
        lines: &["dtestx -q"],
        says: "DAT_EXTENSION_INTERFACE=TRUE",
        why: "siw has neither atomics nor immediate data",
    },
    Difference {
        grounds: IB_ON_SIW,
        lines: &["dtestx*"],
        says: "IB extension not supported",
        why: "siw has neither atomics nor immediate data",
    },
    Difference {
        grounds: OFA,
        lines: &["dapltest -T F -f mem"],
        says: "failed in file",
        why: "OFA's provider hands a length of 0 to the device, whose refusal it reports, not \
              DAT_LENGTH_ERROR",
    },
    Difference {
        grounds: BELOW_OFAS_LIBRARY,
        lines: &["dapltest -T F -f queryinfo"],
        says: "killed by signal 11",
        why: "OFA's library takes any number for a pointer, and the tool passes an IA's handle \
              where another belongs",
    },
    Difference {
        grounds: OFA_BELOW_OURS,
        lines: &["dapltest -T F -f queryinfo"],
        says: "dapl_fft_queryinfo.c, line 286",
        why: "OFA's provider makes no memory window on a device that has none",
    },
    Difference {
        grounds: &["ib-siw"],
        lines: &["dapltest -T F -f queryinfo"],
        says: "dapl_fft_queryinfo.c, line 286",
        why: "siw has no memory windows, and the tool asks for one",
    },
    Difference {
        grounds: OFA_ON_SIW,
        lines: &["dtestx -q"],
        says: "open_hca",
        why: "siw has neither atomics nor immediate data, and OFA's provider warns of being asked",
    },
    Difference {
        grounds: OFA_ON_SIW,
        lines: &["dtestx*"],
        says: "IB extension not supported",
        why: "siw has neither atomics nor immediate data, so that OFA's provider has no extension",
    },
];

/// Lines that pass or fail by chance, and the texts of their failures. Accepted results are a pass,
/// the listed failure, and a hang, because the other end may wait for the connection that broke.
const BY_CHANCE: &[Difference] = &[Difference {
    grounds: OFA_ON_SIW,
    lines: &["dapltest -T T*"],
    // The error of the test's connection, or of the connection for the server's quit command.
    says: "-reaping DTO problem",
    why: "by chance: over OFA's provider on siw a connection breaks now and then under the first \
          message of its server",
}];

/// The row for a line on a ground.
pub(crate) fn difference(ground: &str, line: &str) -> Option<&'static Difference> {
    row(DIFFERENCES, ground, line)
}

/// The row of a line that fails occasionally on a ground.
pub(crate) fn by_chance(ground: &str, line: &str) -> Option<&'static Difference> {
    row(BY_CHANCE, ground, line)
}

fn row(rows: &'static [Difference], ground: &str, line: &str) -> Option<&'static Difference> {
    rows.iter().find(|row| {
        row.grounds.contains(&ground) && row.lines.iter().any(|pattern| is(line, pattern))
    })
}

fn is(line: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => line.starts_with(start),
        None => line == pattern,
    }
}

impl Difference {
    /// The time limit of a line that is known to hang.
    pub(crate) fn limit(&self) -> Option<Duration> {
        (self.says == HANGS).then_some(HANGS_LIMIT)
    }
}
