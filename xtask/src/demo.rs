//! The stack at work: registry, two processes, figures, C, and OFA's own test program.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use stack_tests::{Finished, IA_NAME, Program, StackEnv, Stage, make_c_examples};

use crate::bench;
use crate::install::{self, Need};
use crate::report::{Outcome, Report};
use crate::stage::{self, Form, Progress};
use crate::workspace::Workspace;

/// The programs that the demo offers to install. OFA's dtest is not among them: its package
/// installs an `/etc/dat.conf`, which takes the place of the adapters that dat-rs has without a
/// file.
const NEEDS: &[Need] = &[
    install::CC,
    install::NM,
    install::PKG_CONFIG,
    install::REDIS,
    install::REDIS_TOOLS,
    install::IBV_PINGPONG,
    install::PERFTEST,
];

/// The port on which the two programs of the example connect, and the one on which dtest exchanges
/// addresses.
const CONVERT_PORT: u16 = 4711;
const DTEST_PORT: u16 = 15828;
const REDIS_PORT: u16 = 4712;
/// The port on which programs for verbs exchange the numbers of their queue pairs.
const VERBS_PORT: u16 = 18515;

const DEADLINE: Duration = Duration::from_secs(40);

/// Runs the demonstration. Its last line lists the parts that worked.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    let mut report = Report::new("demo");
    report.step("packages", || install::provide_if_agreed(workspace, NEEDS));
    println!("Building; the first time takes minutes.");
    let started = Instant::now();
    println!(
        "{} ({:.0} s)\n",
        stage::run(workspace, Progress::Shown, Form::Demo)?,
        elapsed(started)
    );

    let env = StackEnv::at(Stage::at(workspace.stage_dir())?)?;
    let demo = Demo { workspace, env };
    let mut worked = Vec::new();
    for scene in SCENES {
        println!("{}", scene.heading);
        let run = || match install::missing(scene.needs) {
            absent if absent.is_empty() => (scene.run)(&demo),
            absent => Ok(Outcome::NotRun(install::advice(&absent))),
        };
        if report.step(scene.name, run) {
            worked.push(scene.name);
        }
        println!();
    }
    let code = report.finish();
    println!(
        "demo: worked: {}",
        if worked.is_empty() {
            "nothing".into()
        } else {
            worked.join("; ")
        }
    );
    Ok(code)
}

/// A part of the demonstration.
struct Scene {
    name: &'static str,
    heading: &'static str,
    needs: &'static [Need],
    run: fn(&Demo<'_>) -> Result<Outcome>,
}

const SCENES: &[Scene] = &[
    Scene {
        name: "registry",
        heading: "Adapters in the registry (bin/datinfo --list):",
        needs: &[],
        run: |demo| demo.registry(),
    },
    Scene {
        name: "TCP to RDMA, Rust to Rust",
        heading: "Two processes meet over TCP and convert the connection \
                  (bin/dat-example-convert):",
        needs: &[],
        run: |demo| demo.rust_to_rust(),
    },
    Scene {
        name: "unmodified redis within the host",
        heading: "redis as Debian ships it, without and with bin/opsrun at both ends:",
        needs: &[install::REDIS, install::REDIS_TOOLS],
        run: |demo| demo.redis_and_plain(),
    },
    Scene {
        name: "verbs without a device",
        heading: "RDMA programs as Debian ships them, without an RDMA device (bin/verbsrun):",
        needs: &[install::IBV_PINGPONG, install::PERFTEST],
        run: |demo| demo.verbs(),
    },
    Scene {
        name: "figures",
        heading: "DAT within the host, compared with TCP (bin/dat-bench --place local):",
        needs: &[],
        run: |demo| demo.figures(),
    },
    Scene {
        name: "TCP to RDMA, C to Rust",
        heading: "The same with a C program as the server (examples/c/convert.c, pkg-config dat2):",
        needs: &[install::CC, install::MAKE, install::PKG_CONFIG],
        run: |demo| demo.c_to_rust(),
    },
    Scene {
        name: "OFA's dtest",
        heading: "OFA's dtest, unmodified, as Debian ships it:",
        needs: &[install::DTEST],
        run: |demo| demo.dtest(),
    },
];

struct Demo<'a> {
    workspace: &'a Workspace,
    env: StackEnv,
}

