//! Puts files into the stage.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::manifest::{self, Entry, Manifest};

/// The prefix in the stage's `.pc` files. It is relative to the file, so the whole stage can be
/// moved.
pub(super) const MOVABLE: &str = "${pcfiledir}/../..";

/// A library in the form of its `.pc` file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Library {
    name: &'static str,
    description: &'static str,
    version: &'static str,
}

pub(super) const DAT2: Library = Library {
    name: "dat2",
    description: "Direct Access Transport 2.0 with iWARP Socket Service Points",
    version: "2.0.0",
};

pub(super) const ITAPI: Library = Library {
    name: "itapi",
    description: "Interconnect Transport API 2.1 over DAT 2.0",
    version: "2.1.0",
};

pub(super) const SDP_DAT: Library = Library {
    name: "sdp-dat",
    description: "Stream sockets over RDMA: the Sockets Direct Protocol over DAT 2.0",
    version: "1.0.0",
};

/// The `.pc` file for a prefix, and for the directory of the libraries below it.
pub(crate) fn pkg_config(library: Library, prefix: &str, libdir: &str) -> String {
    let Library {
        name,
        description,
        version,
    } = library;
    format!(
        "\
prefix={prefix}
libdir=${{prefix}}/{libdir}
includedir=${{prefix}}/include

Name: {name}
Description: {description}
Version: {version}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -l{name}
"
    )
}

/// A directory, the files that were put into it, and a count of the changes.
#[derive(Debug)]
pub(crate) struct Layout {
    root: PathBuf,
    placed: BTreeSet<String>,
    renewed: usize,
}

impl Layout {
    /// Opens the directory, making it if there is none.
    pub(crate) fn open(root: PathBuf) -> Result<Self> {
        fs::create_dir_all(&root).with_context(|| format!("making {}", root.display()))?;
        Ok(Self {
            root,
            placed: BTreeSet::new(),
            renewed: 0,
        })
    }

    /// Copies `from` with its mode to `to`, unless `to` has this content already. Returns the new
    /// path.
    pub(crate) fn file(&mut self, from: &Path, to: &str) -> Result<PathBuf> {
        let target = self.target(to)?;
        let content = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        if fs::read(&target).is_ok_and(|old| old == content) {
            return Ok(target);
        }
        self.replace(&target, |new| fs::copy(from, new).map(drop))?;
        Ok(target)
    }

    /// Writes a text file unless it has this text already.
    pub(crate) fn text(&mut self, text: &str, to: &str) -> Result<()> {
        let target = self.target(to)?;
        if fs::read(&target).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(());
        }
        self.replace(&target, |new| fs::write(new, text))
    }

    /// Makes the symbolic link `to`, which points to `content` in the same directory.
    pub(crate) fn link(&mut self, content: &str, to: &str) -> Result<()> {
        let target = self.target(to)?;
        if fs::read_link(&target).is_ok_and(|old| old == Path::new(content)) {
            return Ok(());
        }
        self.replace(&target, |new| symlink(content, new))
    }

    /// Copies all files of a directory that end in `extension`. Returns their number.
    pub(crate) fn directory(&mut self, from: &Path, to: &str, extension: &str) -> Result<usize> {
        let originals = files_in(from, extension)?;
        ensure!(
            !originals.is_empty(),
            "{}: no .{extension} file",
            from.display()
        );
        for name in &originals {
            self.file(&from.join(name), &format!("{to}/{name}"))?;
        }
        Ok(originals.len())
    }

    /// Removes all other files in the directory, such as a program that no longer has a source, and
    /// writes the list of the staged files.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let mut list = Manifest::default();
        for path in &self.placed {
            let entry = Entry::at(&self.root.join(path))?;
            let entry = entry.with_context(|| format!("{path} disappeared during the staging"))?;
            list.0.insert(path.clone(), entry);
        }
        self.text(&list.text(), manifest::PLACE)?;
        self.renewed += sweep(&self.root, &self.root, &self.placed)?;
        Ok(())
    }

    /// The number of files that were written or removed.
    pub(crate) fn renewed(&self) -> usize {
        self.renewed
    }

    fn target(&mut self, to: &str) -> Result<PathBuf> {
        self.placed.insert(to.to_owned());
        let target = self.root.join(to);
        let dir = target.parent().context("a staged file is in a directory")?;
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

/// Removes the files below `dir` that are not among `kept`, by their paths below `root`, and the
/// directories that are then empty. Returns the number of removed files.
fn sweep(root: &Path, dir: &Path, kept: &BTreeSet<String>) -> Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            removed += sweep(root, &path, kept)?;
            let is_empty = fs::read_dir(&path)?.next().is_none();
            if is_empty {
                fs::remove_dir(&path)?;
            }
        } else if !kept.contains(&*path.strip_prefix(root)?.to_string_lossy()) {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
            removed += 1;
        }
    }
    Ok(removed)
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
    fn a_file_that_is_no_longer_staged_is_removed_and_the_rest_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("a.h"), "one").unwrap();
        let root = dir.path().join("stage");
        let mut stage = Layout::open(root.clone()).unwrap();
        stage.text("old", "include/gone.h").unwrap();
        stage.text("old", "old/bin/gone").unwrap();
        let mut stage = Layout::open(root.clone()).unwrap();
        assert_eq!(stage.directory(&source, "include", "h").unwrap(), 1);
        stage.link("a.h", "include/b.h").unwrap();
        stage.finish().unwrap();
        assert!(!root.join("include/gone.h").exists());
        assert!(!root.join("old").exists());
        let listed = Manifest::read(&root).unwrap().unwrap();
        let wanted = [
            ("include/a.h", Entry::of_bytes(b"one")),
            ("include/b.h", Entry::Link("a.h".into())),
        ];
        let wanted = wanted.map(|(path, entry)| (path.to_owned(), entry));
        assert_eq!(listed, Manifest(wanted.into_iter().collect()));
    }
}
