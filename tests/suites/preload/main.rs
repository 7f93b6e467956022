//! Unchanged programs under `libops-preload.so`: an offloaded socket behaves like a TCP socket.
//!
//! | File | Contents |
//! |---|---|
//! | [`walk`] | an offloaded pair and a TCP pair, the same random calls on both |
//! | [`pair`], [`step`], [`when_full`] | the pairs, and the calls on them |
//! | [`scripts`] | third-party programs in the form of scripts, and programs that fork |
//! | [`left_waits`] | threads that do not return from a wait |
//! | [`as_over_tcp`] | programs that rely on details of TCP sockets |
//! | [`past_library`] | programs that use descriptors by io_uring, Linux AIO and system call instructions |
//! | [`foreign`] | offload protocols in shared objects |
//! | [`unseen_listeners`] | servers that wait or accept past the library |
//!
//! The tests run with each offload protocol, except for those of connections within the host, which
//! run with `local`. Each walk is a separate process: a second instance of
//! this suite with the library preloaded.

mod as_over_tcp;
mod foreign;
mod left_waits;
mod pair;
mod past_library;
mod scripts;
mod step;
mod unseen_listeners;
mod walk;
mod when_full;

use std::env;
use std::process::ExitCode;

use anyhow::{Context, Result};
use libtest_mimic::{Arguments, Trial};
use stack_tests::OffloadProtocol;

/// The variable with the seed of this process's walk. A process without the variable is the suite.
const WALK: &str = "PRELOAD_WALK";
/// The number of walks, each with its own seed.
const WALKS: u64 = 12;
/// The number of walks that fork.
const FORKING_WALKS: u64 = 6;
/// Seeds of walks that have found a fault: a reset or a broken connection after the peer's end, and
/// signals that were handled as bytes after both sides had ended.
const FOUND: [u64; 3] = [203, 205, 212];

fn main() -> ExitCode {
    if let Ok(seed) = env::var(WALK) {
        return walk::run(seed.parse().unwrap_or(1));
    }
    let mut trials = Vec::new();
    for protocol in OffloadProtocol::ALL {
        trials.extend(walks().into_iter().map(|seed| {
            let kind = if seed < walk::FORKING {
                "seed"
            } else {
                "forking"
            };
            trial(protocol, format!("walk::{kind}_{seed}"), move || {
                run_walk(protocol, seed)
            })
        }));
        trials.extend(left_waits::CASES.into_iter().map(|case| {
            trial(protocol, format!("left_waits::{case}"), move || {
                left_waits::run(protocol, case)
            })
        }));
        let is_local = protocol.name == "local";
        let cases = as_over_tcp::CASES.into_iter();
        let cases = cases.filter(|(_, is_within_host)| is_local || !is_within_host);
        trials.extend(cases.map(|(case, _)| {
            trial(protocol, format!("as_over_tcp::{case}"), move || {
                as_over_tcp::run(protocol, case)
            })
        }));
        trials.push(trial(protocol, "scripts::at_another_time".into(), || {
            scripts::run_at_other_time(protocol)
        }));
        trials.extend(past_library::CASES.into_iter().map(|case| {
            let name = format!("past_library::{}", case.join("_"));
            trial(protocol, name, move || past_library::run(protocol, case))
        }));
        trials.extend(unseen_listeners::CASES.into_iter().map(|case| {
            trial(protocol, format!("unseen_listeners::{case}"), move || {
                unseen_listeners::run(protocol, case)
            })
        }));
        trials.push(trial(
            protocol,
            "as_over_tcp::under_valgrind".into(),
            || as_over_tcp::run_under_valgrind(protocol),
        ));
        let foreign = foreign::cases().filter(|_| is_local);
        trials.extend(foreign.map(|(case, run)| trial(protocol, format!("foreign::{case}"), run)));
        let kinds = [
            ("scripts", scripts::all().collect::<Vec<_>>()),
            ("forking", scripts::forking().collect()),
            ("within", scripts::local().filter(|_| is_local).collect()),
            (
                "between",
                scripts::between().filter(|_| !is_local).collect(),
            ),
        ];
        for (kind, all) in kinds {
            trials.extend(all.into_iter().map(|script| {
                trial(protocol, format!("{kind}::{}", script.name), move || {
                    script.run(protocol)
                })
            }));
        }
    }
    let mut arguments = Arguments::from_args();
    // Most tests wait more than they compute.
    arguments.test_threads.get_or_insert(4);
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn walks() -> Vec<u64> {
    let forking = (walk::FORKING..walk::FORKING + FORKING_WALKS).chain(FOUND);
    (1..=WALKS).chain(forking).collect()
}

fn trial(
    protocol: &OffloadProtocol,
    name: String,
    test: impl FnOnce() -> Result<()> + Send + 'static,
) -> Trial {
    Trial::test(format!("{}: {name}", protocol.name), move || {
        test().map_err(|error| format!("{error:#}").into())
    })
}

/// Runs one walk in a process under the library.
fn run_walk(protocol: &'static OffloadProtocol, seed: u64) -> Result<()> {
    let program = env::current_exe().context("finding this suite")?;
    scripts::run(protocol, program, |command| {
        command.env(WALK, seed.to_string());
    })
}
