//! The project's own style checks, which rustfmt and clippy do not make.
//!
//! - `text.rs`: line width, marks of unfinished work, paths of one machine.
//! - `rust.rs`: length of files and functions.
//! - `words.rs`: the first words of doc comments, and words that no comment or document may
//!   contain.
//! - `modules.rs`: `.rs` files that no target reaches.
//! - `tables.rs`: tables of modules from which one is missing.
//! - `dependencies.rs`: dependencies that no source names.
//! - `licenses.rs`: licences and sources of dependencies.
//! - `layers/`: cycles among the modules of a crate.
//!
//! Clippy checks the reasons of unsafe blocks (`undocumented_unsafe_blocks`); here it is only
//! checked that each package inherits the workspace's lints.

mod dependencies;
mod layers;
mod licenses;
mod modules;
mod rust;
mod tables;
mod text;
mod words;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// Directories without files of the project.
const FOREIGN: [&str; 2] = ["target", ".git"];

/// The beginning of a generated file, which is not checked.
const GENERATED: &str = "// @generated";

/// One violation of a check, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    file: PathBuf,
    line: usize,
    what: String,
}

/// Runs the task: prints each fault, and fails if there is one.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    let faults = check(workspace)?;
    faults.iter().for_each(|fault| println!("{fault}"));
    println!("tidy: {} faults", faults.len());
    Ok(if faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Checks every file of the workspace.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<Fault>> {
    let mut files = Vec::new();
    collect(workspace.root(), &mut files)?;
    files.sort();
    let mut faults = Vec::new();
    for file in &files {
        check_file(workspace.root(), file, &mut faults)?;
    }
    let sources = files.iter().filter(|file| extension(file) == "rs");
    faults.extend(modules::unreached(workspace, sources)?);
    faults.extend(dependencies::unused(workspace, &files)?);
    faults.extend(licenses::refused(workspace)?);
    faults.extend(layers::check(workspace)?);
    Ok(faults)
}

fn check_file(root: &Path, file: &Path, faults: &mut Vec<Fault>) -> Result<()> {
    let kind = extension(file);
    if !["rs", "c", "h", "toml", "md"].contains(&kind) {
        return Ok(());
    }
    let source = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    if source.starts_with(GENERATED) {
        return Ok(());
    }
    let shown = file.strip_prefix(root).unwrap_or(file);
    let mut report = |line: usize, what: String| {
        faults.push(Fault {
            file: shown.into(),
            line,
            what,
        });
    };
    text::check(kind, &source, &mut report);
    match kind {
        "rs" => {
            rust::check(&source, &mut report);
            words::check(&source, &mut report);
            tables::check(&source, &mut report);
        }
        "md" => words::check_document(&source, &mut report),
        "toml" if file.ends_with("Cargo.toml") => check_manifest(&source, &mut report),
        _ => (),
    }
    Ok(())
}

fn check_manifest(source: &str, report: &mut impl FnMut(usize, String)) {
    let is_package = source.lines().any(|line| line == "[package]");
    let inherits = source.contains("[lints]\nworkspace = true");
    if is_package && !inherits {
        report(1, "does not inherit the workspace's lints".into());
    }
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let entry = entry?;
        let path = entry.path();
        let foreign = FOREIGN.iter().any(|name| path.ends_with(name));
        if entry.file_type()?.is_dir() {
            if !foreign {
                collect(&path, files)?;
            }
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn extension(file: &Path) -> &str {
    file.extension()
        .and_then(|e| e.to_str())
        .unwrap_or_default()
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}
