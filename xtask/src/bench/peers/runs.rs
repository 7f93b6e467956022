//! One sample of `dat-bench`, of `ucx_perftest` or of `fi_pingpong`.

use std::cell::Cell;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use stack_tests::{NetSpace, Program, StackEnv, Stage};

use super::rows::{Figure, Peer, Row};
use crate::bench::figures::{BenchRow, UcxRun, pingpong_us};

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

/// The network and the processors of all samples.
pub(in crate::bench) struct Setup {
    env: StackEnv,
    /// The processors of the server and of the client.
    cpus: (usize, usize),
    port: Cell<u16>,
    sample_ms: u32,
}

/// A sample of `dat-bench`.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::bench) struct Ours {
    pub(in crate::bench) title: String,
    pub(in crate::bench) unit: String,
    pub(in crate::bench) raw: f64,
    pub(in crate::bench) dat: f64,
    /// False if the local carrier was not in use.
    pub(in crate::bench) is_shared: bool,
    /// True if other programs used so much of the processors that the figures are unreliable.
    pub(in crate::bench) is_disturbed: bool,
}

impl Setup {
    pub(in crate::bench) fn new(stage: Stage, sample_ms: u32) -> Result<Self> {
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
    pub(in crate::bench) fn ours(&self, case: &str) -> Result<Ours> {
        let line = format!("--cases {case} --rounds 1 --sample-ms {}", self.sample_ms);
        let tool = self.env.stage.bin("dat-bench");
        let program = self.env.program(tool).args_line(&line);
        ours(&program.spawn()?.finish(DEADLINE)?.success()?.text)
    }

    /// The number of iterations of a peer that fill a sample.
    pub(super) fn calibrate(&self, peer: Peer, row: &Row) -> Result<u64> {
        let microseconds = match peer {
            Peer::FabricShm => self.pingpong(row, TRIAL)?,
            _ => self.ucx(peer, row, TRIAL)?.latency_us,
        };
        let of_ping = if row.figure == Figure::Latency {
            2.0
        } else {
            1.0
        };
        Ok(fill(self.sample_ms, microseconds * of_ping))
    }

    /// The figure of a peer, in the unit of the row.
    pub(super) fn sample(&self, peer: Peer, row: &Row, count: u64) -> Result<f64> {
        if peer == Peer::FabricShm {
            return self.pingpong(row, count);
        }
        Ok(figure(row.figure, self.ucx(peer, row, count)?))
    }

    fn ucx(&self, peer: Peer, row: &Row, count: u64) -> Result<UcxRun> {
        let port = self.next_port();
        let program = |cpu| {
            let program = pinned(cpu, "ucx_perftest")
                .env("UCX_TLS", peer.transports().unwrap_or_default())
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
        let window = match row.depth {
            1 => String::new(),
            depth => format!(" -O {depth}"),
        };
        let (test, size) = (row.test, row.size);
        let line = format!("{HOST} -t {test} -s {size} -n {count} -w {warm_up}{window} -f -v");
        self.run_both(
            port,
            program(self.cpus.0),
            program(self.cpus.1).args_line(&line),
        )
        .and_then(|text| UcxRun::of(&text))
    }

    fn pingpong(&self, row: &Row, count: u64) -> Result<f64> {
        let port = self.next_port();
        let (size, common) = (row.size, "-p shm -e rdm");
        let program = |cpu, side: &str| {
            let program = pinned(cpu, "fi_pingpong").env(WRITTEN.0, WRITTEN.1);
            program.args_line(&format!("{common} -I {count} -S {size} {side}"))
        };
        let server = program(self.cpus.0, &format!("-B {port}"));
        let client = program(self.cpus.1, &format!("-P {port} {HOST}"));
        pingpong_us(&self.run_both(port, server, client)?)
    }

    /// Runs a program of perftest under `verbsrun` as a server and as its client, with as many
    /// iterations as fill a sample if each takes `microseconds`. Returns the client's output.
    pub(in crate::bench) fn perftest(&self, line: &str, microseconds: f64) -> Result<String> {
        let port = self.next_port();
        let verbsrun = self.env.stage.bin("verbsrun");
        let count = fill(self.sample_ms, microseconds);
        let program = |cpu| {
            let program = Program::new("taskset").args_line(&format!("-c {cpu}"));
            let program = program.arg(&verbsrun).env_remove("LD_PRELOAD");
            program.args_line(&format!("{line} -d dat_lo -x 0 -p {port} -n {count}"))
        };
        let client = program(self.cpus.1).arg(HOST);
        self.run_both(port, program(self.cpus.0), client)
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

fn ours(text: &str) -> Result<Ours> {
    let row = text.lines().find_map(BenchRow::of);
    let row = row.with_context(|| format!("dat-bench printed no row: {text:?}"))?;
    Ok(Ours {
        title: row.title.to_owned(),
        unit: row.unit.to_owned(),
        raw: row.raw,
        dat: row.own,
        is_shared: text.contains("shared memory: in use"),
        is_disturbed: text.lines().any(|line| line.starts_with("disturbed: ")),
    })
}

fn figure(figure: Figure, run: UcxRun) -> f64 {
    match figure {
        Figure::Latency => run.latency_us,
        Figure::Bandwidth => run.bandwidth * f64::from(1 << 20) / 1e9,
        Figure::Rate => run.rate / 1e6,
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

    const BENCH: &str = "\
loopback, shared memory (local=on): DAT, iwarp-lo to 127.0.0.1, compared with TCP to 127.0.0.1
case                                 unit   raw TCP       DAT  DAT / raw [min-max]   target
64 KiB send, 16 queued               GB/s     10.44     18.83  1.804 [1.80-1.80]     >= 1.80 met
shared memory: in use
other programs took 0 % of the CPUs meanwhile.
";

    #[test]
    fn a_sample_of_dat_bench_has_its_carrier_and_disturbances() {
        let sample = ours(BENCH).unwrap();
        assert_eq!(sample.title, "64 KiB send, 16 queued");
        assert_eq!((sample.raw, sample.dat), (10.44, 18.83));
        assert!(sample.is_shared && !sample.is_disturbed);
        let busy = BENCH.replace("other programs", "disturbed: other programs");
        assert!(ours(&busy).unwrap().is_disturbed);
        assert!(
            !ours(&BENCH.replace("in use", "NOT in use"))
                .unwrap()
                .is_shared
        );
        assert!(ours("dat-bench: no adapter").is_err());
    }

    #[test]
    fn figures_of_ucx_get_the_units_of_ours() {
        let run = UcxRun {
            latency_us: 0.25,
            bandwidth: 1000.0,
            rate: 4e6,
        };
        assert_eq!(figure(Figure::Latency, run), 0.25);
        assert_eq!(figure(Figure::Bandwidth, run), 1.048_576);
        assert_eq!(figure(Figure::Rate, run), 4.0);
    }

    #[test]
    fn a_sample_has_its_length_within_bounds() {
        assert_eq!(fill(150, 10.0), 15_000);
        assert_eq!(fill(150, 1e6), TRIAL);
        assert_eq!(fill(150, 1e-3), COUNT_MAX);
    }
}
