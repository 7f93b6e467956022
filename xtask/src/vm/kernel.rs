//! A kernel for the guest, from Debian's packages: its image, the modules that RDMA needs, and
//! `siw`. Some Debian releases do not build `siw`; there it is built from the kernel's source
//! package.
//!
//! Package names follow from the dependencies of `linux-image-amd64`, so that they belong to the
//! release that the machine runs.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::cache::Cache;
use crate::install::{self, Need};
use crate::job::Job;
use crate::report::Outcome;
use crate::workspace::Workspace;

/// The package that always depends on the release's newest kernel.
const META: &str = "linux-image-amd64";

/// Modules without which the guest cannot start, in any order.
pub(super) const STARTING: &[&str] = &[
    "virtio_pci",
    "virtio_console",
    "9pnet_virtio",
    "9p",
    "overlay",
];

/// Modules that jobs need.
const NEEDED: &[&str] = &[
    "veth",
    "sch_netem",
    "ib_uverbs",
    "rdma_cm",
    "rdma_ucm",
    "rdma_rxe",
    SIW,
];

/// Modules that are optional, because some kernels have them built in or no longer have them.
const OPTIONAL: &[&str] = &[
    "crc32_generic",
    "crc32_pclmul",
    "ipv6",
    "af_packet",
    "dummy",
    "inet_diag",
    "tcp_diag",
];

const SIW: &str = "siw";

/// The packages for making and running the guest.
const NEEDS: &[Need] = &[
    Need::new("qemu-system-x86_64", "qemu-system-x86"),
    Need::new_static("/bin/busybox", "busybox-static"),
    Need::new("modprobe", "kmod"),
    Need::new("setsid", "util-linux"),
    Need::new("ip", "iproute2"),
    Need::new("/etc/libibverbs.d/siw.driver", "ibverbs-providers"),
    Need::new("rping", "rdmacm-utils"),
    // The jobs compile a peer that uses a device through librdmacm.
    Need::new("/usr/include/rdma/rdma_cma.h", "librdmacm-dev"),
];

/// The further packages for building siw.
const BUILD_NEEDS: &[Need] = &[
    Need::new("make", "make"),
    Need::new("cc", "gcc"),
    Need::new("strip", "binutils"),
    Need::new("xz", "xz-utils"),
];

#[derive(Debug)]
pub(crate) struct Kernel {
    directory: PathBuf,
    release: String,
}

impl Kernel {
    /// The kernel that was made last; makes one if there is none.
    pub(crate) fn get(workspace: &Workspace) -> Result<Self> {
        provide(workspace, NEEDS)?;
        let cache = Cache::open()?;
        match cache.latest()? {
            Some(entry) => Self::of_entry(entry),
            None => Self::make(workspace, &cache),
        }
    }

    /// The newest kernel that the release has; makes it unless the cache has it.
    pub(super) fn renew(workspace: &Workspace) -> Result<Self> {
        provide(workspace, NEEDS)?;
        Self::make(workspace, &Cache::open()?)
    }

    /// The directory with the image and the modules.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The output of `uname -r` in the guest.
    pub(super) fn release(&self) -> &str {
        &self.release
    }

    /// The compressed kernel.
    pub(super) fn image(&self) -> PathBuf {
        self.directory.join("vmlinuz")
    }

    /// The directory that is `/lib/modules/RELEASE` in the guest.
    pub(super) fn modules(&self) -> PathBuf {
        self.directory.join("lib/modules").join(&self.release)
    }

    /// The files of a module and of the modules that it depends on, in the order of loading; empty
    /// for a module that is built in.
    pub(super) fn files_of(&self, workspace: &Workspace, module: &str) -> Result<Vec<PathBuf>> {
        files_of(workspace, &self.directory, &self.release, module)
    }

    fn of_entry(directory: PathBuf) -> Result<Self> {
        let release = directory.file_name().and_then(|name| name.to_str());
        let release = release.context("a kernel's directory is named after its release")?;
        Ok(Self {
            release: release.into(),
            directory,
        })
    }

    fn make(workspace: &Workspace, cache: &Cache) -> Result<Self> {
        let packages = Packages::find(workspace)?;
        if let Some(entry) = cache.entry(&packages.release) {
            return Self::of_entry(entry);
        }
        println!(
            "guest: fetching {} and building {SIW}, once",
            packages.image()
        );
        let entry = cache.fill(&packages.release, |directory| {
            Making {
                workspace,
                packages: &packages,
                directory,
            }
            .all()
        })?;
        Self::of_entry(entry)
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "guest: Linux {} in {}",
            self.release,
            self.directory.display()
        )
    }
}

/// Installs the missing packages; fails with their names if it cannot.
pub(super) fn provide(workspace: &Workspace, needs: &[Need]) -> Result<()> {
    match install::provide(workspace, needs)? {
        Outcome::NotRun(advice) => bail!("the guest cannot run: {advice}"),
        Outcome::Passed { .. } => Ok(()),
    }
}

