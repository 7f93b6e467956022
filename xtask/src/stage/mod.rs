//! Building everything in release form and laying it out under `target/stage`.
//!
//! - `build.rs` runs cargo and parses the paths of the built files.
//! - `link.rs` links `libdat2.so.2.0.0`, `libibverbs.so.1`, `libitapi.so.2` and `libsdp-dat.so.1`
//!   from static libraries, and compiles `librdmacm.so.1` and `libverbs-devices.so`.
//! - `layout.rs` puts files into place, each by renaming a finished copy over the old one, so that
//!   a running program keeps the library it has mapped.
//! - `manifest.rs` is the list of the staged files.

mod build;
pub(crate) mod layout;
mod link;
pub(crate) mod manifest;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub(crate) use self::build::{Form, Progress, shipped};

use crate::report::Outcome;
use crate::workspace::Workspace;
use crate::{exports, pages};

/// The directory of the libraries, in the stage.
pub(crate) const LIBDIR: &str = "lib";
/// The files with the compiler flags for the libraries.
pub(crate) const PKG_CONFIG: [(&str, layout::Library); 3] = [
    ("lib/pkgconfig/dat2.pc", layout::DAT2),
    ("lib/pkgconfig/itapi.pc", layout::ITAPI),
    ("lib/pkgconfig/sdp-dat.pc", layout::SDP_DAT),
];
/// The sample of the registry file.
pub(crate) const DAT_CONF: &str = "etc/dat.conf";

/// The library whose compiler flags are in the staged file `path`.
pub(crate) fn flags_of(path: &str) -> Option<layout::Library> {
    let found = PKG_CONFIG.iter().find(|(place, _)| *place == path);
    found.map(|(_, library)| *library)
}

/// The directory of the Wireshark dissector, in the sources and in the stage.
const DISSECTOR: [&str; 2] = ["sdp-over-dat/wireshark", "share/dat-rs/wireshark"];

/// The directories of the crates of `libitapi.so.2` and `libsdp-dat.so.1`, and the versions in
/// these names.
const IT: [&str; 2] = ["it-api", "2"];
const SDP: [&str; 2] = ["sdp-over-dat/libsdp-dat", "1"];

/// The content of the stage.
#[derive(Debug)]
pub(crate) struct Staged {
    root: PathBuf,
    registry_exports: usize,
    provider_exports: usize,
    verbs_exports: usize,
    it_exports: usize,
    sdp_exports: usize,
    sonames: usize,
    programs: Vec<String>,
    headers: usize,
    renewed: usize,
}

/// Lays out the stage and checks what the libraries export.
pub(crate) fn step(workspace: &Workspace, progress: Progress) -> Result<Outcome> {
    let staged = run(workspace, progress, Form::Release)?;
    Ok(Outcome::passed(staged.checks(), staged))
}

/// Builds, links, lays out and checks.
pub(crate) fn run(workspace: &Workspace, progress: Progress, form: Form) -> Result<Staged> {
    let built = build::build_all(workspace, progress, form)?;
    let libdat2 = workspace.root().join("dat-api/libdat2");
    let linked = link::registry_library(workspace, &built.registry_archive, &libdat2)
        .context("linking libdat2.so.2.0.0")?;

    let mut stage = layout::Layout::open(workspace.stage_dir())?;
    let registry = stage.file(&linked, "lib/libdat2.so.2.0.0")?;
    stage.link("libdat2.so.2.0.0", "lib/libdat2.so.2")?;
    stage.link("libdat2.so.2", "lib/libdat2.so")?;
    let mut provider_exports = 0;
    for (file, name) in &built.provider_libraries {
        let provider = stage.file(file, &format!("lib/{name}"))?;
        provider_exports += exports::check_provider(&provider)?;
        exports::check_loading(&provider, name)?;
        exports::check_imports(&provider)?;
    }
    let preload = stage.file(&built.preload_library, "lib/libops-preload.so")?;
    exports::check_imports(&preload)?;
    let verbs_exports = stage_verbs(workspace, &built.verbs_archive, &mut stage)?;
    let it = (IT, "libitapi");
    let it_exports = stage_mapped(workspace, &built.it_archive, it, &mut stage)?;
    let sdp = (SDP, "libsdp-dat");
    let sdp_exports = stage_mapped(workspace, &built.sdp_archive, sdp, &mut stage)?;
    let mut headers = stage.directory(&libdat2.join("include/dat2"), "include/dat2", "h")?;
    for crate_dir in [IT[0], SDP[0], "ops"] {
        let directory = workspace.root().join(crate_dir).join("include");
        headers += stage.directory(&directory, "include", "h")?;
    }
    for (place, library) in PKG_CONFIG {
        stage.text(&layout::pkg_config(library, layout::MOVABLE, LIBDIR), place)?;
    }
    stage.file(&workspace.root().join("dat.conf"), DAT_CONF)?;
    for (place, text) in pages::all(
        &workspace.root().join("docs"),
        &libdat2.join("include/dat2"),
    )? {
        stage.text(&text, &format!("share/{place}"))?;
    }
    let [dissector, place] = DISSECTOR;
    stage.directory(&workspace.root().join(dissector), place, "lua")?;
    let mut programs = Vec::new();
    for (name, file) in &built.programs {
        stage.file(file, &format!("bin/{name}"))?;
        programs.push(name.clone());
    }
    stage.finish()?;
    let staged = Staged {
        registry_exports: exports::check_registry(&registry, &libdat2.join("exports.txt"))?,
        provider_exports,
        verbs_exports,
        it_exports,
        sdp_exports,
        sonames: 4 + built.provider_libraries.len(),
        programs,
        headers,
        renewed: stage.renewed(),
        root: shown(workspace),
    };
    exports::check_loading(&registry, "libdat2.so.2")?;
    exports::check_imports(&registry)?;
    Ok(staged)
}

