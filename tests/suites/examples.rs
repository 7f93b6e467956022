//! The examples, built and run by the documented commands: the conversion of a connection with each
//! language at each end and with each outcome, and the small examples over loopback; and the
//! compiler flags of `pkg-config`, with which they are built; and `dat-bench` between two networks.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use stack_tests::{
    DEADLINE, Finished, IA_NAME, Program, StackEnv, Stage, Veth, c_examples, make_c_examples, rows,
};

const ADDRESS: &str = "127.0.0.1:4711";
const PORT: u16 = 4711;

/// The text that a program prints once its socket has become an RDMA connection.
const CONVERTED: &str = "is an RDMA connection now";

/// The programs in both languages.
struct Examples {
    env: StackEnv,
    rust: PathBuf,
    c: PathBuf,
}

impl Examples {
    fn new() -> Result<Self> {
        let env = StackEnv::new()?;
        let built = env.registry.dir().to_owned();
        make_c_examples(&env.stage, &built, "hello convert")?;
        Ok(Self {
            rust: env.stage.example("convert"),
            c: built.join("convert"),
            env,
        })
    }

    /// Runs server and client until both have ended. Returns the output of both.
    fn run_pair(&self, server: (&Path, &str), client: (&Path, &str)) -> Result<[Finished; 2]> {
        let start = |role: &str, (program, options): (&Path, &str)| {
            let args = format!("--{role} {ADDRESS} --ia {IA_NAME} {options}");
            self.env
                .program(program)
                .args_line(&args)
                .named(role)
                .spawn()
        };
        let server = start("listen", server)?;
        self.env
            .net
            .wait_for_listener(PORT, DEADLINE)
            .with_context(|| server.text())?;
        let client = start("connect", client)?.finish(DEADLINE);
        let client = client
            .and_then(Finished::success)
            .with_context(|| server.text())?;
        Ok([server.finish(DEADLINE)?.success()?, client])
    }
}

fn both_convert(server: &Path, client: &Path, examples: &Examples) -> Result<()> {
    let [server, client] = examples.run_pair((server, ""), (client, ""))?;
    server.prints(CONVERTED)?;
    client.prints(CONVERTED)?;
    Ok(())
}

fn both_stream(server: (&Path, &str), client: (&Path, &str), examples: &Examples) -> Result<()> {
    let [server, client] = examples.run_pair(server, client)?;
    server
        .never_prints(CONVERTED)?
        .prints("done in streaming mode")?;
    client
        .never_prints(CONVERTED)?
        .prints("done in streaming mode")?;
    Ok(())
}

#[test]
fn rust_and_rust_convert() -> Result<()> {
    let examples = Examples::new()?;
    both_convert(&examples.rust, &examples.rust, &examples)
}

#[test]
fn c_serves_rust() -> Result<()> {
    let examples = Examples::new()?;
    both_convert(&examples.c, &examples.rust, &examples)
}

#[test]
fn rust_serves_c() -> Result<()> {
    let examples = Examples::new()?;
    both_convert(&examples.rust, &examples.c, &examples)
}

#[test]
fn c_and_c_convert() -> Result<()> {
    let examples = Examples::new()?;
    both_convert(&examples.c, &examples.c, &examples)
}

#[test]
fn both_sides_stay_in_streaming_mode_after_a_reject() -> Result<()> {
    let examples = Examples::new()?;
    both_stream((&examples.rust, "--reject"), (&examples.c, ""), &examples)?;
    both_stream((&examples.c, "--reject"), (&examples.rust, ""), &examples)
}

#[test]
fn both_sides_stay_in_streaming_mode_with_a_program_without_rdma() -> Result<()> {
    let examples = Examples::new()?;
    both_stream((&examples.rust, "--no-rdma"), (&examples.c, ""), &examples)?;
    both_stream((&examples.rust, ""), (&examples.c, "--no-rdma"), &examples)
}

