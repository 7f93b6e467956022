//! The location and the content of the workspace.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The workspace, as `cargo metadata` describes it.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
    packages: Vec<Package>,
}

/// A package of the workspace and the programs it builds.
#[derive(Debug)]
pub(crate) struct Package {
    /// Name as in `cargo build -p`.
    pub(crate) name: String,
    /// Names of its `[[bin]]` targets.
    pub(crate) bins: Vec<String>,
    /// The names of the manifest's dependencies; sources replace hyphens by underscores.
    pub(crate) dependencies: Vec<String>,
    dir: PathBuf,
    roots: Vec<PathBuf>,
    crate_roots: Vec<PathBuf>,
}

impl Workspace {
    /// Runs `cargo metadata`.
    pub(crate) fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .canonicalize()?;
        let metadata = metadata(&root, &["--no-deps"])?;
        let target = metadata["target_directory"]
            .as_str()
            .context("no target directory")?
            .into();
        let packages = array(&metadata["packages"])
            .map(Package::from_metadata)
            .collect();
        Ok(Self {
            root,
            target,
            packages,
        })
    }

    /// The directory of the workspace's `Cargo.toml`.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Cargo's target directory.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    pub(crate) fn stage_dir(&self) -> PathBuf {
        self.target.join("stage")
    }

    /// The directory of the output of each step.
    pub(crate) fn log_dir(&self) -> PathBuf {
        self.target.join("xtask-logs")
    }

    /// The members of the workspace.
    pub(crate) fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// Returns what `cargo metadata` prints about all packages in the build for this platform.
    pub(crate) fn build_metadata(&self) -> Result<Value> {
        metadata(&self.root, &["--locked", "--filter-platform", PLATFORM])
    }

    /// The root source files of all targets: libraries, programs, examples, tests, build scripts.
    pub(crate) fn target_roots(&self) -> impl Iterator<Item = &Path> {
        self.packages
            .iter()
            .flat_map(|package| &package.roots)
            .map(PathBuf::as_path)
    }
}

impl Package {
    /// The directory of the package's manifest.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The root source files of its library and its programs, which are the shipped code.
    pub(crate) fn crate_roots(&self) -> &[PathBuf] {
        &self.crate_roots
    }

    fn from_metadata(package: &Value) -> Self {
        let bins = array(&package["targets"])
            .filter(|target| array(&target["kind"]).any(|kind| kind == "bin"));
        Self {
            name: package["name"].as_str().unwrap_or_default().into(),
            bins: bins
                .filter_map(|target| target["name"].as_str().map(String::from))
                .collect(),
            dependencies: array(&package["dependencies"])
                .filter_map(|one| one["rename"].as_str().or(one["name"].as_str()))
                .map(String::from)
                .collect(),
            dir: package["manifest_path"]
                .as_str()
                .and_then(|manifest| Path::new(manifest).parent())
                .map(PathBuf::from)
                .unwrap_or_default(),
            roots: roots(package, |_| true),
            crate_roots: roots(package, |kind| kind == "bin" || kind.ends_with("lib")),
        }
    }
}

/// The platform of the packages.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

fn metadata(root: &Path, options: &[&str]) -> Result<Value> {
    let output = Command::new(cargo())
        .args(["metadata", "--format-version", "1", "--quiet"])
        .args(options)
        .current_dir(root)
        .output()
        .context("running cargo metadata")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "cargo metadata: {}",
        complaint.trim()
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The root source files of the targets that have a kind that `wanted` accepts.
fn roots(package: &Value, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let is_wanted = |target: &&Value| {
        array(&target["kind"])
            .filter_map(Value::as_str)
            .any(&wanted)
    };
    array(&package["targets"])
        .filter(is_wanted)
        .filter_map(|target| target["src_path"].as_str().map(PathBuf::from))
        .collect()
}

/// The cargo that runs this program, so that a toolchain override stays in force.
pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".into())
}

/// The elements of a JSON array; none for any other value.
pub(crate) fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
