//! A scratch directory that becomes a package or an archive. The modes of its files depend on
//! neither the stage nor the user's umask.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::output;
use crate::stage::manifest::Entry;

/// The modes of files that are read, and of programs and directories.
const READABLE: u32 = 0o644;
const EXECUTABLE: u32 = 0o755;

/// The first bytes of programs and libraries.
const ELF: [u8; 4] = *b"\x7fELF";

#[derive(Debug)]
pub(super) struct Tree {
    dir: TempDir,
}

impl Tree {
    /// Makes an empty directory.
    pub(super) fn new() -> Result<Self> {
        let dir = tempfile::tempdir().context("making a scratch directory")?;
        set_mode(dir.path(), EXECUTABLE)?;
        Ok(Self { dir })
    }

    pub(super) fn root(&self) -> &Path {
        self.dir.path()
    }

    /// Copies a staged file or link.
    pub(super) fn entry(&self, from: &Path, entry: &Entry, to: &str) -> Result<()> {
        match entry {
            Entry::Link(content) => {
                let target = self.target(to)?;
                symlink(content, &target).with_context(|| format!("making the link {to}"))
            }
            Entry::File { .. } => {
                ensure!(
                    Entry::at(from)?.as_ref() == Some(entry),
                    "{} has changed since it was staged",
                    from.display()
                );
                self.copy(from, to)
            }
            Entry::Directory => Ok(()),
        }
    }

    pub(super) fn copy(&self, from: &Path, to: &str) -> Result<()> {
        let target = self.target(to)?;
        fs::copy(from, &target).with_context(|| format!("copying {}", from.display()))?;
        let is_program = fs::metadata(from)?.permissions().mode() & 0o111 != 0;
        // A shared library is read, not executed.
        let is_library = to.contains("/lib/");
        let is_executable = is_program && !is_library;
        set_mode(&target, if is_executable { EXECUTABLE } else { READABLE })
    }

    /// Writes a text file.
    pub(super) fn text(&self, text: &str, to: &str) -> Result<()> {
        let target = self.target(to)?;
        fs::write(&target, text).with_context(|| format!("writing {to}"))?;
        set_mode(&target, READABLE)
    }

    pub(super) fn script(&self, text: &str, to: &str) -> Result<()> {
        self.text(text, to)?;
        set_mode(&self.root().join(to), EXECUTABLE)
    }

    /// Returns the paths of all files, links excluded, relative to the directory and sorted.
    pub(super) fn files(&self) -> Result<Vec<String>> {
        let mut files = Vec::new();
        self.walk(self.root(), &mut |path, kind| {
            if kind.is_file() {
                files.push(path);
            }
        })?;
        files.sort();
        Ok(files)
    }

    /// The size as dpkg defines it: files in KiB, each rounded up, and 1 KiB for everything else.
    pub(super) fn size_kib(&self) -> Result<u64> {
        let files = self.files()?;
        let mut entries = 0;
        self.walk(self.root(), &mut |_, _| entries += 1)?;
        let mut size = entries - files.len() as u64;
        for file in &files {
            size += fs::metadata(self.root().join(file))?.len().div_ceil(1024);
        }
        Ok(size)
    }

    /// Returns the programs and libraries.
    pub(super) fn binaries(&self) -> Result<Vec<PathBuf>> {
        let files = self.files()?;
        let mut binaries = Vec::new();
        for file in files {
            let path = self.root().join(file);
            let mut begin = [0; ELF.len()];
            let is_elf = fs::File::open(&path)?.read_exact(&mut begin).is_ok() && begin == ELF;
            if is_elf {
                binaries.push(path);
            }
        }
        Ok(binaries)
    }

    /// Removes what only debuggers need from programs and libraries.
    pub(super) fn strip(&self) -> Result<()> {
        let binaries = self.binaries()?;
        if binaries.is_empty() {
            return Ok(());
        }
        let mut strip = Command::new("strip");
        strip.args(["--strip-unneeded", "--remove-section=.comment"]);
        output(strip.args(binaries)).map(drop)
    }

    /// Compresses the files with these paths.
    pub(super) fn compress(&self, files: &[String]) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let mut gzip = Command::new("gzip");
        gzip.args(["-9", "--no-name"]).current_dir(self.root());
        output(gzip.args(files)).map(drop)
    }

    fn walk(&self, dir: &Path, visit: &mut impl FnMut(String, fs::FileType)) -> Result<()> {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let kind = fs::symlink_metadata(&path)?.file_type();
            let below = path.strip_prefix(self.root())?.to_string_lossy();
            visit(below.into_owned(), kind);
            if kind.is_dir() {
                self.walk(&path, visit)?;
            }
        }
        Ok(())
    }

    /// Makes the directories above a file.
    fn target(&self, to: &str) -> Result<PathBuf> {
        let mut directory = self.root().to_owned();
        let above = Path::new(to).parent().into_iter().flat_map(Path::iter);
        for name in above {
            directory.push(name);
            if !directory.is_dir() {
                fs::create_dir(&directory)
                    .with_context(|| format!("making {}", directory.display()))?;
                set_mode(&directory, EXECUTABLE)?;
            }
        }
        Ok(self.root().join(to))
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .with_context(|| format!("setting the mode of {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_depend_on_the_kind_of_a_file_only() {
        let source = tempfile::tempdir().unwrap();
        let original = source.path().join("original");
        fs::write(&original, "x").unwrap();
        set_mode(&original, 0o700).unwrap();
        let tree = Tree::new().unwrap();
        tree.copy(&original, "usr/bin/program").unwrap();
        tree.copy(&original, "usr/lib/x/library.so").unwrap();
        tree.text("text", "usr/share/text").unwrap();
        let mode = |path: &str| {
            let metadata = fs::metadata(tree.root().join(path)).unwrap();
            metadata.permissions().mode() & 0o7777
        };
        assert_eq!(mode("usr/bin/program"), EXECUTABLE);
        assert_eq!(mode("usr/lib/x/library.so"), READABLE);
        assert_eq!(mode("usr/share/text"), READABLE);
        assert_eq!(mode("usr/share"), EXECUTABLE);
        let files = ["usr/bin/program", "usr/lib/x/library.so", "usr/share/text"];
        assert_eq!(tree.files().unwrap(), files);
        // Three files and five directories.
        assert_eq!(tree.size_kib().unwrap(), 8);
        assert!(tree.binaries().unwrap().is_empty());
    }
}