#[test]
fn hello_names_the_adapter_and_closes_it() -> Result<()> {
    let examples = Examples::new()?;
    let hello = examples.env.program(examples.c.with_file_name("hello"));
    let greeting = hello.args_line(IA_NAME).run(DEADLINE)?;
    greeting
        .prints(&format!("{IA_NAME}: adapter"))?
        .never_prints("dat_ia_close")?;
    Ok(())
}

/// Runs both ends of a small example: one server, some clients.
fn run_pair(name: &str, clients: usize, server_text: &str, client_text: &str) -> Result<()> {
    let env = StackEnv::new()?;
    make_c_examples(&env.stage, env.registry.dir(), name)?;
    let start = |args: &str, role: &str| {
        let program = env.program(env.registry.dir().join(name));
        program.args_line(args).named(role).spawn()
    };
    let server = start(IA_NAME, "server")?;
    env.net
        .wait_for_listener(PORT, DEADLINE)
        .with_context(|| server.text())?;
    let args = format!("{IA_NAME} 127.0.0.1");
    let running: Result<Vec<_>> = (0..clients).map(|_| start(&args, "client")).collect();
    for client in running? {
        let client = client.finish(DEADLINE).and_then(Finished::success);
        client.with_context(|| server.text())?.prints(client_text)?;
    }
    server.finish(DEADLINE)?.success()?.prints(server_text)?;
    Ok(())
}

/// Declares a test for each small example: the number of clients, and texts that the server and the
/// clients print.
macro_rules! pairs {
    ($($name:ident($clients:literal): $server:literal, $client:literal;)+) => {
        const PAIRS: &[&str] = &[$(stringify!($name)),+];
        mod pair {
            $(
                #[test]
                fn $name() -> anyhow::Result<()> {
                    super::run_pair(stringify!($name), $clients, $server, $client)
                }
            )+
        }
    };
}

pairs! {
    pingpong(1): "answered 1000 messages", "1000 round trips";
    mpi(1): "rank 0: every byte was as sent", "two messages were matched by their tags";
    tcpserver(1): "answered 2 messages over RDMA", "over RDMA: HOW ARE YOU";
    rdma(1): "the client wrote bytes with the sum", "wrote 32768 bytes and read them back";
    window(1): "and invalidated the window", "wrote 27 bytes through the window and invalidated it";
    srq(3): "served 3 clients from one queue", "the server says \"welcome\"";
    poll(1): "4 messages in all", "sent four messages";
    csp(1): "found you by address and port", "";
    itapi(1): "answered 1000 messages", "the number is 1000 after 1000 round trips";
    rsp(1): "the client says \"thank you\"", "the server answers \"this way\"";
    extension(1): "immediate data 0x600dcafe; the word is 7, and the client wrote \"hello\"",
        "now it is 7";
}

#[test]
fn a_converted_server_still_serves_clients_over_tcp() -> Result<()> {
    let env = StackEnv::new()?;
    let program = env.program(env.stage.example("tcp-server"));
    let finished = program.args_line(IA_NAME).spawn()?.finish(DEADLINE)?;
    finished
        .success()?
        .prints("client: over TCP: HOW ARE YOU")?
        .prints("client: over RDMA: HOW ARE YOU")?
        .prints("server: answered 2 lines over TCP")?;
    Ok(())
}

