//! The scripts of `tests/vm/jobs`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use libtest_mimic::Trial;
use stack_tests::{Program, is_full, not_run};

use crate::times::timed;

/// The text with which a script reports that it could not check its subject.
const NOT_RUN: &str = "NOT RUN: ";

/// The time limit of a script. A busy machine takes many times as long as an idle machine.
const DEADLINE: Duration = Duration::from_secs(480);
const DEADLINE_FULL: Duration = Duration::from_secs(2400);

/// One test for each script.
pub(crate) fn trials() -> Result<Vec<Trial>> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("vm/jobs");
    let mut scripts = Vec::new();
    for entry in fs::read_dir(&place).with_context(|| format!("reading {}", place.display()))? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("sh")) {
            scripts.push(path);
        }
    }
    scripts.sort();
    Ok(scripts.into_iter().map(trial).collect())
}

fn trial(script: PathBuf) -> Trial {
    let name = script.file_stem().unwrap_or_default().to_string_lossy();
    let name = format!("job {name}");
    timed(name, move || run(&script))
}

fn run(script: &Path) -> Result<()> {
    let deadline = if is_full() { DEADLINE_FULL } else { DEADLINE };
    let finished = Program::new(script).run(deadline)?;
    let mut lines = finished.text.lines();
    if let Some(why) = lines.find_map(|line| line.strip_prefix(NOT_RUN)) {
        not_run(why);
    }
    Ok(())
}
