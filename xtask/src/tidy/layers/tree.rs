//! The modules of a crate, read from its files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::{Ident, Item, ItemMod};

use super::graph::{Graph, Place};
use super::paths::{self, Named};
use crate::tidy::modules;

/// The number of re-exports through which a path is followed; more are a cycle.
const REEXPORTS_MAX: usize = 16;

/// The root of every tree.
const ROOT: usize = 0;

/// The modules of a crate without those of its tests; the root is the first one.
#[derive(Debug)]
pub(super) struct Tree {
    modules: Vec<Module>,
}

#[derive(Debug)]
struct Module {
    /// The path in the crate (`ep::state`).
    name: String,
    /// The root is its own parent.
    parent: usize,
    file: PathBuf,
    children: BTreeMap<String, usize>,
    /// The items that the module defines, without modules.
    items: BTreeSet<String>,
    /// The items that the module imports or re-exports, under their names in it.
    imports: BTreeMap<String, Vec<String>>,
    /// Modules that the module imports as a whole.
    globs: Vec<Vec<String>>,
    named: Vec<Named>,
}

impl Tree {
    /// Reads the crate whose root is the file `root`. Files are named relative to `workspace`.
    pub(super) fn read(workspace: &Path, root: &Path) -> Result<Self> {
        let mut tree = Self {
            modules: Vec::new(),
        };
        let children = root.parent().context("a crate root is in a directory")?;
        tree.push(ROOT, String::new(), shown(workspace, root));
        tree.read_file(workspace, ROOT, root, children)?;
        Ok(tree)
    }

    /// Returns the graph of siblings that use each other.
    pub(super) fn graph(&self) -> Graph {
        let mut graph = Graph::default();
        for (user, module) in self.modules.iter().enumerate() {
            for named in &module.named {
                let Some(used) = self.resolve(user, user, &named.path, REEXPORTS_MAX) else {
                    continue;
                };
                if let Some((user, used)) = self.siblings(user, used) {
                    let place = Place {
                        file: module.file.clone(),
                        line: named.line,
                        name: named.path.last().cloned().unwrap_or_default(),
                    };
                    let name = |module: usize| self.modules[module].name.clone();
                    graph.add(name(user), name(used), place);
                }
            }
        }
        graph
    }

    /// Returns the module that defines what `path` names in the module `at`, or the module that
    /// `user` depends on for the name: re-exports are followed in the ancestors of `user` only,
    /// because a use of any other module that re-exports is a use of that module. None for a name
    /// of another crate.
    fn resolve(&self, user: usize, at: usize, path: &[String], depth: usize) -> Option<usize> {
        let mut module = at;
        let mut rest = path;
        while let Some((first, more)) = rest.split_first() {
            match first.as_str() {
                "crate" => module = ROOT,
                "self" => (),
                "super" => module = self.modules[module].parent,
                name => match self.modules[module].children.get(name) {
                    Some(child) => module = *child,
                    None => break,
                },
            }
            rest = more;
        }
        let is_relative = rest.len() == path.len();
        let Some((name, more)) = rest.split_first() else {
            return Some(module);
        };
        let looks_through = module != user && self.is_within(user, module);
        if is_relative || looks_through {
            let imported = self.imported(user, module, name, more, depth);
            if imported.is_some() {
                return imported;
            }
        }
        (!is_relative).then_some(module)
    }

    /// Resolves a name that `module` imports.
    fn imported(
        &self,
        user: usize,
        module: usize,
        name: &str,
        more: &[String],
        depth: usize,
    ) -> Option<usize> {
        let depth = depth.checked_sub(1)?;
        let holder = &self.modules[module];
        if let Some(import) = holder.imports.get(name) {
            let path = [import, more].concat();
            return self.resolve(user, module, &path, depth);
        }
        if holder.items.contains(name) {
            return None;
        }
        let sources = holder
            .globs
            .iter()
            .filter_map(|glob| self.resolve(user, module, glob, depth));
        let mut holding = sources.filter(|source| self.modules[*source].exports(name));
        holding.next()
    }

    /// Returns the two siblings that contain the modules `user` and `used`, unless one of these
    /// contains the other.
    fn siblings(&self, user: usize, used: usize) -> Option<(usize, usize)> {
        let (from, to) = (self.path_to(user), self.path_to(used));
        let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        Some((*from.get(shared)?, *to.get(shared)?))
    }