/// The files are: an empty one, one shorter than a piece, one that exactly fills all slots, and one
/// longer than the ring.
#[test]
fn a_file_is_transferred_with_its_progress() -> Result<()> {
    const PIECE: usize = 256 << 10;
    for (number, len) in [0, 1000, 8 * PIECE, 5_000_001].into_iter().enumerate() {
        let env = StackEnv::new()?;
        let directory = env.registry.dir();
        let original = directory.join("original");
        let copy = directory.join("copy");
        let bytes: Vec<u8> = (0..len).map(|at| (at * 13 + at / 257) as u8).collect();
        fs::write(&original, &bytes)?;
        let start = |role: &str, args: String| {
            let program = env.program(env.stage.example("file-transfer"));
            let args = format!("{args} --adapter {IA_NAME}");
            program.args_line(&args).named(role).spawn()
        };
        let receiver = start("receiver", format!("receive {PORT} {}", copy.display()))?;
        env.net
            .wait_for_listener(PORT, DEADLINE)
            .with_context(|| receiver.text())?;
        let args = format!("send {} 127.0.0.1 {PORT}", original.display());
        let sender = start("sender", args)?.finish(DEADLINE)?;
        let sender = sender.success().with_context(|| receiver.text())?;
        let receiver = receiver.finish(DEADLINE)?.success()?;
        let sender = sender.prints(&format!("sent {len} bytes"))?;
        let receiver = receiver.prints(&format!("received {len} bytes"))?;
        if len > 0 {
            sender.prints("100 % of ")?;
            receiver.prints("100 % of ")?;
        }
        ensure!(fs::read(&copy)? == bytes, "file {number} of {len} bytes");
    }
    Ok(())
}

#[test]
fn every_example_is_run() -> Result<()> {
    for program in c_examples()? {
        let name = program.file_stem().unwrap_or_default().to_string_lossy();
        let known = PAIRS.contains(&&*name) || ["hello", "convert", "sdpecho"].contains(&&*name);
        ensure!(known, "{name} is run by no test");
    }
    Ok(())
}

/// Each short example of the Rust API is a program that contains both ends and prints its results.
#[test]
fn the_short_examples_run() -> Result<()> {
    let env = StackEnv::new()?;
    for (name, final_message) in rows! {
        "send-recv", "100 round trips of 64 bytes";
        "rdma", "wrote and read 1048576 bytes of the peer";
        "srq-server", "4 clients shared 16 receives";
        "cno-poll", "12 messages and";
        "atomics", "3 counters made it 150";
        "tcp-server", "server: answered 2 messages over RDMA";
        "kv-store", "2200 changes by messages, 2202 look-ups without the server's program";
        "async-evd", "3 clients had 20 answers each, and a timer ticked 5 times";
        "async-stream", "4 streams returned 33554432 bytes, every byte as it was sent";
        "hand-over", "one connection, no answer lost";
    } {
        let program = env.program(env.stage.example(name));
        program
            .args_line(IA_NAME)
            .named(name)
            .run(DEADLINE)?
            .prints(final_message)?;
    }
    Ok(())
}

