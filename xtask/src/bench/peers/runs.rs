//! One sample of `dat-bench`, of `ucx_perftest`, of `fi_pingpong` or of a program of perftest.

use std::cell::Cell;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use stack_tests::{NetSpace, Program, StackEnv, Stage};
use tool_args::bench::case::{Case, Unit};

use super::rows::{Peer, Row};
use crate::bench::figures::{BenchRow, UcxRun, perftest, pingpong_us};

const HOST: &str = "127.0.0.1";
/// The first port. No port is used twice, because a port of an earlier run may still be closing.
const FIRST_PORT: u16 = 18_600;
/// A time far beyond the length of a sample.
const DEADLINE: Duration = Duration::from_secs(60);
/// The number of iterations of a calibration, and the least number of a sample.
const TRIAL: u64 = 256;
const COUNT_MAX: u64 = 4_000_000;
/// Makes glibc write memory when it is allocated. `ucx_perftest` never writes the buffer that it
/// sends, and the kernel backs memory that was never written with one page of zeros, which is
/// always cached: `process_vm_readv` of such memory was 1.6 times faster than of a message.
const WRITTEN: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.perturb=85");
/// The congestion control that `dat-bench` chooses.
const CONGESTION: (&str, &str) = ("/proc/sys/net/ipv4/tcp_congestion_control", "reno");
/// Gigabytes per MiB.
const MEBI: f64 = 1.048_576e-3;

/// The network and the processors of all samples.
pub(super) struct Setup {
    env: StackEnv,
    /// The processors of the server and of the client.
    cpus: (usize, usize),
    port: Cell<u16>,
    sample_ms: u32,
}

/// A sample of `dat-bench`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ours {
    pub(super) row: BenchRow,
    /// False if the local carrier was not in use.
    pub(super) is_shared: bool,
}

impl Setup {
    pub(super) fn new(stage: Stage, sample_ms: u32) -> Result<Self> {
        let env = StackEnv::at(stage)?;
        if matches!(env.net, NetSpace::Own) {
            let (file, name) = CONGESTION;
            fs::write(file, name).context("setting the congestion control")?;
        }
        Ok(Self {
            env,
            cpus: cpus()?,
            port: Cell::new(FIRST_PORT),
            sample_ms,
        })
    }

    /// Runs one round of a case of `dat-bench`, which pins its processes as peers are pinned here.
    pub(super) fn ours(&self, case: Case) -> Result<Ours> {
        let file = self.env.registry.dir().join("sample.json");
        let line = format!("--cases {case} --rounds 1 --sample-ms {}", self.sample_ms);
        let tool = self.env.stage.bin("dat-bench");
        let program = self.env.program(tool).args_line(&line).arg("--json");
        let run = program.arg(&file).spawn()?.finish(DEADLINE)?.success()?;
        let rows = fs::read_to_string(&file)?;
        Ok(Ours {
            row: (rows.lines().find_map(BenchRow::of))
                .with_context(|| format!("dat-bench measured no row: {:?}", run.text))?,
            is_shared: run.text.contains("shared memory: in use"),
        })
    }

    /// The number of iterations of a peer that fill a sample.
    pub(super) fn calibrate(&self, peer: Peer, row: &Row) -> Result<u64> {
        let microseconds = match peer {
            Peer::FabricShm => 2.0 * self.pingpong(row, TRIAL)?,
            Peer::Verbs => match self.verbs(row, TRIAL)? {
                latency if row.case.is_ping() => 2.0 * latency,
                mebibytes => row.case.size as f64 / (mebibytes * MEBI * 1e3),
            },
            _ => {
                let parts = if row.case.is_ping() { 2.0 } else { 1.0 };
                parts * self.ucx(peer, row, TRIAL)?.latency_us
            }
        };
        Ok(fill(self.sample_ms, microseconds))
    }

    /// The figure of a peer, in the unit of the row.
    pub(super) fn sample(&self, peer: Peer, row: &Row, count: u64) -> Result<f64> {
        Ok(match peer {
            Peer::FabricShm => self.pingpong(row, count)?,
            Peer::Verbs => match self.verbs(row, count)? {
                latency if row.case.is_ping() => latency,
                mebibytes => mebibytes * MEBI,
            },
            _ => {
                let run = self.ucx(peer, row, count)?;
                match row.case.unit() {
                    Unit::Microseconds => run.latency_us,
                    Unit::MegaMessages => run.rate / 1e6,
                    _ => run.bandwidth * MEBI,
                }
            }
        })
    }