/// Links `libibverbs.so.1` and `librdmacm.so.1` and checks them. Returns the number of their
/// exports.
fn stage_verbs(workspace: &Workspace, archive: &Path, stage: &mut layout::Layout) -> Result<usize> {
    let verbs = workspace.root().join("verbs-api");
    let map = verbs.join("libibverbs.map");
    let linked = link::mapped_library(workspace, "libibverbs.so.1", archive, &map);
    let linked = linked.context("linking libibverbs.so.1")?;
    let library = stage.file(&linked, "lib/verbs/libibverbs.so.1")?;
    exports::check_loading(&library, "libibverbs.so.1")?;
    exports::check_imports(&library)?;
    let exports = exports::check_versions(&library, &map)?;
    let linked = link::rdmacm_library(workspace, &verbs).context("linking librdmacm.so.1")?;
    let library = stage.file(&linked, "lib/verbs/librdmacm.so.1")?;
    exports::check_loading(&library, "librdmacm.so.1")?;
    let filters = exports::check_versions(&library, &verbs.join("librdmacm.map"))?;
    let devices = link::devices_library(workspace, &verbs);
    let devices = devices.context("linking libverbs-devices.so")?;
    stage.file(&devices, "lib/verbs/libverbs-devices.so")?;
    Ok(exports + filters)
}

/// Links the library `name` of the crate in `directory` and checks it. Returns the number of its
/// exports.
fn stage_mapped(
    workspace: &Workspace,
    archive: &Path,
    ([directory, version], name): ([&str; 2], &str),
    stage: &mut layout::Layout,
) -> Result<usize> {
    let map = workspace.root().join(directory).join(format!("{name}.map"));
    let soname = format!("{name}.so.{version}");
    let linked = link::mapped_library(workspace, &soname, archive, &map);
    let linked = linked.with_context(|| format!("linking {soname}"))?;
    let library = stage.file(&linked, &format!("lib/{soname}"))?;
    stage.link(&soname, &format!("lib/{name}.so"))?;
    exports::check_loading(&library, &soname)?;
    exports::check_imports(&library)?;
    exports::check_versions(&library, &map)
}

/// The path of the stage, relative to the workspace's directory if it is inside.
fn shown(workspace: &Workspace) -> PathBuf {
    let root = workspace.stage_dir();
    root.strip_prefix(workspace.root())
        .map(PathBuf::from)
        .unwrap_or(root)
}

impl Staged {
    /// The number of single facts that were checked: one per exported symbol and soname.
    pub(crate) fn checks(&self) -> usize {
        self.registry_exports
            + self.provider_exports
            + self.verbs_exports
            + self.it_exports
            + self.sdp_exports
            + self.sonames
    }
}

impl fmt::Display for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} symbols @@{}, {} of the providers, {} headers, bin/{{{}}}, {} files renewed",
            self.root.display(),
            self.registry_exports,
            exports::VERSION_NODE,
            self.provider_exports,
            self.headers,
            self.programs.join(","),
            self.renewed,
        )
    }
}
