//! OFA's own test programs, unmodified, as Debian ships them, over our `libdat2.so.2` and provider.
//!
//! The lines are tables, one test a line, each with both of its programs in a network of its own.
//! Exit statuses say little (dtest exits with 0 after many failures), so both sides are judged by
//! what they print. `STACK_TESTS_FULL=1` runs the iteration counts of OFA's regression lists and
//! the lines that say nothing new, and tells how long each took.
//!
//! | File | Holds |
//! |---|---|
//! | `line` | a line, what it should come to, how it becomes a test |
//! | `dapltest` | transactions, performance, limits, functions |
//! | `dtest` | dtest, and the cross product of its options |
//! | `family` | dtestcm, dtestsrq, dtestx |
//! | `registries` | OFA's library with our provider, either's headers with either's library |

mod dapltest;
mod dtest;
mod family;
mod line;
mod registries;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Most lines wait more than they compute; the long forms do not.
    let threads = if line::is_full() { 2 } else { 6 };
    arguments.test_threads.get_or_insert(threads);
    let trials = [
        dapltest::trials(),
        dtest::trials(),
        family::trials(),
        registries::trials(),
    ];
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit_code()
}
