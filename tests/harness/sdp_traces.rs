//! The recorded messages of the SDP connections of a test.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use sdp_checker::{Side, TraceFault, check_trace};

use crate::Program;

/// The environment variable that makes programs keep records and names the directory.
const TRACE_ENV: &str = "SDP_TRACE";

/// A directory into which programs write the messages of their SDP connections, one file for each
/// end of a connection.
#[derive(Debug)]
pub struct SdpTraces(PathBuf);

impl SdpTraces {
    /// Makes an empty directory in `dir`, into which all users may write.
    pub fn below(dir: &Path) -> Result<Self> {
        let path = dir.join("sdp-traces");
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        fs::set_permissions(&path, Permissions::from_mode(0o1777))?;
        Ok(Self(path))
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes a program write its messages into the directory.
    pub fn of(&self, program: Program) -> Program {
        program.env(TRACE_ENV, &self.0)
    }

    /// Makes the program of a [`Command`] write its messages into the directory.
    pub fn of_command(&self, command: &mut Command) {
        command.env(TRACE_ENV, &self.0);
    }

    /// Makes this process write its messages into the directory.
    ///
    /// # Safety
    /// As for [`std::env::set_var`].
    pub unsafe fn of_this_process(&self) {
        // SAFETY: the caller guarantees what `set_var` requires.
        unsafe { std::env::set_var(TRACE_ENV, &self.0) };
    }

    /// Checks every message against the rules of the protocol and removes the records. Returns the
    /// number of messages.
    pub fn check(&self) -> Result<u64> {
        self.check_each(|side, trace| Ok(check_trace(side, trace)?.frames()))
    }

    /// Checks the messages where peers break rules on purpose: each connection is checked up to the
    /// peer's first violation.
    pub fn check_victims(&self) -> Result<u64> {
        /// Hello and HelloAck.
        const HELLOS: u64 = 2;
        self.check_each(|side, trace| match check_trace(side, trace) {
            Ok(checker) => Ok(checker.frames()),
            Err(TraceFault::Broken { record, sender, .. }) if sender != side => {
                Ok(record.saturating_sub(HELLOS))
            }
            Err(fault) => Err(fault.into()),
        })
    }

    fn check_each(&self, check: impl Fn(Side, &[u8]) -> Result<u64>) -> Result<u64> {
        let mut frames = 0;
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            let is_active = path.extension().is_some_and(|side| side == "active");
            let side = if is_active {
                Side::Active
            } else {
                Side::Passive
            };
            frames +=
                check(side, &fs::read(&path)?).with_context(|| format!("{}", path.display()))?;
            fs::remove_file(&path)?;
        }
        Ok(frames)
    }
}