/// The names of a release's kernel packages.
#[derive(Debug, PartialEq, Eq)]
struct Packages {
    /// As in `uname -r`: `6.1.0-44-amd64`.
    release: String,
    /// The version of the source: `6.1`.
    source: String,
}

impl Packages {
    fn find(workspace: &Workspace) -> Result<Self> {
        let ask = || {
            let depends = apt_cache(workspace, &format!("depends {META}"))?;
            let image = dependency(&depends).context("the package depends on no kernel image")?;
            let shown = apt_cache(workspace, &format!("show --no-all-versions {image}"))?;
            Self::of(image, &shown)
        };
        ask().or_else(|_| {
            // Without package lists apt-cache finds no package.
            install::apt_get(workspace, "update --quiet")?;
            ask()
        })
        .with_context(|| {
            format!(
                "the guest's kernel cannot be fetched: apt knows no package {META}; this needs a \
                 Debian machine with a network, and root for `apt-get update`"
            )
        })
    }

    fn of(image: &str, shown: &str) -> Result<Self> {
        let release = image.strip_prefix("linux-image-").context("no image")?;
        let version = shown
            .lines()
            .find_map(|line| line.strip_prefix("Version: "));
        let version = version.context("the image has no version")?;
        let mut numbers = version.split('.');
        let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
            bail!("the image's version cannot be parsed: {version}");
        };
        Ok(Self {
            release: release.into(),
            source: format!("{major}.{minor}"),
        })
    }

    fn image(&self) -> String {
        format!("linux-image-{}", self.release)
    }
}

/// The kernel image in the output of `apt-cache depends`.
fn dependency(depends: &str) -> Option<&str> {
    depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|package| package.starts_with("linux-image-"))
}

fn apt_cache(workspace: &Workspace, args: &str) -> Result<String> {
    let job = Job::new(workspace, "apt-cache", "apt-cache").args(args);
    Ok(job.check()?.text)
}

/// The work on one kernel, in a directory that becomes its entry.
struct Making<'a> {
    workspace: &'a Workspace,
    packages: &'a Packages,
    directory: &'a Path,
}

impl Making<'_> {
    fn all(&self) -> Result<()> {
        let release = &self.packages.release;
        let whole = self.directory.join("whole");
        self.unpack_image(&whole)
            .with_context(|| format!("the package {}", self.packages.image()))?;
        if !self.has(&whole, SIW) {
            self.build_siw(&whole).context("the module siw")?;
        }
        let from = whole.join("lib/modules").join(release);
        let to = self.directory.join("lib/modules").join(release);
        for module in STARTING.iter().chain(NEEDED) {
            let files = files_of(self.workspace, &whole, release, module)?;
            copy_modules(&files, &from, &to).with_context(|| format!("the module {module}"))?;
        }
        for module in OPTIONAL.iter().filter(|module| self.has(&whole, module)) {
            let files = files_of(self.workspace, &whole, release, module)?;
            copy_modules(&files, &from, &to)?;
        }
        for list in [
            "modules.order",
            "modules.builtin",
            "modules.builtin.modinfo",
        ] {
            fs::copy(from.join(list), to.join(list)).with_context(|| format!("copying {list}"))?;
        }
        self.depmod(self.directory)?;
        let image = whole.join("boot").join(format!("vmlinuz-{release}"));
        fs::copy(&image, self.directory.join("vmlinuz"))
            .with_context(|| format!("copying {}", image.display()))?;
        fs::remove_dir_all(&whole).context("removing what the guest does not need")
    }

    /// Fetches the image's package and unpacks it, without installing it.
    fn unpack_image(&self, whole: &Path) -> Result<()> {
        fs::create_dir(whole)?;
        let image = self.packages.image();
        let alone = install::lock_apt();
        self.job("fetch", &format!("apt-get download {image}"))
            .minutes(10)
            .check()
            .context("a network is required")?;
        drop(alone);
        let package = only_file(self.directory, "deb")?;
        let (package, whole) = (package.display(), whole.display());
        let args = format!("dpkg-deb --extract {package} {whole}");
        self.job("unpack", &args).minutes(30).check()?;
        fs::remove_file(only_file(self.directory, "deb")?)?;
        // Newer packages have the modules below `usr`, which `modprobe --dirname` does not search.
        let merged = self.directory.join("whole/usr/lib/modules");
        if merged.is_dir() {
            fs::create_dir_all(self.directory.join("whole/lib"))?;
            fs::rename(merged, self.directory.join("whole/lib/modules"))?;
        }
        self.depmod(&self.directory.join("whole"))
    }

    fn build_siw(&self, whole: &Path) -> Result<()> {
        provide(self.workspace, BUILD_NEEDS)?;
        let Packages { release, source } = self.packages;
        let headers = format!("/lib/modules/{release}/build");
        let tarball = format!("/usr/src/linux-source-{source}.tar.xz");
        self.install(&headers, &format!("linux-headers-{release}"))?;
        self.install(&tarball, &format!("linux-source-{source}"))?;
        let path = "drivers/infiniband/sw/siw";
        let args = format!("tar --extract --file {tarball} --wildcards */{path}/*");
        self.job("siw sources", &args).minutes(5).check()?;
        let siw = self
            .directory
            .join(format!("linux-source-{source}"))
            .join(path);
        ensure!(siw.is_dir(), "{tarball} has no {path}");
        let shown = siw.display();
        let make = format!("make -C {headers} M={shown} CONFIG_RDMA_SIW=m modules");
        self.job("build siw", &make).minutes(30).check()?;
        let module = siw.join("siw.ko");
        let strip = format!("strip --strip-debug {}", module.display());
        self.job("strip siw", &strip).check()?;
        let updates = whole.join("lib/modules").join(release).join("updates");
        fs::create_dir_all(&updates)?;
        fs::copy(&module, updates.join("siw.ko"))?;
        fs::remove_dir_all(self.directory.join(format!("linux-source-{source}")))?;
        self.depmod(whole)
    }

    /// Installs the package that contains `file`.
    fn install(&self, file: &str, package: &str) -> Result<()> {
        if Path::new(file).exists() {
            return Ok(());
        }
        ensure!(
            nix::unistd::geteuid().is_root(),
            "{file} is missing; as root: apt-get install {package}"
        );
        let args = format!("install --yes --no-install-recommends {package}");
        let installed = install::apt_get(self.workspace, &args);
        installed.with_context(|| format!("{package}: a network is required"))?;
        ensure!(
            Path::new(file).exists(),
            "{package} does not contain {file}"
        );
        Ok(())
    }

    fn has(&self, root: &Path, module: &str) -> bool {
        files_of(self.workspace, root, &self.packages.release, module).is_ok()
    }

    fn depmod(&self, root: &Path) -> Result<()> {
        let release = &self.packages.release;
        let args = format!("depmod --basedir {} {release}", root.display());
        self.job("depmod", &args).check().map(drop)
    }

    /// A command line in the directory of the entry.
    fn job(&self, name: &str, line: &str) -> Job {
        let (program, args) = line.split_once(' ').unwrap_or((line, ""));
        let program = install::find(program).unwrap_or_else(|| program.into());
        Job::at(
            self.workspace,
            &format!("vm {name}"),
            &program,
            self.directory,
        )
        .args(args)
    }
}

