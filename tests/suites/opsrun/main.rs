//! The installed `opsrun`: its explanations, the programs that it runs, and its list of sockets.

mod reach;
mod sanitizers;

use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use stack_tests::{DEADLINE, Program, Running, Stage, not_run};
use tempfile::TempDir;

/// A program that accepts one connection and reads 5000 bytes.
const SERVER: &str = "
import socket, time
listener = socket.create_server(('127.0.0.1', 0))
print('port', listener.getsockname()[1], flush=True)
peer, _ = listener.accept()
left = 5000
while left:
    left -= len(peer.recv(left))
print('taken', flush=True)
time.sleep(600)
";

/// A program with both ends of a connection, of which one sends 100,000 bytes.
const BOTH_ENDS: &str = "
import socket, threading, time
listener = socket.create_server(('127.0.0.1', 0))
peer = socket.create_connection(listener.getsockname())
threading.Thread(target=peer.sendall, args=(bytes(100000),)).start()
end, _ = listener.accept()
left = 100000
while left:
    left -= len(end.recv(left))
print('taken', flush=True)
time.sleep(600)
";

/// A program that sends these bytes, and has a second connection to a peer without offload
/// protocols.
const CLIENT: &str = "
import socket, sys, time
peer = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
peer.sendall(b'x' * 5000)
plain = socket.create_connection(('127.0.0.1', int(sys.argv[2])))
print('given', flush=True)
time.sleep(600)
";

/// A program whose worker accepts three connections, while its main process continues to listen.
const PREFORKED: &str = "
import os, socket, time
listener = socket.create_server(('127.0.0.1', 0))
if os.fork() == 0:
    for _ in range(3):
        listener.accept()[0].close()
    print('taken', flush=True)
    os._exit(0)
print('port', listener.getsockname()[1], flush=True)
time.sleep(600)
";

/// A program with two connections that stay open: one by a duplicate of its descriptor, one whose
/// descriptor the program's children have closed. A third one was closed. Prints the two ports.
const KEPT: &str = "
import ctypes, os, platform, socket, subprocess, sys, time
service = ('127.0.0.1', int(sys.argv[1]))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(service)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.connect(service)
copied, closed, kept = [socket.create_connection(service) for _ in range(3)]
ports = copied.getsockname()[1], kept.getsockname()[1]
copy = os.dup(copied.fileno())
copied.close()
closed.close()
def child(fork):
    pid = fork()
    if pid == 0:
        os.close(kept.fileno())
        os.close(copy)
        os._exit(0)
    os.waitpid(pid, 0)
child(os.fork)
if platform.machine() == 'x86_64':
    # A call that runs no handlers.
    child(lambda: ctypes.CDLL(None).syscall(57))
subprocess.run(['true'], close_fds=True)
print('ports', *ports, flush=True)
time.sleep(600)
";

/// Both ends of a connection in one interpreter, which fails if a byte is wrong.
const THREADS: &str = include_str!("../preload/threads.py");

/// The staged `opsrun`, or a program that starts it, without the settings of this process.
fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for variable in ["LD_PRELOAD", "DAT_OVERRIDE", "OPS_RULES"] {
        command.env_remove(variable);
    }
    command
}

fn opsrun(args: &[&str]) -> Result<Output> {
    let mut opsrun = command(Stage::find()?.bin("opsrun"));
    Ok(opsrun.args(args).output()?)
}

