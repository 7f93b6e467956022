//! Latency and bandwidth of DAT beside raw TCP, in the same run and on the same ground.
//!
//! Two processes on this machine, each bound to one CPU, hold one TCP connection and one DAT connection.
//! Every round measures raw TCP, DAT, and raw TCP again, so that a disturbance of the machine meets both;
//! a ratio belongs to one round. When the program may, it runs in a network namespace of its own, where
//! the congestion control is reno on both connections; bbr, which some machines have as default, paces
//! even on loopback and would be all that is measured.
//!
//! - `case.rs` what is measured; `measure.rs` rounds and medians; `report.rs` the table
//! - `raw.rs`, `dat.rs` both sides of a sample over either connection
//! - `control.rs` how the processes agree; `setup.rs` network, CPUs; `syscalls.rs` what it costs

mod case;
mod control;
mod dat;
mod measure;
mod raw;
mod report;
mod setup;
mod syscalls;

use std::io::BufRead;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::case::{Case, Stack};
use crate::control::Peer;
use crate::dat::DatLink;
use crate::measure::{Bench, Plan};
use crate::raw::RawLink;
use crate::setup::Network;
use crate::syscalls::SyscallCounter;

/// Measures DAT beside raw TCP.
#[derive(Debug, Parser)]
struct Args {
    /// A few seconds' worth: 64 B latency and 64 KiB bandwidth.
    #[arg(long)]
    quick: bool,
    /// Interface adapter to measure.
    #[arg(long, value_name = "NAME", default_value = "iwarp-lo")]
    ia: String,
    /// Measure only these cases: work:bytes:depth, where work is send-ping, write-ping, blocked-ping,
    /// send, write or read.
    #[arg(long, value_name = "CASE", value_delimiter = ',')]
    cases: Vec<Case>,
    /// Rounds of each case.
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Length of a sample.
    #[arg(long, value_name = "MILLISECONDS")]
    sample_ms: Option<u32>,
    /// On bulk, sleep in dat_evd_wait instead of polling.
    #[arg(long)]
    sleep_on_bulk: bool,
    /// Stay in the caller's network.
    #[arg(long)]
    no_namespace: bool,
    /// The second process: what the first one found out.
    #[arg(long, hide = true, num_args = 3, value_names = ["CPU", "CC", "TRACEPOINT"])]
    serve: Option<Vec<String>>,
    /// Registry and network have been prepared by the process that was replaced by this one.
    #[arg(long, hide = true, value_name = "CC")]
    prepared: Option<String>,
}

/// Congestion control "-" and trace point "-" stand for none on the second process's command line.
const NONE: &str = "-";

fn main() -> Result<()> {
    let args = Args::parse();
    match &args.serve {
        Some(found) => serve(&args, found).inspect_err(|error| {
            let _ = control::say(&format!(
                "failed {}",
                format!("{error:#}").replace('\n', " ")
            ));
        }),
        None => lead(&args),
    }
}

/// The first process: prepares the ground, starts the second, measures.
fn lead(args: &Args) -> Result<()> {
    let network = match &args.prepared {
        Some(_) => Network::Callers("as asked or as found".into()),
        None if args.no_namespace => Network::Callers("as asked".into()),
        None => setup::own_network(),
    };
    if network != Network::Own
        && args.prepared.is_none()
        && let Some(congestion) = setup::congestion_to_set()
    {
        return restart_with_dat_conf(args, congestion);
    }
    let congestion = args.prepared.as_deref();
    let trace_point = setup::own_trace_points();
    let counter = SyscallCounter::start(trace_point);
    let (their_cpu, our_cpu) = setup::cpus()?;
    setup::pin(our_cpu)?;

    let mut peer = Peer::spawn(second_process(args, their_cpu, congestion, trace_point)?)?;
    let (raw_port, address, conn_qual) = peer.ready()?;
    let raw = RawLink::new(TcpStream::connect((Ipv4Addr::LOCALHOST, raw_port))?)?;
    if let Some(congestion) = congestion {
        raw.set_congestion(congestion)?;
    }
    let dat = DatLink::connect(&args.ia, args.sleep_on_bulk, address, conn_qual)
        .with_context(|| format!("connecting over {}", args.ia))?;

    let default = setup::default_congestion();
    println!(
        "dat-bench: {} to {address} beside TCP over 127.0.0.1, in {network}",
        args.ia
    );
    println!(
        "congestion control: raw {}, DAT {}; CPUs: here {our_cpu}, peer {their_cpu}{}",
        raw.congestion()?,
        congestion.unwrap_or(&default),
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
    report::head();
    for case in cases {
        let outcome = bench
            .case(case, plan)
            .with_context(|| format!("measuring {}", case.title()))?;
        report::line(&outcome);
    }
    report::foot();
    Ok(())
}

/// Starts this program over with a registry in which the adapter's connections use `congestion`.
fn restart_with_dat_conf(args: &Args, congestion: &str) -> Result<()> {
    ensure!(
        args.ia == "iwarp-lo",
        "the default congestion control here is bbr, which paces; set cc={congestion} in the dat.conf line \
         of {} and the system's default, or run as root",
        args.ia
    );
    let conf = setup::write_dat_conf(&args.ia, congestion)?.into_temp_path();
    let error = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .args(["--prepared", congestion])
        .env("DAT_OVERRIDE", conf.keep()?)
        .exec();
    Err(error).context("starting over")
}

fn second_process(
    args: &Args,
    cpu: usize,
    congestion: Option<&str>,
    trace_point: Option<u64>,
) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--ia", &args.ia]);
    command.args(args.sleep_on_bulk.then_some("--sleep-on-bulk"));
    command.args(["--serve", &cpu.to_string(), congestion.unwrap_or(NONE)]);
    command.arg(trace_point.map_or_else(|| NONE.to_owned(), |id| id.to_string()));
    Ok(command)
}

/// The second process: does as it is told over its standard input.
fn serve(args: &Args, found: &[String]) -> Result<()> {
    let [cpu, congestion, trace_point] = found else {
        anyhow::bail!("--serve takes three values")
    };
    setup::pin(cpu.parse()?)?;
    let mut counter = SyscallCounter::start(trace_point.parse().ok());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let raw_port = listener.local_addr()?.port();
    let announce = |address: SocketAddr, conn_qual| {
        control::say(&format!("ready {raw_port} {address} {conn_qual}"))
    };
    let mut dat = DatLink::listen(&args.ia, args.sleep_on_bulk, announce)
        .with_context(|| format!("listening on {}", args.ia))?;
    let mut raw = RawLink::new(listener.accept()?.0)?;
    if congestion != NONE {
        raw.set_congestion(congestion)?;
    }
    for line in std::io::stdin().lock().lines() {
        let (stack, case, count) = control::parse_run(&line?)?;
        control::say("go")?;
        let before = counter.read();
        match stack {
            Stack::Raw | Stack::RawBatch => raw.serve(stack, case, count)?,
            Stack::Dat => dat.serve(case, count)?,
        }
        let calls = counter
            .read()
            .zip(before)
            .map(|(after, before)| after - before);
        control::say(&format!(
            "done {}",
            calls.map_or_else(|| NONE.into(), |calls| calls.to_string())
        ))?;
    }
    Ok(())
}
