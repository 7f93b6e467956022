//! Debian packages and an archive, made from the stage.
//!
//! | File | Contents |
//! |---|---|
//! | `places.rs` | the package and the place of each staged file |
//! | `deb.rs` | one package: its files, its control files, and `dpkg-deb` |
//! | `needed.rs` | the packages that the programs and libraries of a package need |
//! | `notices.rs` | the licences of the crates that are linked into the programs |
//! | `sbom.rs` | the same crates as a software bill of materials |
//! | `tree.rs` | a directory that becomes a package or an archive |
//! | `trial.rs` | installation, use and removal in a fresh Debian root |
//!
//! `packaging/README.md` describes the packages and gives the reasons.

mod deb;
mod needed;
mod notices;
mod places;
mod sbom;
mod tree;
mod trial;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::install::{self, IP, NM, Need};
use crate::report::{Outcome, Report};
use crate::stage::{self, Progress, manifest::Manifest};
use crate::workspace::Workspace;

use self::places::Places;
use self::tree::Tree;

/// The programs that make the packages.
pub(crate) const NEEDS: &[Need] = &[
    Need::new("dpkg-deb", "dpkg"),
    Need::new("xz", "xz-utils"),
    NM,
];

/// The programs that make the packages and test them.
pub(crate) const TEST_NEEDS: &[Need] = &[
    Need::new("dpkg-deb", "dpkg"),
    Need::new("xz", "xz-utils"),
    NM,
    IP,
    Need::new("mmdebstrap", "mmdebstrap"),
];

/// The packages, in the order in which they are installed.
const PACKAGES: [&str; 4] = [
    "libdat2-rs",
    "libibverbs-dat-rs",
    "dat-rs-utils",
    "libdat2-rs-dev",
];

/// The architecture, as Debian names it and in the names of directories and archives.
const ARCHITECTURE: &str = "amd64";
const TRIPLET: &str = "x86_64-linux-gnu";

/// The directory of libraries, as in `lib/TRIPLET`.
const LIBDIR: &str = "usr/lib/x86_64-linux-gnu";

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
    let sources = Sources::new(workspace)?;
    make_packages(&sources, &directory)?;
    is_reproducible(&sources, &directory)?;
    trial::run(workspace, &directory)
}

fn default_directory(workspace: &Workspace) -> PathBuf {
    workspace.target().join("packages")
}

fn made(workspace: &Workspace, directory: &Path, has_archive: bool) -> Result<Outcome> {
    let sources = Sources::new(workspace)?;
    let mut files = make_packages(&sources, directory)?;
    if has_archive {
        files.push(archive(&sources, directory).context("making the archive")?);
    }
    let lines: Vec<String> = files
        .iter()
        .map(|file| format!("\n       {}", file.display()))
        .collect();
    Ok(Outcome::passed(0, lines.concat()))
}

/// Makes a package again, which must have the same bytes.
fn is_reproducible(sources: &Sources, directory: &Path) -> Result<()> {
    let [.., name] = PACKAGES;
    let again = tempfile::tempdir()?;
    let first = fs::read(directory.join(file_name(name)))?;
    let second = fs::read(deb::make(sources, name, again.path())?)?;
    ensure!(first == second, "{name} made twice differs");
    Ok(())
}

/// Makes the packages. Returns the paths of their files.
fn make_packages(sources: &Sources, directory: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    let made = PACKAGES.iter().map(|name| {
        let file = deb::make(sources, name, directory);
        file.with_context(|| format!("making the package {name}"))
    });
    made.collect()
}

fn file_name(package: &str) -> String {
    format!("{package}_{VERSION}_{ARCHITECTURE}.deb")
}

#[derive(Debug)]
struct Sources {
    root: PathBuf,
    stage: PathBuf,
    staged: Manifest,
    places: Places,
    /// The licences of the linked crates.
    notices: String,
    /// The linked crates for programs.
    components: String,
    epoch: Epoch,
}