impl Demo<'_> {
    fn registry(&self) -> Result<Outcome> {
        let datinfo = self
            .env
            .program(self.tool("datinfo")?)
            .args_line("--list")
            .echo();
        datinfo
            .spawn()?
            .finish(DEADLINE)?
            .success()?
            .prints(IA_NAME)?;
        Ok(Outcome::passed(0, ""))
    }

    fn rust_to_rust(&self) -> Result<Outcome> {
        self.convert(&self.tool("dat-example-convert")?)
    }

    fn c_to_rust(&self) -> Result<Outcome> {
        self.convert(&self.compile_c_example()?)
    }

    /// Runs `server` as the server, and the Rust example as the client.
    fn convert(&self, server: &Path) -> Result<Outcome> {
        let address = format!("127.0.0.1:{CONVERT_PORT}");
        let start = |program: &Path, role: &str| {
            let args = format!("--{role} {address} --ia {IA_NAME}");
            self.env
                .program(program)
                .args_line(&args)
                .named(role)
                .echo()
                .spawn()
        };
        let server = start(server, "listen")?;
        self.env
            .net
            .wait_for_listener(CONVERT_PORT, DEADLINE)
            .with_context(|| server.text())?;
        let client = start(&self.tool("dat-example-convert")?, "connect")?
            .finish(DEADLINE)?
            .success()?;
        // If RDMA is not available, both programs continue in streaming mode, and succeed.
        client.prints("is an RDMA connection now")?;
        server.finish(DEADLINE)?.success()?;
        Ok(Outcome::passed(0, "data verified on both sides"))
    }

    fn redis_and_plain(&self) -> Result<Outcome> {
        for (title, is_offloaded) in [("without", false), ("with opsrun", true)] {
            for line in self.redis(is_offloaded)? {
                println!("    | {title:11}  {line}");
            }
        }
        Ok(Outcome::passed(0, "every connection offloaded"))
    }

    /// Runs redis and its load generator, both under `opsrun` or without it. Prints the lines of
    /// `opsrun ss` for two of the connections, and returns the figures.
    fn redis(&self, is_offloaded: bool) -> Result<Vec<String>> {
        let tool = self.tool("opsrun")?;
        let start = |name: &str, line: &str| {
            let program = match is_offloaded {
                true => Program::new(&tool).arg(name),
                false => Program::new(name),
            };
            let program = program.args_line(line);
            program.env_remove("LD_PRELOAD").named(name)
        };
        let line = format!("--port {REDIS_PORT} --bind 127.0.0.1 --save");
        let server = start("redis-server", &line).arg("").spawn()?;
        self.env
            .net
            .wait_for_listener_of(&server, REDIS_PORT, DEADLINE)?;
        let line = format!("-p {REDIS_PORT} -t set,get -c 50 -n 100000 -d 64 -q");
        let load = start("redis-benchmark", &line).spawn()?;
        if is_offloaded {
            print!("{}", connections_under(&tool)?);
        }
        let load = load.finish(DEADLINE)?.success()?;
        server.signal(Signal::SIGTERM)?;
        server.finish(DEADLINE)?;
        // Lines of progress end with a carriage return.
        let figures = load.text.split(['\r', '\n']).map(str::trim);
        Ok(figures
            .filter(|line| line.contains("requests per second"))
            .map(str::to_owned)
            .collect())
    }

    fn verbs(&self) -> Result<Outcome> {
        let devinfo = self.verbs_program("ibv_devinfo -d dat_lo")?.spawn()?;
        let devinfo = devinfo.finish(DEADLINE)?.success()?;
        let of_device = ["hca_id:", "transport:", "state:", "link_layer:"];
        show("ibv_devinfo", &devinfo.prints("PORT_ACTIVE")?, &of_device);
        let client = self.verbs_pair("ibv_rc_pingpong -d dat_lo -g 0")?;
        show("ibv_rc_pingpong", &client, &["1000 iters in"]);
        let client = self.verbs_pair("ib_write_bw -d dat_lo -x 0 -s 65536")?;
        print_lines(&client, &["#bytes", " 65536 "]);
        Ok(Outcome::passed(0, "no root, kernel module or daemon"))
    }

    /// A program under `verbsrun`.
    fn verbs_program(&self, line: &str) -> Result<Program> {
        let program = Program::new(self.tool("verbsrun")?).args_line(line);
        Ok(program.named(line.split(' ').next().unwrap_or_default()))
    }

    /// Runs a program for verbs as a server, and the same as its client. Returns what the client
    /// printed.
    fn verbs_pair(&self, line: &str) -> Result<Finished> {
        let server = self.verbs_program(line)?.spawn()?;
        self.env
            .net
            .wait_for_listener_of(&server, VERBS_PORT, DEADLINE)?;
        let client = self.verbs_program(&format!("{line} 127.0.0.1"))?.spawn()?;
        let client = client.finish(DEADLINE)?.success()?;
        server.finish(DEADLINE)?.success()?;
        Ok(client)
    }

    fn compile_c_example(&self) -> Result<PathBuf> {
        let directory = self.env.registry.dir();
        make_c_examples(&self.env.stage, directory, "convert")?;
        Ok(directory.join("convert"))
    }

    fn dtest(&self) -> Result<Outcome> {
        let success = "DAPL Test Complete. PASSED";
        let start = |role: &str| {
            let args = format!("-P {IA_NAME} -b 65536 {role}");
            self.env
                .program("dtest")
                .args_line(&args)
                .named("dtest")
                .spawn()
        };
        let server = start("-s")?;
        self.env
            .net
            .wait_for_listener(DTEST_PORT, DEADLINE)
            .with_context(|| server.text())?;
        let client = start("-h 127.0.0.1")?.finish(DEADLINE)?;
        print_lines(&client, &["Test Complete", "MB/sec", "usec"]);
        client.prints(success)?;
        server.finish(DEADLINE)?.prints(success)?;
        Ok(Outcome::passed(0, "PASSED on both sides"))
    }

    fn figures(&self) -> Result<Outcome> {
        let line = "--quick --only dat --place local";
        bench::measure(self.workspace, &self.env, line)?;
        Ok(Outcome::passed(0, ""))
    }

    fn tool(&self, name: &str) -> Result<PathBuf> {
        let tool = self.env.stage.bin(name);
        ensure!(
            tool.exists(),
            "{} is not staged; no package builds it",
            tool.display()
        );
        Ok(tool)
    }
}

