//! Lines that do not pass on a configuration, and the component at fault. A row whose failure no
//! longer occurs fails the run.

use std::time::Duration;

/// The text of a timeout. The time limit of a line that hangs is shorter than that of others.
pub(crate) const HANGS: &str = "still running after";
const HANGS_LIMIT: Duration = Duration::from_secs(12);

/// A line that does not pass.
#[derive(Debug)]
pub(crate) struct Difference {
    configurations: &'static [&'static str],
    /// Whole names, or prefixes that end with a star.
    lines: &'static [&'static str],
    /// Part of the text that reports the failure.
    pub(crate) message: &'static str,
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
const NO_QUEUE: &str = "libsiw refuses the queue at one offset of the device's file; OFA's \
                        provider reaches that offset within 48 endpoints";

const NO_BYTES: &str =
    "the tool registers a region of 0 bytes, which no RDMA device of the kernel accepts";

const DIFFERENCES: &[Difference] = &[
    Difference {
        configurations: OFA_ON_SIW,
        lines: &[
            "dtestsrq -c 100",
            "dtestcm plain",
            "dtestcm -m -c 100 -b 10",
            "dtestcm -w",
        ],
        message: "DAPL ERR create_qp Invalid argument",
        why: NO_QUEUE,
    },
    Difference {
        configurations: OFA_ON_SIW,
        lines: &["dapltest -T L -w 16 -m 1000 limit_evd"],
        message: "killed by signal 11",
        why: NO_QUEUE,
    },
    Difference {
        configurations: OFA_ON_SIW,
        lines: &[
            "dapltest -T L -w 8 -m 100 limit_ep",
            "dapltest -T L -w 16 -m 1000 limit_ep",
            "dapltest -T L -w 16 -m 1000 limit_rsp",
            "dapltest -T L -w 16 -m 1000 limit_psp",
            "dapltest -T L -w 16 -m 1000 limit_lmr",
            "dapltest -T L -w 16 -m 1000 limit_size_lmr",
            "dapltest -T L -w 16 -m 1000 limit_rpost",
        ],
        message: "DAPL ERR create_qp Invalid argument",
        why: NO_QUEUE,
    },
    Difference {
        configurations: OFA,
        lines: &["dtest -b 0*"],
        message: "DAPL ERR reg_mr Cannot allocate memory",
        why: NO_BYTES,
    },
    Difference {
        configurations: OFA_ON_RXE,
        lines: &["dtestx -q"],
        message: "open_hca",
        why: "OFA's provider warns when a program opens it only to query it, and Debian builds it \
              without counters",
    },
    Difference {
        configurations: OFA,
        lines: &["dtestsrq plain", "dtestsrq -c*", "dtestsrq -b*"],
        message: HANGS,
        why: "the tool waits for the event that an endpoint has left its SRQ; neither rdma_rxe nor \
              siw reports it",
    },
    Difference {
        configurations: OURS_ON_DEVICES,
        lines: &["dtest -b 0*"],
        message: "Error registering Receive RDMA buffer: DAT_INVALID_PARAMETER",
        why: NO_BYTES,
    },
    Difference {
        configurations: IB_ON_SIW,
        lines: &["dtestx -q"],
        message: "DAT_EXTENSION_INTERFACE=TRUE",
        why: "siw has neither atomics nor immediate data",
    },
    Difference {
        configurations: IB_ON_SIW,
        lines: &["dtestx*"],
        message: "IB extension not supported",
        why: "siw has neither atomics nor immediate data",
    },
    Difference {
        configurations: OFA,
        lines: &["dapltest -T F -f mem"],
        message: "failed in file",
        why: "OFA's provider passes a length of 0 to the device, and returns the device's error \
              instead of DAT_LENGTH_ERROR",
    },
    Difference {
        configurations: BELOW_OFAS_LIBRARY,
        lines: &["dapltest -T F -f queryinfo"],
        message: "killed by signal 11",
        why: "the tool passes the handle of an IA where another handle is required, and OFA's \
              library does not check it",
    },
    Difference {
        configurations: OFA_BELOW_OURS,
        lines: &["dapltest -T F -f queryinfo"],
        message: "dapl_fft_queryinfo.c, line 286",
        why: "the device has no memory windows, so OFA's provider cannot create an RMR",
    },
    Difference {
        configurations: &["ib-siw"],
        lines: &["dapltest -T F -f queryinfo"],
        message: "dapl_fft_queryinfo.c, line 286",
        why: "siw has no memory windows, and the tool creates an RMR",
    },
    Difference {
        configurations: OFA_ON_SIW,
        lines: &["dtestx -q"],
        message: "open_hca",
        why: "siw has neither atomics nor immediate data, and OFA's provider prints a warning when \
              a program queries them",
    },
    Difference {
        configurations: OFA_ON_SIW,
        lines: &["dtestx*"],
        message: "IB extension not supported",
        why: "siw has neither atomics nor immediate data, so OFA's provider offers no extension",
    },
];

/// Lines that pass or fail by chance, and the texts of their failures. Accepted results are a pass,
/// the listed failure, and a hang, because the other end may wait for the connection that broke.
const BY_CHANCE: &[Difference] = &[Difference {
    configurations: OFA_ON_SIW,
    lines: &["dapltest -T T*"],
    // The error of the test's connection, or of the connection for the server's quit command.
    message: "-reaping DTO problem",
    why: "by chance: over OFA's provider on siw some connections break at the first message of the \
          server",
}];

/// The row for a line on a configuration.
pub(crate) fn difference(configuration: &str, line: &str) -> Option<&'static Difference> {
    row(DIFFERENCES, configuration, line)
}

/// The row of a line that fails occasionally on a configuration.
pub(crate) fn by_chance(configuration: &str, line: &str) -> Option<&'static Difference> {
    row(BY_CHANCE, configuration, line)
}

fn row(
    rows: &'static [Difference],
    configuration: &str,
    line: &str,
) -> Option<&'static Difference> {
    rows.iter().find(|row| {
        row.configurations.contains(&configuration)
            && row.lines.iter().any(|pattern| is(line, pattern))
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
        (self.message == HANGS).then_some(HANGS_LIMIT)
    }
}
