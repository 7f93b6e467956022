//! Programs under `opsrun`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{IA_NAME, Program, SdpTraces, Stage, adapter_line};

/// An offload protocol, and the settings with which `opsrun` offers it.
#[derive(Debug, PartialEq, Eq)]
pub struct OffloadProtocol {
    /// The name in tables.
    pub name: &'static str,
    /// False if the protocol is only for tests.
    pub is_for_use: bool,
    /// True if the connections of the protocol are recorded as SDP messages, and peers are found
    /// through the port mapper.
    pub is_sdp: bool,
    /// Variables that are set in the environment of `opsrun`.
    environment: &'static [(&'static str, &'static str)],
}

impl OffloadProtocol {
    /// All protocols.
    pub const ALL: &[Self] = &[
        Self {
            name: "SDP",
            is_for_use: true,
            is_sdp: true,
            // SDP over the software provider. By default, `local` would carry the traffic of a
            // host.
            environment: &[("OPS_SOFTWARE", "1")],
        },
        Self {
            name: "local",
            is_for_use: true,
            is_sdp: false,
            environment: &[("SUITE_PROTOCOL", "local")],
        },
    ];
}

/// The sockets that may use the offload protocol. All other sockets stay on TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Offload {
    /// All sockets, and TCP if the protocol cannot be used. The time limit for offloading is long,
    /// so that sockets are offloaded on a busy machine too.
    All,
    /// As [`Offload::All`], with the time limit that applies without a rule file.
    AllSoon,
    /// As [`Offload::All`], except for sockets on this address, which stay on TCP.
    AllBut(&'static str),
    /// No socket.
    Nothing,
}

/// The settings of `opsrun` for one purpose, in a directory. All SDP messages of the programs that
/// `opsrun` starts are recorded in this directory.
#[derive(Debug)]
pub struct OpsRun {
    opsrun: PathBuf,
    library: PathBuf,
    protocol: &'static OffloadProtocol,
    rules: PathBuf,
    registry: PathBuf,
    traces: Option<SdpTraces>,
}

impl OpsRun {
    /// Writes the rule file and a registry file into `dir`. Other users can read them if they may
    /// enter the directory.
    pub fn new(
        stage: &Stage,
        protocol: &'static OffloadProtocol,
        offload: Offload,
        dir: &Path,
    ) -> Result<Self> {
        let (target, stays) = match offload {
            Offload::All | Offload::AllSoon => ("both", None),
            Offload::AllBut(address) => ("both", Some(address)),
            Offload::Nothing => ("tcp", None),
        };
        let within = match offload {
            Offload::All | Offload::AllBut(_) => "within=60s",
            Offload::AllSoon | Offload::Nothing => "",
        };
        let rules = dir.join(format!("{target}.rules"));
        let first = stays
            .map(|address| rule("tcp", address, ""))
            .unwrap_or_default();
        let text = first + &rule(target, "*", within);
        fs::write(&rules, text).with_context(|| format!("writing {}", rules.display()))?;
        let registry = dir.join("dat.conf");
        let line = adapter_line(IA_NAME, stage.provider().display(), "lo 0 sockets=any");
        fs::write(&registry, line).with_context(|| format!("writing {}", registry.display()))?;
        Ok(Self {
            opsrun: stage.bin("opsrun"),
            library: stage.lib().join("libops-preload.so"),
            protocol,
            rules,
            registry,
            traces: Some(SdpTraces::below(dir)?),
        })
    }

    /// Adds settings to the rules of the sockets that may use the offload protocol.
    pub fn with_settings(self, settings: &str) -> Result<Self> {
        let path = &self.rules;
        let text = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
        let with = |line: &str| match line.starts_with("use tcp") {
            true => format!("{line}\n"),
            false => format!("{line} {settings}\n"),
        };
        let text: String = text.lines().map(with).collect();
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(self)
    }

    /// Lets programs of every user log their decisions into `file`.
    pub fn logging_to(self, file: &Path) -> Result<Self> {
        let context = || format!("writing {}", file.display());
        fs::write(file, "").with_context(context)?;
        fs::set_permissions(file, fs::Permissions::from_mode(0o666)).with_context(context)?;
        let text = fs::read_to_string(&self.rules)?;
        let line = format!("log min-level 5 destination file {}\n", file.display());
        fs::write(&self.rules, line + &text)?;
        Ok(self)
    }

    /// Turns recording off, for measurements.
    pub fn untraced(mut self) -> Self {
        self.traces = None;
        self
    }

    /// Checks the SDP messages of the programs against the rules of the protocol, once all programs
    /// have ended, and removes the records. Returns the number of messages.
    pub fn check_traces(&self) -> Result<u64> {
        self.traces.as_ref().map_or(Ok(0), SdpTraces::check)
    }

    /// Checks the messages where peers break rules on purpose, like [`SdpTraces::check_victims`].
    pub fn check_victims(&self) -> Result<u64> {
        self.traces.as_ref().map_or(Ok(0), SdpTraces::check_victims)
    }

    /// The protocol that is offered.
    pub fn protocol(&self) -> &'static OffloadProtocol {
        self.protocol
    }

    /// A program that `opsrun` starts.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Program {
        let opsrun = Program::new(&self.opsrun).arg(program);
        let settings = self.protocol.environment.iter();
        let opsrun = settings
            .fold(opsrun, |opsrun, (key, value)| opsrun.env(key, value))
            .env("OPS_RULES", &self.rules)
            .env("DAT_OVERRIDE", &self.registry)
            .env_remove("LD_PRELOAD");
        match &self.traces {
            Some(traces) => traces.of(opsrun),
            None => opsrun,
        }
    }

    /// A program with the library preloaded, as `opsrun` would start it, but without `opsrun` and
    /// without the limits of a [`Program`].
    pub fn preloaded(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .envs(self.protocol.environment.iter().copied())
            .env("OPS_RULES", &self.rules)
            .env("DAT_OVERRIDE", &self.registry)
            .env("LD_PRELOAD", &self.library);
        if let Some(traces) = &self.traces {
            traces.of_command(&mut command);
        }
        command
    }
}

/// Lines of a rule file for listening and for connecting sockets.
fn rule(target: &str, address: &str, settings: &str) -> String {
    ["listen", "connect"]
        .map(|role| format!("use {target} {role} * {address}:* {settings}\n"))
        .concat()
}