fn rule_file(text: &str) -> Result<(TempDir, String)> {
    let dir = TempDir::new()?;
    let path = dir.path().join("rules");
    fs::write(&path, text)?;
    Ok((dir, path.display().to_string()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn contains(text: &str, part: &str) -> Result<()> {
    ensure!(text.contains(part), "not {part:?}:\n{text}");
    Ok(())
}

/// Runs `opsrun`, which must fail and start no program. Returns what it reports.
fn refused(rules: &str) -> Result<String> {
    let output = opsrun(&["--rules", rules, "echo", "started"])?;
    let is_refused = output.status.code() == Some(1) && output.stdout.is_empty();
    ensure!(is_refused, "{output:?}");
    Ok(text(&output.stderr))
}

#[test]
fn the_rule_that_decides_is_explained() -> Result<()> {
    let (_dir, rules) = rule_file("# ours\nuse tcp connect redis* 127.0.0.0/8:*\n")?;
    let program = ["--program", "/usr/bin/redis-cli", "127.0.0.1:6379"];
    let output = opsrun(&[&["--explain", "connect", "--rules", &rules], &program[..]].concat())?;
    let expected = format!(
        "file     {rules}\n\
         rule     line 2: use tcp connect redis* 127.0.0.0/8:*\n\
         verdict  tcp, because line 2 of the rule file says tcp\n"
    );
    ensure!(output.status.success(), "{output:?}");
    ensure!(text(&output.stdout) == expected, "{output:?}");
    Ok(())
}

#[test]
fn a_program_runs_with_the_library_in_front_of_it() -> Result<()> {
    let (_dir, rules) = rule_file("use both connect * *:*\n")?;
    let script = "echo \"$LD_PRELOAD $OPS_RULES $1\"; exit 7";
    let output = opsrun(&["--rules", &rules, "sh", "-c", script, "sh", "--rules"])?;
    // The path of the stage may contain links.
    let said = text(&output.stdout);
    let library = Stage::find()?.lib().join("libops-preload.so");
    ensure!(output.status.code() == Some(7), "{output:?}");
    let end = format!("libops-preload.so {rules} --rules\n");
    ensure!(said.ends_with(&end), "{said}");
    let named = said.split(' ').next().unwrap_or_default();
    ensure!(fs::canonicalize(named)? == fs::canonicalize(library)?);
    Ok(())
}

/// Starts a script under `opsrun`, whose own options end with the name of the interpreter.
fn python(options: &str, script: &str, args: &str, pages: &Path) -> Result<Running> {
    Program::new(Stage::find()?.bin("opsrun"))
        .args_line(options)
        .arg("-c")
        .arg(script)
        .args_line(args)
        .env("OPS_PAGES", pages)
        .env_remove("OPS_RULES")
        .spawn()
}

/// The first word after `port` that a server prints.
fn port_of(server: &Running) -> Result<String> {
    server.wait_for("\n", DEADLINE)?;
    Ok(server.text().trim_start_matches("port ").trim().to_owned())
}

fn sockets(pages: &Path) -> Result<String> {
    listed(pages, "-H")
}

fn listed(pages: &Path, options: &str) -> Result<String> {
    let mut command = Command::new(Stage::find()?.bin("opsrun"));
    let output = command
        .args(["ss", options])
        .env("OPS_PAGES", pages)
        .output()?;
    ensure!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    Ok(text(&output.stdout))
}

#[test]
fn sockets_of_two_programs_are_listed_with_their_protocols() -> Result<()> {
    let pages = TempDir::new()?;
    let plain = TcpListener::bind("127.0.0.1:0")?;
    let server = python("python3", SERVER, "", pages.path())?;
    let port = port_of(&server)?;
    let args = format!("{port} {}", plain.local_addr()?.port());
    let client = python("python3", CLIENT, &args, pages.path())?;
    server.wait_for("taken", DEADLINE)?;
    client.wait_for("given", DEADLINE)?;
    let listed = sockets(pages.path())?;
    let rows: Vec<Vec<&str>> = listed
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let row = |pid: Pid, what: &[&str]| {
        let process = format!("[{pid}]");
        let found = rows
            .iter()
            .any(|row| row[6].ends_with(&process) && what.iter().all(|word| row.contains(word)));
        ensure!(found, "nothing of {what:?} by {pid} in\n{listed}");
        Ok(())
    };
    let service = format!("127.0.0.1:{port}");
    row(
        server.pid(),
        &["local", "LISTEN", &service, "accepted", "1"],
    )?;
    row(server.pid(), &["local", "ESTAB", "here", &service])?;
    row(client.pid(), &["local", "ESTAB", "here", &service])?;
    let peer = plain.local_addr()?.to_string();
    row(
        client.pid(),
        &["tcp", "ESTAB", &peer, "no", "program", "listens"],
    )?;
    ensure!(rows.len() == 4, "{listed}");
    for running in [server, client] {
        running.signal(Signal::SIGKILL)?;
        // The program was killed, so the result of the wait does not matter.
        let _ = running.finish(DEADLINE);
    }
    ensure!(sockets(pages.path())?.is_empty());
    for directory in fs::read_dir(pages.path())? {
        ensure!(fs::read_dir(directory?.path())?.count() == 0);
    }
    Ok(())
}

/// The line below a connection over SDP counts its bytes by mechanism, also those that the thread
/// of the stack has received.
#[test]
fn the_counters_of_sdp_are_listed() -> Result<()> {
    let pages = TempDir::new()?;
    let program = python("--software python3", BOTH_ENDS, "", pages.path())?;
    program.wait_for("taken", DEADLINE)?;
    // A connection writes its counters at an event. The last one of the sender may be late: its
    // send completes after the peer has received the bytes.
    let deadline = Instant::now() + DEADLINE;
    loop {
        let text = listed(pages.path(), "-iH")?;
        let Err(error) = both_ends_count(&text) else {
            return Ok(());
        };
        if Instant::now() > deadline {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Checks that both ends of a connection over SDP are listed with their counters.
fn both_ends_count(text: &str) -> Result<()> {
    let lines: Vec<&str> = text.lines().collect();
    let counted = |line: &str| line.starts_with('\t') && line.contains("credits:");
    let connections: Vec<_> = lines
        .windows(2)
        .filter(|pair| pair[0].starts_with("sdp  ESTAB"))
        .collect();
    ensure!(connections.len() == 2, "{text}");
    ensure!(connections.iter().all(|pair| counted(pair[1])), "{text}");
    for counter in ["sent_copied:100000", "received_copied:100000"] {
        let of_one = |line: &&&str| line.split_whitespace().any(|word| word == counter);
        ensure!(
            lines.iter().filter(of_one).count() == 1,
            "{counter}\n{text}"
        );
    }
    Ok(())
}

#[test]
fn a_listener_counts_what_its_workers_accept() -> Result<()> {
    let pages = TempDir::new()?;
    let server = python("python3", PREFORKED, "", pages.path())?;
    let port = port_of(&server)?;
    for _ in 0..2 {
        std::net::TcpStream::connect(format!("127.0.0.1:{port}"))?;
    }
    let dial = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])))";
    let client = python("python3", dial, &port, pages.path())?;
    server.wait_for("taken", DEADLINE)?;
    client.finish(DEADLINE)?.success()?;
    contains(
        &sockets(pages.path())?,
        "accepted 1 offloaded and 2 over TCP",
    )
}

#[test]
fn a_listener_that_a_rule_keeps_on_tcp_is_listed_with_the_reason() -> Result<()> {
    let pages = TempDir::new()?;
    let (_dir, rules) = rule_file("use tcp listen * *:*\n")?;
    let options = format!("--rules {rules} python3");
    let server = python(&options, SERVER, "", pages.path())?;
    server.wait_for("\n", DEADLINE)?;
    let listed = sockets(pages.path())?;
    let line = listed.trim_end();
    ensure!(
        line.starts_with("tcp  LISTEN ") && line.ends_with("line 1 of the rule file says tcp"),
        "{listed}"
    );
    Ok(())
}

/// Sockets of UDP are not listed.
#[test]
fn a_connection_that_a_rule_keeps_on_tcp_is_listed_until_it_is_closed() -> Result<()> {
    let pages = TempDir::new()?;
    let (_dir, rules) = rule_file("use tcp connect * *:*\n")?;
    let service = TcpListener::bind("127.0.0.1:0")?;
    let options = format!("--rules {rules} python3");
    let port = service.local_addr()?.port().to_string();
    let client = python(&options, KEPT, &port, pages.path())?;
    client.wait_for("\n", DEADLINE)?;
    let said = client.text();
    let mut ports: Vec<&str> = said.split_whitespace().skip(1).collect();
    ports.sort_unstable();
    let listed = sockets(pages.path())?;
    let peer = service.local_addr()?.to_string();
    let mut found = Vec::new();
    for line in listed.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        ensure!(words[0] == "tcp" && words[3] == peer, "{listed}");
        ensure!(
            line.ends_with("line 1 of the rule file says tcp"),
            "{listed}"
        );
        found.push(words[2].trim_start_matches("127.0.0.1:"));
    }
    found.sort_unstable();
    ensure!(found == ports, "not {ports:?}:\n{listed}");
    Ok(())
}

/// On Debian, for example, `redis-server` is a link to another program.
#[test]
fn a_rule_is_for_a_program_that_is_started_through_a_link() -> Result<()> {
    let pages = TempDir::new()?;
    let (dir, rules) = rule_file("use tcp listen by-link *:*\n")?;
    // `python3` may be a script that checks its own name, so the interpreter itself is linked.
    let found = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output()?;
    let link = dir.path().join("by-link");
    std::os::unix::fs::symlink(text(&found.stdout).trim_end(), &link)?;
    let link = link.display().to_string();
    let options = format!("--rules {rules} {link}");
    let server = python(&options, SERVER, "", pages.path())?;
    server.wait_for("\n", DEADLINE)?;
    contains(&sockets(pages.path())?, "line 1 of the rule file")?;
    let line = ["--rules", &rules, "--explain", "listen", "--program", &link];
    let explained = opsrun(&[&line[..], &["127.0.0.1:80"]].concat())?;
    contains(&text(&explained.stdout), "line 1 of the rule file says tcp")
}

/// Runs an interpreter that communicates with itself over SDP. Returns its standard output and its
/// standard error.
fn logged(rules: &str, dat_log: &str, script: &str) -> Result<(String, String)> {
    let (dir, path) = rule_file(rules)?;
    let output = command(Stage::find()?.bin("opsrun"))
        .args(["--rules", &path, "python3", "-c", script])
        .env("DAT_LOG", dat_log)
        .current_dir(dir.path())
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    let file = fs::read_to_string(dir.path().join("log")).unwrap_or_default();
    ensure!(output.stdout.is_empty(), "{output:?}");
    Ok((text(&output.stderr), file))
}

#[test]
fn socket_decisions_are_reported_on_request() -> Result<()> {
    let (quiet, file) = logged("use both connect * *:*\n", "", THREADS)?;
    ensure!(quiet.is_empty() && file.is_empty(), "{quiet}{file}");
    let rules = "log min-level 7 destination file log\n";
    let (stderr, file) = logged(rules, "", THREADS)?;
    ensure!(stderr.is_empty(), "{stderr}");
    for said in [
        "a service is offered",
        "a connection is offloaded",
        "is accepted",
    ] {
        contains(&file, said)?;
    }
    ensure!(!file.contains("the rule file decides"), "{file}");
    let (stderr, _) = logged("log min-level 9\n", "ops=debug", THREADS)?;
    contains(&stderr, "the rule file decides")
}

/// A program that closes standard error and gets its number again for another file. That file must
/// not receive log lines.
const REUSES: &str = "
import os, socket
def exchange():
    listener = socket.create_server(('127.0.0.1', 0))
    peer = socket.create_connection(listener.getsockname())
    peer.close()
    listener.close()
exchange()
os.close(2)
assert os.open('own', os.O_RDWR | os.O_CREAT) == 2
exchange()
child = os.fork()
if child == 0:
    exchange()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert os.stat('own').st_size == 0
";

#[test]
fn reports_go_to_no_file_that_took_the_number_of_standard_error() -> Result<()> {
    let (stderr, _) = logged("log min-level 1\n", "", REUSES)?;
    contains(&stderr, "a service is offered")
}

fn explained(args: &[&str], dat_conf: Option<&Path>) -> Result<String> {
    let mut opsrun = command(Stage::find()?.bin("opsrun"));
    opsrun.args(["--software", "--explain"]).args(args);
    if let Some(file) = dat_conf {
        opsrun.env("DAT_OVERRIDE", file);
    }
    let output = opsrun.output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(text(&output.stdout))
}

#[test]
fn settings_and_the_adapter_are_reported() -> Result<()> {
    let (_dir, rules) =
        rule_file("use both listen * *:80 sdp.send-buffer=1M sdp.receive-buffers=8\n")?;
    let args = ["listen", "--rules", &rules, "192.0.2.1:80"];
    let in_force = "sdp.send-buffer=1048576 sdp.receive-buffers=8 sdp.receive-size=65536";
    let zero_copy = "sdp.registered=131072 sdp.read-zcopy=524288 sdp.write-zcopy=131072";
    let line = format!("sdp      can carry it, by iwarp-any, {in_force} {zero_copy}");
    // The sample applies to every address, as does an absent file.
    let sample = Stage::find()?.root().join("etc/dat.conf");
    for dat_conf in [None, Some(sample.as_path())] {
        let output_text = explained(&args, dat_conf)?;
        let end = "verdict  sdp and tcp\n";
        ensure!(output_text.ends_with(end), "{output_text}");
        contains(&output_text, &line)?;
    }
    Ok(())
}

#[test]
fn an_explanation_names_the_listeners_that_stay_on_tcp() -> Result<()> {
    let line_of_local = |role: &str| -> Result<String> {
        let output = opsrun(&["--explain", role, "127.0.0.1:1"])?;
        ensure!(output.status.success(), "{output:?}");
        let output_text = text(&output.stdout);
        let mut lines = output_text.lines().filter(|line| line.starts_with("local"));
        Ok(lines.next_back().unwrap_or_default().to_owned())
    };
    let listen = line_of_local("listen")?;
    let begin = "local    can carry it, unless SO_REUSEPORT";
    ensure!(listen.starts_with(begin), "{listen}");
    let connect = line_of_local("connect")?;
    ensure!(connect.starts_with("local    no: "), "{connect}");
    let end = "the listener has SO_REUSEPORT";
    ensure!(connect.ends_with(end), "{connect}");
    Ok(())
}

#[test]
fn an_address_without_an_adapter_is_reported_with_the_missing_line() -> Result<()> {
    let dir = TempDir::new()?;
    let file = dir.path().join("dat.conf");
    let line = |name: &str, params: &str| {
        format!("{name} u2.0 nonthreadsafe default libdapl-iwarp.so.2 dat-rs.1.0 \"{params}\" \"\"")
    };
    let advice = format!(
        "\nadvice   add to {}: {} - or name another adapter in OPS_SDP_ADAPTER\n",
        file.display(),
        line("iwarp-any", "lo 0 sockets=any")
    );
    let ask = |text: &str| {
        fs::write(&file, text)?;
        explained(&["listen", "192.0.2.1:80"], Some(&file))
    };
    let own = ask(&line("iwarp-lo", "lo 0"))?;
    let why = "iwarp-lo carries connections of 127.0.0.1 alone, not of 192.0.2.1";
    contains(&own, &format!("sdp      no: {why}\n"))?;
    let verdict = format!("verdict  tcp, because {why}{advice}");
    ensure!(own.ends_with(&verdict), "{own}");
    let none = ask("")?;
    let why = format!(
        "{} lists no adapter of the software provider",
        file.display()
    );
    ensure!(none.ends_with(&format!("{why}{advice}")), "{none}");
    Ok(())
}

#[test]
fn an_unknown_sdp_setting_is_reported_and_no_program_is_started() -> Result<()> {
    let (_dir, rules) = rule_file("use both connect * *:* sdp.zcopi=1\n")?;
    let output_text = refused(&rules)?;
    let known = "local.peers, sdp.send-buffer, sdp.receive-buffers, sdp.receive-size, \
                 sdp.registered, sdp.read-zcopy, sdp.write-zcopy";
    let why = format!("unknown setting `sdp.zcopi`; offload protocols have {known}");
    let expected = format!("opsrun: {rules}:1:24: {why}\n");
    ensure!(output_text == expected, "{output_text}");
    Ok(())
}

/// A program that connects to itself, and prints the number of bytes that it can send to a socket
/// that no thread reads.
const FILLS: &str = "
import socket
listener = socket.create_server(('127.0.0.1', 0))
peer = socket.create_connection(listener.getsockname())
here, _ = listener.accept()
peer.setblocking(False)
taken = 0
try:
    while True:
        taken += peer.send(b'x' * 4096)
except BlockingIOError:
    print(taken)
";

#[test]
fn settings_are_those_of_the_rules_sockets() -> Result<()> {
    let taken = |settings: &str| -> Result<u64> {
        let rules = format!(
            "use sdp connect * *:* within=60s {settings}\nuse sdp listen * *:* {settings}\n"
        );
        let (_dir, path) = rule_file(&rules)?;
        let output = opsrun(&["--rules", &path, "python3", "-c", FILLS])?;
        Ok(text(&output.stdout).trim().parse()?)
    };
    let small = taken("sdp.send-buffer=16K sdp.receive-buffers=4 sdp.receive-size=4K")?;
    let large = taken("sdp.send-buffer=4M")?;
    // The limit includes the buffers of both ends, which are in one process, and TCP's buffers.
    ensure!(small < 512 << 10, "{small}");
    ensure!(large > 4 << 20, "{large}");
    Ok(())
}

/// A program that connects to itself without blocking, and prints the errors of the socket.
const CONNECTS_IN_VAIN: &str = "
import errno, select, socket
listener = socket.create_server(('127.0.0.1', 0))
peer = socket.socket()
peer.setblocking(False)
assert peer.connect_ex(listener.getsockname()) == errno.EINPROGRESS
watch = select.poll()
watch.register(peer, 0)
((_, seen),) = watch.poll()
assert seen & select.POLLERR and seen & select.POLLHUP, seen
print(*(errno.errorcode.get(it, it) for it in (
    peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR),
    peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR),
    peer.connect_ex(listener.getsockname()),
    peer.connect_ex(listener.getsockname()),
)))
";

