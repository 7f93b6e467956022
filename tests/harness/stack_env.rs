//! The common environment: the staged libraries, one interface adapter, a network of its own.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::{NetSpace, Program, Registry, Stage, device, provider_name};

/// Stage, registry file and network for one test.
#[derive(Debug)]
pub struct StackEnv {
    /// The staged artefacts.
    pub stage: Stage,
    /// The registry file with [`crate::IA_NAME`].
    pub registry: Registry,
    /// The network of this thread.
    pub net: NetSpace,
    /// The address of the interface adapter.
    pub address: IpAddr,
    /// True under emulation, where every operation takes about ten times longer.
    pub is_emulated: bool,
    /// The time limit of programs, if it differs from the general one.
    pub limit: Option<Duration>,
    /// The directory that the loader searches first for `libdat2.so.2`; `None` uses the system's
    /// library.
    library_path: Option<PathBuf>,
}

impl StackEnv {
    /// Finds the stage, writes a registry for `lo`, and enters a network of its own.
    pub fn new() -> Result<Self> {
        Self::at(Stage::find()?)
    }

    /// Makes the environment with a stage that was already found.
    pub fn at(stage: Stage) -> Result<Self> {
        let registry = Registry::loopback(provider_name())?;
        let net = NetSpace::enter()?;
        Ok(Self::of(stage, registry, net))
    }

    /// Makes the environment with a registry and a network of the caller.
    pub fn of(stage: Stage, registry: Registry, net: NetSpace) -> Self {
        Self {
            library_path: Some(stage.lib()),
            stage,
            registry,
            net,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            is_emulated: false,
            limit: None,
        }
    }

    /// Uses the `libdat2.so.2` of the system, which is OFA's.
    pub fn with_system_registry(mut self) -> Self {
        self.library_path = None;
        self
    }

    /// A program that uses the staged `libdat2.so.2` and provider, and this registry file.
    pub fn program(&self, path: impl AsRef<OsStr>) -> Program {
        self.program_with(path, self.registry.file())
    }

    /// A program with another registry file.
    pub fn program_with(&self, path: impl AsRef<OsStr>, registry: &Path) -> Program {
        let program = Program::new(path)
            .env("DAT_OVERRIDE", registry)
            .env_remove("LD_PRELOAD");
        match &self.library_path {
            // The libraries of a device are those of the suite's own process.
            Some(path) if device().is_some() => {
                let inherited = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
                let mut paths = vec![path.clone()];
                paths.extend(std::env::split_paths(&inherited));
                // Neither path has the separator in its name, or the suite would not have started.
                program.env(
                    "LD_LIBRARY_PATH",
                    std::env::join_paths(paths).unwrap_or_default(),
                )
            }
            Some(path) => program.env("LD_LIBRARY_PATH", path),
            // A name without a directory is searched by the loader alone.
            None => program
                .env_remove("LD_LIBRARY_PATH")
                .env("DAT_LIBRARY", "libdat2.so.2"),
        }
    }
}
