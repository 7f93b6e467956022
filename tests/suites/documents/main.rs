//! The documents compared with the code: options, settings, variables, calls, links.

mod calls;
mod changing;
mod links;
mod manual;
mod rules;
mod tutorial;
mod variables;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

fn workspace(relative: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(relative)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// Returns all files below `dir` with this extension.
fn files(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the words of `text` that begin with `start` and continue with characters that `accepts`
/// allows.
fn words(text: &str, start: &str, accepts: fn(char) -> bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(start) {
        if !text[..at].ends_with(accepts) {
            let rest = &text[at + start.len()..];
            let end = rest.find(|c| !accepts(c)).unwrap_or(rest.len());
            found.insert(format!("{start}{}", &rest[..end]));
        }
    }
    found
}

/// Fails, with both differences, unless the page and the code contain the same items.
fn agree(what: &str, page: &BTreeSet<String>, real: &BTreeSet<String>) -> Result<()> {
    ensure!(
        !real.is_empty(),
        "{what}: nothing was found to compare with"
    );
    ensure!(
        page == real,
        "{what}: not in the page: {:?}; in the page only: {:?}",
        real.difference(page).collect::<Vec<_>>(),
        page.difference(real).collect::<Vec<_>>()
    );
    Ok(())
}
