//! Building the C examples as their reader would.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::{Program, Stage};

const DEADLINE: Duration = Duration::from_secs(60);

/// Runs `make` in `examples/c` with the staged `dat2.pc`, warnings as errors; the programs go to
/// `directory`.
///
/// # Errors
/// When make, the compiler or pkg-config is missing or refuses.
pub fn make_c_examples(stage: &Stage, directory: &Path) -> Result<()> {
    Program::new("make")
        .current_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/c"))
        .arg(format!("BUILD={}", directory.display()))
        .arg(format!("PKG_CONFIG_PATH={}", stage.pkgconfig().display()))
        .arg("CPPFLAGS=-Werror")
        .spawn()?
        .finish(DEADLINE)?
        .success()?;
    Ok(())
}
