//! Latency and bandwidth of DAT beside raw TCP, in the same run and on the same ground.
//!
//! Two processes on this machine, each bound to one CPU, hold one TCP connection and one DAT
//! connection. Every round measures raw TCP, DAT, and raw TCP again, so that a disturbance of the
//! machine meets both; a ratio belongs to one round. When the program may, it runs in a network
//! namespace of its own, where the congestion control is reno on both connections; bbr, which some
//! machines have as default, paces even on loopback and would be all that is measured.
//!
//! - `args.rs` the command line; `case.rs` what is measured; `measure.rs` rounds and medians;
//!   `report.rs` the table
//! - `raw.rs`, `dat.rs` both sides of a sample over either connection
//! - `control.rs` how the processes agree; `setup.rs` network, CPUs; `load.rs` who else was busy;
//!   `syscalls.rs` what it costs

mod args;
mod case;
mod control;
mod dat;
mod load;
mod measure;
mod raw;
mod report;
mod setup;
mod syscalls;

use std::io::BufRead;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Parser;

use crate::args::Args;
use crate::case::{Case, Stack};
use crate::control::{Counted, Peer};
use crate::dat::DatLink;
use crate::load::LoadMeter;
use crate::measure::{Bench, Plan};
use crate::raw::RawLink;
use crate::setup::Ground;
use crate::syscalls::{Counting, SyscallCounter};

/// What is measured when nothing else is asked for.
const DEFAULT_IA: &str = "iwarp-lo";
/// Congestion control "-" and trace point "-" stand for none on the second process's command line.
const NONE: &str = "-";

fn main() -> ExitCode {
    let args = Args::parse();
    let (outcome, report): (_, fn(&str)) = match &args.serve {
        Some(found) => (serve(&args, found), tell_first_process),
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

/// The first process: prepares the ground, starts the second, measures.
fn lead(args: &Args) -> Result<()> {
    let ground = Ground::prepare(args.no_namespace, args.ia.as_deref())?;
    let ia = args.ia.as_deref().unwrap_or(DEFAULT_IA);
    let trace_point = setup::own_trace_points();
    let counter = SyscallCounter::new(trace_point);
    let (their_cpu, our_cpu) = setup::cpus()?;
    setup::pin(our_cpu)?;

    let mut peer = Peer::spawn(second_process(args, ia, their_cpu, &ground, trace_point)?)?;
    let (raw_port, address, conn_qual) = peer.ready()?;
    let raw = RawLink::new(TcpStream::connect((Ipv4Addr::LOCALHOST, raw_port))?)?;
    if let Some(congestion) = ground.congestion {
        raw.set_congestion(congestion)?;
    }
    let dat = DatLink::connect(ia, args.sleep_on_bulk, address, conn_qual)
        .with_context(|| format!("connecting over {ia}"))?;

    println!(
        "dat-bench: {ia} at {} beside TCP over 127.0.0.1, in {}",
        address.ip(),
        ground.network
    );
    println!(
        "congestion control: raw {}, DAT {}; CPUs: here {our_cpu}, peer {their_cpu}{}",
        raw.congestion()?,
        ground.dat_congestion(),
        if our_cpu == their_cpu {
            " (one CPU: figures mean little)"
        } else {
            ""
        },
    );
    println!();
    measure_all(
        args,
        &mut Bench {
            peer,
            raw,
            dat,
            counter,
        },
    )
}

fn measure_all(args: &Args, bench: &mut Bench) -> Result<()> {
    let (rounds, sample_ms) = if args.quick { (3, 120) } else { (7, 150) };
    let plan = Plan {
        rounds: args.rounds.unwrap_or(rounds).max(1),
        sample_s: f64::from(args.sample_ms.unwrap_or(sample_ms).max(1)) / 1e3,
    };
    let cases = match (args.cases.is_empty(), args.quick) {
        (false, _) => args.cases.clone(),
        (true, true) => Case::quick(),
        (true, false) => Case::all(),
    };
    let load = LoadMeter::start(bench.peer.id());
    report::head();
    for case in cases {
        let outcome = bench
            .case(case, plan)
            .with_context(|| format!("measuring {}", case.title()))?;
        report::line(&outcome);
    }
    report::foot(load.foreign_share());
    Ok(())
}

fn second_process(
    args: &Args,
    ia: &str,
    cpu: usize,
    ground: &Ground,
    trace_point: Option<u64>,
) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--ia", ia]);
    command.args(args.sleep_on_bulk.then_some("--sleep-on-bulk"));
    command.args([
        "--serve",
        &cpu.to_string(),
        ground.congestion.unwrap_or(NONE),
    ]);
    command.arg(trace_point.map_or_else(|| NONE.to_owned(), |id| id.to_string()));
    Ok(command)
}

/// The second process: does as it is told over its standard input.
fn serve(args: &Args, found: &[String]) -> Result<()> {
    let [cpu, congestion, trace_point] = found else {
        anyhow::bail!("--serve takes three values")
    };
    setup::pin(cpu.parse()?)?;
    let counter = SyscallCounter::new(trace_point.parse().ok());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let raw_port = listener.local_addr()?.port();
    let announce = |address: SocketAddr, conn_qual| {
        control::say(&format!("ready {raw_port} {address} {conn_qual}"))
    };
    let ia = args.ia.as_deref().unwrap_or(DEFAULT_IA);
    let mut dat = DatLink::listen(ia, args.sleep_on_bulk, announce)
        .with_context(|| format!("listening on {ia}"))?;
    let mut raw = RawLink::new(listener.accept()?.0)?;
    if congestion != NONE {
        raw.set_congestion(congestion)?;
    }
    for line in std::io::stdin().lock().lines() {
        let (counted, stack, case, count) = control::parse_run(&line?)?;
        let counting = match counted {
            Counted::Yes => counter.begin(),
            Counted::No => None,
        };
        control::say("go")?;
        match stack {
            Stack::Raw | Stack::RawBatch => raw.serve(stack, case, count)?,
            Stack::Dat => dat.serve(case, count)?,
        }
        let calls = counting.and_then(Counting::end);
        control::say(&format!(
            "done {}",
            calls.map_or_else(|| NONE.into(), |calls| calls.to_string())
        ))?;
    }
    Ok(())
}
