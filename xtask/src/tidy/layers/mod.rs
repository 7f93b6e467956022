//! Cycles among the modules of a crate.
//!
//! A module uses another one where its code names a path into that module: in a `use`, in an
//! expression, in a type, in the arguments of a macro. Each use counts between siblings only: the
//! innermost module that contains both places has two children that contain one place each. For
//! example, `a::b` that names `c::d` makes `a` use `c`. The siblings of each parent are checked
//! separately, and a module and its own descendants may use each other freely. A name that an
//! ancestor re-exports counts as a use of the module that defines it: `crate::Config` uses
//! `config`.
//!
//! Not checked: code under `cfg(test)`, methods (their types are checked where they are named), and
//! names that `use super::*` imports.
//!
//! | File | Contents |
//! |---|---|
//! | `tree` | the modules of a crate, read from its files |
//! | `paths` | the paths that the code of one module names |
//! | `graph` | which sibling uses which, and the cycles among them |

mod graph;
mod paths;
mod tree;

use std::path::Path;

use anyhow::Result;

use self::graph::{Graph, Place};
use self::tree::Tree;
use super::Fault;
use crate::workspace::{Package, Workspace};

/// The maximum number of places of one use that a message lists.
const PLACES_MAX: usize = 8;

/// Returns a fault for each cycle of every crate of the workspace.
pub(super) fn check(workspace: &Workspace) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for package in workspace.packages() {
        faults.extend(faults_of(&graphs(workspace.root(), package)?));
    }
    Ok(faults)
}

/// The graphs of a package's library and programs.
fn graphs(workspace: &Path, package: &Package) -> Result<Vec<Graph>> {
    let roots = package.crate_roots().iter();
    roots
        .map(|root| Ok(Tree::read(workspace, root)?.graph()))
        .collect()
}

fn faults_of(graphs: &[Graph]) -> Vec<Fault> {
    let cycles = graphs.iter().flat_map(Graph::cycles).map(|cycle| {
        let (user, used, places) = cycle.weakest();
        let place = &places[0];
        Fault {
            file: place.file.clone(),
            line: place.line,
            what: format!(
                "a cycle of modules, {cycle}; its weakest use is `{user}` of `{used}`: {}",
                list(places)
            ),
        }
    });
    cycles.collect()
}

fn list(places: &[Place]) -> String {
    let shown = places.iter().take(PLACES_MAX).map(ToString::to_string);
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if let Some(more @ 1..) = places.len().checked_sub(PLACES_MAX) {
        text += &format!(" and {more} more");
    }
    text
}

#[cfg(test)]
mod tests;
