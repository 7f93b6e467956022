//! A `dat.conf` that belongs to the test.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::device;

/// The interface adapter of every suite.
pub const IA_NAME: &str = "iwarp-lo";

/// A registry file in a scratch directory, which is removed when this value is dropped.
#[derive(Debug)]
pub struct Registry {
    dir: TempDir,
    file: PathBuf,
}

/// The registry's line of the adapter `name`.
pub fn adapter_line(name: &str, library: impl Display, params: &str) -> String {
    format!("{name} u2.0 nonthreadsafe default {library} dat-rs.1.0 \"{params}\" \"\"\n")
}

/// The last parameters of a software provider's adapter, which select the carrier of
/// `STACK_TESTS_CARRIER` for connections within the host.
pub fn carrier_params() -> &'static str {
    match std::env::var_os("STACK_TESTS_CARRIER") {
        Some(carrier) if carrier == "tcp" => " local=off",
        _ => "",
    }
}

impl Registry {
    /// A registry with [`IA_NAME`] on the loopback interface or the suite's [`device()`](device()),
    /// served by `library`.
    pub fn loopback(library: &str) -> Result<Self> {
        Self::loopback_with(library, "")
    }

    /// Makes a registry with additional words at the end of the adapter's parameters.
    pub fn loopback_with(library: &str, params: &str) -> Result<Self> {
        let adapter = device().unwrap_or_else(|| "lo 0".to_owned());
        let params = format!("{adapter} {params}{}", carrier_params());
        Self::with_text(&adapter_line(IA_NAME, library, &params))
    }

    /// A registry file with exactly this text.
    pub fn with_text(text: &str) -> Result<Self> {
        let dir = TempDir::with_prefix("dat-conf-").context("making a scratch directory")?;
        let file = dir.path().join("dat.conf");
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        Ok(Self { dir, file })
    }

    /// The path of the file, for `DAT_OVERRIDE`.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The scratch directory, for captures and compiled programs.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}
