//! Dependencies that a crate declares, although none of its sources names them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Fault, extension};
use crate::workspace::{Package, Workspace};

/// The dependencies of all members that no source of the member names.
pub(super) fn unused(workspace: &Workspace, files: &[PathBuf]) -> Result<Vec<Fault>> {
    let dirs: Vec<&Path> = workspace.packages().iter().map(Package::dir).collect();
    let mut faults = Vec::new();
    for package in workspace.packages() {
        let mut sources = String::new();
        for file in files {
            if extension(file) == "rs" && home(file, &dirs) == Some(package.dir()) {
                let context = || format!("reading {}", file.display());
                sources += &fs::read_to_string(file).with_context(context)?;
            }
        }
        let manifest = package.dir().join("Cargo.toml");
        let shown = manifest.strip_prefix(workspace.root()).unwrap_or(&manifest);
        let declared = package.dependencies.iter();
        faults.extend(
            declared
                .filter(|name| !names(&sources, name))
                .map(|name| Fault {
                    file: shown.into(),
                    line: 1,
                    what: format!("no source names the dependency {name}"),
                }),
        );
    }
    Ok(faults)
}

/// The innermost package that contains the file; packages may contain packages.
fn home<'a>(file: &Path, dirs: &[&'a Path]) -> Option<&'a Path> {
    let around = dirs.iter().filter(|dir| file.starts_with(dir));
    around.copied().max_by_key(|dir| dir.components().count())
}

/// Returns true if `sources` contain the crate's name as a word.
fn names(sources: &str, dependency: &str) -> bool {
    super::text::holds_word(sources, &dependency.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_innermost_package() {
        let dirs = [Path::new("/w/ops"), Path::new("/w/ops/preload")];
        let home = |file: &str| home(Path::new(file), &dirs);
        assert_eq!(home("/w/ops/preload/src/lib.rs"), Some(dirs[1]));
        assert_eq!(home("/w/ops/src/lib.rs"), Some(dirs[0]));
        assert_eq!(home("/w/elsewhere.rs"), None);
    }

    #[test]
    fn a_crate_is_named_with_underscores() {
        assert!(names("use dat_abi::X;", "dat-abi"));
        assert!(!names("use dat_abi_more::X;", "dat-abi"));
    }
}
