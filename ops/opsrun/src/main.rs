//! Runs a program whose sockets may leave TCP, or tells what would become of one.
//!
//! - `args.rs` the command line
//! - `explain.rs` a decision, asked of the switch and printed
//! - `start.rs` a program, with the library in front of its C library

mod args;
mod explain;
mod start;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use ops_rules::{Loaded, Source};

use crate::args::Args;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.explain {
        Some(role) => explain::run(&args, role).map(|text| {
            print!("{text}");
            ExitCode::SUCCESS
        }),
        None => start::run(&args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("opsrun: {error:#}");
        ExitCode::FAILURE
    })
}

/// The rule file that is in force.
fn load_rules(args: &Args) -> Result<Loaded> {
    let source = match &args.rules {
        Some(path) => Source::Named(path.clone()),
        None => Source::choose(|name| std::env::var_os(name), false),
    };
    Ok(source.load()?)
}
