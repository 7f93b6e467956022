//! Debian packages and an archive, made from the stage.
//!
//! | File | Contents |
//! |---|---|
//! | `notices.rs` | the crates that are linked into the programs: licences, and a bill of materials |
//! | `trial.rs` | installation, use and removal in a fresh Debian root |
//!
//! debhelper makes the packages, by the rules in `debian`. `packaging/README.md` describes the
//! packages and gives the reasons.

pub(crate) mod notices;
mod trial;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::install::{self, IP, Need};
use crate::report::{Outcome, Report};
use crate::stage::{self, Progress};
use crate::workspace::Workspace;

/// The programs that make the packages.
pub(crate) const NEEDS: &[Need] = &[Need::new("dh", "debhelper"), Need::new("xz", "xz-utils")];

/// The programs that make the packages and test them.
pub(crate) const TEST_NEEDS: &[Need] = &[
    Need::new("dh", "debhelper"),
    Need::new("xz", "xz-utils"),
    IP,
    Need::new("mmdebstrap", "mmdebstrap"),
];

/// The packages, in the order of `debian/control`.
const PACKAGES: [&str; 4] = [
    "libdat2-rs",
    "libibverbs-dat-rs",
    "dat-rs-utils",
    "libdat2-rs-dev",
];

/// The version of the packages: that of the workspace, and the revision of the packaging.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-1");

/// The options of `cargo xtask package`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The directory of the packages [default: target/packages].
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Make no archive.
    #[arg(long)]
    no_archive: bool,
    /// Install the packages in a fresh Debian root, run programs there, and remove them.
    #[arg(long)]
    test: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let mut report = Report::new("package");
    let needs = if options.test { TEST_NEEDS } else { NEEDS };
    report.step("packages", || install::provide(workspace, needs));
    let directory = options
        .directory
        .clone()
        .unwrap_or_else(|| default_directory(workspace));
    let mut is_ready = true;
    let absent = install::missing(NEEDS);
    if !absent.is_empty() {
        report.step("package", || Ok(Outcome::NotRun(install::advice(&absent))));
        is_ready = false;
    }
    is_ready = is_ready
        && report.step("stage and exports", || {
            println!("\nBuilding in release form; the first time takes minutes.");
            stage::step(workspace, Progress::Shown)
        })
        && report.step("package", || {
            made(workspace, &directory, !options.no_archive)
        });
    if options.test && is_ready {
        report.step("package trial", || trial::run(workspace, &directory));
    }
    Ok(report.finish())
}

/// Makes the packages from the present stage, and tests them: the step of the test run. The archive
/// is left out, because its compression takes longer than that of the packages together.
pub(crate) fn test(workspace: &Workspace) -> Result<Outcome> {
    let directory = default_directory(workspace);
    make_packages(workspace, &PACKAGES, &directory)?;
    is_reproducible(workspace, &directory)?;
    trial::run(workspace, &directory)
}

fn default_directory(workspace: &Workspace) -> PathBuf {
    workspace.target().join("packages")
}

fn made(workspace: &Workspace, directory: &Path, has_archive: bool) -> Result<Outcome> {
    let mut files = make_packages(workspace, &PACKAGES, directory)?;
    if has_archive {
        files.push(archive(workspace, directory).context("making the archive")?);
    }
    let lines: Vec<String> = files
        .iter()
        .map(|file| format!("\n       {}", file.display()))
        .collect();
    Ok(Outcome::passed(0, lines.concat()))
}

/// Makes a package again, which must have the same bytes.
fn is_reproducible(workspace: &Workspace, directory: &Path) -> Result<()> {
    let again = tempfile::tempdir()?;
    let [.., package] = PACKAGES;
    for second in make_packages(workspace, &[package], again.path())? {
        let first = directory.join(file_name(package));
        ensure!(
            fs::read(first)? == fs::read(second)?,
            "{package} made twice differs"
        );
    }
    Ok(())
}

