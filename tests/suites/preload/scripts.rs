//! Programs that know nothing of us.

use std::ffi::OsStr;
use std::io::{Read, Seek};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use stack_tests::{Leave, NetSpace, OffloadProtocol, OpsRun, Stage};
use tempfile::TempDir;

/// Far beyond what any of them takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Sockets on this address stay on TCP; those on all others are offloaded.
pub(crate) const NATIVE: &str = "127.0.0.2";

/// A script and its interpreter.
pub(crate) struct Script {
    /// Its name.
    pub(crate) name: &'static str,
    interpreter: &'static str,
    text: String,
}

/// Both ends of a conversation in one interpreter, which fails when a byte is wrong.
const THREADS: &str = include_str!("threads.py");

/// An event loop with its own descriptors, timers and children.
const ASYNCIO: &str = include_str!("event_loop.py");

/// A plain peer is served by the same listener.
const BOTH_KINDS: &str = include_str!("both_kinds.py");

/// Servers close their listener for a while.
const LISTEN_AGAIN: &str = include_str!("listen_again.py");

/// Programs such as wrk take an empty receive after a wake-up for an error.
const TRUE_READINESS: &str = include_str!("true_readiness.py");

/// Sockets are in sets before they connect.
const WATCHED_BEFORE: &str = include_str!("watched_before.py");

/// Options are asked for and set.
const OPTIONS: &str = include_str!("options.py");

/// Handlers with and without `SA_RESTART`, and broken pipes.
const SIGNALS: &str = include_str!("signals.py");

/// What the scripts about processes begin with.
const PAIRS: &str = include_str!("forking/pairs.py");

/// Connections that several processes use.
const FORKING: [(&str, &str); 10] = [
    (
        "accept_then_fork",
        include_str!("forking/accept_then_fork.py"),
    ),
    ("prefork", include_str!("forking/prefork.py")),
    ("daemon", include_str!("forking/daemon.py")),
    ("snapshot", include_str!("forking/snapshot.py")),
    ("both_use", include_str!("forking/both_use.py")),
    ("plain_programs", include_str!("forking/plain_programs.py")),
    ("passing", include_str!("forking/passing.py")),
    ("ends", include_str!("forking/ends.py")),
    ("owner_exits", include_str!("forking/owner_exits.py")),
    ("no_leaks", include_str!("forking/no_leaks.py")),
];

/// The scripts about processes: a name and a text.
pub(crate) fn forking() -> impl Iterator<Item = Script> {
    FORKING.into_iter().map(|(name, text)| Script {
        name,
        interpreter: "python3",
        text: format!("{PAIRS}\n{text}"),
    })
}

/// All others.
pub(crate) fn all() -> Vec<Script> {
    let script = |name, text: &str| Script {
        name,
        interpreter: "python3",
        text: text.to_owned(),
    };
    vec![
        script("python_threads", THREADS),
        script("python_asyncio", ASYNCIO),
        script("plain_and_offloaded_peers_of_one_listener", BOTH_KINDS),
        script("no_wake_up_is_a_false_one", TRUE_READINESS),
        script("options_are_answered_as_tcp_answers", OPTIONS),
        script("signals_end_calls_as_with_tcp", SIGNALS),
        script("a_closed_listener_makes_room", LISTEN_AGAIN),
        script(
            "sockets_that_were_watched_before_they_connect",
            WATCHED_BEFORE,
        ),
    ]
}

impl Script {
    /// Runs it under the library.
    pub(crate) fn run(&self, protocol: &'static OffloadProtocol) -> Result<()> {
        run(protocol, self.interpreter, |command| {
            command.args(["-c", &self.text]);
        })
    }
}

/// Runs a program with the library in front, in a network of its own where one address stays on
/// TCP.
pub(crate) fn run(
    protocol: &'static OffloadProtocol,
    program: impl AsRef<OsStr>,
    with: impl FnOnce(&mut Command),
) -> Result<()> {
    let _net = NetSpace::enter()?;
    let dir = TempDir::new().context("making a directory")?;
    let ops = OpsRun::new(&Stage::find()?, protocol, Leave::TcpBut(NATIVE), dir.path())?;
    let mut command = ops.preloaded(program);
    command.env("OPS_PAGES", dir.path());
    with(&mut command);
    finish(command)
}

/// Runs it to its end; what it says is told when it fails. It says it into a file: a pipe would be
/// held open by daemons that a failed script leaves behind.
fn finish(mut command: Command) -> Result<()> {
    let mut said = tempfile::tempfile().context("making a file")?;
    let mut child = command
        .stdout(said.try_clone()?)
        .stderr(said.try_clone()?)
        .spawn()
        .with_context(|| format!("starting {:?}", command.get_program()))?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > LIMIT {
            child.kill()?;
            break child.wait()?;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut text = String::new();
    said.rewind()?;
    // What is no text is told of as far as it is.
    let _ = said.read_to_string(&mut text);
    ensure!(status.success(), "{status}\n{text}");
    Ok(())
}