impl Sources {
    fn new(workspace: &Workspace) -> Result<Self> {
        let root = workspace.root().to_owned();
        let stage = workspace.stage_dir();
        let staged = Manifest::read(&stage)?.context("nothing is staged")?;
        let linked = notices::Linked::find(workspace)?;
        Ok(Self {
            places: Places::read(&root.join("packaging/deb/files"))?,
            notices: notices::of(&linked)?,
            components: sbom::of(&linked, &fs::read_to_string(root.join("Cargo.lock"))?)?,
            epoch: Epoch::find(&root)?,
            root,
            stage,
            staged,
        })
    }

    fn packaging(&self, file: &str) -> PathBuf {
        self.root.join("packaging/deb").join(file)
    }
}

/// The time of every file in the packages.
#[derive(Debug, Clone)]
struct Epoch {
    /// Seconds since 1970, in decimal.
    seconds: String,
    /// The time in the format of mail headers, for the changelog.
    date: String,
}

impl Epoch {
    /// Returns `SOURCE_DATE_EPOCH` or, without that variable, the date of the newest commit.
    fn find(root: &Path) -> Result<Self> {
        let seconds = match env::var("SOURCE_DATE_EPOCH") {
            Ok(seconds) => seconds,
            Err(_) => {
                let mut git = Command::new("git");
                git.args(["log", "-1", "--format=%ct"]).current_dir(root);
                output(&mut git).context("SOURCE_DATE_EPOCH is not set, and git has no date")?
            }
        };
        let seconds = seconds.trim().to_owned();
        let is_number = !seconds.is_empty() && seconds.bytes().all(|it| it.is_ascii_digit());
        ensure!(is_number, "SOURCE_DATE_EPOCH is not a number: {seconds}");
        let mut date = Command::new("date");
        date.args(["-u", "-R", "-d", &format!("@{seconds}")]);
        Ok(Self {
            date: output(&mut date)?.trim().to_owned(),
            seconds,
        })
    }
}

/// Makes the archive: the stage with stripped programs, and the licences, below one directory.
fn archive(sources: &Sources, directory: &Path) -> Result<PathBuf> {
    let name = format!("dat-rs-{}-{TRIPLET}", env!("CARGO_PKG_VERSION"));
    let tree = Tree::new()?;
    for (path, entry) in &sources.staged.0 {
        tree.entry(&sources.stage.join(path), entry, &format!("{name}/{path}"))?;
    }
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
        tree.copy(&sources.root.join(file), &format!("{name}/{file}"))?;
    }
    let place = format!("{name}/share/doc/dat-rs/third-party.txt");
    tree.text(&sources.notices, &place)?;
    tree.text(
        &sources.components,
        &format!("{name}/share/doc/dat-rs/sbom.cdx.json"),
    )?;
    tree.strip()?;
    let file = directory.join(format!("{name}.tar.xz"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .arg(format!("--mtime=@{}", sources.epoch.seconds))
        .args(["--use-compress-program=xz -T1", "-cf"])
        .arg(&file)
        .arg("-C")
        .arg(tree.root())
        .arg(&name);
    output(&mut tar)?;
    Ok(file)
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

    fn source(file: &str) -> String {
        let debian = Path::new(env!("CARGO_MANIFEST_DIR")).join("../debian");
        fs::read_to_string(debian.join(file)).unwrap()
    }

    /// The source package names what `cargo xtask package` makes. A build by `dpkg-buildpackage`
    /// compiles with variables of its own, which is too long for a test.
    #[test]
    fn the_source_package_has_the_version_and_the_packages_of_this_task() {
        let changelog = source("changelog");
        assert!(
            changelog.starts_with(&format!("dat-rs ({VERSION}) ")),
            "{changelog}"
        );
        let (control, rules) = (source("control"), source("rules"));
        let named = control
            .lines()
            .filter_map(|line| line.strip_prefix("Package: "));
        assert!(named.eq(PACKAGES), "{control}");
        let list = format!("PACKAGES = {}\n", PACKAGES.join(" "));
        assert!(
            rules.contains(&list) && rules.contains("cargo xtask package"),
            "{rules}"
        );
        assert!(control.contains(&format!("Homepage: {}\n", env!("CARGO_PKG_REPOSITORY"))));
        let spec = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/rpm/dat-rs.spec");
        let spec = fs::read_to_string(spec).unwrap();
        let version = format!("Version:        {}\n", env!("CARGO_PKG_VERSION"));
        assert!(spec.contains(&version), "{spec}");
    }
}
