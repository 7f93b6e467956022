//! The staged libraries in the process of the suite itself.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::{Stage, carrier_params};

/// Makes this process load the staged `libdat2.so.2`, by setting the variable `library`. Writes a
/// registry with `adapters`, each a name and its parameters, to `file`.
///
/// # Errors
/// When nothing is staged or the file cannot be written.
///
/// # Safety
/// Until this returns, no other thread of the process may read the environment.
pub unsafe fn load_staged(library: &str, file: &Path, adapters: &[(&str, &str)]) -> Result<()> {
    let stage = Stage::find()?;
    let provider = stage.provider();
    let carrier = carrier_params();
    let mut text = String::new();
    for (name, params) in adapters {
        let provider = provider.display();
        writeln!(
            text,
            "{name} u2.0 nonthreadsafe default {provider} dat-rs.1.0 \"{params}{carrier}\" \"\""
        )?;
    }
    fs::write(file, text).with_context(|| format!("writing {}", file.display()))?;
    // SAFETY: the caller guarantees that no other thread reads the environment.
    unsafe {
        env::set_var("DAT_OVERRIDE", file);
        env::set_var(library, stage.lib().join("libdat2.so.2"));
    }
    Ok(())
}