/// The output of `opsrun ss`, once it lists connections of both sides, of which none is on TCP.
fn connections_under(opsrun: &Path) -> Result<String> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let listed = Program::new(opsrun).arg("ss").spawn()?.finish(DEADLINE)?;
        let text = listed.success()?.text;
        let of_redis = |line: &&str| line.contains("redis-") || line.starts_with("Proto");
        let rows: Vec<&str> = text.lines().filter(of_redis).collect();
        // Only the kernel has the state of connections of the protocol `local`.
        let is_up = |row: &&&str| {
            row.contains("ESTAB") || row.starts_with("local") && !row.contains("LISTEN")
        };
        if rows.iter().filter(is_up).count() >= 4 {
            ensure!(
                !rows.iter().any(|row| row.starts_with("tcp")),
                "a connection stayed on TCP:\n{text}"
            );
            // The head, and a connection of each side.
            let of = |program| {
                rows.iter()
                    .find(move |row| row.contains(program) && is_up(row))
            };
            let shown = [rows.first(), of("redis-server"), of("redis-benchm")];
            let shown = shown.into_iter().flatten();
            return Ok(shown.map(|row| format!("    | {row}\n")).collect());
        }
        ensure!(
            Instant::now() < deadline,
            "no offloaded connections in:\n{text}"
        );
    }
}

/// Prints the lines that begin with one of the words, as one line.
fn show(program: &str, finished: &Finished, words: &[&str]) {
    let lines = finished
        .text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let is_relevant = |line: &String| words.iter().any(|word| line.starts_with(word));
    let shown: Vec<String> = lines.filter(is_relevant).collect();
    println!("    | {program}: {}", shown.join(", "));
}

fn print_lines(finished: &Finished, words: &[&str]) {
    let is_relevant = |line: &&str| words.iter().any(|word| line.contains(word));
    finished
        .text
        .lines()
        .filter(is_relevant)
        .for_each(|line| println!("    | {line}"));
}

fn elapsed(started: Instant) -> f64 {
    started.elapsed().as_secs_f64()
}
