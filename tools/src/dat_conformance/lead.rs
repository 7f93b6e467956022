//! Runs every chosen case. Starts the processes, and starts new processes for the remaining cases
//! when one ends.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tool_args::conformance::Args;

use crate::case::Case;
use crate::process::{self, Ended};
use crate::server::LISTENING;
use crate::verdict::Verdict;

/// The verdict of a case, and the time that it took.
#[derive(Debug, Clone)]
pub(crate) struct CaseResult {
    pub(crate) verdict: Verdict,
    pub(crate) took: Duration,
}

/// Runs the cases in order and reports each result when it is received.
pub(crate) fn run(
    args: &Args,
    ia_name: &str,
    cases: &[Case],
    mut on_result: impl FnMut(&Case, CaseResult) -> Result<()>,
) -> Result<()> {
    let server = match args.peer {
        Some(peer) => Server::Elsewhere(peer),
        None => Server::start(args, ia_name)?,
    };
    let (mut left, mut starts) = (cases, 0);
    while let Some(next) = left.first() {
        let (done, ended) = run_some(args, ia_name, server.address(), left, &mut on_result)?;
        left = &left[done..];
        starts = if done == 0 { starts + 1 } else { 0 };
        if starts < STARTS {
            continue;
        }
        // The run continues: an adapter that worked before may work for the next case.
        let why = format!("the process that opens the adapter {ended}");
        ensure!(left.len() < cases.len(), "{ia_name} cannot be used: {why}");
        let (verdict, took) = (Verdict::Failed(why), Duration::ZERO);
        on_result(next, CaseResult { verdict, took })?;
        (left, starts) = (&left[1..], 0);
    }
    Ok(())
}

/// The number of processes that are started for a case before the run aborts it.
const STARTS: usize = 3;

/// Runs cases in one process until one fails or the process ends. Returns the number of cases that
/// were run, and how the process ended.
fn run_some(
    args: &Args,
    ia_name: &str,
    server: SocketAddr,
    cases: &[Case],
    on_result: &mut impl FnMut(&Case, CaseResult) -> Result<()>,
) -> Result<(usize, Ended)> {
    let mut worker = Worker::start(args, ia_name, server, cases)?;
    for (done, case) in cases.iter().enumerate() {
        if worker
            .line()?
            .is_none_or(|line| !line.starts_with("begin "))
        {
            return Ok((done, worker.ended()?));
        }
        let start = Instant::now();
        let verdict = match worker.line()? {
            Some(line) => Verdict::parse(&line)?,
            None => Verdict::Failed(format!("the client's process {}", worker.ended()?)),
        };
        let took = start.elapsed();
        on_result(case, CaseResult { verdict, took })?;
    }
    Ok((cases.len(), worker.ended()?))
}

/// A process that runs the client's ends.
struct Worker {
    child: Child,
    from: BufReader<ChildStdout>,
}

impl Worker {
    fn start(args: &Args, ia_name: &str, server: SocketAddr, cases: &[Case]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["--worker", &server.to_string(), "--ia", ia_name])
            .args(["--limit", &args.limit.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        process::kill_with_parent(&mut command);
        let mut child = command.spawn().context("starting a process")?;
        let mut to = child.stdin.take().context("a process without input")?;
        let from = child.stdout.take().context("a process without output")?;
        for case in cases {
            // A process that has ended shows this by the end of its output.
            let _ = writeln!(to, "{}", case.name);
        }
        let from = BufReader::new(from);
        Ok(Self { child, from })
    }

    fn line(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        let len = self.from.read_line(&mut line)?;
        Ok((len > 0).then(|| line.trim_end_matches('\n').to_owned()))
    }

    fn ended(&mut self) -> Result<Ended> {
        Ok(Ended::of(self.child.wait()?))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The call fails if the process has already ended; then it only needs to be reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process that runs the server's ends.
enum Server {
    Elsewhere(SocketAddr),
    Here { child: Child, address: SocketAddr },
}

impl Server {
    /// Starts a server on this machine.
    fn start(args: &Args, ia_name: &str) -> Result<Self> {
        let ia_name = args.peer_ia.as_deref().unwrap_or(ia_name);
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["--role", "server", "--ia", ia_name])
            .args(["--listen", "127.0.0.1:0"])
            .args(["--limit", &args.limit.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        process::kill_with_parent(&mut command);
        let mut child = command.spawn().context("starting the server")?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let address = line.trim_end().strip_prefix(LISTENING);
        let address = address.context("the server does not print its address")?;
        let address = address.parse()?;
        Ok(Self::Here { child, address })
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Elsewhere(address) | Self::Here { address, .. } => *address,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Self::Here { child, .. } = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