#[test]
fn a_connect_without_blocking_fails_later_where_tcp_is_not_permitted() -> Result<()> {
    let rules = "use tcp listen * *:*\nuse sdp connect * *:* within=100ms\n";
    let (_dir, path) = rule_file(rules)?;
    let output = opsrun(&["--rules", &path, "python3", "-c", CONNECTS_IN_VAIN])?;
    let printed = "ECONNREFUSED 0 ECONNABORTED EINPROGRESS\n";
    ensure!(text(&output.stdout) == printed, "{output:?}");
    Ok(())
}

#[test]
fn a_faulty_rule_file_is_reported_and_no_program_is_started() -> Result<()> {
    let (_dir, rules) = rule_file("use both connect * *:*\nuse both connect * here\n")?;
    let (reported, begin) = (refused(&rules)?, format!("opsrun: {rules}:2:20: "));
    ensure!(reported.starts_with(&begin), "{reported}");
    Ok(())
}

#[test]
fn a_program_that_cannot_be_run_is_reported_as_by_a_shell() -> Result<()> {
    for (program, code) in [("/nonexistent/program", 127), ("/etc/passwd", 126)] {
        let output = opsrun(&[program])?;
        ensure!(output.status.code() == Some(code), "{output:?}");
        ensure!(text(&output.stderr).contains(program), "{output:?}");
    }
    Ok(())
}

