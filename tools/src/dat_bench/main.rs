//! Latency and bandwidth of DAT, and of SDP streams over it, beside raw TCP, in the same run and
//! over the same network.
//!
//! Two processes on this machine, each bound to one CPU, hold one TCP connection and those of one
//! contender. Every round measures raw TCP, the contender, and raw TCP again, so that a disturbance
//! of the machine meets both; a ratio belongs to one round. When the program may, it runs in a
//! network namespace of its own, where the congestion control is reno on both connections; bbr,
//! which some machines have as default, paces even on loopback and would be all that is measured.
//! For the rows over virtual Ethernet the second process lives in a namespace of its own too.
//!
//! - `args.rs` the command line; `case.rs` what can be measured; `rows.rs` what is, and the targets
//! - `session.rs` one wire; `measure.rs` rounds and medians; `report.rs` the table
//! - `raw.rs`, `framed.rs`, `dat`, `sdp.rs` both sides of a sample, by who carries the bytes;
//!   `contender.rs` the last two
//! - `second.rs` the second process; `control.rs` how the processes agree
//! - `setup.rs` network, registry, CPUs; `cable.rs` the second network; `load.rs` who else was
//!   busy; `syscalls.rs` what it costs; `clock.rs` the time that both processes read

mod args;
mod cable;
mod case;
mod clock;
mod contender;
mod control;
mod dat;
mod framed;
mod load;
mod measure;
mod raw;
mod report;
mod rows;
mod sdp;
mod second;
mod session;
mod setup;
mod syscalls;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::args::{Args, Contender};
use crate::case::{Stack, Wire};
use crate::measure::Plan;
use crate::report::Tally;
use crate::rows::Row;
use crate::session::Session;
use crate::setup::Ground;

fn main() -> ExitCode {
    let args = Args::parse();
    let (outcome, report): (_, fn(&str)) = match &args.serve {
        Some(found) => (second::serve(&args, found), tell_first_process),
        None => (lead(&args), |why| eprintln!("dat-bench: {why}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&format!("{error:#}").replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

/// The second process speaks through the first.
fn tell_first_process(why: &str) {
    if control::say(&format!("failed {why}")).is_err() {
        eprintln!("dat-bench, second process: {why}");
    }
}

/// The first process: prepares the ground, then measures wire after wire.
fn lead(args: &Args) -> Result<()> {
    let ground = Ground::prepare(args.no_namespace, args.ia.as_deref())?;
    let trace_point = setup::own_trace_points();
    let cpus = setup::cpus()?;
    setup::pin(cpus.ours)?;
    setup::lift_descriptor_limit()?;
    let session = Session {
        args,
        ground: &ground,
        trace_point,
        cpus,
        plan: plan(args),
    };
    let mut tally = Tally::new(cpus.spare.is_some());
    for (wire, contender, rows) in sessions(rows(args)) {
        session.measure(wire, contender, &rows, &mut tally)?;
    }
    report::foot(&tally);
    Ok(())
}

/// The rows that share two processes: those of a contender on a wire, and each row about many
/// connections alone, because it leaves memory behind.
fn sessions(rows: Vec<Row>) -> Vec<(Wire, Stack, Vec<Row>)> {
    let (scale, traffic): (Vec<Row>, Vec<Row>) =
        rows.into_iter().partition(|row| row.case.is_scale());
    let of = |wire, contender| {
        let is_its = |row: &&Row| row.case.wire == wire && row.case.contender() == contender;
        let rows = traffic.iter().filter(is_its).copied().collect();
        (wire, contender, rows)
    };
    let alone = scale
        .iter()
        .map(|row| (row.case.wire, row.case.contender(), vec![*row]));
    let mut sessions: Vec<(_, _, Vec<Row>)> = Vec::new();
    for contender in [Stack::Dat, Stack::Sdp] {
        sessions.extend(Wire::ALL.map(|wire| of(wire, contender)));
    }
    sessions.extend(alone);
    sessions.retain(|(_, _, rows)| !rows.is_empty());
    sessions
}

fn plan(args: &Args) -> Plan {
    let (rounds, sample_ms) = if args.quick { (3, 120) } else { (7, 150) };
    Plan {
        rounds: args.rounds.unwrap_or(rounds).max(1),
        sample_s: f64::from(args.sample_ms.unwrap_or(sample_ms).max(1)) / 1e3,
    }
}

fn rows(args: &Args) -> Vec<Row> {
    let mut rows = match (args.cases.is_empty(), args.quick) {
        (false, _) => args.cases.iter().copied().map(Row::of).collect(),
        (true, true) => Row::quick(),
        (true, false) => Row::all(),
    };
    if let Some(only) = args.only {
        let wanted = match only {
            Contender::Dat => Stack::Dat,
            Contender::Sdp => Stack::Sdp,
        };
        rows.retain(|row| row.case.contender() == wanted);
    }
    if !args.place.is_empty() {
        rows.retain(|row| args.place.contains(&row.case.wire));
    }
    rows
}
