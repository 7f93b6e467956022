//! Choice of the registry file, and reading it within limits.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Largest registry file in bytes; a real one has a few thousand.
const FILE_LEN_MAX: u64 = 16 << 20;

/// Source of the entries of the static registry.
#[derive(Debug)]
pub enum Source {
    /// A file and its content.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Content of the file.
        content: Vec<u8>,
    },
    /// None of the files exists: the registry contains the local interfaces.
    Builtin,
    /// A file exists, or was named, and cannot be used. The registry stays empty.
    Unusable {
        /// Path of the file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
        /// True if `DAT_OVERRIDE` named the file.
        is_override: bool,
    },
}

impl Source {
    /// Chooses the source of this process: `DAT_OVERRIDE` if it is set, else the first of the
    /// default files that exists, else the local interfaces. A program with raised privileges
    /// ignores the environment, because the file names libraries to load.
    #[must_use]
    pub fn of_process() -> Self {
        Self::choose(
            host::environment::variable("DAT_OVERRIDE"),
            &default_paths("dat.conf"),
        )
    }

    /// Chooses a source by the rule of [`Source::of_process`]. `variable` is the value of
    /// `DAT_OVERRIDE`: when it is set, even to the empty string, nothing else is tried.
    #[must_use]
    pub fn choose(variable: Option<OsString>, defaults: &[PathBuf]) -> Self {
        if let Some(path) = variable {
            return Self::read(PathBuf::from(path), true);
        }
        for path in defaults {
            match Self::read(path.clone(), false) {
                Self::Unusable { error, .. } if is_absent(&error) => {}
                found => return found,
            }
        }
        Self::Builtin
    }

    fn read(path: PathBuf, is_override: bool) -> Self {
        match read_limited(&path) {
            Ok(content) => Self::File { path, content },
            Err(error) => Self::Unusable {
                path,
                error,
                is_override,
            },
        }
    }
}

pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Returns the file of the directory that the build names in `DAT2_SYSCONFDIR`, if any, then of
/// `/etc`.
pub(crate) fn default_paths(file: &str) -> Vec<PathBuf> {
    let directories = option_env!("DAT2_SYSCONFDIR").into_iter().chain(["/etc"]);
    directories
        .map(|directory| Path::new(directory).join(file))
        .collect()
}

/// Reads a file, but neither waits for a pipe without a writer nor reads an endless device.
pub(crate) fn read_limited(path: &Path) -> io::Result<Vec<u8>> {
    if path.as_os_str() == OsStr::new("") {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the file name is empty",
        ));
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let mut content = Vec::new();
    file.take(FILE_LEN_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > FILE_LEN_MAX {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "more than 16 MiB",
        ));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;

    fn file(directory: &Path, name: &str, content: &str) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, content).expect("scratch directory is writable");
        path
    }

    fn path_of(source: &Source) -> Option<&Path> {
        match source {
            Source::File { path, .. } => Some(path),
            Source::Builtin | Source::Unusable { .. } => None,
        }
    }

    #[test]
    fn an_override_is_the_only_file() {
        let scratch = tempdir().expect("scratch directory");
        let default = file(scratch.path(), "default", "");
        let other = file(scratch.path(), "override", "x");
        let source = Source::choose(Some(other.clone().into()), &[default]);
        assert_eq!(path_of(&source), Some(other.as_path()));
    }

    #[test]
    fn an_unusable_override_makes_the_registry_empty() {
        let scratch = tempdir().expect("scratch directory");
        let default = file(scratch.path(), "default", "");
        for path in [
            OsString::from("/nonexistent/dat.conf"),
            OsString::new(),
            scratch.path().into(),
        ] {
            let source = Source::choose(Some(path.clone()), std::slice::from_ref(&default));
            assert!(
                matches!(
                    source,
                    Source::Unusable {
                        is_override: true,
                        ..
                    }
                ),
                "{path:?}"
            );
        }
    }

    #[test]
    fn the_first_default_that_exists_is_read() {
        let scratch = tempdir().expect("scratch directory");
        let missing = scratch.path().join("missing");
        let first = file(scratch.path(), "first", "1");
        let second = file(scratch.path(), "second", "2");
        let source = Source::choose(None, &[missing, first.clone(), second]);
        assert_eq!(path_of(&source), Some(first.as_path()));
    }

    #[test]
    fn without_any_file_the_interfaces_are_the_registry() {
        let source = Source::choose(None, &[PathBuf::from("/nonexistent/dat.conf")]);
        assert!(matches!(source, Source::Builtin));
    }

    #[test]
    fn a_default_that_exists_but_cannot_be_used_is_not_skipped() {
        let scratch = tempdir().expect("scratch directory");
        let source = Source::choose(None, &[scratch.path().to_owned()]);
        assert!(matches!(
            source,
            Source::Unusable {
                is_override: false,
                ..
            }
        ));
    }

    #[test]
    fn devices_and_pipes_neither_hang_nor_fill_memory() {
        let empty = Source::choose(Some("/dev/null".into()), &[]);
        assert!(matches!(empty, Source::File { content, .. } if content.is_empty()));
        assert!(matches!(
            Source::choose(Some("/dev/zero".into()), &[]),
            Source::Unusable { .. }
        ));

        let scratch = tempdir().expect("scratch directory");
        let pipe = scratch.path().join("pipe");
        let name = std::ffi::CString::new(pipe.as_os_str().as_encoded_bytes()).expect("no NUL");
        // SAFETY: the name is a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let nobody_writes = Source::choose(Some(pipe.into()), &[]);
        assert!(matches!(nobody_writes, Source::File { content, .. } if content.is_empty()));
    }
}