/// A program that makes a number of connections to itself, and sets options on both ends.
const CONNECTS: &str = "
import socket, sys
listener = socket.create_server(('127.0.0.1', 0))
for _ in range(int(sys.argv[1])):
    peer = socket.socket()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.connect(listener.getsockname())
    here, _ = listener.accept()
    for end in peer, here:
        end.close()
";

/// The number of times that the threads of a process under `opsrun` make a system call, including
/// its start; `total` counts all calls.
fn system_calls(options: &[&str], script: &str, argument: &str, call: &str) -> Result<u64> {
    let dir = TempDir::new()?;
    let counted = dir.path().join("counted");
    let output = command("strace")
        .args(["-f", "-c", "-o"])
        .arg(&counted)
        .arg(Stage::find()?.bin("opsrun"))
        .args(options)
        // Debian's interpreter itself; `python3` on `PATH` may be a script that starts it.
        .args(["/usr/bin/python3", "-c", script, argument])
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    let table = fs::read_to_string(counted)?;
    ensure!(table.contains("total"), "no table: {table}");
    let lines = table.lines().map(|line| line.split_whitespace().collect());
    let mut named = lines.filter(|line: &Vec<_>| line.last() == Some(&call));
    let calls = named.next().and_then(|line| line.get(3).copied());
    Ok(calls.unwrap_or("0").parse()?)
}

