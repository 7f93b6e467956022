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

/// Declares differences: the configurations, the lines, the message and the reason.
macro_rules! differences {
    ($($configurations:expr; $($line:literal),+ => $message:expr, $why:expr;)+) => {
        &[$(Difference {
            configurations: $configurations,
            lines: &[$($line),+],
            message: $message,
            why: $why,
        }),+]
    };
}

const DIFFERENCES: &[Difference] = differences! {
    OFA_ON_SIW; "dtestsrq -c 100", "dtestcm plain", "dtestcm -m -c 100 -b 10", "dtestcm -w"
        => "DAPL ERR create_qp Invalid argument", NO_QUEUE;
    OFA_ON_SIW; "dapltest -T L -w 16 -m 1000 limit_evd" => "killed by signal 11", NO_QUEUE;
    OFA_ON_SIW;
        "dapltest -T L -w 8 -m 100 limit_ep", "dapltest -T L -w 16 -m 1000 limit_ep",
        "dapltest -T L -w 16 -m 1000 limit_rsp", "dapltest -T L -w 16 -m 1000 limit_psp",
        "dapltest -T L -w 16 -m 1000 limit_lmr", "dapltest -T L -w 16 -m 1000 limit_size_lmr",
        "dapltest -T L -w 16 -m 1000 limit_rpost"
        => "DAPL ERR create_qp Invalid argument", NO_QUEUE;
    OFA; "dtest -b 0*" => "DAPL ERR reg_mr Cannot allocate memory", NO_BYTES;
    OFA_ON_RXE; "dtestx -q"
        => "open_hca",
        "OFA's provider warns when a program opens it only to query it, and Debian builds it \
         without counters";
    OFA; "dtestsrq plain", "dtestsrq -c*", "dtestsrq -b*"
        => HANGS,
        "the tool waits for the event that an endpoint has left its SRQ; neither rdma_rxe nor \
         siw reports it";
    OURS_ON_DEVICES; "dtest -b 0*"
        => "Error registering Receive RDMA buffer: DAT_INVALID_PARAMETER", NO_BYTES;
    IB_ON_SIW; "dtestx -q"
        => "DAT_EXTENSION_INTERFACE=TRUE", "siw has neither atomics nor immediate data";
    IB_ON_SIW; "dtestx*"
        => "IB extension not supported", "siw has neither atomics nor immediate data";
    OFA; "dapltest -T F -f mem"
        => "failed in file",
        "OFA's provider passes a length of 0 to the device, and returns the device's error \
         instead of DAT_LENGTH_ERROR";
    BELOW_OFAS_LIBRARY; "dapltest -T F -f queryinfo"
        => "killed by signal 11",
        "the tool passes the handle of an IA where another handle is required, and OFA's \
         library does not check it";
    OFA_BELOW_OURS; "dapltest -T F -f queryinfo"
        => "dapl_fft_queryinfo.c, line 286",
        "the device has no memory windows, so OFA's provider cannot create an RMR";
    &["ib-siw"]; "dapltest -T F -f queryinfo"
        => "dapl_fft_queryinfo.c, line 286",
        "siw has no memory windows, and the tool creates an RMR";
    OFA_ON_SIW; "dtestx -q"
        => "open_hca",
        "siw has neither atomics nor immediate data, and OFA's provider prints a warning when \
         a program queries them";
    OFA_ON_SIW; "dtestx*"
        => "IB extension not supported",
        "siw has neither atomics nor immediate data, so OFA's provider offers no extension";
};

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
