//! What needs the kernel's own RDMA devices, inside the guest that `cargo xtask vm` boots.
//!
//! All tests share one boot. `tests/vm/README.md` says what the guest has.
//!
//! | File | Holds |
//! |---|---|
//! | `jobs` | the scripts of `tests/vm/jobs`, one test each |

mod jobs;

use std::fs;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use libtest_mimic::Arguments;

/// The host's name in the guest.
const GUEST: &str = "guest";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Devices, ports and two slow processors are shared.
    arguments.test_threads.get_or_insert(1);
    match in_guest().and_then(|()| jobs::trials()) {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// These tests load modules and take devices away: not on somebody's machine.
fn in_guest() -> Result<()> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
    ensure!(name.trim() == GUEST, "run `cargo xtask test --only guest`");
    Ok(())
}