/// Detects a system call per option for each connection, which would be 31 calls. The program
/// itself makes 12 of the permitted calls.
#[test]
fn a_connection_takes_few_system_calls() -> Result<()> {
    const MOST: u64 = 48;
    let calls = |count| system_calls(&[], CONNECTS, count, "total");
    // Threads that wait for each other more often on a busy machine make more calls, but not in
    // each of several attempts.
    let mut each = u64::MAX;
    for _ in 0..5 {
        each = calls("60")?.saturating_sub(calls("10")?) / 50;
        if each <= MOST {
            return Ok(());
        }
    }
    bail!("{each} system calls of a connection")
}

/// The first lines of a program that waits in one kind of call for its child, at the other end of a
/// connection.
const CONNECTED: &str = "
import os, select, signal, socket, sys, time
kind = sys.argv[1]
listener = socket.create_server(('127.0.0.1', 0))
peer = socket.create_connection(listener.getsockname())
here, _ = listener.accept()
child = os.fork()
";

/// The child sends a byte when the program is asleep.
const WAITS: &str = "
if child == 0:
    asleep = 0
    while asleep < 20:
        with open(f'/proc/{os.getppid()}/stat') as stat:
            state = stat.read().rsplit(')', 1)[1].split()[0]
        asleep = asleep + 1 if state == 'S' else 0
        time.sleep(0.001)
    here.send(b'x')
    os._exit(0)
