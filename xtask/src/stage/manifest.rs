//! The list of the files below a directory: the stage's own, and that of an installation.
//!
//! One line per entry, with the path last and relative to the directory:
//!
//! ```text
//! dir include/dat2
//! file 9d1c6f02 12345 bin/opsrun
//! link libdat2.so.2.0.0 lib/libdat2.so.2
//! ```
//!
//! A file is identified by CRC32C and length, so that a file which another program has changed or
//! replaced is detected. `dir` is a directory that was made.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// The path of the list, below the directory that it describes.
pub(crate) const PLACE: &str = "share/dat-rs/manifest";

const HEADER: &str = "# The files of dat-rs below this prefix, for `cargo xtask uninstall`.\n";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Directory,
    /// A file with this content.
    File {
        /// CRC32C of the content.
        crc: u32,
        /// Length in bytes.
        len: u64,
    },
    /// A symbolic link with this target.
    Link(PathBuf),
}

impl Entry {
    /// A file of these bytes.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self::File {
            crc: crc32c::crc32c(bytes),
            len: bytes.len() as u64,
        }
    }

    /// Reads the entry that has this name now; `None` if there is none. A device or a socket counts
    /// as a file that never equals a listed one.
    pub(crate) fn at(path: &Path) -> Result<Option<Self>> {
        let found = match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => Ok(Self::Directory),
            Ok(metadata) if metadata.is_symlink() => fs::read_link(path).map(Self::Link),
            Ok(metadata) if metadata.is_file() => fs::read(path).map(|it| Self::of_bytes(&it)),
            Ok(_) => Ok(Self::File {
                crc: 0,
                len: u64::MAX,
            }),
            Err(error) => Err(error),
        };
        match found {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("inspecting {}", path.display())),
        }
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Entries by their paths. A directory precedes its content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Manifest(pub(crate) BTreeMap<String, Entry>);

impl Manifest {
    /// Reads the list below `root`, if there is one.
    pub(crate) fn read(root: &Path) -> Result<Option<Self>> {
        let file = root.join(PLACE);
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("reading {}", file.display()));
            }
        };
        let manifest = Self::parse(&text).with_context(|| format!("in {}", file.display()))?;
        Ok(Some(manifest))
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::from(HEADER);
        for (path, entry) in &self.0 {
            let written = match entry {
                Entry::Directory => writeln!(text, "dir {path}"),
                Entry::File { crc, len } => writeln!(text, "file {crc:08x} {len} {path}"),
                Entry::Link(content) => writeln!(text, "link {} {path}", content.display()),
            };
            written.expect("writing to a string cannot fail");
        }
        text
    }

    fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().enumerate();
        lines
            .filter(|(_, line)| !line.starts_with('#') && !line.is_empty())
            .map(|(at, line)| entry_of(line).with_context(|| format!("line {}: {line}", at + 1)))
            .collect::<Result<_>>()
            .map(Self)
    }
}

fn entry_of(line: &str) -> Result<(String, Entry)> {
    let mut words = line.splitn(2, ' ');
    let (kind, rest) = (words.next(), words.next().unwrap_or_default());
    let (path, entry) = match kind {
        Some("dir") => (rest, Entry::Directory),
        Some("file") => {
            let mut words = rest.splitn(3, ' ');
            let mut word = || words.next().context("a word is missing");
            let crc = u32::from_str_radix(word()?, 16).context("not a checksum")?;
            let len = word()?.parse().context("not a length")?;
            (word()?, Entry::File { crc, len })
        }
        Some("link") => {
            let (content, path) = rest.split_once(' ').context("a word is missing")?;
            (path, Entry::Link(content.into()))
        }
        _ => bail!("neither dir nor file nor link"),
    };
    ensure!(is_below(path), "not a path below the prefix");
    Ok((path.to_owned(), entry))
}

/// Returns true if `path` stays below any directory to which it is joined.
pub(crate) fn is_below(path: &str) -> bool {
    let plain = |part| matches!(part, Component::Normal(_));
    !path.is_empty() && Path::new(path).components().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let entries = [
            ("lib", Entry::Directory),
            ("lib/a b", Entry::of_bytes(b"content")),
            ("lib/c", Entry::Link("a.so".into())),
        ];
        let entries = entries.map(|(path, entry)| (path.to_owned(), entry));
        let manifest = Manifest(entries.into_iter().collect());
        assert_eq!(Manifest::parse(&manifest.text()).unwrap(), manifest);
    }

    #[test]
    fn a_path_that_leaves_the_prefix_is_refused() {
        for path in ["/etc/passwd", "../up", "lib/../../up", ""] {
            assert!(
                Manifest::parse(&format!("dir {path}\n")).is_err(),
                "{path:?}"
            );
        }
        assert!(Manifest::parse("socket lib/a\n").is_err());
        assert!(Manifest::parse("file 00000000 lib/a\n").is_err());
    }

    #[test]
    fn entries_of_each_kind_are_distinguished() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        assert_eq!(Entry::at(&path).unwrap(), None);
        assert_eq!(Entry::at(&path.join("b")).unwrap(), None);
        fs::write(&path, "one").unwrap();
        assert_eq!(Entry::at(&path).unwrap(), Some(Entry::of_bytes(b"one")));
        assert_ne!(Entry::at(&path).unwrap(), Some(Entry::of_bytes(b"two")));
        assert_eq!(Entry::at(&path.join("b")).unwrap(), None);
    }
}
