//! Files that no target reaches through its `mod` declarations: dead code that is never compiled.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::{Attribute, Expr, Item, ItemMod, Lit, Meta};

use super::Fault;
use crate::fuzz;
use crate::workspace::Workspace;

/// The files among `sources` that are part of no target.
pub(super) fn unreached<'a>(
    workspace: &Workspace,
    sources: impl Iterator<Item = &'a PathBuf>,
) -> Result<Vec<Fault>> {
    let mut reached = BTreeSet::new();
    let programs = fuzz::programs(workspace.root())?;
    for root in workspace
        .target_roots()
        .chain(programs.iter().map(PathBuf::as_path))
    {
        let dir = root
            .parent()
            .context("a crate root is in a directory")?
            .to_owned();
        follow(root, &dir, &mut reached)?;
    }
    let dead = sources.filter(|file| !reached.contains(*file));
    Ok(dead
        .map(|file| Fault {
            file: file.strip_prefix(workspace.root()).unwrap_or(file).into(),
            line: 1,
            what: "part of no target".into(),
        })
        .collect())
}

/// Adds `file` and the modules that it declares; those without a path are in `children`.
fn follow(file: &Path, children: &Path, reached: &mut BTreeSet<PathBuf>) -> Result<()> {
    if !reached.insert(file.to_owned()) {
        return Ok(());
    }
    let source = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    // A file that does not parse is reported by its own check.
    let Ok(parsed) = syn::parse_file(&source) else {
        return Ok(());
    };
    follow_items(&parsed.items, file, children, reached)
}

fn follow_items(
    items: &[Item],
    file: &Path,
    children: &Path,
    reached: &mut BTreeSet<PathBuf>,
) -> Result<()> {
    for item in items {
        let Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        if let Some((_, inner)) = &module.content {
            follow_items(inner, file, &children.join(&name), reached)?;
        } else if let Some((found, below)) = locate(module, &name, file, children) {
            follow(&found, &below, reached)?;
        }
    }
    Ok(())
}

/// The file of a module and the directory of its children.
pub(super) fn locate(
    module: &ItemMod,
    name: &str,
    file: &Path,
    children: &Path,
) -> Option<(PathBuf, PathBuf)> {
    if let Some(path) = module.attrs.iter().find_map(path_attribute) {
        let found = file.parent()?.join(path);
        let below = found.parent()?.to_owned();
        return Some((found, below));
    }
    let below = children.join(name);
    let sibling = children.join(format!("{name}.rs"));
    let found = if sibling.exists() {
        sibling
    } else {
        below.join("mod.rs")
    };
    found.exists().then_some((found, below))
}

fn path_attribute(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    match &pair.value {
        Expr::Lit(literal) if pair.path.is_ident("path") => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use stack_tests::{rows, tree};

    use super::*;

    #[test]
    fn modules_are_followed_in_all_their_forms() {
        let files = rows! {
            "lib.rs", "mod a; mod b; mod c { mod d; } #[path = \"odd/e.rs\"] mod f;";
            "a.rs", "mod inner;";
            "a/inner.rs", "";
            "b/mod.rs", "mod inner;";
            "b/inner.rs", "";
            "c/d.rs", "";
            "odd/e.rs", "";
            "dead.rs", "";
        };
        let dir = tree(&files).unwrap();
        let mut reached = BTreeSet::new();
        follow(&dir.path().join("lib.rs"), dir.path(), &mut reached).unwrap();
        for (file, _) in files {
            let is_alive = reached.contains(&dir.path().join(file));
            assert_eq!(is_alive, file != "dead.rs", "{file}");
        }
    }
}
