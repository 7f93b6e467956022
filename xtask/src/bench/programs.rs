//! Debian's programs under `opsrun`, beside the same programs without it.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use stack_tests::{Finished, Leave, NetSpace, OffloadProtocol, OpsRun, Program, Running, Stage};
use tempfile::TempDir;

use super::pairs::{Pairs, Spread};
use crate::install::{self, IPERF3, Need, REDIS, REDIS_TOOLS};
use crate::workspace::Workspace;

const NEEDS: &[Need] = &[REDIS, REDIS_TOOLS, IPERF3];

const HOST: &str = "127.0.0.1";

/// Far beyond what a sample takes.
const DEADLINE: Duration = Duration::from_secs(120);

/// How a program is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// As it is.
    Plain,
    /// By `opsrun`, with a rule that keeps every socket on TCP.
    Stays,
    /// By `opsrun`; an offload protocol carries its sockets.
    Leaves,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Requests of a few bytes by so many clients at once, of which each has so many under way.
    RedisGet { clients: u32, pipeline: u32 },
    /// Bulk on one connection.
    Iperf,
    /// A program that does nothing.
    Start,
}

/// What a row must reach.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Target {
    /// The ratio to the plain way is no less.
    Ratio(f64),
    /// It adds no more, in the row's unit.
    Adds(f64),
}

struct Row {
    title: &'static str,
    work: Work,
    way: Way,
    target: Option<Target>,
}

const ROWS: &[Row] = &[
    Row {
        title: "redis GET, stays on TCP",
        work: Work::RedisGet {
            clients: 50,
            pipeline: 1,
        },
        way: Way::Stays,
        target: Some(Target::Ratio(0.98)),
    },
    Row {
        title: "iperf3, stays on TCP",
        work: Work::Iperf,
        way: Way::Stays,
        target: Some(Target::Ratio(0.98)),
    },
    Row {
        title: "start of a program",
        work: Work::Start,
        way: Way::Stays,
        target: Some(Target::Adds(5.0)),
    },
    Row {
        title: "redis GET within the host, 50 clients",
        work: Work::RedisGet {
            clients: 50,
            pipeline: 1,
        },
        way: Way::Leaves,
        target: Some(Target::Ratio(1.35)),
    },
    Row {
        title: "redis GET within the host, 10 clients",
        work: Work::RedisGet {
            clients: 10,
            pipeline: 1,
        },
        way: Way::Leaves,
        target: Some(Target::Ratio(1.0)),
    },
    Row {
        title: "redis GET within the host, 1 client",
        work: Work::RedisGet {
            clients: 1,
            pipeline: 1,
        },
        way: Way::Leaves,
        target: Some(Target::Ratio(1.15)),
    },
    Row {
        title: "redis GET within the host, 50 clients, 16 each",
        work: Work::RedisGet {
            clients: 50,
            pipeline: 16,
        },
        way: Way::Leaves,
        target: Some(Target::Ratio(1.15)),
    },
    Row {
        title: "iperf3, within the host",
        work: Work::Iperf,
        way: Way::Leaves,
        target: Some(Target::Ratio(1.2)),
    },
];

/// Measures every row and prints the table.
pub(super) fn measure(workspace: &Workspace, stage: &Stage, quick: bool) -> Result<()> {
    install::provide(workspace, NEEDS)?;
    let absent = install::missing(NEEDS);
    if !absent.is_empty() {
        println!("programs: not run: {}", install::advice(&absent));
        return Ok(());
    }
    let is_default = |protocol: &&OffloadProtocol| protocol.name == "local";
    let protocol = OffloadProtocol::ALL.iter().find(is_default);
    let protocol = protocol.context("no protocol")?;
    let ground = Ground::new(stage, protocol, quick)?;
    println!(
        "{:<43} {:>6} {:>9} {:>9}  {:<21} target",
        "program", "unit", "plain", "opsrun", "ratio [min-max]"
    );
    for row in ROWS {
        let pairs = ground.pairs(row).with_context(|| row.title.to_owned())?;
        print_row(row, &pairs);
    }
    println!(
        "Figures are medians; a ratio is that of one round, then the median. Offloaded is by the"
    );
    println!(
        "{}. The load of this machine is {} now.",
        protocol.name,
        load()
    );
    Ok(())
}

/// The machine's load of the last minute.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

fn print_row(row: &Row, pairs: &Pairs) {
    let (ratio, added) = (pairs.ratio(), pairs.difference());
    let target = match row.target {
        None => "-".to_owned(),
        Some(Target::Ratio(least)) => format!(">= {least} {}", verdict(ratio.median >= least)),
        Some(Target::Adds(most)) => {
            let unit = row.work.unit();
            let is_met = added.median <= most;
            format!(
                "adds {:.2} {unit} <= {most} {}",
                added.median,
                verdict(is_met)
            )
        }
    };
    println!(
        "{:<43} {:>6} {:>9} {:>9}  {:<21} {target}",
        row.title,
        row.work.unit(),
        figure(pairs.first()),
        figure(pairs.second()),
        format!("{:.3} [{:.2}-{:.2}]", ratio.median, ratio.min, ratio.max),
    );
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

fn figure(spread: Spread) -> String {
    match spread.median {
        value if value < 100.0 => format!("{value:.3}"),
        value => format!("{value:.0}"),
    }
}

impl Work {
    fn unit(self) -> &'static str {
        match self {
            Self::RedisGet { .. } => "1/s",
            Self::Iperf => "Gbit/s",
            Self::Start => "ms",
        }
    }

    /// Where the server of a way listens.
    fn port(self, way: Way) -> u16 {
        let base = match self {
            Self::RedisGet { .. } => 6379,
            Self::Iperf => 5201,
            Self::Start => 0,
        };
        base + u16::from(way != Way::Plain)
    }
}

