//! dtestcm, dtestsrq and dtestx: connections by the thousand, shared receive queues, and the
//! operations of the InfiniBand extension.

use anyhow::Result;

use super::Case;
use super::line::{Line, Pair, deadline, line, no_complaint};
use crate::{Finished, IA_NAME, StackEnv};

/// The port on which dtestcm and dtestx exchange addresses before DAT begins.
const EXCHANGE_PORT: u16 = 15828;

/// The service point of dtestsrq, which exchanges no addresses before DAT begins.
const SRQ_PORT: u16 = 45248;

const CONNECTIONS: &[Line] = &[
    line("-c 1", "-c 1"),
    line("-c 10 -b 10", "-c 10 -b 10"),
    line("plain", ""),
    line("-m -c 100 -b 10", "-m -c 100 -b 10"),
    line("-w", "-w"),
];

const SHARED_RECEIVES: &[Line] = &[
    line("plain", ""),
    line("-c 10", "-c 10"),
    line("-c 10 -B 8 -t 10", "-c 10 -B 8 -t 10"),
    line("-S 0 -c 4", "-S 0 -c 4"),
    line("-b 4096", "-b 4096"),
    line("-c 100", "-c 100"),
];

const EXTENSION: &[Line] = &[
    line("plain", ""),
    line("-v", "-v"),
    line("-b 4096", "-b 4096"),
    line("-p", "-p"),
];

/// The line that dtestx prints when it passed.
const EXTENSION_PASSED: &str = "IB extension test - immed/atomic test PASSED";

/// Names of counters in the output of `dtestx -p`.
const COUNTER_NAMES: &[&str] = &[
    "DCNT_IA_ASYNC_ERROR",
    "DCNT_IA_ASYNC_QP_ERROR",
    "DCNT_IA_ASYNC_CQ_ERROR",
];

/// A set of attributes with one of each kind that `dtestx -q` prints.
const ATTRIBUTES: &[&str] = &[
    "DAT_EXTENSION_INTERFACE=TRUE",
    "DAT_IB_FETCH_AND_ADD=TRUE",
    "DAT_IB_CMP_AND_SWAP=TRUE",
    "DAT_IB_IMMED_DATA=TRUE",
    "DAT_COUNTERS=TRUE",
];

/// All cases of the three programs.
pub(super) fn cases() -> Vec<Case> {
    let tables: [(&'static str, &[Line], u16, &'static str); 3] = [
        (
            "dtestcm",
            CONNECTIONS,
            EXCHANGE_PORT,
            "DAPL Connection Test Complete.",
        ),
        ("dtestsrq", SHARED_RECEIVES, SRQ_PORT, "SRQ Test Complete."),
        ("dtestx", EXTENSION, EXCHANGE_PORT, EXTENSION_PASSED),
    ];
    let mut cases = vec![Case::new("dtestx -q", query)];
    for (tool, lines, port, success) in tables {
        cases.extend(lines.iter().map(|line| {
            line.case(tool, move |env, options| {
                let pair = Pair {
                    env,
                    tool,
                    port,
                    options,
                };
                pair.works(success, COUNTER_NAMES)
            })
        }));
    }
    cases
}

/// Checks the attributes alone, without a peer.
fn query(env: &StackEnv) -> Result<()> {
    let program = env
        .program("dtestx")
        .args_line(&format!("-P {IA_NAME} -s -q"));
    let mut finished = program
        .spawn()?
        .finish(deadline(env))
        .and_then(no_complaint)?;
    for attribute in ATTRIBUTES {
        finished = finished.prints(attribute)?;
    }
    Finished::success(finished)?;
    Ok(())
}
