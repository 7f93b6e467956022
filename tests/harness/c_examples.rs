//! Builds the C examples with their Makefile.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::{Program, Sanitizer, Stage};

const DEADLINE: Duration = Duration::from_secs(240);

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/c")
}

/// The C example programs: the sources that have a `main`.
pub fn c_examples() -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(sources())? {
        let path = entry?.path();
        let is_c = path.extension().is_some_and(|extension| extension == "c");
        if is_c && fs::read_to_string(&path)?.contains("\nint main(") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Runs `make` in `examples/c` for `programs`, with the staged `dat2.pc` and warnings as errors.
/// The programs are written to `directory`.
pub fn make_c_examples(stage: &Stage, directory: &Path, programs: &str) -> Result<()> {
    let sanitizer = Sanitizer::chosen();
    Program::new("make")
        .current_dir(&sources())
        .arg(format!("BUILD={}", directory.display()))
        .arg(format!("PKG_CONFIG_PATH={}", stage.pkgconfig().display()))
        .arg(format!("PROGRAMS={programs}"))
        .arg(format!("CPPFLAGS=-Werror {}", sanitizer.flags()))
        .run(DEADLINE)?;
    let mut built = programs.split_whitespace();
    built.try_for_each(|program| sanitizer.wrap(&directory.join(program)))
}
