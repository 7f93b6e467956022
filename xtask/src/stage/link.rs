//! The last link of `libdat2.so.2.0.0`.
//!
//! rustc cannot put the symbols of a cdylib under a version node (rust-lld drops it, GNU ld
//! refuses it), so the crate is a static library and the C compiler links it with our own map.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::exports;
use crate::workspace::Workspace;

/// What the Rust standard library needs (`rustc --print native-static-libs`).
const SYSTEM_LIBRARIES: [&str; 7] = [
    "-lgcc_s",
    "-lutil",
    "-lrt",
    "-lpthread",
    "-lm",
    "-ldl",
    "-lc",
];

/// Links `archive` with the export list and version map in `libdat2`, unless the result is newer
/// than all three.
pub(super) fn registry_library(
    workspace: &Workspace,
    archive: &Path,
    libdat2: &Path,
) -> Result<PathBuf> {
    let library = workspace.target().join("release/libdat2.so.2.0.0");
    let map = libdat2.join("libdat2.map");
    let list = libdat2.join("exports.txt");
    if is_newer(&library, &[archive, &map, &list]) {
        return Ok(library);
    }
    let names = fs::read_to_string(&list).with_context(|| format!("reading {}", list.display()))?;
    let mut cc = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args([
        "-shared",
        "-Wl,-soname,libdat2.so.2",
        "-Wl,-z,now",
        "-Wl,-z,defs",
    ])
    .args(["-Wl,--gc-sections", "-Wl,--as-needed"])
    .arg(format!("-Wl,--version-script={}", map.display()))
    .arg("-o")
    .arg(&library);
    for name in exports::names_in(&names) {
        // Without a reference the linker would leave the entry in the archive.
        cc.arg(format!("-Wl,-u,{name}"));
    }
    cc.arg(archive).args(SYSTEM_LIBRARIES);
    let output = cc.output().context("running cc (package gcc)")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "cc: {}\n{}",
        output.status,
        complaint.trim()
    );
    Ok(library)
}

fn is_newer(file: &Path, inputs: &[&Path]) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).ok();
    let Some(made) = modified(file) else {
        return false;
    };
    inputs
        .iter()
        .all(|input| modified(input).is_some_and(|changed| changed < made))
}