/// Makes these packages from the present stage, in a scratch directory, because debhelper writes
/// next to its rules. Returns the paths of their files.
fn make_packages(
    workspace: &Workspace,
    packages: &[&str],
    directory: &Path,
) -> Result<Vec<PathBuf>> {
    let scratch = TempDir::new_in(workspace.target()).context("making a scratch directory")?;
    let source = scratch.path().join("dat-rs");
    let root = workspace.root();
    fs::create_dir(&source)?;
    output(
        Command::new("cp")
            .arg("-r")
            .arg(root.join("debian"))
            .arg(&source),
    )?;
    for name in ["CHANGELOG.md", "examples"] {
        symlink(root.join(name), source.join(name))?;
    }
    let only: Vec<String> = packages.iter().map(|name| format!("-p{name}")).collect();
    let mut rules = Command::new("debian/rules");
    rules
        .arg("binary")
        .current_dir(&source)
        .env("DEB_RULES_REQUIRES_ROOT", "no")
        .env("DH_OPTIONS", only.join(" "))
        .env("STAGED", "yes")
        .env("XTASK", env::current_exe().context("finding xtask itself")?);
    output(&mut rules)?;
    fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    let files = packages.iter().map(|package| {
        let name = file_name(package);
        let file = directory.join(&name);
        fs::copy(scratch.path().join(&name), &file).with_context(|| format!("copying {name}"))?;
        Ok(file)
    });
    files.collect()
}

fn file_name(package: &str) -> String {
    format!("{package}_{VERSION}_amd64.deb")
}

/// Makes the archive: the stage with stripped programs, and the licences, below one directory.
fn archive(workspace: &Workspace, directory: &Path) -> Result<PathBuf> {
    let name = format!("dat-rs-{}-x86_64-linux-gnu", env!("CARGO_PKG_VERSION"));
    let scratch = TempDir::new_in(workspace.target()).context("making a scratch directory")?;
    let tree = scratch.path().join(&name);
    output(
        Command::new("cp")
            .arg("-a")
            .arg(workspace.stage_dir())
            .arg(&tree),
    )?;
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
        fs::copy(workspace.root().join(file), tree.join(file))?;
    }
    notices::write(workspace, &tree.join("share/doc/dat-rs"))?;
    let strip = "find bin lib -type f ! -name '*.pc' -exec strip --strip-unneeded {} +";
    output(Command::new("sh").args(["-c", strip]).current_dir(&tree))?;
    let file = directory.join(format!("{name}.tar.xz"));
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mode=go=u-w",
    ])
    .arg(format!("--mtime=@{}", epoch(workspace)?))
    .args(["--use-compress-program=xz -T1", "-cf"])
    .arg(&file)
    .arg("-C")
    .arg(scratch.path())
    .arg(&name);
    output(&mut tar)?;
    Ok(file)
}

/// The time of the files in the archive, in seconds since 1970: `SOURCE_DATE_EPOCH` or, without
/// that variable, the time of the newest entry in `debian/changelog`, as in the packages.
fn epoch(workspace: &Workspace) -> Result<String> {
    let parse = || {
        let mut parse = Command::new("dpkg-parsechangelog");
        output(
            parse
                .args(["--show-field", "Timestamp"])
                .current_dir(workspace.root()),
        )
    };
    let seconds = env::var("SOURCE_DATE_EPOCH").or_else(|_| parse())?;
    Ok(seconds.trim().to_owned())
}

/// Runs a command, which must succeed, and returns what it printed.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_owned();
    let program = OsStr::to_string_lossy(&program);
    let result = command
        .output()
        .with_context(|| format!("running {program}"))?;
    ensure!(
        result.status.success(),
        "{program}: {}\n{}{}",
        result.status,
        String::from_utf8_lossy(&result.stdout),
        String::from_utf8_lossy(&result.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&result.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A build by `dpkg-buildpackage` compiles with variables of its own, which is too long for a
    /// test.
    #[test]
    fn the_source_packages_have_the_version_and_the_packages_of_this_task() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let source = |file: &str| fs::read_to_string(root.join(file)).unwrap();
        let changelog = source("debian/changelog");
        assert!(
            changelog.starts_with(&format!("dat-rs ({VERSION}) ")),
            "{changelog}"
        );
        let control = source("debian/control");
        let named = control
            .lines()
            .filter_map(|line| line.strip_prefix("Package: "));
        assert!(named.eq(PACKAGES), "{control}");
        assert!(control.contains(&format!("Homepage: {}\n", env!("CARGO_PKG_REPOSITORY"))));
        let spec = source("packaging/rpm/dat-rs.spec");
        let version = format!("Version:        {}\n", env!("CARGO_PKG_VERSION"));
        assert!(spec.contains(&version), "{spec}");
    }
}
