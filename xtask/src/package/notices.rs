//! The licences of the crates of other authors that are linked into the libraries and programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::stage::shipped;
use crate::workspace::{Workspace, array};

/// The beginnings of the names of files that have a licence or a notice.
const NOTICES: [&str; 4] = ["license", "licence", "copying", "notice"];

const HEADER: &str = "\
The libraries and programs of dat-rs contain the standard library of Rust (MIT or
Apache-2.0, https://github.com/rust-lang/rust) and the following crates from crates.io.
A text below applies to the crates that are named above it.
";

/// The crates of other authors that are linked into the libraries and programs.
pub(super) struct Linked {
    metadata: Value,
    ids: BTreeSet<String>,
}

impl Linked {
    pub(super) fn find(workspace: &Workspace) -> Result<Self> {
        let metadata = workspace.build_metadata()?;
        Ok(Self {
            ids: linked(&metadata, &shipped(workspace))?,
            metadata,
        })
    }

    /// The description of each crate by cargo.
    pub(super) fn packages(&self) -> impl Iterator<Item = &Value> {
        array(&self.metadata["packages"]).filter(|package| {
            let id = package["id"].as_str().unwrap_or_default();
            // The workspace's own crates have no source.
            self.ids.contains(id) && !package["source"].is_null()
        })
    }

    #[cfg(test)]
    pub(super) fn of_one(package: Value) -> Self {
        let id = package["id"].as_str().unwrap_or_default().to_owned();
        Self {
            metadata: serde_json::json!({ "packages": [package] }),
            ids: [id].into(),
        }
    }
}

/// Returns the list of crates and their licences, each text once.
pub(super) fn of(linked: &Linked) -> Result<String> {
    let mut text = HEADER.to_owned();
    let mut crates_by_text: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in linked.packages() {
        let word = |key: &str| package[key].as_str().unwrap_or_default();
        let authors: Vec<&str> = array(&package["authors"])
            .filter_map(Value::as_str)
            .collect();
        let name = format!("{} {}", word("name"), word("version"));
        write!(text, "\n{name}: {}", word("license"))?;
        if !authors.is_empty() {
            write!(text, "; {}", authors.join(", "))?;
        }
        let directory = Path::new(word("manifest_path")).parent();
        for notice in notices_in(directory.context("a manifest is in a directory")?)? {
            crates_by_text
                .entry(notice)
                .or_default()
                .insert(name.clone());
        }
    }
    text.push('\n');
    for (notice, crates) in crates_by_text {
        let crates: Vec<String> = crates.into_iter().collect();
        write!(text, "\n---- {}\n\n{}\n", crates.join(", "), notice.trim())?;
    }
    Ok(text)
}

/// Returns the ids of the packages that are linked into those with the names `roots`.
fn linked(metadata: &Value, roots: &[String]) -> Result<BTreeSet<String>> {
    let nodes: BTreeMap<&str, &Value> = array(&metadata["resolve"]["nodes"])
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let mut at_build_time = BTreeSet::new();
    let mut pending = Vec::new();
    for package in array(&metadata["packages"]) {
        let id = package["id"].as_str().context("a package without an id")?;
        let is_macro = |target: &Value| array(&target["kind"]).any(|kind| kind == "proc-macro");
        if array(&package["targets"]).any(is_macro) {
            at_build_time.insert(id);
        }
        let name = package["name"].as_str().unwrap_or_default();
        if package["source"].is_null() && roots.iter().any(|root| root == name) {
            pending.push(id);
        }
    }
    let mut linked = BTreeSet::new();
    while let Some(id) = pending.pop() {
        if at_build_time.contains(id) || !linked.insert(id.to_owned()) {
            continue;
        }
        let node = nodes.get(id).context("a package without dependencies")?;
        let is_linked = |it: &&Value| array(&it["dep_kinds"]).any(|kind| kind["kind"].is_null());
        let linked_into = array(&node["deps"]).filter(is_linked);
        pending.extend(linked_into.filter_map(|it| it["pkg"].as_str()));
    }
    Ok(linked)
}

/// Returns the texts of the licences and notices in a crate's directory.
fn notices_in(directory: &Path) -> Result<Vec<String>> {
    let mut notices = Vec::new();
    let entries = fs::read_dir(directory);
    for entry in entries.with_context(|| format!("reading {}", directory.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_lowercase();
        if path.is_file() && NOTICES.iter().any(|begin| name.starts_with(begin)) {
            let bytes = fs::read(&path)?;
            notices.push(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    Ok(notices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_linked_packages_are_listed() {
        let metadata = serde_json::json!({
            "packages": [
                {"id": "tool", "name": "tool", "source": null, "targets": [{"kind": ["bin"]}]},
                {"id": "other", "name": "other", "source": null, "targets": [{"kind": ["lib"]}]},
                {"id": "a", "name": "a", "source": "registry", "targets": [{"kind": ["lib"]}]},
                {"id": "b", "name": "b", "source": "registry", "targets": [{"kind": ["lib"]}]},
                {
                    "id": "m", "name": "m", "source": "registry",
                    "targets": [{"kind": ["proc-macro"]}],
                },
                {"id": "t", "name": "t", "source": "registry", "targets": [{"kind": ["lib"]}]},
            ],
            "resolve": {"nodes": [
                {"id": "tool", "deps": [
                    {"pkg": "a", "dep_kinds": [{"kind": null}]},
                    {"pkg": "m", "dep_kinds": [{"kind": null}]},
                    {"pkg": "t", "dep_kinds": [{"kind": "dev"}, {"kind": "build"}]},
                ]},
                {"id": "other", "deps": [{"pkg": "t", "dep_kinds": [{"kind": null}]}]},
                {"id": "a", "deps": [{"pkg": "b", "dep_kinds": [{"kind": "dev"}, {"kind": null}]}]},
                {"id": "b", "deps": [{"pkg": "a", "dep_kinds": [{"kind": null}]}]},
                {"id": "m", "deps": [{"pkg": "t", "dep_kinds": [{"kind": null}]}]},
            ]},
        });
        let found = linked(&metadata, &["tool".to_owned()]).unwrap();
        assert_eq!(found, ["a", "b", "tool"].map(String::from).into());
    }
}
