//! Runs a program written to verbs with the libraries of this project in place of rdma-core's.
//!
//! - `tool_args::verbsrun` the command line
//! - `devices.rs` the devices that the library shows
//! - `launch.rs` the start of a program with installed libraries, shared with `opsrun`
//! - `reach.rs` programs into which the library cannot be loaded, shared with `opsrun`

mod devices;
#[path = "../opsrun/launch.rs"]
mod launch;
#[path = "../opsrun/reach.rs"]
mod reach;

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Parser;
use tool_args::say;
use tool_args::terminal::print;
use tool_args::verbsrun::Args;

const LIBRARY: &str = "libibverbs.so.1";

/// The library that shows device files to programs that check for them.
const DEVICE_FILES: &str = "libverbs-devices.so";

/// The variables that the loader reads.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
const PRELOAD: &str = "LD_PRELOAD";

/// The places of the libraries below a directory of libraries: those of a package, and those of the
/// stage.
const PLACES: [&str; 2] = ["dat-rs/verbs", "verbs"];

fn main() -> ExitCode {
    run(&Args::parse()).unwrap_or_else(|error| {
        eprintln!("verbsrun: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(args: &Args) -> Result<ExitCode> {
    let own = std::env::current_exe().context("finding verbsrun itself")?;
    let directory = launch::directory_of(LIBRARY, &own, &PLACES)?;
    if args.devices {
        print(devices::list(&directory.join(LIBRARY))?);
        return Ok(ExitCode::SUCCESS);
    }
    let (program, rest) = args.words.split_first().context("no program was given")?;
    let why_not = reach::reason_against(program);
    if args.explain {
        say!("libraries: {}", directory.display());
        match why_not {
            Some(why) => say!("{}: not reached, because {why}", program.display()),
            None => say!("{}: finds the libraries", program.display()),
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(why) = why_not {
        let program = program.display();
        eprintln!("verbsrun: warning: {program} runs without the libraries, because {why}");
    }
    let path = launch::listed_first(&directory, host::environment::variable(LIBRARY_PATH), b":;")?;
    let device_files = directory.join(DEVICE_FILES);
    let preload = host::environment::variable(PRELOAD);
    let preload = launch::listed_first(&device_files, preload, b": ")?;
    let mut command = Command::new(program);
    command.args(rest).env(LIBRARY_PATH, path);
    command.env(PRELOAD, preload);
    Ok(launch::execute(&mut command, "verbsrun"))
}
