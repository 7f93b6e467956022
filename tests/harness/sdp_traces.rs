//! What the SDP connections of a test said.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sdp_checker::{Side, check_trace};

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
        let mut frames = 0;
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            let is_active = path.extension().is_some_and(|side| side == "active");
            let side = if is_active {
                Side::Active
            } else {
                Side::Passive
            };
            let checker = check_trace(side, &fs::read(&path)?)
                .with_context(|| format!("{}", path.display()))?;
            frames += checker.frames();
            fs::remove_file(&path)?;
        }
        Ok(frames)
    }
}