fn files_of(
    workspace: &Workspace,
    root: &Path,
    release: &str,
    module: &str,
) -> Result<Vec<PathBuf>> {
    let program = install::find("modprobe").context("modprobe: apt-get install kmod")?;
    let args = format!(
        "--dirname {} --set-version {release} --show-depends {module}",
        root.display()
    );
    let job = Job::at(workspace, "vm modprobe", &program, workspace.root()).args(&args);
    Ok(loaded_files(&job.check()?.text))
}

/// The files of the `insmod` lines, without parameters.
fn loaded_files(shown: &str) -> Vec<PathBuf> {
    let lines = shown
        .lines()
        .filter_map(|line| line.strip_prefix("insmod "));
    lines
        .filter_map(|line| line.split(' ').next())
        .map(PathBuf::from)
        .collect()
}

fn copy_modules(files: &[PathBuf], from: &Path, to: &Path) -> Result<()> {
    for file in files {
        let target = to.join(file.strip_prefix(from)?);
        let parent = target.parent().context("a module is in a directory")?;
        fs::create_dir_all(parent)?;
        fs::copy(file, &target).with_context(|| format!("copying {}", file.display()))?;
    }
    Ok(())
}

fn only_file(directory: &Path, extension: &str) -> Result<PathBuf> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == extension) {
            return Ok(path);
        }
    }
    bail!("no .{extension} file was downloaded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_names_follow_from_what_the_release_has() {
        let cases = [
            (
                "linux-image-amd64\n  Depends: linux-image-6.1.0-44-amd64\n",
                "Package: x\nVersion: 6.1.164-1\n",
                ("6.1.0-44-amd64", "6.1"),
            ),
            (
                "linux-image-amd64\n  Breaks: x\n  Depends: linux-image-6.12.57+deb13-amd64\n",
                "Version: 6.12.57-1\n",
                ("6.12.57+deb13-amd64", "6.12"),
            ),
        ];
        for (depends, shown, (release, source)) in cases {
            let packages = Packages::of(dependency(depends).unwrap(), shown).unwrap();
            assert_eq!(
                packages,
                Packages {
                    release: release.into(),
                    source: source.into()
                }
            );
        }
        assert_eq!(dependency("linux-image-amd64\n"), None);
        assert!(Packages::of("linux-image-x", "").is_err());
    }

    #[test]
    fn modules_are_listed_without_their_parameters() {
        let shown = "builtin ipv6\ninsmod /k/a.ko.xz \ninsmod /k/dummy.ko numdummies=0\n";
        let expected = ["/k/a.ko.xz", "/k/dummy.ko"].map(PathBuf::from);
        assert_eq!(loaded_files(shown), expected);
    }
}
