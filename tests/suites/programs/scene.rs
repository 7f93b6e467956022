//! A network, a directory and the two sides of one test.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use stack_tests::{Finished, NetSpace, Offload, OffloadProtocol, OpsRun, Program, Stage, is_full};
use tempfile::TempDir;

use crate::arrangement::Side;

/// The address of all servers; each test has a network of its own.
pub(crate) const HOST: &str = "127.0.0.1";

/// The file in which the programs under `opsrun` log their decisions.
const LOG: &str = "opsrun.log";

/// The environment of one test.
pub(crate) struct Scene {
    pub(crate) net: NetSpace,
    opsrun: OpsRun,
    dir: TempDir,
    server: Side,
}

impl Scene {
    /// Makes a scene with a network and a directory of its own. The server will run on this side.
    pub(crate) fn new(protocol: &'static OffloadProtocol, server: Side) -> Result<Self> {
        let dir = TempDir::new().context("making a directory")?;
        // Some servers change to an ordinary user.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        let stage = Stage::find()?.copied_below(dir.path())?;
        Ok(Self {
            net: NetSpace::enter()?,
            opsrun: OpsRun::new(&stage, protocol, Offload::All, dir.path())?
                .logging_to(&dir.path().join(LOG))?,
            dir,
            server,
        })
    }

    /// Checks the recorded SDP messages against the rules and returns their number. Must be called
    /// when all programs have ended.
    pub(crate) fn messages(&self) -> Result<u64> {
        self.opsrun.check_traces()
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    pub(crate) fn side(&self) -> Side {
        self.server
    }

    pub(crate) fn server(&self, program: impl AsRef<OsStr>) -> Program {
        self.program(self.server, program)
    }

    pub(crate) fn program(&self, side: Side, program: impl AsRef<OsStr>) -> Program {
        let name = Path::new(program.as_ref()).file_name();
        let name = name.unwrap_or_default().to_string_lossy().into_owned();
        let made = match side {
            Side::Plain => Program::new(program).env_remove("LD_PRELOAD"),
            Side::Offloading => self.opsrun.program(program),
        };
        made.named(&name).current_dir(self.dir())
    }

    /// A shell of this side; the programs that it starts are of this side too.
    pub(crate) fn shell(&self, side: Side, script: &str) -> Program {
        self.program(side, "sh")
            .args_line("-euc")
            .arg(script)
            .named(script)
    }

    /// Waits until the port mapper offers the service to peers. The kernel listens a moment
    /// earlier, and a peer that asks in between uses TCP.
    pub(crate) fn await_offer(&self, port: u16) -> Result<()> {
        let deadline = Instant::now() + self.deadline();
        loop {
            let explain = self.program(Side::Offloading, "--explain");
            let finished = self.run(explain.args_line(&format!("connect {HOST}:{port}")))?;
            if finished.text.contains("offers it at") {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "not offered:\n{}", finished.text);
        }
    }

    /// The reasons for which connections used TCP, from the log, or the problem that prevents
    /// reading it.
    pub(crate) fn reasons_for_tcp(&self) -> String {
        match fs::read_to_string(self.path(LOG)) {
            Ok(log) => {
                let reasons = log.lines().filter(|line| line.contains("uses TCP"));
                reasons.take(20).collect::<Vec<_>>().join("\n")
            }
            Err(error) => format!("no log: {error}"),
        }
    }

    /// Writes a file of `len` pseudo-random bytes.
    pub(crate) fn file(&self, name: &str, len: usize) -> Result<()> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ len as u64;
        let words = len.div_ceil(8);
        let mut bytes = Vec::with_capacity(words * 8);
        for _ in 0..words {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend(state.to_le_bytes());
        }
        bytes.truncate(len);
        let file = self.path(name);
        fs::write(&file, bytes).with_context(|| format!("writing {}", file.display()))
    }

    /// True if programs are run in their long form: in full runs, over protocols that are not only
    /// for tests.
    pub(crate) fn is_long(&self) -> bool {
        is_full() && self.opsrun.protocol().is_for_use
    }

    /// True if the offload protocol is SDP.
    pub(crate) fn is_sdp(&self) -> bool {
        self.opsrun.protocol().is_sdp
    }

    /// The time limit of a program, far beyond what any program takes.
    pub(crate) fn deadline(&self) -> Duration {
        Duration::from_secs(if is_full() { 600 } else { 300 })
    }

    /// Runs a program that must succeed.
    pub(crate) fn run(&self, program: Program) -> Result<Finished> {
        self.run_to_end(program)?.success()
    }

    /// Runs a program, whose exit status may be any.
    pub(crate) fn run_to_end(&self, program: Program) -> Result<Finished> {
        program.spawn()?.finish(self.deadline())
    }
}
