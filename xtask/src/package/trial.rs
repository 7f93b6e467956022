//! Installation, use and removal of the packages in a fresh Debian root.
//!
//! `packaging/trial.sh` runs inside the root and prints one line for each check that passed. This
//! module makes the root from Debian's packages, and runs the script there in network, mount and
//! PID namespaces of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use super::{PACKAGES, file_name, output};
use crate::install;
use crate::job::Job;
use crate::report::Outcome;
use crate::workspace::Workspace;

/// The packages of Debian that the script installs and removes itself.
const DEBIANS: [&str; 4] = ["libdapl2", "dapl2-utils", "libdapl-dev", "libibverbs1"];

/// The packages of the fresh root: dpkg and what it runs, what the script runs, and what the
/// packages of [`DEBIANS`] need.
const ROOT: &str = "base-files,base-passwd,coreutils,dash,debianutils,diffutils,dpkg,findutils,\
                    grep,ibverbs-utils,libc-bin,libgcc-s1,libibverbs1,librdmacm1,perftest,\
                    perl-base,sed,tar";

/// The directory of the script and the packages in the root.
const INSIDE: &str = "trial";

/// The beginning of a line of the script that reports a check.
const CHECK: &str = "ok ";
/// The last line of the script.
const END: &str = "end of the trial";

/// Runs the trial with the packages in `directory`.
pub(super) fn run(workspace: &Workspace, directory: &Path) -> Result<Outcome> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(Outcome::NotRun(
            "the files of a Debian root have several owners, so this needs root".into(),
        ));
    }
    let absent = install::missing(super::TEST_NEEDS);
    if !absent.is_empty() {
        return Ok(Outcome::NotRun(install::advice(&absent)));
    }
    // Not in /tmp, because mmdebstrap makes devices there, which a mount of /tmp may not permit.
    fs::create_dir_all(workspace.target())?;
    let scratch = TempDir::new_in(workspace.target()).context("making a scratch directory")?;
    let root = scratch.path().join("root");
    make_root(workspace, &root)?;
    let inside = root.join(INSIDE);
    fs::create_dir(&inside)?;
    for name in PACKAGES {
        let file = file_name(name);
        fs::copy(directory.join(&file), inside.join(&file))
            .with_context(|| format!("copying {file}"))?;
    }
    download(workspace, &inside)?;
    let provider = workspace.stage_dir().join("lib/libdapl-iwarp.so.2");
    fs::copy(provider, inside.join("libdapl-iwarp.so.2"))?;
    let script = workspace.root().join("packaging/trial.sh");
    fs::copy(script, inside.join("trial.sh")).context("copying packaging/trial.sh")?;

    let begin = format!(
        "ip link set lo up && mount -t proc proc '{root}/proc' && exec chroot '{root}' \
         sh /{INSIDE}/trial.sh",
        root = root.display()
    );
    let job = Job::new(workspace, "package trial", "unshare");
    let finished = job
        .args("--mount --net --pid --ipc --uts --fork --kill-child sh -c")
        .arg(&begin)
        .minutes(20)
        .check()?;
    let lines = finished.text.lines();
    let checks = lines.filter(|line| line.starts_with(CHECK)).count();
    ensure!(
        checks > 0 && finished.text.lines().any(|line| line == END),
        "packaging/trial.sh stopped early\n{}",
        finished.tail()
    );
    Ok(Outcome::passed(checks, "in a fresh Debian root"))
}

/// Makes a root of the release that this machine runs.
fn make_root(workspace: &Workspace, root: &Path) -> Result<()> {
    let release = release(&fs::read_to_string("/etc/os-release")?)?;
    let job = Job::new(workspace, "mmdebstrap", "mmdebstrap")
        .args("--quiet --mode=root --variant=custom --dpkgopt=force-unsafe-io")
        .arg(&format!("--include={ROOT}"))
        .arg(&release)
        .arg(&root.to_string_lossy());
    job.minutes(20).check().map(drop)
}

/// The name of the Debian release, from the text of `/etc/os-release`.
fn release(text: &str) -> Result<String> {
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.map(|it| it.trim_matches('"').to_owned())
    };
    if value("ID=").as_deref() != Some("debian") {
        bail!("this machine does not run Debian");
    }
    value("VERSION_CODENAME=").context("/etc/os-release does not name the release")
}

/// Downloads the packages of [`DEBIANS`].
fn download(workspace: &Workspace, directory: &Path) -> Result<()> {
    let get = || {
        let _alone = install::lock_apt();
        let mut apt_get = Command::new("apt-get");
        apt_get.args(["download", "--quiet"]).args(DEBIANS);
        // The user `_apt` has no permission to write to this directory.
        apt_get.args(["-o", "APT::Sandbox::User=root"]);
        output(apt_get.current_dir(directory))
    };
    if get().is_err() {
        // The package lists may be absent, or name versions that the mirror no longer has.
        install::apt_get(workspace, "update --quiet")?;
        get()?;
    }
    for name in DEBIANS {
        let found = package_files(directory, name)?;
        ensure!(found.len() == 1, "apt-get downloaded {found:?} for {name}");
    }
    Ok(())
}

fn package_files(directory: &Path, package: &str) -> Result<Vec<PathBuf>> {
    let begin = format!("{package}_");
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&begin) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_the_release_of_this_machine() {
        let text = "ID=debian\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\n";
        assert_eq!(release(text).unwrap(), "bookworm");
        assert!(release(&text.replace("debian", "other")).is_err());
        assert!(release("ID=debian\n").is_err());
    }
}
