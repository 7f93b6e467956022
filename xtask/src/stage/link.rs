//! The last link of `libdat2.so.2.0.0`, `libibverbs.so.1`, `libitapi.so.2` and `libsdp-dat.so.1`.
//!
//! rustc cannot put the symbols of a cdylib under a version node (rust-lld drops it, GNU ld
//! refuses it), so these crates are static libraries and the C compiler links them with our own
//! maps. The arguments are in `link.txt` of each crate, for packagers who link it themselves.

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
    let list = libdat2.join("exports.txt");
    let text = read(&list)?;
    let names: Vec<String> = exports::names_in(&text).map(String::from).collect();
    let map = libdat2.join("libdat2.map");
    link(workspace, "libdat2.so.2.0.0", archive, &map, &list, &names)
}

/// Links `archive` as the map `map` and the files next to it say, unless the result is newer than
/// all of them.
pub(super) fn mapped_library(
    workspace: &Workspace,
    name: &str,
    archive: &Path,
    map: &Path,
) -> Result<PathBuf> {
    let names: Vec<String> = exports::in_map(&read(map)?)
        .map(|(_, name)| name.to_owned())
        .collect();
    link(workspace, name, archive, map, map, &names)
}

/// Compiles `librdmacm.so.1`, which the loader uses as a filter on `libibverbs.so.1`.
pub(super) fn rdmacm_library(workspace: &Workspace, verbs: &Path) -> Result<PathBuf> {
    let library = workspace.target().join("release/librdmacm.so.1");
    let (source, map) = (verbs.join("librdmacm.c"), verbs.join("librdmacm.map"));
    if is_newer(&library, &[&source, &map]) {
        return Ok(library);
    }
    let script = format!("-Wl,--version-script={}", map.display());
    let mut arguments = ["-shared", "-fPIC", "-O2", "-Wl,-soname,librdmacm.so.1"]
        .map(String::from)
        .to_vec();
    arguments.extend(
        [
            "-Wl,-F,libibverbs.so.1",
            "-Wl,-z,now",
            "-Wl,-z,relro",
            "-Wl,-z,nodelete",
        ]
        .map(String::from),
    );
    arguments.extend([script, "-o".to_owned()]);
    arguments.extend([&library, &source].map(|path| path.display().to_string()));
    compile(&arguments)?;
    Ok(library)
}

/// Compiles `libverbs-devices.so`, which `verbsrun` loads in front of the C library.
pub(super) fn devices_library(workspace: &Workspace, verbs: &Path) -> Result<PathBuf> {
    let library = workspace.target().join("release/libverbs-devices.so");
    let source = verbs.join("devices.c");
    if is_newer(&library, &[&source]) {
        return Ok(library);
    }
    let mut arguments = [
        "-shared",
        "-fPIC",
        "-O2",
        "-fvisibility=hidden",
        "-Wl,-soname,libverbs-devices.so",
        "-Wl,-z,now",
        "-Wl,-z,relro",
        "-o",
    ]
    .map(String::from)
    .to_vec();
    arguments.extend([&library, &source].map(|path| path.display().to_string()));
    compile(&arguments)?;
    Ok(library)
}

/// Links a library with the recipe next to its `map`. `names` are its symbols, from `list`.
fn link(
    workspace: &Workspace,
    library: &str,
    archive: &Path,
    map: &Path,
    list: &Path,
    names: &[String],
) -> Result<PathBuf> {
    let library = workspace.target().join("release").join(library);
    let recipe = map.with_file_name("link.txt");
    if is_newer(&library, &[archive, map, list, &recipe]) {
        return Ok(library);
    }
    let arguments = arguments(
        &read(&recipe)?,
        names,
        &[
            ("{output}", &library),
            ("{map}", map),
            ("{staticlib}", archive),
        ],
    )?;
    compile(&arguments)?;
    Ok(library)
}

fn compile(arguments: &[String]) -> Result<()> {
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
    Ok(())
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

/// Fills the braces of `recipe`. `{undefined}` becomes one reference per name, without which the
/// linker would not take its object out of the archive; `paths` are inserted unchanged.
fn arguments(recipe: &str, names: &[String], paths: &[(&str, &Path)]) -> Result<Vec<String>> {
    let mut arguments = Vec::new();
    for line in exports::names_in(recipe) {
        if line == "{undefined}" {
            arguments.extend(names.iter().map(|name| format!("-Wl,-u,{name}")));
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
        let names = ["dat_a", "dat_b"].map(String::from);
        let filled = arguments(recipe, &names, &paths).unwrap();
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
        assert!(arguments("{surprise}\n", &[], &[]).is_err());
    }
}
