//! The program of a suite, as cargo builds it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use super::BUILD_MINUTES;
use crate::job::Job;
use crate::workspace::{Workspace, cargo};

#[derive(Debug)]
pub(crate) struct SuiteProgram {
    pub(crate) file: PathBuf,
    /// The directory of its package, where cargo would run it.
    directory: PathBuf,
}

impl SuiteProgram {
    /// Builds the suite `name` of `package`.
    ///
    /// The whole workspace is selected although one suite is built: cargo chooses the features of
    /// dependencies for the selected packages together, so that a selection of one package would
    /// compile most libraries again.
    pub(crate) fn build(
        workspace: &Workspace,
        step: &str,
        package: &str,
        name: &str,
    ) -> Result<Self> {
        let args = format!(
            "test --workspace --test {name} --no-run --message-format json-render-diagnostics"
        );
        let job = Job::cargo(workspace, &format!("build {step}"), &args);
        let built = job.minutes(BUILD_MINUTES).check()?;
        let packages = workspace.packages().iter();
        let directory = packages
            .filter(|it| it.name == package)
            .map(|it| it.dir().to_owned())
            .next()
            .with_context(|| format!("no package {package}"))?;
        let manifest = directory.join("Cargo.toml");
        let file = built
            .text
            .lines()
            .find_map(|line| executable(line, &manifest.to_string_lossy(), name))
            .with_context(|| format!("cargo made no program of the suite {name}"))?;
        Ok(Self { file, directory })
    }

    /// A run of the program in its package's directory. For an ordinary user it is a run in a user
    /// namespace, in which the tests may make network namespaces.
    pub(super) fn job(&self, workspace: &Workspace, step: &str) -> Job {
        let program = self.file.to_string_lossy();
        match namespace_arguments(workspace) {
            Some(arguments) => Job::new(workspace, step, "unshare")
                .args(arguments)
                .arg(&program),
            None => Job::new(workspace, step, &program),
        }
        .directory(&self.directory)
        .env("CARGO", cargo())
        .env("CARGO_MANIFEST_DIR", &self.directory)
        .env("RUST_LIB_BACKTRACE", "0")
        .env("DAT_STAGE", workspace.stage_dir())
    }
}

/// The executable of the test `name` of the package with this manifest, if `line` is cargo's
/// message about it.
fn executable(line: &str, manifest: &str, name: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_meant = message["reason"] == "compiler-artifact"
        && message["manifest_path"] == manifest
        && message["target"]["name"] == name
        && message["profile"]["test"] == true;
    let file = message["executable"].as_str().filter(|_| is_meant)?;
    Some(file.into())
}

/// The arguments of `unshare` with which an ordinary user can make network namespaces: the user
/// becomes root of a user namespace.
fn namespace_arguments(workspace: &Workspace) -> Option<&'static str> {
    const ARGUMENTS: &str = "--user --map-root-user";
    if nix::unistd::geteuid().is_root() {
        return None;
    }
    let probe = Job::new(workspace, "unshare", "unshare").args(&format!("{ARGUMENTS} --net true"));
    probe.check().is_ok().then_some(ARGUMENTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_of_its_package_is_found_in_cargos_messages() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/w/tests/Cargo.toml",
            "target":{"name":"calls"},"profile":{"test":true},"executable":"/t/calls-1"}"#;
        let found = executable(line, "/w/tests/Cargo.toml", "calls");
        assert_eq!(found, Some("/t/calls-1".into()));
        assert_eq!(executable(line, "/w/other/Cargo.toml", "calls"), None);
        assert_eq!(executable(line, "/w/tests/Cargo.toml", "scale"), None);
        assert_eq!(
            executable("error: no", "/w/tests/Cargo.toml", "calls"),
            None
        );
    }
}
