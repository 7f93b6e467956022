//! The crates of other authors that are linked into the libraries and programs: their licences, and
//! the same crates for programs, as a software bill of materials (CycloneDX 1.5).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::output;
use crate::stage::shipped;
use crate::workspace::{Workspace, array, cargo};

/// The beginnings of the names of files that have a licence or a notice.
const NOTICES: [&str; 4] = ["license", "licence", "copying", "notice"];

const HEADER: &str = "\
The libraries and programs of dat-rs contain the standard library of Rust (MIT or
Apache-2.0, https://github.com/rust-lang/rust) and the following crates from crates.io.
A text below applies to the crates that are named above it.
";

/// Writes the licences and the bill of materials into `directory`.
pub(crate) fn write(workspace: &Workspace, directory: &Path) -> Result<()> {
    let metadata = workspace.build_metadata()?;
    let tree = linked(workspace)?;
    let crates: Vec<&Value> = array(&metadata["packages"])
        // The workspace's own crates have no source.
        .filter(|package| !package["source"].is_null() && tree.contains(&name_of(package)))
        .collect();
    let lock = fs::read_to_string(workspace.root().join("Cargo.lock"))?;
    fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    fs::write(directory.join("third-party"), licences(&crates)?)?;
    fs::write(directory.join("sbom.cdx.json"), materials(&crates, &lock)?)?;
    Ok(())
}

/// Name and version of a package, as `cargo tree` prints them.
fn name_of(package: &Value) -> String {
    let word = |key: &str| package[key].as_str().unwrap_or_default();
    format!("{} v{}", word("name"), word("version"))
}

/// The names and versions of the crates that are linked into the shipped packages.
fn linked(workspace: &Workspace) -> Result<BTreeSet<String>> {
    let mut tree = Command::new(cargo());
    tree.args(["tree", "--locked", "--edges", "normal,no-proc-macro"])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(workspace.root());
    for package in shipped(workspace) {
        tree.args(["-p", &package]);
    }
    let text = output(&mut tree)?;
    // A mark for repetitions, or the directory of a member, may follow.
    let names = text.lines().map(|line| line.splitn(3, ' ').take(2));
    Ok(names
        .map(|words| words.collect::<Vec<_>>().join(" "))
        .collect())
}

/// Returns the list of crates and their licences, each text once.
fn licences(crates: &[&Value]) -> Result<String> {
    let mut text = HEADER.to_owned();
    let mut crates_by_text: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in crates {
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
    notices.sort();
    Ok(notices)
}

/// Returns the bill of materials as JSON. `lock` is the text of `Cargo.lock`, which has the
/// checksums.
fn materials(crates: &[&Value], lock: &str) -> Result<String> {
    let lock: toml::Table = lock.parse().context("Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let checksums: BTreeMap<(&str, &str), &str> = packages
        .into_iter()
        .flatten()
        .filter_map(|package| {
            let word = |key: &str| package.get(key).and_then(toml::Value::as_str);
            Some(((word("name")?, word("version")?), word("checksum")?))
        })
        .collect();
    let components = crates.iter().map(|package| component(package, &checksums));
    let list = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "name": "dat-rs",
            "version": env!("CARGO_PKG_VERSION"),
        }},
        "components": components.collect::<Vec<Value>>(),
    });
    Ok(format!("{list:#}\n"))
}

fn component(package: &Value, checksums: &BTreeMap<(&str, &str), &str>) -> Value {
    let word = |key: &str| package[key].as_str().unwrap_or_default();
    let (name, version) = (word("name"), word("version"));
    let mut component = json!({
        "type": "library",
        "name": name,
        "version": version,
        "purl": format!("pkg:cargo/{name}@{version}"),
        // Old crates separate two licences by a slash.
        "licenses": [{ "expression": word("license").replace('/', " OR ") }],
    });
    if let Some(checksum) = checksums.get(&(name, version)) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_has_its_licence_and_its_checksum() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.2.3\"\nchecksum = \"00ff\"\n";
        let package = json!({ "name": "a", "version": "1.2.3", "license": "MIT/Apache-2.0" });
        let text = materials(&[&package], lock).unwrap();
        let list: Value = serde_json::from_str(&text).unwrap();
        let component = &list["components"][0];
        assert_eq!(component["purl"], "pkg:cargo/a@1.2.3");
        assert_eq!(component["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(component["hashes"][0]["content"], "00ff");
    }
}
