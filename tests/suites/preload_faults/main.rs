//! Programs under `libops-preload.so` whose peers die, stop and fill up, with many connections and
//! without descriptors: no data is lost, no program hangs, and no resource is leaked.
//!
//! | File | Contents |
//! |---|---|
//! | [`ends`] | a peer is killed or stopped |
//! | [`in_place`] | long sends and receives that are not copied |
//! | [`long_reads`], [`long_sends`] | the programs that make them |
//! | [`volume`] | full buffers on both sides, and many bytes |
//! | [`fall_back`] | TCP where the peer, or the network, is faulty |
//! | [`cable`] | a cable between two networks that loses and delays packets, is cut, and a peer that is stopped |
//! | [`crowds`] | a thousand connections, ten thousand one after the other, no descriptors |
//! | [`process`] | processes under the library, which print one line for each event |
//! | [`roles`] | the programs of those processes |
//! | [`stream`] | byte patterns that show their position |
//!
//! Each process is a second instance of this suite with the library preloaded. The tests of
//! `fall_back`, `in_place` and `cable` run with SDP, all others with each offload protocol.

mod cable;
mod crowds;
mod ends;
mod fall_back;
mod in_place;
mod long_reads;
mod long_sends;
mod process;
mod roles;
mod stream;
mod volume;

use std::env;
use std::process::ExitCode;

use anyhow::Result;
use libtest_mimic::{Arguments, Trial};
use stack_tests::{OffloadProtocol, rows};

type Test = fn(&'static OffloadProtocol) -> Result<()>;

fn main() -> ExitCode {
    if let Ok(role) = env::var(process::ROLE) {
        return match roles::run(&role) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                println!("failed: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let tests: [(&str, Test); 9] = rows! {
        "ends::a_killed_sender_is_seen", ends::a_killed_sender_is_seen;
        "ends::a_killed_receiver_is_seen", ends::a_killed_receiver_is_seen;
        "ends::a_stopped_peer_loses_nothing", ends::a_stopped_peer_loses_nothing;
        "ends::a_stopped_peer_can_be_killed", ends::a_stopped_peer_can_be_killed;
        "volume::both_sides_full", volume::both_sides_full;
        "volume::many_bytes", volume::many_bytes;
        "crowds::a_thousand_connections", crowds::a_thousand_connections;
        "crowds::thousands_of_connections_in_turn", crowds::thousands_of_connections_in_turn;
        "crowds::without_descriptors", crowds::without_descriptors;
    };
    let mut trials = Vec::new();
    for protocol in OffloadProtocol::ALL {
        trials.extend(tests.iter().map(|(name, test)| {
            let test = *test;
            Trial::test(format!("{}: {name}", protocol.name), move || {
                test(protocol).map_err(|error| format!("{error:#}").into())
            })
        }));
    }
    // Only SDP falls back after a peer's answer, and only SDP leaves the host.
    for protocol in OffloadProtocol::ALL.iter().filter(|one| one.is_sdp) {
        trials.extend(fall_back::TESTS.iter().map(|(name, test)| {
            Trial::test(format!("{}: fall_back::{name}", protocol.name), move || {
                test(protocol).map_err(|error| format!("{error:#}").into())
            })
        }));
        trials.extend(in_place::TESTS.iter().map(|(name, test)| {
            Trial::test(format!("{}: in_place::{name}", protocol.name), move || {
                test(protocol).map_err(|error| format!("{error:#}").into())
            })
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
