//! Programs under `libops-preload.so` whose peers die, stop and fill up, in crowds and without
//! descriptors: nothing is lost, hangs or is left behind.
//!
//! | File | What |
//! |---|---|
//! | [`ends`] | a peer is killed or stopped |
//! | [`volume`] | full buffers on both sides, and many bytes |
//! | [`fall_back`] | TCP where the peer, or what lies between, is not as it should be |
//! | [`cable`] | a cable between two networks that loses, holds up, is cut, and a peer that stands still |
//! | [`crowds`] | a thousand connections, ten thousand one after the other, no descriptors |
//! | [`apart`] | processes under the library, one line of text for each thing that they did |
//! | [`parts`] | what those processes do |
//! | [`stream`] | bytes that say where they belong |
//!
//! Each process is this suite again, started with the library in front. All of it with each offload
//! protocol.

mod apart;
mod cable;
mod crowds;
mod ends;
mod fall_back;
mod parts;
mod stream;
mod volume;

use std::env;
use std::process::ExitCode;

use anyhow::Result;
use libtest_mimic::{Arguments, Trial};
use stack_tests::OffloadProtocol;

/// One test.
type Test = fn(&'static OffloadProtocol) -> Result<()>;

fn main() -> ExitCode {
    if let Ok(part) = env::var(apart::PART) {
        return match parts::play(&part) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                println!("failed: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let tests: [(&str, Test); 9] = [
        (
            "ends::a_killed_sender_is_seen",
            ends::a_killed_sender_is_seen,
        ),
        (
            "ends::a_killed_receiver_is_seen",
            ends::a_killed_receiver_is_seen,
        ),
        (
            "ends::a_stopped_peer_loses_nothing",
            ends::a_stopped_peer_loses_nothing,
        ),
        (
            "ends::a_stopped_peer_can_be_killed",
            ends::a_stopped_peer_can_be_killed,
        ),
        ("volume::both_sides_full", volume::both_sides_full),
        ("volume::many_bytes", volume::many_bytes),
        (
            "crowds::a_thousand_connections",
            crowds::a_thousand_connections,
        ),
        (
            "crowds::thousands_one_after_the_other",
            crowds::thousands_one_after_the_other,
        ),
        ("crowds::without_descriptors", crowds::without_descriptors),
    ];
    let mut trials = Vec::new();
    for protocol in OffloadProtocol::ALL {
        trials.extend(tests.iter().map(|(name, test)| {
            let test = *test;
            Trial::test(format!("{}: {name}", protocol.name), move || {
                test(protocol).map_err(|error| format!("{error:#}").into())
            })
        }));
    }
    // What falls back from a peer's answer, and what leaves the host, is SDP.
    for protocol in OffloadProtocol::ALL.iter().filter(|one| one.is_sdp) {
        let name = "fall_back::another_version_is_told_ours";
        trials.push(Trial::test(format!("{}: {name}", protocol.name), || {
            fall_back::another_version_is_told_ours(protocol)
                .map_err(|error| format!("{error:#}").into())
        }));
        trials.extend(cable::TESTS.iter().map(|(name, test)| {
            Trial::test(format!("{}: cable::{name}", protocol.name), move || {
                test(protocol).map_err(|error| format!("{error:#}").into())
            })
        }));
        trials.extend(fall_back::CASES.iter().map(|case| {
            let name = format!("{}: fall_back::{}", protocol.name, case.name);
            Trial::test(name, move || {
                case.run(protocol)
                    .map_err(|error| format!("{error:#}").into())
            })
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
