//! Tests that need the kernel's own RDMA devices, inside the guest that `cargo xtask vm` boots.
//!
//! All tests share one boot. `tests/vm/README.md` describes the guest.
//!
//! | File | Contents |
//! |---|---|
//! | `jobs` | the scripts of `tests/vm/jobs`, one test each |
//! | `lines` | OFA's programs, one test per command line and configuration |
//! | `configuration` | the configurations: which library, which provider, which device |
//! | `conformance` | `dat-conformance`, one test per configuration |
//! | `together` | several providers and devices in use in one process |
//! | `differences` | the lines that do not pass, with the reason |
//! | `times` | the time that each test takes |

mod configuration;
mod conformance;
mod differences;
mod jobs;
mod lines;
mod times;
mod together;

use std::fs;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use libtest_mimic::{Arguments, Trial};

/// The host's name in the guest.
const GUEST: &str = "guest";

fn main() -> ExitCode {
    if let Some(status) = together::main() {
        return status;
    }
    let mut arguments = Arguments::from_args();
    // The tests share devices, ports and two slow processors.
    arguments.test_threads.get_or_insert(1);
    // Listing runs no test.
    let ready = if arguments.list { Ok(()) } else { in_guest() };
    match ready.and_then(|()| trials()) {
        Ok(trials) => {
            let conclusion = libtest_mimic::run(&arguments, trials);
            lines::report_retries();
            times::report_longest();
            conclusion.exit_code()
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn trials() -> Result<Vec<Trial>> {
    let mut trials = jobs::trials()?;
    trials.push(together::trial());
    trials.extend(conformance::trials());
    trials.extend(lines::trials());
    Ok(trials)
}

/// These tests load modules and remove devices, so they must not run on a user's machine.
fn in_guest() -> Result<()> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
    ensure!(name.trim() == GUEST, "run `cargo xtask test --only guest`");
    Ok(())
}
