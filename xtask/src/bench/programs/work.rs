//! Servers and clients of each kind of work, and the figures that they print.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::{User, chown};
use stack_tests::{Finished, NetSpace, Offload, OffloadProtocol, OpsRun, Program, Running, Stage};
use tempfile::TempDir;

use crate::bench::contest::{Series, rounds};
use crate::bench::ends::Waiting;
use crate::install::{IPERF3, MEMCACHED, NGINX, Need, POSTGRES, REDIS, REDIS_TOOLS, WRK};

pub(super) const NEEDS: &[Need] = &[REDIS, REDIS_TOOLS, IPERF3, NGINX, WRK, POSTGRES, MEMCACHED];

const HOST: &str = "127.0.0.1";

/// The settings of a rule by which no call of a program uses the program's memory.
const COPIES: &str = "sdp.registered=off sdp.read-zcopy=off sdp.write-zcopy=off";

/// A time far beyond the length of a sample.
const DEADLINE: Duration = Duration::from_secs(120);

/// The way in which a program is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Without `opsrun`.
    Plain,
    /// By `opsrun`, with a rule that keeps every socket on TCP.
    Stays,
    /// By `opsrun`, with its sockets on an offload protocol.
    Leaves,
    /// Under `opsrun --spin`.
    Spins,
    /// By `opsrun`, with its sockets on SDP over the software provider.
    Sdp,
    /// As `Sdp`, with a rule by which all calls copy.
    SdpCopies,
}

/// The kind of work that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Requests of 64 bytes by concurrent clients, each of which has `pipeline` requests in
    /// flight.
    Redis {
        command: &'static str,
        clients: u32,
        pipeline: u32,
        on: Processors,
    },
    /// The processor time of a request by one of these concurrent clients, at both ends.
    RedisTime { clients: u32 },
    /// Bulk data on `streams` connections.
    Iperf { streams: u32 },
    /// Requests for a file of 1000 bytes, on 16 connections.
    Http { is_kept: bool },
    /// Queries of one row, by one client.
    Pgbench { on: Processors },
    /// Requests for a value of 64 bytes, by one thread per connection, on 4 connections.
    Memcached,
    /// 64 bytes in each direction.
    PingPong { waiting: Waiting, on: Processors },
    /// Connections that carry one byte in each direction, one after another.
    Connect { on: Processors },
    /// The first connection of a program.
    First,
    /// Blocking writes and reads of this many KiB.
    Bulk { kib: usize },
    /// The processor time of a GiB of such writes and reads, at both ends.
    BulkTime { kib: usize },
    /// Rounds of calls that have nothing to do, on one connection.
    Calls,
    /// A program that does nothing.
    Start,
    /// The memory of a process that a connection takes, at each end.
    Memory,
    /// The descriptors of a process that a connection takes, at each end.
    Descriptors,
}

/// The processors to which the two ends of a connection are bound. If they were not, the kernel
/// would use one processor in one run and two in the next, and then the figures are those of waking
/// an idle processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Processors {
    /// Both ends on one processor.
    One,
    /// Each end on its own processor.
    Two,
}

impl Processors {
    /// The client's processor; the server's is 0.
    fn of_client(self) -> u32 {
        match self {
            Self::One => 0,
            Self::Two => 1,
        }
    }
}

impl Work {
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Redis { .. }
            | Self::Http { .. }
            | Self::Pgbench { .. }
            | Self::Memcached
            | Self::Connect { .. } => "1/s",
            Self::Iperf { .. } => "Gbit/s",
            Self::Bulk { .. } => "GB/s",
            Self::BulkTime { .. } => "s/GiB",
            Self::RedisTime { .. } | Self::PingPong { .. } | Self::Calls => "us",
            Self::Start | Self::First => "ms",
            Self::Memory => "KiB",
            Self::Descriptors => "number",
        }
    }

    /// The client's processor.
    fn processor(self) -> u32 {
        match self {
            Self::Redis { on, .. }
            | Self::Pgbench { on }
            | Self::PingPong { on, .. }
            | Self::Connect { on } => on.of_client(),
            Self::RedisTime { .. }
            | Self::Iperf { .. }
            | Self::Http { .. }
            | Self::Memcached
            | Self::Bulk { .. }
            | Self::BulkTime { .. } => Processors::Two.of_client(),
            Self::First | Self::Calls | Self::Start | Self::Memory | Self::Descriptors => 0,
        }
    }

    /// The port on which the server of a way listens; 0 if there is no server.
    fn port(self, way: Way) -> u16 {
        let base = match self {
            Self::Redis { .. } | Self::RedisTime { .. } => 6379,
            Self::Iperf { .. } => 5201,
            Self::Http { .. } => 8080,
            Self::Pgbench { .. } => 5432,
            Self::Memcached => 11211,
            Self::PingPong { .. }
            | Self::Connect { .. }
            | Self::First
            | Self::Bulk { .. }
            | Self::BulkTime { .. } => 4800,
            Self::Calls | Self::Start | Self::Memory | Self::Descriptors => return 0,
        };
        base + u16::from(way != Way::Plain)
    }
}