/// The two terminals of `docs/tutorial.md`, whose output the page has.
#[test]
fn the_tutorial_prints_what_its_page_says() -> Result<()> {
    let env = StackEnv::new()?;
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tutorial.md"))?;
    let shown = |end: &str| {
        let lines = page.lines().filter(|line| line.starts_with(end));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    let start = |role: &str| {
        let program = env.program(env.stage.example("tutorial"));
        let line = format!("{role} {ADDRESS} {IA_NAME}");
        program.args_line(&line).named(role).spawn()
    };
    let refused = start("connect")?.finish(DEADLINE)?;
    ensure!(!refused.status.success());
    refused.prints(&format!("nothing listens on {ADDRESS}"))?;
    let server = start("listen")?;
    env.net
        .wait_for_listener(PORT, DEADLINE)
        .with_context(|| server.text())?;
    let client = start("connect")?.finish(DEADLINE)?.success()?;
    let server = server.finish(DEADLINE)?.success()?;
    ensure!(client.text == shown("client: "), "{}", client.text);
    ensure!(server.text == shown("server: "), "{}", server.text);
    Ok(())
}

#[test]
fn a_program_for_stds_sockets_runs_over_sdp() -> Result<()> {
    let env = StackEnv::new()?;
    let program = env.program(env.stage.example("drop-in"));
    let text = "1000 lines by std's methods over SDP";
    program.run(DEADLINE)?.prints(text)?;
    Ok(())
}

/// A measurement between two hosts: two networks, and a cable in between.
#[test]
fn dat_bench_measures_between_two_hosts() -> Result<()> {
    let env = StackEnv::new()?;
    let Some(veth) = Veth::create(&env.net)? else {
        stack_tests::not_run("no right to make network namespaces");
        return Ok(());
    };
    let tool = |args: &str| env.program(env.stage.bin("dat-bench")).args_line(args);
    let server = tool("--server").in_network_of(&veth)?.spawn()?;
    server.wait_for("serving on", DEADLINE)?;
    let files = tempfile::tempdir()?;
    let [json, csv] = ["out.json", "out.csv"].map(|name| files.path().join(name));
    let short = format!("{} --rounds 1 --sample-ms 5", Veth::FAR_V4);
    // A client that is no client is refused, and the server serves the next one.
    let mut stranger = veth_stranger()?;
    let client = tool(&format!("{short} -s 8,4096"))
        .args_line("--json")
        .arg(&json)
        .args_line("--csv")
        .arg(&csv);
    let client = client.run(DEADLINE).with_context(|| server.text())?;
    for text in [
        "send-ping: latency in usec, half a round trip",
        "99.9%",
        "read: bandwidth",
        "BW peak",
    ] {
        client.clone().prints(text)?;
    }
    let rows = fs::read_to_string(&csv)?;
    ensure!(rows.lines().count() == 1 + 6 * 2, "{rows}");
    ensure!(
        rows.contains("\nwrite:4096:16@network,write,4096,16,network,dat,GB/s,"),
        "{rows}"
    );
    let text = fs::read_to_string(&json)?;
    ensure!(
        text.ends_with("], \"complete\": true}\n") && text.contains("\"p99_9\""),
        "{text}"
    );
    for (options, printed) in rows! {
        "--bidirectional", "DAT, read-bidirectional: bandwidth";
        "--one-way", "DAT, read: bandwidth";
        "--cases sdp-ping:64:1,sdp-write:65536:1", "SDP, sdp-write: bandwidth";
    } {
        let client = tool(&format!("{short} {options}")).run(DEADLINE);
        client.with_context(|| server.text())?.prints(printed)?;
    }
    let refused = tool(&format!("{short} --cases idle-ep:1:1"))
        .spawn()?
        .finish(DEADLINE)?;
    ensure!(!refused.status.success());
    refused.prints("only latency and bandwidth are measured between hosts")?;
    stranger.read_to_string(&mut String::new())?;
    server.wait_for("no client of dat-bench", DEADLINE)?;
    let alone = tool("192.0.2.1").spawn()?.finish(DEADLINE)?;
    alone.prints("where `dat-bench --server` runs")?;
    Ok(())
}

/// A connection to the server of `dat-bench` that sends a line of another protocol.
fn veth_stranger() -> Result<TcpStream> {
    let mut socket = TcpStream::connect((Veth::FAR_V4, 18515))?;
    socket.write_all(b"GET / HTTP/1.1\r\n\r\n")?;
    Ok(socket)
}

#[test]
fn pkg_config_finds_the_library_wherever_the_stage_is() -> Result<()> {
    let stage = Stage::find()?;
    let scratch = tempfile::tempdir()?;
    let elsewhere = scratch.path().join("elsewhere");
    std::os::unix::fs::symlink(stage.root(), &elsewhere)?;
    let flags = Program::new("pkg-config")
        .env("PKG_CONFIG_PATH", elsewhere.join("lib/pkgconfig"))
        .args_line("--cflags --libs dat2")
        .run(DEADLINE)?
        .prints("-ldat2")?;
    let mut words = flags.text.split_whitespace();
    let include = words.find_map(|flag| flag.strip_prefix("-I"));
    let include = Path::new(include.context("no -I flag")?);
    ensure!(include.starts_with(&elsewhere), "{}", include.display());
    ensure!(include.canonicalize()? == stage.include().canonicalize()?);
    Ok(())
}