if kind != 'recv':
    poll = select.poll() if kind == 'poll' else select.epoll()
    poll.register(peer, select.POLLIN)
    if kind == 'no':
        poll.poll(0)
        os.kill(child, signal.SIGKILL)
    else:
        poll.poll()
if kind != 'no':
    assert peer.recv(1) == b'x'
os.waitpid(child, 0)
";

/// The program waits for each of 40 answers.
const TURNS: &str = "
if child == 0:
    for _ in range(40):
        here.send(here.recv(1))
    os._exit(0)
if kind != 'recv':
    wait = select.poll() if kind == 'poll' else select.epoll()
    wait.register(peer, select.POLLIN)
for _ in range(40):
    peer.send(b'x')
    if kind != 'recv':
        wait.poll()
    assert peer.recv(1) == b'x'
os.waitpid(child, 0)
";

/// A polling thread calls `sched_yield` between polls; the program itself never does.
#[test]
fn threads_poll_before_they_sleep() -> Result<()> {
    let yields = |options: &[&str], script, kind| {
        system_calls(
            options,
            &format!("{CONNECTED}{script}"),
            kind,
            "sched_yield",
        )
    };
    // A thread does not poll where another thread runs meanwhile, as on a busy machine.
    let has_polled = |options: &[&str], script, kind| {
        let mut attempts = (0..5).map(|_| yields(options, script, kind));
        attempts.any(|yielded| yielded.is_ok_and(|count| count > 0))
    };
    for kind in ["recv", "poll", "epoll"] {
        ensure!(has_polled(&["--spin"], WAITS, kind), "{kind} with --spin");
        ensure!(yields(&[], WAITS, kind)? == 0, "a rare {kind} polls");
        ensure!(has_polled(&[], TURNS, kind), "no frequent {kind} polls");
        let off = yields(&["env", "OPS_SPIN=0"], TURNS, kind)?;
        ensure!(off == 0, "{kind} polls with OPS_SPIN=0");
    }
    ensure!(
        yields(&["--spin"], WAITS, "no")? == 0,
        "a call without wait polls"
    );
    Ok(())
}