/// The number of rounds, and the length of their samples.
#[derive(Debug, Clone, Copy)]
struct Plan {
    rounds: usize,
    /// A sample does one of so many parts of the work.
    parts: u32,
}

impl Plan {
    /// The plan for a comparison with this way.
    ///
    /// The targets of sockets on TCP are so close to 1 that a few rounds cannot decide about them.
    /// Most of the difference between rounds is between processes, so many short samples give a
    /// better median than a few long ones in the same time.
    fn of(other: Way, quick: bool) -> Self {
        let (rounds, quick_rounds, parts) = match other {
            Way::Stays => (450, 50, 10),
            _ => (15, 5, 1),
        };
        Self {
            rounds: if quick { quick_rounds } else { rounds },
            parts,
        }
    }
}

/// A network and a directory for all rows.
pub(super) struct Setup {
    net: NetSpace,
    dir: TempDir,
    stays: OpsRun,
    leaves: OpsRun,
    sdp: OpsRun,
    sdp_copies: OpsRun,
    quick: bool,
}

impl Setup {
    pub(super) fn new(
        stage: &Stage,
        protocol: &'static OffloadProtocol,
        quick: bool,
    ) -> Result<Self> {
        let dir = TempDir::new().context("making a directory")?;
        // Some programs change to an ordinary user.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        fs::write(dir.path().join("small"), [b'x'; 1000])?;
        let sdp = |name, settings| -> Result<OpsRun> {
            let of_sdp = OffloadProtocol::ALL.iter().find(|one| one.is_sdp);
            let dir = dir.path().join(name);
            fs::create_dir(&dir)?;
            let run = OpsRun::new(stage, of_sdp.context("no SDP")?, Offload::All, &dir)?;
            Ok(run.with_settings(settings)?.untraced())
        };
        Ok(Self {
            net: NetSpace::enter()?,
            stays: OpsRun::new(stage, protocol, Offload::Nothing, dir.path())?.untraced(),
            leaves: OpsRun::new(stage, protocol, Offload::All, dir.path())?.untraced(),
            sdp: sdp("sdp", "")?,
            sdp_copies: sdp("copies", COPIES)?,
            dir,
            quick,
        })
    }

    /// Measures the plain way of a kind of work and another way. Both servers run at the same time,
    /// and one at a time has work.
    pub(super) fn compete(&self, work: Work, other: Way) -> Result<Vec<Series>> {
        let plan = Plan::of(other, self.quick);
        let ways = [Way::Plain, other];
        let _servers = ways
            .map(|way| self.serve(work, way))
            .into_iter()
            .collect::<Result<Vec<_>>>()?;
        // The first sample of each is discarded as a warm-up.
        for way in ways {
            self.sample(work, way, plan)?;
        }
        let sample = |at: usize| self.sample(work, ways[at], plan);
        Ok(rounds(plan.rounds, ways.len(), sample))
    }

