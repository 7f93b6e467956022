//! Debian's programs, unmodified, under `opsrun`, for each choice of the sides that run under
//! `opsrun`.
//!
//! | File | Contents |
//! |---|---|
//! | [`arrangement`] | the sides that run under `opsrun` |
//! | [`scene`] | a network, a directory and the two sides of one test |
//! | [`case`] | a server and its clients, and the checks of their transport |
//! | [`differences`] | cases that do not pass, with the reason |
//! | [`redis`], [`nginx`], [`postgres`], [`memcached`], [`iperf`], [`curl`], [`python`] | the programs |
//! | [`daemons`] | servers that start their workers themselves, and relays |
//! | [`more`] | programs that pass or relay sockets, or have a runtime of their own |
//! | [`loops`] | event loops that use io_uring, and a supervisor |
//! | [`fetched`] | programs that Debian does not have |
//!
//! Each case is a test in each arrangement and with each protocol. Independent programs verify the
//! transferred data. The kernel counts the TCP connections to the server: there must be none if
//! both sides run under `opsrun`, and some otherwise.

mod arrangement;
mod case;
mod curl;
mod daemons;
mod differences;
mod fetched;
mod iperf;
mod loops;
mod memcached;
mod more;
mod nginx;
mod postgres;
mod python;
mod redis;
mod scene;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use stack_tests::{OffloadProtocol, is_full, not_run};

use crate::arrangement::Arrangement;
use crate::case::Case;
use crate::daemons::DAEMONS;
use crate::differences::difference;
use crate::loops::LOOPS;
use crate::more::{EXTRAS, Extra};

const CASES: &[&[Case]] = &[
    redis::CASES,
    nginx::CASES,
    postgres::CASES,
    memcached::CASES,
    iperf::CASES,
    curl::CASES,
    python::CASES,
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Most cases wait more than they compute.
    arguments.test_threads.get_or_insert(4);
    let mut trials = Vec::new();
    for case in CASES.iter().copied().flatten() {
        for protocol in OffloadProtocol::ALL {
            let all = Arrangement::ALL.iter();
            trials.extend(all.map(|arrangement| trial(case, protocol, *arrangement)));
        }
    }
    for extra in EXTRAS.iter().chain(DAEMONS).chain(LOOPS) {
        for protocol in OffloadProtocol::ALL.iter().filter(|it| extra.is_for(it)) {
            let all = Arrangement::ALL.iter();
            let of_extra = all.map(|arrangement| extra_trial(extra, protocol, *arrangement));
            trials.extend(of_extra);
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The trial of a program that is not on every machine. Heavy ones are not part of short runs.
fn extra_trial(
    extra: &'static Extra,
    protocol: &'static OffloadProtocol,
    arrangement: Arrangement,
) -> Trial {
    let is_left_out = extra.is_heavy && !is_full();
    trial_unless(&extra.case, protocol, arrangement, || extra.missing())
        .with_ignored_flag(is_left_out)
}

fn trial(
    case: &'static Case,
    protocol: &'static OffloadProtocol,
    arrangement: Arrangement,
) -> Trial {
    trial_unless(case, protocol, arrangement, || None)
}

/// The trial of a case, which is not run if a program is missing.
fn trial_unless(
    case: &'static Case,
    protocol: &'static OffloadProtocol,
    arrangement: Arrangement,
    missing: impl FnOnce() -> Option<&'static str> + Send + 'static,
) -> Trial {
    let differs = difference(case.name, protocol, arrangement);
    let place = format!("{}, {arrangement}", protocol.name);
    let name = match differs {
        None => format!("{place}: {}", case.name),
        Some(row) => format!("{place}: {}, differs: {}", case.name, row.why),
    };
    Trial::test(name, move || {
        if let Some(program) = missing() {
            not_run(&format!("{program} is not installed"));
            return Ok(());
        }
        let result = case.run(protocol, arrangement);
        let result = match differs {
            None => result,
            Some(row) => row.shows(result),
        };
        result.map_err(|error| Failed::from(format!("{error:#}")))
    })
}