#[test]
fn a_program_that_polls_connects_to_itself() -> Result<()> {
    let output = opsrun(&["--spin", "python3", "-c", THREADS])?;
    ensure!(output.status.success(), "{output:?}");
    Ok(())
}

/// `mpirun` starts three processes, whose messages Open MPI sends over TCP.
#[test]
fn processes_of_mpi_pass_messages_within_the_host() -> Result<()> {
    // The names without the suffix may be those of another MPI.
    let programs = ["/usr/bin/mpicc.openmpi", "/usr/bin/mpirun.openmpi"];
    if !programs.iter().all(|program| Path::new(program).exists()) {
        not_run("Open MPI is not installed (libopenmpi-dev, openmpi-bin)");
        return Ok(());
    }
    let dir = TempDir::new()?;
    let ring = dir.path().join("ring");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites/programs/ring.c");
    let mpicc = Command::new("mpicc.openmpi")
        .arg(source)
        .arg("-o")
        .arg(&ring)
        .output()?;
    ensure!(mpicc.status.success(), "{mpicc:?}");
    let output = command(Stage::find()?.bin("opsrun"))
        .args("mpirun.openmpi --allow-run-as-root --oversubscribe -np 3".split(' '))
        .args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"])
        .args(["--mca", "btl_tcp_if_include", "lo"])
        .arg(&ring)
        .env("DAT_LOG", "info")
        .output()?;
    let (output_text, reported) = (text(&output.stdout), text(&output.stderr));
    ensure!(
        output.status.success() && output_text == "done\n",
        "{output:?}"
    );
    contains(&reported, "a connection is offloaded")
}