    fn program(&self, way: Way, program: impl AsRef<Path>) -> Program {
        let path = program.as_ref();
        let made = match way {
            Way::Plain => Program::new(path).env_remove("LD_PRELOAD"),
            Way::Stays => self.stays.program(path),
            Way::Leaves => self.leaves.program(path),
            Way::Sdp => self.sdp.program(path),
            Way::SdpCopies => self.sdp_copies.program(path),
            Way::Spins => self.leaves.program(path).env("OPS_SPIN", "50"),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        made.named(&name).current_dir(self.dir.path())
    }

    /// Makes a program that is bound to a processor.
    fn bound(&self, way: Way, processor: u32, program: impl AsRef<Path>) -> Program {
        self.program(way, "taskset")
            .args_line(&format!("-c {processor}"))
            .arg(program.as_ref())
    }

    /// Makes a program of one of the project's own ends of connections.
    fn end(&self, way: Way, line: &str) -> Result<Program> {
        let this = std::env::current_exe()?;
        Ok(self.program(way, this).arg("ends").args_line(line))
    }

    fn serve(&self, work: Work, way: Way) -> Result<Option<Running>> {
        let port = work.port(way);
        let server = match work {
            Work::Redis { .. } | Work::RedisTime { .. } => self
                .bound(way, 0, "redis-server")
                .args_line(&format!("--port {port} --bind {HOST} --save"))
                .arg(""),
            Work::Iperf { .. } => self
                .bound(way, 0, "iperf3")
                .args_line(&format!("-s -B {HOST} -p {port}")),
            Work::Http { .. } => self.nginx(way, port)?,
            Work::Pgbench { .. } => return self.postgres(way, port).map(Some),
            Work::Memcached => self
                .bound(way, 0, "memcached")
                .args_line(&format!("-l {HOST} -p {port} -U 0 -t 1 -u root")),
            Work::PingPong { waiting, .. } => self.end(
                way,
                &format!("--processor 0 echo {port} {}", waiting.word()),
            )?,
            Work::Connect { .. } | Work::First => {
                self.end(way, &format!("--processor 0 once {port}"))?
            }
            Work::Bulk { kib } | Work::BulkTime { kib } => {
                self.end(way, &format!("--processor 0 sink {port} {}", kib << 10))?
            }
            Work::Calls | Work::Start | Work::Memory | Work::Descriptors => return Ok(None),
        };
        self.started(server, port).map(Some)
    }

    fn started(&self, server: Program, port: u16) -> Result<Running> {
        let server = server.spawn()?;
        self.net.wait_for_listener_of(&server, port, DEADLINE)?;
        Ok(server)
    }

    fn nginx(&self, way: Way, port: u16) -> Result<Program> {
        let file = format!("nginx-{port}.conf");
        let text = format!(
            "daemon off; worker_processes 1; user root; pid nginx-{port}.pid;\n\
             error_log stderr;\n\
             events {{ worker_connections 256; }}\n\
             http {{\n\
               access_log off; sendfile on; keepalive_requests 10000000;\n\
               client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3;\n\
               uwsgi_temp_path t4; scgi_temp_path t5;\n\
               server {{ listen {HOST}:{port}; root .; }}\n\
             }}\n"
        );
        fs::write(self.dir.path().join(&file), text)?;
        Ok(self
            .bound(way, 0, "/usr/sbin/nginx")
            .args_line(&format!("-e stderr -c {file} -p"))
            .arg(self.dir.path()))
    }

    /// Starts PostgreSQL with the tables of pgbench, as the user `postgres`, because the server
    /// refuses to run as root.
    fn postgres(&self, way: Way, port: u16) -> Result<Running> {
        let bin = postgres_bin()?;
        let user = User::from_name("postgres")?.context("there is no user postgres")?;
        let data = self.dir.path().join(format!("data-{port}"));
        let becomes = format!(
            "setpriv --reuid={} --regid={} --clear-groups",
            user.uid, user.gid
        );
        if !data.exists() {
            fs::create_dir(&data)?;
            chown(&data, Some(user.uid), Some(user.gid))?;
            let initdb = self.program(Way::Plain, "env").args_line(&becomes);
            let initdb = initdb
                .arg(bin.join("initdb"))
                .args_line("--no-sync --auth=trust --username=bench --no-locale -D")
                .arg(&data);
            initdb.spawn()?.finish(DEADLINE)?.success()?;
        }
        let settings = format!("-h {HOST} -p {port} -c fsync=off -c unix_socket_directories= -D");
        let server = self.bound(way, 0, "env").args_line(&becomes);
        let server = server
            .arg(bin.join("postgres"))
            .args_line(&settings)
            .arg(&data);
        let server = self.started(server, port)?;
        server.wait_for("ready to accept connections", DEADLINE)?;
        let line = format!("-h {HOST} -p {port} -U bench -i -q -s 1 postgres");
        let tables = self.program(Way::Plain, bin.join("pgbench"));
        tables
            .args_line(&line)
            .spawn()?
            .finish(DEADLINE)?
            .success()?;
        Ok(server)
    }

    /// Measures one figure.
    fn sample(&self, work: Work, way: Way, plan: Plan) -> Result<f64> {
        let port = work.port(way);
        let of = |full: u32, quick: u32| match self.quick {
            true => quick / plan.parts,
            false => full / plan.parts,
        };
        let requests_of = |clients| match clients {
            1 => 20_000,
            _ => of(100_000, 30_000),
        };
        match work {
            Work::Redis {
                command,
                clients,
                pipeline,
                ..
            } => {
                let requests = requests_of(clients) * pipeline;
                let size = format!("-n {requests} -c {clients} -P {pipeline} -d 64");
                let line = format!("-h {HOST} -p {port} {size} -t {command} --csv");
                requests_per_second(&self.finish(work, way, "redis-benchmark", &line)?.text)
            }
            Work::RedisTime { clients } => {
                self.redis_time(work, way, clients, requests_of(clients))
            }
            Work::Iperf { streams } => {
                let line = format!(
                    "-c {HOST} -p {port} -P {streams} -n {}M -f g",
                    of(4096, 1024)
                );
                gigabits_per_second(&self.finish(work, way, "iperf3", &line)?.text)
            }
            Work::Http { is_kept } => self.http(work, way, is_kept),
            Work::Pgbench { .. } => {
                let count = of(10_000, 3_000);
                let line = format!("-h {HOST} -p {port} -U bench -S -n -c 1 -t {count} postgres");
                let pgbench = postgres_bin()?.join("pgbench");
                labelled(&self.finish(work, way, pgbench, &line)?.text, "tps =")
            }
            Work::Memcached => {
                let get = format!("get {port} 4 {}", of(10_000, 4_000));
                self.end_figure(way, &format!("--processor {} {get}", work.processor()), 0)
            }
            Work::PingPong { waiting, .. } => {
                let ping = format!("ping {port} {} {}", waiting.word(), of(20_000, 8_000));
                self.end_figure(way, &format!("--processor {} {ping}", work.processor()), 0)
            }
            Work::Connect { .. } => {
                let connect = format!("connect {port} {}", of(10_000, 4_000));
                self.end_figure(
                    way,
                    &format!("--processor {} {connect}", work.processor()),
                    0,
                )
            }
            Work::First => self.end_figure(way, &format!("--processor 0 first {port}"), 0),
            Work::Bulk { kib } => self.bulk(work, way, kib, 0),
            Work::BulkTime { kib } => self.bulk(work, way, kib, 1),
            Work::Calls => {
                let calls = format!("calls {}", of(300_000, 100_000));
                self.end_figure(way, &format!("--processor {} {calls}", work.processor()), 0)
            }
            Work::Start => self.start(way, of(50, 20)),
            Work::Memory => self.end_figure(way, "hold 400", 0),
            Work::Descriptors => self.end_figure(way, "hold 400", 1),
        }
    }

    /// One of the figures of writes of `kib` KiB.
    fn bulk(&self, work: Work, way: Way, kib: usize, place: usize) -> Result<f64> {
        let mib = if self.quick { 256 } else { 1024 };
        let (processor, port) = (work.processor(), work.port(way));
        let line = format!("--processor {processor} bulk {port} {} {mib}", kib << 10);
        self.end_figure(way, &line, place)
    }

    /// Requests per second, each on its own connection or all on a few.
    fn http(&self, work: Work, way: Way, is_kept: bool) -> Result<f64> {
        let line = format!("-t 1 -c 16 -d 1s http://{HOST}:{}/small", work.port(way));
        let wrk = self.bound(way, work.processor(), "wrk").args_line(&line);
        let wrk = match is_kept {
            true => wrk,
            false => wrk.arg("-H").arg("Connection: close"),
        };
        let run = wrk.spawn()?.finish(DEADLINE)?.success()?;
        let run = run.never_prints("Non-2xx")?.never_prints("Socket errors")?;
        labelled(&run.text, "Requests/sec:")
    }

    /// Microseconds of a processor per request, of the server and of its clients.
    fn redis_time(&self, work: Work, way: Way, clients: u32, requests: u32) -> Result<f64> {
        let port = work.port(way);
        let of_server = || -> Result<f64> {
            let line = format!("-h {HOST} -p {port} info cpu");
            let info = self.finish(Work::Start, Way::Plain, "redis-cli", &line)?;
            let seconds = |label| labelled(&info.text, label);
            Ok(seconds("used_cpu_sys:")? + seconds("used_cpu_user:")?)
        };
        let server_before = of_server()?;
        let clients_before = processor_time_of_children()?;
        let line = format!("-h {HOST} -p {port} -n {requests} -c {clients} -d 64 -t get --csv");
        self.finish(work, way, "redis-benchmark", &line)?;
        let of_clients = processor_time_of_children()? - clients_before;
        let of_server = of_server()? - server_before;
        Ok((of_clients + of_server) * 1e6 / f64::from(requests))
    }

    /// Milliseconds of the start of a program.
    fn start(&self, way: Way, times: u32) -> Result<f64> {
        let start = Instant::now();
        for _ in 0..times {
            self.finish(Work::Start, way, "true", "")?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e3 / f64::from(times))
    }

    /// Returns the figure at `place` in the line that an end prints.
    fn end_figure(&self, way: Way, line: &str, place: usize) -> Result<f64> {
        let run = self.end(way, line)?.spawn()?.finish(DEADLINE)?.success()?;
        let figure = run.text.split_whitespace().nth(place);
        let figure = figure.and_then(|word| word.parse().ok());
        figure.with_context(|| format!("no figure in {:?}", run.text))
    }

    /// Runs the client of a kind of work to its end.
    fn finish(&self, work: Work, way: Way, name: impl AsRef<Path>, line: &str) -> Result<Finished> {
        let program = match work {
            Work::Start => self.program(way, name),
            _ => self.bound(way, work.processor(), name),
        };
        program.args_line(line).spawn()?.finish(DEADLINE)?.success()
    }
}

/// Seconds of a processor that the ended programs of this process have used.
fn processor_time_of_children() -> Result<f64> {
    let used = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |time: TimeVal| time.num_microseconds() as f64 / 1e6;
    Ok(seconds(used.system_time()) + seconds(used.user_time()))
}

/// The directory in which Debian keeps the programs of PostgreSQL.
fn postgres_bin() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").context("looking for PostgreSQL")?;
    let mut found = versions.flatten().map(|entry| entry.path().join("bin"));
    found
        .find(|bin| bin.join("initdb").exists())
        .context("no version of PostgreSQL is installed")
}

