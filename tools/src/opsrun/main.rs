//! Runs a program whose TCP connections are offloaded where possible, explains the choice for one
//! socket, or lists the sockets of all such programs.
//!
//! - `tool_args::opsrun` the command line
//! - `columns.rs` text in aligned columns
//! - `explain.rs` the explanation of a decision
//! - `launch.rs` the start of a program with the libraries that are installed with `opsrun`
//! - `ss.rs` the command `ss`: `listing.rs` reads the sockets of all programs from their pages and
//!   from the kernel's tables, `sockets.rs` prints them, with the counters of `mechanisms.rs`;
//!   `watch.rs` prints them at intervals, `openmetrics.rs` as metrics, and `statistics.rs` their
//!   sums next to the kernel's
//! - `reach.rs` programs into which the library cannot be loaded
//! - `start.rs` starts a program with the library loaded before its C library

mod columns;
mod explain;
mod launch;
mod listing;
mod mechanisms;
mod openmetrics;
mod reach;
mod sockets;
mod ss;
mod start;
mod statistics;
mod watch;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use ops::rules::{Loaded, Source};
use tool_args::opsrun::{Args, Command};

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match (&args.command, args.explain) {
        (Some(Command::Ss(how)), _) => ss::run(*how),
        (None, Some(role)) => {
            let printed = explain::run(&args, role).and_then(|text| ss::print(&text));
            end_now(report(printed) == ExitCode::SUCCESS)
        }
        (None, None) => start::run(&args),
    };
    report(done)
}

fn report(done: Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        eprintln!("opsrun: {error:#}");
        ExitCode::FAILURE
    })
}

/// Ends the process without the destructors of libraries. Those of another vendor's provider free
/// objects that the threads of an open adapter use.
fn end_now(is_success: bool) -> ! {
    // SAFETY: the call takes a number. All output has been written.
    unsafe { nix::libc::_exit((!is_success).into()) }
}

/// Loads the rule file that is in force.
fn load_rules(args: &Args) -> Result<Loaded> {
    let source = match &args.rules {
        Some(path) => Source::Named {
            path: path.clone(),
            by: "--rules",
        },
        None => Source::choose(host::environment::variable),
    };
    let known = [ops_local_protocol::SETTINGS, ops_sdp_protocol::SETTINGS].concat();
    Ok(source.load(&known)?)
}
