//! The list of linked crates for programs: a software bill of materials in CycloneDX 1.5.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::notices::Linked;

/// Returns the list as JSON. `lock` is the text of `Cargo.lock`, which has the checksums.
pub(super) fn of(linked: &Linked, lock: &str) -> Result<String> {
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
    let components: Vec<Value> = linked
        .packages()
        .map(|package| component(package, &checksums))
        .collect();
    let list = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "name": "dat-rs",
            "version": env!("CARGO_PKG_VERSION"),
        }},
        "components": components,
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
        let package = json!({
            "id": "a", "name": "a", "version": "1.2.3", "license": "MIT/Apache-2.0",
            "source": "registry",
        });
        let text = of(&Linked::of_one(package), lock).unwrap();
        let list: Value = serde_json::from_str(&text).unwrap();
        let component = &list["components"][0];
        assert_eq!(component["purl"], "pkg:cargo/a@1.2.3");
        assert_eq!(component["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(component["hashes"][0]["content"], "00ff");
    }
}
