//! The release build, and the paths of the files that cargo built.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::workspace::{Workspace, array, cargo};

/// The providers: package, and the library that `dat.conf` names.
const PROVIDERS: [(&str, &str); 2] = [
    ("provider-iwarp-soft", "libdapl-iwarp.so.2"),
    ("provider-ib", "libdapl-ib.so.2"),
];

/// The library that `opsrun` preloads in front of the C library's socket calls.
const PRELOAD: &str = "ops-preload";

/// The crate of `libibverbs.so.1`.
const VERBS: &str = "verbs-api";

/// The crate of `libitapi.so.2`.
const IT: &str = "it-api";

/// The crate of `libsdp-dat.so.1`.
const SDP: &str = "libsdp-dat";

/// The program that measures the libraries, built as these are: package and program.
const BENCH: (&str, &str) = ("dat-tools", "dat-bench");

/// The cargo profile of the libraries and of [`BENCH`].
const MEASURED: &str = "release";
/// The cargo profile of the other tools and of the examples. Their build takes less time.
const UNMEASURED: &str = "program";
/// The cargo profile of everything in the stage of the demo.
const DEMO: &str = "demo";

/// The packages whose examples are staged, because they show an API to users.
const EXAMPLES: [&str; 2] = ["dat-api", "sdp-over-dat"];

/// The prefix of the names of staged examples, so that they hide no other program: one example is
/// called `rdma`, as is iproute2's tool.
const EXAMPLE_PREFIX: &str = "dat-example-";

/// The number of lines that are printed of a failed build.
const ERROR_LINES: usize = 20;

/// The files of a release build that are staged.
#[derive(Debug)]
pub(super) struct Built {
    /// `liblibdat2.a`, not yet linked.
    pub(super) registry_archive: PathBuf,
    /// `libverbs_api.a`, not yet linked.
    pub(super) verbs_archive: PathBuf,
    /// `libit_api.a`, not yet linked.
    pub(super) it_archive: PathBuf,
    /// `liblibsdp_dat.a`, not yet linked.
    pub(super) sdp_archive: PathBuf,
    /// The providers as cargo names them, each with the name that it is staged under.
    pub(super) provider_libraries: Vec<(PathBuf, &'static str)>,
    /// The library that is preloaded in front of the C library's socket calls.
    pub(super) preload_library: PathBuf,
    /// Tools and examples, by their staged names.
    pub(super) programs: BTreeMap<String, PathBuf>,
}

/// The form in which the libraries and programs are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are released: the libraries with whole-program optimisation.
    Release,
    /// All of them in one profile, which takes half of the time.
    Demo,
}

/// The display of cargo's progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Shown while cargo runs.
    Shown,
    /// Not shown; errors are part of the failure.
    Kept,
}

/// The names of the packages whose libraries and programs are staged, examples apart.
pub(crate) fn shipped(workspace: &Workspace) -> Vec<String> {
    let tools = workspace.packages().iter();
    let tools = tools.filter(|package| !package.bins.is_empty());
    let libraries = PROVIDERS.iter().map(|(package, _)| *package);
    libraries
        .chain(["libdat2", PRELOAD, VERBS, IT, SDP])
        .map(String::from)
        .chain(tools.map(|package| package.name.clone()))
        .filter(|name| name != env!("CARGO_PKG_NAME"))
        .collect()
}

/// Builds the libraries, the tools and the examples.
pub(super) fn build_all(workspace: &Workspace, progress: Progress, form: Form) -> Result<Built> {
    let [measured, unmeasured] = match form {
        Form::Release => [MEASURED, UNMEASURED],
        Form::Demo => [DEMO; 2],
    };
    let packages = PROVIDERS.iter().map(|(package, _)| *package);
    let mut targets = vec!["--lib".to_owned()];
    for package in packages.chain(["libdat2", PRELOAD, VERBS, IT, SDP]) {
        targets.extend(["-p".to_owned(), package.to_owned()]);
    }
    // One build for all of them, because the last part of each uses one processor.
    targets.extend(["-p", BENCH.0, "--bin", BENCH.1].map(String::from));
    let measured = build(workspace, progress, measured, &targets)?;
    let packages: Vec<String> = workspace
        .packages()
        .iter()
        .filter(|package| package.name != env!("CARGO_PKG_NAME"))
        .filter(|package| !package.bins.is_empty() || EXAMPLES.contains(&&*package.name))
        .flat_map(|package| ["-p".into(), package.name.clone()])
        .collect();
    let mut artifacts = Vec::new();
    if !packages.is_empty() {
        let mut args = packages;
        args.extend(["--bins".into(), "--examples".into()]);
        artifacts.extend(build(workspace, progress, unmeasured, &args)?);
    }
    // Later entries replace earlier ones of the same name.
    artifacts.extend(measured);
    Ok(Built {
        registry_archive: library(&artifacts, "libdat2", "a")?,
        verbs_archive: library(&artifacts, &VERBS.replace('-', "_"), "a")?,
        it_archive: library(&artifacts, &IT.replace('-', "_"), "a")?,
        sdp_archive: library(&artifacts, &SDP.replace('-', "_"), "a")?,
        provider_libraries: PROVIDERS
            .iter()
            .map(|(package, name)| {
                let file = library(&artifacts, &package.replace('-', "_"), "so")?;
                Ok((file, *name))
            })
            .collect::<Result<_>>()?,
        preload_library: library(&artifacts, &PRELOAD.replace('-', "_"), "so")?,
        programs: artifacts.iter().filter_map(Artifact::program).collect(),
    })
}

