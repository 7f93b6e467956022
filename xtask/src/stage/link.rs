//! The last link of `libdat2.so.2.0.0`.
//!
//! rustc cannot put the symbols of a cdylib under a version node (rust-lld drops it, GNU ld
//! refuses it), so the crate is a static library and the C compiler links it with our own map. The
//! arguments are in `dat-api/libdat2/link.txt`, for packagers who link it themselves.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::exports;
use crate::workspace::Workspace;

/// Links `archive` as the files in `libdat2` say, unless the result is newer than all of them.
pub(super) fn registry_library(
    workspace: &Workspace,
    archive: &Path,
    libdat2: &Path,
) -> Result<PathBuf> {
    let library = workspace.target().join("release/libdat2.so.2.0.0");
    let map = libdat2.join("libdat2.map");
    let list = libdat2.join("exports.txt");
    let recipe = libdat2.join("link.txt");
    if is_newer(&library, &[archive, &map, &list, &recipe]) {
        return Ok(library);
    }
    let read = |file: &Path| {
        fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
    };
    let arguments = arguments(
        &read(&recipe)?,
        &read(&list)?,
        &[
            ("{output}", &library),
            ("{map}", &map),
            ("{staticlib}", archive),
        ],
    )?;
    let output = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(arguments)
        .output()
        .context("running cc (package gcc)")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "cc: {}\n{}",
        output.status,
        complaint.trim()
    );
    Ok(library)
}

/// Fills the braces of `recipe`. `{undefined}` becomes one reference per name of `exports`, without
/// which the linker would not take its object out of the archive; `paths` are inserted unchanged.
fn arguments(recipe: &str, exports: &str, paths: &[(&str, &Path)]) -> Result<Vec<String>> {
    let mut arguments = Vec::new();
    for line in exports::names_in(recipe) {
        if line == "{undefined}" {
            arguments.extend(exports::names_in(exports).map(|name| format!("-Wl,-u,{name}")));
            continue;
        }
        let filled = paths
            .iter()
            .try_fold(line.to_owned(), |line, (brace, path)| {
                let path = path
                    .to_str()
                    .context("the path of the workspace is not UTF-8")?;
                anyhow::Ok(line.replace(brace, path))
            })?;
        ensure!(!filled.contains('{'), "link.txt: unknown brace in: {line}");
        arguments.push(filled);
    }
    Ok(arguments)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipe_is_filled_in_order() {
        let recipe = "# comment\n-shared\n-o\n{output}\n-Wl,--version-script={map}\n{undefined}\n";
        let paths = [("{output}", Path::new("/o.so")), ("{map}", Path::new("/m"))];
        let filled = arguments(recipe, "dat_a\ndat_b\n", &paths).unwrap();
        let wanted = [
            "-shared",
            "-o",
            "/o.so",
            "-Wl,--version-script=/m",
            "-Wl,-u,dat_a",
            "-Wl,-u,dat_b",
        ];
        assert_eq!(filled, wanted);
    }

    #[test]
    fn an_unknown_brace_is_refused() {
        assert!(arguments("{surprise}\n", "", &[]).is_err());
    }
}
