//! Latency and bandwidth of DAT, and of SDP streams over DAT, compared with raw TCP, in the same
//! run and over the same network.
//!
//! Two processes on this machine, each bound to one CPU, hold one TCP connection and the
//! connections of one contender. Every round measures raw TCP, the contender, and raw TCP again, so
//! that a disturbance of the machine affects both. A ratio belongs to one round. If the program has
//! the right to, it runs in a network namespace of its own, where the congestion control is reno on
//! both connections. Some machines use bbr by default, which paces even on loopback, so that a
//! figure would show only the pacing. For the rows over virtual Ethernet the second process runs in
//! a namespace of its own too.
//!
//! - `tool_args::bench` the command line, the cases that can be measured, and those of the table;
//!   `sweep.rs` the cases of a range of sizes
//! - `session.rs` one wire; `measure.rs` rounds and medians; `report.rs` the table; `results.rs`
//!   rows as JSON and CSV, `files.rs` the files with them; `progress.rs` the bar on a terminal
//! - `hosts` measurements between two hosts; `laps.rs` the times of single operations
//! - `raw.rs`, `framed.rs`, `dat`, `sdp.rs` both sides of a sample, one file per stack;
//!   `contender.rs` a choice of `dat` and `sdp.rs`
//! - `second.rs` the second process; `control.rs` the control protocol of the two processes
//! - `setup.rs` network, registry, CPUs; `net_space.rs` a network namespace; `cable.rs` the second
//!   network; `load.rs` the load by other processes; `syscalls.rs` the count of system calls;
//!   `clock.rs` the clock that both processes read

mod cable;
mod clock;
mod contender;
mod control;
mod dat;
mod files;
mod framed;
mod hosts;
mod laps;
mod load;
mod measure;
mod net_space;
mod progress;
mod raw;
mod report;
mod results;
mod sdp;
mod second;
mod session;
mod setup;
mod sweep;
mod syscalls;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use tool_args::bench::case::{Case, Stack, Wire};
use tool_args::bench::rows::{ALL, QUICK};
use tool_args::bench::{Args, Contender};

use crate::control::Channel;
use crate::files::Files;
use crate::measure::Plan;
use crate::progress::Progress;
use crate::session::Session;
use crate::setup::Environment;

fn main() -> ExitCode {
    let args = Args::parse();
    let (outcome, report): (_, fn(&str)) = match &args.serve {
        Some(found) => (second::serve(&args, found), report_to_first_process),
        None => (run(&args), |why| eprintln!("dat-bench: {why}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&format!("{error:#}").replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

/// Reports a failure of the second process to the first one.
fn report_to_first_process(why: &str) {
    if Channel::of_child().send(&format!("failed {why}")).is_err() {
        eprintln!("dat-bench, second process: {why}");
    }
}

fn run(args: &Args) -> Result<()> {
    match &args.host {
        _ if args.server => hosts::serve(args),
        Some(host) => hosts::lead(args, host, &rows(args)?, plan(args)),
        None => lead(args),
    }
}

/// Runs the first process: prepares the network, then measures wire after wire.
fn lead(args: &Args) -> Result<()> {
    let plan = plan(args);
    let rows = rows(args)?;
    // A file that cannot be written is reported before the measurement.
    let mut files = Files::create(args.json.as_deref(), args.csv.as_deref(), plan)?;
    let environment = Environment::prepare(args.no_namespace, args.ia.as_deref())?;
    let trace_point = setup::own_trace_points();
    let cpus = setup::cpus()?;
    setup::pin(cpus.ours)?;
    setup::lift_descriptor_limit()?;
    let session = Session {
        args,
        environment: &environment,
        trace_point,
        cpus,
        plan,
        progress: Progress::of(rows.len(), plan.rounds),
    };
    let mut not_run = 0;
    for (wire, contender, rows) in sessions(rows) {
        not_run += session.measure(wire, contender, &rows, &mut files)?;
    }
    files.end()?;
    session.progress.end();
    report::foot(not_run);
    Ok(())
}

/// Groups the rows that share two processes: those of a contender on a wire. Each row about many
/// connections is a group of its own, because it does not free all its memory.
fn sessions(rows: Vec<Case>) -> Vec<(Wire, Stack, Vec<Case>)> {
    let (scale, traffic): (Vec<Case>, Vec<Case>) =
        rows.into_iter().partition(|case| case.is_scale());
    let of = |wire, contender| {
        let is_its = |case: &&Case| case.wire == wire && case.contender() == contender;
        let rows = traffic.iter().filter(is_its).copied().collect();
        (wire, contender, rows)
    };
    let alone = scale
        .iter()
        .map(|case| (case.wire, case.contender(), vec![*case]));
    let mut sessions: Vec<(_, _, Vec<Case>)> = Vec::new();
    for contender in [Stack::Dat, Stack::Sdp] {
        sessions.extend(Wire::all().map(|wire| of(wire, contender)));
    }
    sessions.extend(alone);
    sessions.retain(|(_, _, rows)| !rows.is_empty());
    sessions
}

fn plan(args: &Args) -> Plan {
    let (rounds, sample_ms) = match &args.host {
        _ if args.quick => (3, 120),
        Some(_) => (3, 100),
        None => (7, 150),
    };
    Plan {
        rounds: args.rounds.map_or(rounds, |rounds| rounds as usize),
        sample_s: f64::from(args.sample_ms.unwrap_or(sample_ms)) / 1e3,
    }
}

/// The rows that the caller asked for.
fn rows(args: &Args) -> Result<Vec<Case>> {
    let has_kind = args.one_way || args.bidirectional;
    let is_sweep = args.all || !args.size.is_empty() || has_kind || args.host.is_some();
    let mut rows = match (args.cases.is_empty(), args.quick) {
        _ if is_sweep => sweep::rows(args)?,
        (false, _) => args.cases.clone(),
        (true, true) => QUICK.to_vec(),
        (true, false) => ALL.iter().map(|row| row.case).collect(),
    };
    if let Some(only) = args.only {
        let wanted = match only {
            Contender::Dat => Stack::Dat,
            Contender::Sdp => Stack::Sdp,
        };
        rows.retain(|case| case.contender() == wanted);
    }
    if !args.place.is_empty() {
        rows.retain(|case| args.place.contains(&case.wire));
    }
    Ok(rows)
}
