//! What the SDP connections of a test said.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use sdp_checker::{Side, TraceFault, check_trace};

use crate::Program;

/// What makes programs keep records, and where.
const TRACE_ENV: &str = "SDP_TRACE";

/// A directory into which every SDP connection of the programs that are told of it writes its
/// messages, one file at each end.
#[derive(Debug)]
pub struct SdpTraces(PathBuf);

impl SdpTraces {
    /// An empty directory in `dir`, into which all users may write.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn below(dir: &Path) -> Result<Self> {
        let path = dir.join("sdp-traces");
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        fs::set_permissions(&path, Permissions::from_mode(0o1777))?;
        Ok(Self(path))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Has a program write there.
    #[must_use]
    pub fn of(&self, program: Program) -> Program {
        program.env(TRACE_ENV, &self.0)
    }

    /// Has a program write there that is started in another way.
    pub fn of_command(&self, command: &mut Command) {
        command.env(TRACE_ENV, &self.0);
    }

    /// Has this process write there.
    ///
    /// # Safety
    /// As for [`std::env::set_var`].
    pub unsafe fn of_this_process(&self) {
        // SAFETY: the caller answers for it.
        unsafe { std::env::set_var(TRACE_ENV, &self.0) };
    }

    /// Checks every message against the rules of the protocol and removes the records. Returns how
    /// many messages there were.
    ///
    /// # Errors
    /// Which rule is broken, and where.
    pub fn check(&self) -> Result<u64> {
        self.check_each(|side, trace| Ok(check_trace(side, trace)?.frames()))
    }

    /// The same where peers break rules on purpose: each connection is checked as far as its peer
    /// kept them.
    ///
    /// # Errors
    /// Which rule one of ours broke, and where.
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
