//! Programs under `libops-preload.so` whose peers die, stop and fill up, in crowds and without
//! descriptors: nothing is lost, hangs or is left behind.
//!
//! | File | What |
//! |---|---|
//! | [`ends`] | a peer is killed or stopped |
//! | [`volume`] | full buffers on both sides, and many bytes |
//! | [`crowds`] | a thousand connections, ten thousand one after the other, no descriptors |
//! | [`apart`] | processes under the library, one line of text for each thing that they did |
//! | [`parts`] | what those processes do |
//! | [`stream`] | bytes that say where they belong |
//!
//! Each process is this suite again, started with the library in front. The connections are carried
//! by the protocol that is there for tests.

mod apart;
mod crowds;
mod ends;
mod parts;
mod stream;
mod volume;

use std::env;
use std::process::ExitCode;

use anyhow::Result;
use libtest_mimic::{Arguments, Trial};

/// One test.
type Test = fn() -> Result<()>;

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
    let trials = tests
        .into_iter()
        .map(|(name, test)| {
            Trial::test(name, move || {
                test().map_err(|error| format!("{error:#}").into())
            })
        })
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