    fn is_within(&self, module: usize, ancestor: usize) -> bool {
        self.path_to(module).contains(&ancestor)
    }

    /// The modules from the root to `module`, both included.
    fn path_to(&self, module: usize) -> Vec<usize> {
        let up = std::iter::successors(Some(module), |one| {
            (*one != ROOT).then(|| self.modules[*one].parent)
        });
        let mut path: Vec<usize> = up.collect();
        path.reverse();
        path
    }

    fn push(&mut self, parent: usize, name: String, file: PathBuf) -> usize {
        self.modules.push(Module {
            name,
            parent,
            file,
            children: BTreeMap::new(),
            items: BTreeSet::new(),
            imports: BTreeMap::new(),
            globs: Vec::new(),
            named: Vec::new(),
        });
        self.modules.len() - 1
    }

    fn read_file(
        &mut self,
        workspace: &Path,
        module: usize,
        file: &Path,
        children: &Path,
    ) -> Result<()> {
        let context = || format!("reading {}", file.display());
        let source = fs::read_to_string(file).with_context(context)?;
        // A file that does not parse is reported by its own check.
        let Ok(parsed) = syn::parse_file(&source) else {
            return Ok(());
        };
        if paths::is_test(&parsed.attrs) {
            return Ok(());
        }
        self.read_items(workspace, module, &parsed.items, file, children)
    }

    fn read_items(
        &mut self,
        workspace: &Path,
        module: usize,
        items: &[Item],
        file: &Path,
        children: &Path,
    ) -> Result<()> {
        for item in items {
            let Item::Mod(inner) = item else {
                self.modules[module].add(item);
                if let Some(name) = exported_macro(item) {
                    let path = self.path_of(module, &name);
                    self.modules[ROOT].imports.insert(name, path);
                }
                continue;
            };
            if !paths::is_test(&inner.attrs) {
                self.read_module(workspace, module, inner, file, children)?;
            }
        }
        Ok(())
    }

    fn read_module(
        &mut self,
        workspace: &Path,
        parent: usize,
        module: &ItemMod,
        file: &Path,
        children: &Path,
    ) -> Result<()> {
        let name = module.ident.to_string();
        let path = self.path_of(parent, &name)[1..].join("::");
        if let Some((_, items)) = &module.content {
            let child = self.push(parent, path, shown(workspace, file));
            self.modules[parent].children.insert(name.clone(), child);
            self.read_items(workspace, child, items, file, &children.join(&name))
        } else if let Some((found, below)) = modules::locate(module, &name, file, children) {
            let child = self.push(parent, path, shown(workspace, &found));
            self.modules[parent].children.insert(name, child);
            self.read_file(workspace, child, &found, &below)
        } else {
            Ok(())
        }
    }

    /// The path of an item `name` of a module, from the root.
    fn path_of(&self, module: usize, name: &str) -> Vec<String> {
        let around = self.modules[module].name.split("::");
        let around = around.filter(|segment| !segment.is_empty());
        let path = std::iter::once("crate").chain(around).chain([name]);
        path.map(String::from).collect()
    }
}

impl Module {
    fn add(&mut self, item: &Item) {
        self.named.extend(paths::of_item(item));
        if matches!(item, Item::Use(_)) {
            for import in paths::all(item) {
                match import.name {
                    Some(name) => drop(self.imports.insert(name, import.path)),
                    None => self.globs.push(import.path),
                }
            }
        }
        self.items.extend(name_of(item).map(ToString::to_string));
    }

    fn exports(&self, name: &str) -> bool {
        self.items.contains(name)
            || self.imports.contains_key(name)
            || self.children.contains_key(name)
    }
}

fn shown(workspace: &Path, file: &Path) -> PathBuf {
    file.strip_prefix(workspace).unwrap_or(file).into()
}

fn exported_macro(item: &Item) -> Option<String> {
    let Item::Macro(item) = item else { return None };
    let is_exported = item
        .attrs
        .iter()
        .any(|attribute| attribute.path().is_ident("macro_export"));
    item.ident
        .as_ref()
        .filter(|_| is_exported)
        .map(ToString::to_string)
}

fn name_of(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::TraitAlias(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}