/// A network and a directory for all rows.
struct Ground {
    net: NetSpace,
    dir: TempDir,
    stays: OpsRun,
    leaves: OpsRun,
    quick: bool,
}

impl Ground {
    fn new(stage: &Stage, protocol: &'static OffloadProtocol, quick: bool) -> Result<Self> {
        let dir = TempDir::new().context("making a directory")?;
        Ok(Self {
            net: NetSpace::enter()?,
            stays: OpsRun::new(stage, protocol, Leave::Nothing, dir.path())?.untraced(),
            leaves: OpsRun::new(stage, protocol, Leave::Tcp, dir.path())?.untraced(),
            dir,
            quick,
        })
    }

    /// Both ways of a row, their servers side by side, of which one at a time has work.
    fn pairs(&self, row: &Row) -> Result<Pairs> {
        let rounds = if self.quick { 5 } else { 15 };
        let sample = |way| move || self.sample(row.work, way);
        let _plain = self.serve(row.work, Way::Plain)?;
        let _other = self.serve(row.work, row.way)?;
        // Neither is measured cold.
        self.sample(row.work, Way::Plain)?;
        self.sample(row.work, row.way)?;
        Pairs::measure(rounds, sample(Way::Plain), sample(row.way))
    }

    fn program(&self, way: Way, name: &str) -> Program {
        let program = match way {
            Way::Plain => Program::new(name).env_remove("LD_PRELOAD"),
            Way::Stays => self.stays.program(name),
            Way::Leaves => self.leaves.program(name),
        };
        program.named(name).current_dir(self.dir.path())
    }

    fn serve(&self, work: Work, way: Way) -> Result<Option<Running>> {
        let port = work.port(way);
        let server = match work {
            Work::RedisGet { .. } => self
                .program(way, "redis-server")
                .args_line(&format!("--port {port} --bind {HOST} --save"))
                .arg(""),
            Work::Iperf => self
                .program(way, "iperf3")
                .args_line(&format!("-s -B {HOST} -p {port}")),
            Work::Start => return Ok(None),
        };
        let server = server.spawn()?;
        self.net.wait_for_listener_of(&server, port, DEADLINE)?;
        Ok(Some(server))
    }

    /// One figure.
    fn sample(&self, work: Work, way: Way) -> Result<f64> {
        let port = work.port(way);
        match work {
            Work::RedisGet { clients, pipeline } => {
                let requests = match (clients, self.quick) {
                    (1, _) => 20_000,
                    (_, true) => 30_000,
                    (_, false) => 100_000,
                } * pipeline;
                let size = format!("-n {requests} -c {clients} -P {pipeline} -d 64");
                let line = format!("-h {HOST} -p {port} {size} -t get --csv");
                requests_per_second(&self.finish(way, "redis-benchmark", &line)?.text)
            }
            Work::Iperf => {
                let amount = if self.quick { "1G" } else { "4G" };
                let line = format!("-c {HOST} -p {port} -n {amount} -f g");
                gigabits_per_second(&self.finish(way, "iperf3", &line)?.text)
            }
            Work::Start => {
                let times = if self.quick { 20 } else { 50 };
                let start = Instant::now();
                for _ in 0..times {
                    self.finish(way, "true", "")?;
                }
                Ok(start.elapsed().as_secs_f64() * 1e3 / f64::from(times))
            }
        }
    }

    fn finish(&self, way: Way, name: &str, line: &str) -> Result<Finished> {
        let program = self.program(way, name).args_line(line);
        program.spawn()?.finish(DEADLINE)?.success()
    }
}

/// `"GET","51234.56","0.095",...`
fn requests_per_second(csv: &str) -> Result<f64> {
    let line = csv.lines().find_map(|line| line.strip_prefix("\"GET\",\""));
    let figure = line.and_then(|rest| rest.split('"').next()?.parse().ok());
    figure.with_context(|| format!("no figure of GET in {csv:?}"))
}

/// `[  5]   0.00-1.23   sec  4.00 GBytes  27.9 Gbits/sec                  receiver`
fn gigabits_per_second(text: &str) -> Result<f64> {
    let mut lines = text
        .lines()
        .filter(|line| line.trim_end().ends_with("receiver"));
    let Some(line) = lines.next() else {
        bail!("no figure of the receiver in {text:?}");
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    let place = words.iter().position(|word| *word == "Gbits/sec");
    let figure = place.and_then(|place| words.get(place.checked_sub(1)?)?.parse().ok());
    figure.with_context(|| format!("no figure in {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_out_of_what_the_programs_print() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"51234.56\",\"0.095\"\n";
        assert_eq!(requests_per_second(csv).unwrap(), 51234.56);
        assert!(requests_per_second("Could not connect").is_err());
        let text = "[  5] 0.00-1.23 sec 4.00 GBytes 28.1 Gbits/sec 0 sender\n\
                    [  5] 0.00-1.23 sec 4.00 GBytes 27.9 Gbits/sec     receiver\n";
        assert_eq!(gigabits_per_second(text).unwrap(), 27.9);
        assert!(gigabits_per_second("iperf3: error").is_err());
    }

    #[test]
    fn ways_of_the_same_work_do_not_meet() {
        let redis = Work::RedisGet {
            clients: 1,
            pipeline: 1,
        };
        for work in [redis, Work::Iperf] {
            assert_ne!(work.port(Way::Plain), work.port(Way::Stays));
        }
    }
}
