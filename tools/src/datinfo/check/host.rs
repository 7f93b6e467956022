//! Files of the system, and the privileges of this process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The capability to lock memory without a limit (`linux/capability.h`).
const CAP_IPC_LOCK: u32 = 14;

/// The root directory of the system that is checked.
#[derive(Debug, Clone)]
pub(super) struct Host {
    root: PathBuf,
}

impl Host {
    /// This system.
    pub(super) fn this() -> Self {
        Self::at("/")
    }

    /// A system whose files are below a directory.
    pub(super) fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A system with these files, and the directory that contains them.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> (tempfile::TempDir, Self) {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let host = Self::at(dir.path());
        (dir, host)
    }

    /// The path of a file that the system has as `/path`.
    pub(super) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// The content of a file without surrounding blanks; `None` if it cannot be read.
    pub(super) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = fs::read(self.path(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The sorted names in a directory; none if the directory does not exist.
    pub(super) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// Checks that this process may read and write a file.
    pub(super) fn may_use(&self, path: impl AsRef<Path>) -> io::Result<()> {
        use nix::unistd::{AccessFlags, access};
        Ok(access(
            &self.path(path),
            AccessFlags::R_OK | AccessFlags::W_OK,
        )?)
    }
}

/// The privileges of this process on which limits depend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Privileges {
    /// True if `RLIMIT_MEMLOCK` does not apply.
    pub(super) can_lock_memory: bool,
    /// True if a seccomp filter selects the system calls of this process.
    pub(super) has_seccomp_filter: bool,
}

impl Privileges {
    pub(super) fn read(host: &Host) -> Self {
        Self::parse(&host.text("proc/self/status").unwrap_or_default())
    }

    fn parse(status: &str) -> Self {
        let field = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| Some(line.strip_prefix(name)?.trim()))
        };
        let capabilities = field("CapEff:").and_then(|text| u64::from_str_radix(text, 16).ok());
        Self {
            can_lock_memory: capabilities.unwrap_or(0) >> CAP_IPC_LOCK & 1 == 1,
            has_seccomp_filter: field("Seccomp:") == Some("2"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_are_read_from_the_status() {
        let status = "Name:\tx\nCapEff:\t0000000000004000\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        assert_eq!(
            Privileges::parse(status),
            Privileges {
                can_lock_memory: true,
                has_seccomp_filter: true
            }
        );
        let ordinary = "CapEff:\t0000000000000000\nSeccomp:\t0\n";
        assert_eq!(Privileges::parse(ordinary), Privileges::default());
        assert_eq!(Privileges::parse(""), Privileges::default());
    }

    #[test]
    fn absent_files_are_no_error() {
        let (_dir, host) = Host::of(&[("b", " text\n"), ("a", "")]);
        assert_eq!(host.text("proc/x"), None);
        assert!(host.names("sys").is_empty());
        assert!(host.may_use("dev/x").is_err());
        assert_eq!(host.names(""), ["a", "b"]);
        assert_eq!(host.text("b").as_deref(), Some("text"));
    }
}
