//! Unchanged programs under `libops-preload.so`: what they see of an offloaded socket is what they
//! would see of a TCP socket.
//!
//! | File | What |
//! |---|---|
//! | [`walk`] | an offloaded pair and a TCP pair beside it, the same random calls on both |
//! | [`pair`], [`step`] | the pairs, and what is done to them |
//! | [`scripts`] | programs of others that are given as scripts, and those that fork |
//!
//! The connections are carried by the protocol that the library has for tests. Each walk is a
//! process of its own: this suite, started again with the library in front.

mod pair;
mod scripts;
mod step;
mod walk;

use std::env;
use std::process::ExitCode;

use anyhow::{Context, Result};
use libtest_mimic::{Arguments, Trial};
use stack_tests::Stage;

/// Which walk this process is; without it, it is the suite.
const WALK: &str = "PRELOAD_WALK";
/// Walks, each with a seed of its own.
const WALKS: u64 = 12;
/// Those that fork.
const FORKING_WALKS: u64 = 6;
/// Walks that have found something: a reset behind the peer's end, a break behind it, and signals
/// taken for bytes where both sides have ended.
const FOUND: [u64; 3] = [203, 205, 212];

fn main() -> ExitCode {
    if let Ok(seed) = env::var(WALK) {
        return walk::run(seed.parse().unwrap_or(1));
    }
    let mut trials: Vec<Trial> = (1..=WALKS)
        .map(|seed| trial(format!("walk::seed_{seed}"), move || walk_apart(seed)))
        .collect();
    let forking = (walk::FORKING..walk::FORKING + FORKING_WALKS).chain(FOUND);
    trials.extend(
        forking.map(|seed| trial(format!("walk::forking_{seed}"), move || walk_apart(seed))),
    );
    trials.extend(
        scripts::all()
            .into_iter()
            .map(|script| trial(format!("scripts::{}", script.name), move || script.run())),
    );
    trials.extend(
        scripts::forking()
            .map(|script| trial(format!("forking::{}", script.name), move || script.run())),
    );
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(name: String, test: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    Trial::test(name, move || {
        test().map_err(|error| format!("{error:#}").into())
    })
}

/// Runs one walk under the library.
fn walk_apart(seed: u64) -> Result<()> {
    let program = env::current_exe().context("finding this suite")?;
    let mut command = scripts::preloaded(&Stage::find()?, &program)?;
    command.env(WALK, seed.to_string());
    scripts::finish(command)
}