/// A target that cargo built or found fresh.
#[derive(Debug)]
struct Artifact {
    target: String,
    is_example: bool,
    files: Vec<PathBuf>,
    executable: Option<PathBuf>,
}

fn build(
    workspace: &Workspace,
    progress: Progress,
    profile: &str,
    args: &[String],
) -> Result<Vec<Artifact>> {
    let output = Command::new(cargo())
        .args([
            "build",
            "--profile",
            profile,
            "--message-format",
            "json-render-diagnostics",
        ])
        .args(args)
        .current_dir(workspace.root())
        .stderr(match progress {
            Progress::Shown => Stdio::inherit(),
            Progress::Kept => Stdio::piped(),
        })
        .output()
        .context("running cargo build")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "cargo build --profile {profile} {} failed\n{}",
        args.join(" "),
        errors_in(&complaint)
    );
    let messages = String::from_utf8_lossy(&output.stdout);
    Ok(messages
        .lines()
        .filter_map(Artifact::from_message)
        .collect())
}

/// The compiler's errors, each with the line that gives the position.
fn errors_in(complaint: &str) -> String {
    let is_error = |line: &&str| line.starts_with("error") || line.trim_start().starts_with("--> ");
    complaint
        .lines()
        .filter(is_error)
        .take(ERROR_LINES)
        .collect::<Vec<_>>()
        .join("\n")
}

fn library(artifacts: &[Artifact], target: &str, extension: &str) -> Result<PathBuf> {
    artifacts
        .iter()
        .filter(|artifact| artifact.target == target)
        .flat_map(|artifact| &artifact.files)
        .find(|file| file.extension().is_some_and(|e| e == extension))
        .cloned()
        .with_context(|| format!("cargo made no .{extension} of {target}; see its crate-type"))
}

impl Artifact {
    fn from_message(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        if message["reason"] != "compiler-artifact" {
            return None;
        }
        Some(Self {
            target: message["target"]["name"].as_str()?.into(),
            is_example: array(&message["target"]["kind"]).any(|kind| kind == "example"),
            files: array(&message["filenames"])
                .filter_map(Value::as_str)
                .map(Into::into)
                .collect(),
            executable: message["executable"].as_str().map(Into::into),
        })
    }

    fn program(&self) -> Option<(String, PathBuf)> {
        let file: &Path = self.executable.as_deref()?;
        let name = if self.is_example {
            format!("{EXAMPLE_PREFIX}{}", self.target.replace('_', "-"))
        } else {
            self.target.clone()
        };
        Some((name, file.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_programs_are_found_in_cargo_messages() {
        let lines = [
            r#"{"reason":"compiler-artifact","target":{"name":"libdat2"},
                "filenames":["/t/liblibdat2.a","/t/liblibdat2.rlib"],"executable":null}"#,
            r#"{"reason":"compiler-artifact","target":{"name":"datinfo"},
                "filenames":["/t/datinfo"],"executable":"/t/datinfo"}"#,
            r#"{"reason":"compiler-artifact","target":{"name":"send_recv","kind":["example"]},
                "filenames":["/t/send_recv"],"executable":"/t/send_recv"}"#,
            r#"{"reason":"build-finished","success":true}"#,
            "warning: not a message",
        ];
        let found: Vec<Artifact> = lines
            .iter()
            .filter_map(|l| Artifact::from_message(l))
            .collect();
        assert_eq!(found.len(), 3);
        assert_eq!(
            library(&found, "libdat2", "a").unwrap(),
            Path::new("/t/liblibdat2.a")
        );
        assert!(library(&found, "libdat2", "so").is_err());
        assert_eq!(found[1].program().unwrap().0, "datinfo");
        assert_eq!(
            found[2].program().unwrap().0,
            "dat-example-send-recv",
            "an example has a staged name of its own"
        );
    }
}
