//! OFA's own test programs, unmodified, as Debian ships them, over the staged `libdat2.so.2` and
//! provider.
//!
//! Each line of [`stack_tests::ofa_tools`] is a test, whose two programs run in a network of their
//! own. A full run reports the time of each test. `registries` combines libraries of different
//! origin: OFA's library with the staged provider, and each set of headers with each library.

mod registries;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use stack_tests::ofa_tools::{self, Case, When};
use stack_tests::{StackEnv, is_full};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Most quick tests wait most of their time. The long forms keep the processors busy.
    let threads = if is_full() { 2 } else { 6 };
    arguments.test_threads.get_or_insert(threads);
    let lines = ofa_tools::cases().into_iter().map(line);
    libtest_mimic::run(&arguments, lines.chain(registries::trials()).collect()).exit_code()
}

fn line(case: Case) -> Trial {
    let is_run = match case.when() {
        When::Quick => true,
        When::Full => is_full(),
        When::Never => false,
    };
    let name = case.name().to_owned();
    trial(&name, move || case.run(&StackEnv::new()?)).with_ignored_flag(!is_run)
}

/// A test that reports its time in a full run.
fn trial(name: &str, run: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    let label = name.to_owned();
    Trial::test(name, move || {
        let begun = Instant::now();
        let result = run().map_err(|error| Failed::from(format!("{error:#}")));
        if is_full() {
            eprintln!("{label}: {:.1} s", begun.elapsed().as_secs_f64());
        }
        result
    })
}
