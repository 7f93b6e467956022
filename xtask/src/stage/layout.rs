//! Putting files into the stage.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// `dat2.pc`. Its prefix follows the file, so the whole stage can be moved.
pub(super) const PKG_CONFIG: &str = "\
prefix=${pcfiledir}/../..
libdir=${prefix}/lib
includedir=${prefix}/include

Name: dat2
Description: Direct Access Transport 2.0 with iWARP Socket Service Points
Version: 2.0.0
Cflags: -I${includedir}
Libs: -L${libdir} -ldat2
";

/// The stage directory, and a count of what changed in it.
#[derive(Debug)]
pub(super) struct Layout {
    root: PathBuf,
    renewed: usize,
}

impl Layout {
    /// Opens the stage, making the directory if there is none.
    pub(super) fn open(root: PathBuf) -> Result<Self> {
        fs::create_dir_all(&root).with_context(|| format!("making {}", root.display()))?;
        Ok(Self { root, renewed: 0 })
    }

    /// Copies `from` to `to` unless it is there already, mode included. Returns the new path.
    pub(super) fn file(&mut self, from: &Path, to: &str) -> Result<PathBuf> {
        let target = self.target(to)?;
        let content = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        if fs::read(&target).is_ok_and(|old| old == content) {
            return Ok(target);
        }
        self.replace(&target, |new| fs::copy(from, new).map(drop))?;
        Ok(target)
    }

    /// Writes a text file unless it has this text already.
    pub(super) fn text(&mut self, text: &str, to: &str) -> Result<()> {
        let target = self.target(to)?;
        if fs::read(&target).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(());
        }
        self.replace(&target, |new| fs::write(new, text))
    }

    /// Makes the symbolic link `to`, which points to `content` beside it.
    pub(super) fn link(&mut self, content: &str, to: &str) -> Result<()> {
        let target = self.target(to)?;
        if fs::read_link(&target).is_ok_and(|old| old == Path::new(content)) {
            return Ok(());
        }
        self.replace(&target, |new| symlink(content, new))
    }

    /// Copies all files of a directory that end in `extension`, and removes those in the stage that
    /// have no original any more. Returns how many there are.
    pub(super) fn directory(&mut self, from: &Path, to: &str, extension: &str) -> Result<usize> {
        let originals = files_in(from, extension)?;
        ensure!(
            !originals.is_empty(),
            "{}: no .{extension} file",
            from.display()
        );
        for name in &originals {
            self.file(&from.join(name), &format!("{to}/{name}"))?;
        }
        for name in files_in(&self.root.join(to), extension)? {
            if !originals.contains(&name) {
                fs::remove_file(self.root.join(to).join(name))?;
                self.renewed += 1;
            }
        }
        Ok(originals.len())
    }

    /// How many files were written or removed.
    pub(super) fn renewed(&self) -> usize {
        self.renewed
    }

    fn target(&self, to: &str) -> Result<PathBuf> {
        let target = self.root.join(to);
        let dir = target
            .parent()
            .context("a staged file lies in a directory")?;
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        Ok(target)
    }

    fn replace(
        &mut self,
        target: &Path,
        make: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> Result<()> {
        let mut name = target
            .file_name()
            .context("a staged file has a name")?
            .to_owned();
        name.push(".new");
        let new = target.with_file_name(name);
        if let Err(e) = fs::remove_file(&new) {
            ensure!(
                e.kind() == ErrorKind::NotFound,
                "removing {}: {e}",
                new.display()
            );
        }
        make(&new).with_context(|| format!("writing {}", new.display()))?;
        fs::rename(&new, target).with_context(|| format!("renaming to {}", target.display()))?;
        self.renewed += 1;
        Ok(())
    }
}

fn files_in(dir: &Path, extension: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == extension) {
            names.extend(
                path.file_name()
                    .map(|name| name.to_string_lossy().into_owned()),
            );
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_run_renews_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source.h");
        fs::write(&source, "one").unwrap();
        for expected in [3, 0] {
            let mut stage = Layout::open(dir.path().join("stage")).unwrap();
            stage.file(&source, "include/a.h").unwrap();
            stage.text("text", "etc/b").unwrap();
            stage.link("b", "etc/c").unwrap();
            assert_eq!(stage.renewed(), expected);
        }
    }

    #[test]
    fn a_header_without_original_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("a.h"), "one").unwrap();
        let mut stage = Layout::open(dir.path().join("stage")).unwrap();
        stage.text("old", "include/gone.h").unwrap();
        assert_eq!(stage.directory(&source, "include", "h").unwrap(), 1);
        assert!(!dir.path().join("stage/include/gone.h").exists());
        assert!(dir.path().join("stage/include/a.h").exists());
    }
}
