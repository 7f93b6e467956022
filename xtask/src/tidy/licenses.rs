//! The licences and the sources of all packages in the build, compared with `deny.toml`.
//!
//! `cargo deny` reads the same file and makes more checks. It is not part of the tests, because
//! its build takes longer than that of this project.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use spdx::{Expression, ParseMode};

use super::Fault;
use crate::workspace::{Workspace, array};

/// The only registry from which packages may come.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";
const RULES: &str = "deny.toml";

/// The packages whose licence `deny.toml` does not allow, or whose source is not crates.io.
pub(super) fn refused(workspace: &Workspace) -> Result<Vec<Fault>> {
    let allowed = allowed(&workspace.root().join(RULES))?;
    let metadata = workspace.build_metadata()?;
    let faults = array(&metadata["packages"]).filter_map(|package| {
        let license = package["license"].as_str().unwrap_or_default();
        let is_foreign = package["source"].as_str().is_some_and(|it| it != CRATES_IO);
        let reason = match (is_permitted(license, &allowed), is_foreign) {
            (false, _) => format!("{RULES} does not allow its licence {license:?}"),
            (true, true) => format!("is from {}, not from crates.io", package["source"]),
            (true, false) => return None,
        };
        Some(Fault {
            file: "Cargo.lock".into(),
            line: 1,
            what: format!("the package {}: {reason}", package["name"]),
        })
    });
    Ok(faults.collect())
}

/// The licences that the rules at `path` allow.
fn allowed(path: &Path) -> Result<Vec<String>> {
    let context = || format!("reading {}", path.display());
    let rules: toml::Table = fs::read_to_string(path).with_context(context)?.parse()?;
    let allowed = rules["licenses"]["allow"].as_array();
    let allowed = allowed.with_context(|| format!("{RULES} allows no licences"))?;
    let names = allowed.iter().filter_map(|name| name.as_str());
    Ok(names.map(String::from).collect())
}

/// True if the licence expression of a package can be met with the allowed licences.
fn is_permitted(license: &str, allowed: &[String]) -> bool {
    let is_allowed = |license: &spdx::LicenseReq| allowed.contains(&license.to_string());
    Expression::parse_mode(license, ParseMode::LAX)
        .is_ok_and(|expression| expression.evaluate(is_allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_met_by_the_allowed_licences() {
        let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception"].map(String::from);
        for license in [
            "MIT",
            "MIT OR GPL-2.0-only",
            "GPL-2.0-only/MIT",
            "MIT AND Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(is_permitted(license, &allowed), "{license}");
        }
        for license in ["", "Apache-2.0", "MIT AND GPL-2.0-only", "no licence"] {
            assert!(!is_permitted(license, &allowed), "{license}");
        }
    }
}