/// `"GET","51234.56","0.095",...`
fn requests_per_second(csv: &str) -> Result<f64> {
    let figure = csv.lines().skip(1).find_map(|line| {
        let mut columns = line.split(',').map(|column| column.trim_matches('"'));
        columns.nth(1)?.parse().ok()
    });
    figure.with_context(|| format!("no figure in {csv:?}"))
}

/// The number after a label at the beginning of a line.
fn labelled(text: &str, label: &str) -> Result<f64> {
    let mut lines = text.lines();
    let rest = lines.find_map(|line| line.trim().strip_prefix(label));
    let figure = rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    figure.with_context(|| format!("no {label} in {text:?}"))
}

/// `[SUM]   0.00-1.23   sec  4.00 GBytes  27.9 Gbits/sec                  receiver`; with one
/// stream, the line of that stream, because there is no sum.
fn gigabits_per_second(text: &str) -> Result<f64> {
    let mut lines = text
        .lines()
        .filter(|line| line.trim_end().ends_with("receiver"));
    let Some(line) = lines.next_back() else {
        bail!("no figure of the receiver in {text:?}");
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    let place = words.iter().position(|word| *word == "Gbits/sec");
    let figure = place.and_then(|place| words.get(place.checked_sub(1)?)?.parse().ok());
    let figure = figure.with_context(|| format!("no figure in {line:?}"))?;
    ensure!(figure > 0.0, "nothing was received: {line:?}");
    Ok(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_parsed_from_the_output_of_the_programs() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"51234.56\",\"0.095\"\n";
        assert_eq!(requests_per_second(csv).unwrap(), 51234.56);
        assert!(requests_per_second("Could not connect").is_err());
        let text = "[  5] 0.00-1.23 sec 4.00 GBytes 28.1 Gbits/sec 0 sender\n\
                    [  5] 0.00-1.23 sec 4.00 GBytes 27.9 Gbits/sec     receiver\n\
                    [SUM] 0.00-1.23 sec 8.00 GBytes 55.8 Gbits/sec     receiver\n";
        assert_eq!(gigabits_per_second(text).unwrap(), 55.8);
        assert!(gigabits_per_second("iperf3: error").is_err());
        let wrk = "  1 threads\nRequests/sec:  70123.45\nTransfer/sec: 80MB\n";
        assert_eq!(labelled(wrk, "Requests/sec:").unwrap(), 70123.45);
        let tps = "tps = 12345.6 (without initial connection time)\n";
        assert_eq!(labelled(tps, "tps =").unwrap(), 12345.6);
        assert!(labelled("", "tps =").is_err());
    }

    #[test]
    fn the_plain_server_and_the_other_server_have_different_ports() {
        for work in [Work::Memcached, Work::Iperf { streams: 1 }] {
            assert_ne!(work.port(Way::Plain), work.port(Way::Stays));
        }
    }
}