    fn ucx(&self, peer: Peer, row: &Row, count: u64) -> Result<UcxRun> {
        let port = self.next_port();
        let program = |cpu| {
            let program = pinned(cpu, "ucx_perftest")
                .env("UCX_TLS", peer.transports())
                .env("UCX_WARN_UNUSED_ENV_VARS", "n")
                .args_line(&format!("-p {port}"));
            match peer {
                Peer::UcxOwn => program,
                // Uses heap memory, as a program does that registers existing memory with DAT.
                _ => program
                    .env("UCX_ALLOC_PRIO", "heap")
                    .env(WRITTEN.0, WRITTEN.1),
            }
        };
        let warm_up = (count / 8).max(16);
        let window = match row.case.depth {
            1 => String::new(),
            depth => format!(" -O {depth}"),
        };
        let (test, size) = (row.ucx_test(), row.case.size);
        let line = format!("{HOST} -t {test} -s {size} -n {count} -w {warm_up}{window} -f -v");
        let client = program(self.cpus.1).args_line(&line);
        UcxRun::of(&self.run_both(port, program(self.cpus.0), client)?)
    }

    fn pingpong(&self, row: &Row, count: u64) -> Result<f64> {
        let port = self.next_port();
        let (size, common) = (row.case.size, "-p shm -e rdm");
        let program = |cpu, side: &str| {
            let program = pinned(cpu, "fi_pingpong").env(WRITTEN.0, WRITTEN.1);
            program.args_line(&format!("{common} -I {count} -S {size} {side}"))
        };
        let server = program(self.cpus.0, &format!("-B {port}"));
        let client = program(self.cpus.1, &format!("-P {port} {HOST}"));
        pingpong_us(&self.run_both(port, server, client)?)
    }

    /// The figure that a program of perftest prints: microseconds, or MiB per second.
    fn verbs(&self, row: &Row, count: u64) -> Result<f64> {
        let port = self.next_port();
        let verbsrun = self.env.stage.bin("verbsrun");
        let depth = match row.case.depth {
            1 => String::new(),
            depth => format!(" -t {depth}"),
        };
        let (name, size) = (row.verbs_program(), row.case.size);
        let line = format!("{name} -s {size}{depth} -d dat_lo -x 0 -p {port} -n {count}");
        let program = |cpu| pinned(cpu, "").arg(&verbsrun).args_line(&line);
        let client = program(self.cpus.1).arg(HOST);
        perftest(&self.run_both(port, program(self.cpus.0), client)?)
    }

    /// Starts a server and then a client. Returns the client's output.
    fn run_both(&self, port: u16, server: Program, client: Program) -> Result<String> {
        let server = server.named("server").spawn()?;
        self.env.net.wait_for_listener_of(&server, port, DEADLINE)?;
        let done = client.named("client").spawn()?.finish(DEADLINE)?;
        // The server's output often has the cause of the client's failure.
        let text = server.text();
        done.success()
            .map(|done| done.text)
            .map_err(|why| match text.trim() {
                "" => why,
                text => anyhow!("{why:#}; server: {text}"),
            })
    }

    fn next_port(&self) -> u16 {
        self.port.replace(self.port.get() + 1)
    }
}

/// The number of iterations that fill a sample, if each takes `microseconds`.
fn fill(sample_ms: u32, microseconds: f64) -> u64 {
    let count = f64::from(sample_ms) * 1e3 / microseconds;
    (count as u64).clamp(TRIAL, COUNT_MAX)
}

/// A program that is bound to one processor.
fn pinned(cpu: usize, program: &str) -> Program {
    Program::new("taskset")
        .args_line(&format!("-c {cpu} {program}"))
        .env_remove("LD_PRELOAD")
}

/// The processors that `dat-bench` chooses: of those that may be used, the first one for the
/// server, the last one for the client.
pub(in crate::bench) fn cpus() -> Result<(usize, usize)> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    let usable: Vec<usize> = (0..CpuSet::count())
        .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
        .collect();
    ensure!(!usable.is_empty(), "no usable CPU");
    Ok((usable[0], usable[usable.len() - 1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_its_length_within_bounds() {
        assert_eq!(fill(150, 10.0), 15_000);
        assert_eq!(fill(150, 1e6), TRIAL);
        assert_eq!(fill(150, 1e-3), COUNT_MAX);
    }
}
