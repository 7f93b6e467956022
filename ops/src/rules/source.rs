//! The choice of the rule file.
//!
//! This module reads the file with direct system calls, because it runs in a library that is loaded
//! before all others, and `open` of the C library may be replaced by that library.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::rules::fault::Fault;
use crate::rules::known::Known;
use crate::rules::parse_for;
use crate::rules::table::Rules;

/// Environment variables that name the file; the first that is set wins.
pub const VARIABLES: [&str; 2] = ["OPS_RULES", "LIBSDP_CONFIG_FILE"];

/// The files that are tried if no variable is set; the first that exists wins.
pub const CONFIG_FILES: [&str; 2] = ["/etc/ops.conf", "/etc/libsdp.conf"];

/// The largest file in bytes. Real files have a few hundred.
const FILE_LEN_MAX: usize = 1 << 20;

/// The source of the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file that the user named, which must exist.
    Named {
        /// The path of the file.
        path: PathBuf,
        /// The option or the variable that names the file.
        by: &'static str,
    },
    /// The first of these that exists.
    Default(Vec<PathBuf>),
}

/// The rules and the file they were read from.
#[derive(Debug)]
pub struct Loaded {
    /// The path of the file; `None` if no rule file exists.
    pub path: Option<PathBuf>,
    /// The rules of the file; empty without a file.
    pub rules: Rules,
}

/// The reason why a file cannot be used. Sockets then stay on TCP, because the intended stack
/// is unknown.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The system does not permit reading the file.
    #[error("{}: {error}; {}", path.display(), advice(*by))]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The option or variable that names the file; `None` for a default file.
        by: Option<&'static str>,
        /// The error of the system call.
        error: Errno,
    },
    /// The file is too long.
    #[error("{}: more than {FILE_LEN_MAX} bytes; is this a rule file?", path.display())]
    TooLong {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file has lines that cannot be used.
    #[error("{}", lines(path, faults))]
    Faulty {
        /// The path of the file.
        path: PathBuf,
        /// All faults, in file order.
        faults: Vec<Fault>,
    },
}

impl Source {
    /// Returns the source that the environment chooses; `variable` reads an environment variable.
    #[must_use]
    pub fn choose(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let named = VARIABLES.iter().find_map(|name| {
            let path = variable(name).filter(|path| !path.is_empty());
            path.map(|path| (path, *name))
        });
        match named {
            Some((path, by)) => Self::Named {
                path: path.into(),
                by,
            },
            None => Self::Default(CONFIG_FILES.map(PathBuf::from).to_vec()),
        }
    }

    /// Reads and parses the file, for offload protocols that have these settings.
    ///
    /// # Errors
    /// Fails if the file cannot be read or one of its lines cannot be used.
    pub fn load(&self, known: &[Known]) -> Result<Loaded, Unusable> {
        match self {
            Self::Named { path, by } => load(path, Some(by), known),
            Self::Default(paths) => paths
                .iter()
                .map(|path| load(path, None, known))
                .find(|loaded| !is_absent(loaded))
                .unwrap_or(Ok(Loaded {
                    path: None,
                    rules: Rules::default(),
                })),
        }
    }
}

fn is_absent(loaded: &Result<Loaded, Unusable>) -> bool {
    let absent = |error: &Errno| matches!(*error, Errno::NOENT | Errno::NOTDIR);
    matches!(loaded, Err(Unusable::Unreadable { error, .. }) if absent(error))
}

fn load(path: &Path, by: Option<&'static str>, known: &[Known]) -> Result<Loaded, Unusable> {
    let owned = || path.to_owned();
    let bytes = read(path)
        .map_err(|error| Unusable::Unreadable {
            path: owned(),
            by,
            error,
        })?
        .ok_or_else(|| Unusable::TooLong { path: owned() })?;
    match parse_for(&bytes, known) {
        Ok(rules) => Ok(Loaded {
            path: Some(owned()),
            rules,
        }),
        Err(faults) => Err(Unusable::Faulty {
            path: owned(),
            faults,
        }),
    }
}

/// Reads the whole file; `None` if it is too long. A FIFO without a writer reads as empty at once.
fn read(path: &Path) -> Result<Option<Vec<u8>>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let mut bytes = vec![0; 4096];
    let mut len = 0;
    loop {
        match rustix::io::read(&file, &mut bytes[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        if len > FILE_LEN_MAX {
            return Ok(None);
        }
        if len == bytes.len() {
            bytes.resize(2 * len, 0);
        }
    }
    bytes.truncate(len);
    Ok(Some(bytes))
}

fn advice(by: Option<&str>) -> String {
    match by {
        Some(by) => format!("{by} names this rule file: name one that can be read"),
        None => format!(
            "make it readable, or name another rule file in {}",
            VARIABLES[0]
        ),
    }
}

fn lines(path: &Path, faults: &[Fault]) -> String {
    let lines: Vec<String> = faults
        .iter()
        .map(|fault| format!("{}:{fault}", path.display()))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_text(text: &[u8]) -> Result<Loaded, Unusable> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rules");
        std::fs::write(&path, text).unwrap();
        let by = "--rules";
        Source::Named { path, by }.load(&[])
    }

    #[test]
    fn the_environment_names_the_file() {
        let both = |name: &str| Some(OsString::from(format!("/{name}")));
        let libsdp = |name: &str| (name == VARIABLES[1]).then(|| OsString::from("/x"));
        let empty = |_: &str| Some(OsString::new());
        let defaults = Source::Default(CONFIG_FILES.map(PathBuf::from).to_vec());
        let named = |path: &str, by| Source::Named {
            path: path.into(),
            by,
        };
        assert_eq!(Source::choose(both), named("/OPS_RULES", VARIABLES[0]));
        assert_eq!(Source::choose(libsdp), named("/x", VARIABLES[1]));
        assert_eq!(Source::choose(empty), defaults);
    }

    #[test]
    fn the_first_default_file_that_exists_is_read_and_none_is_no_fault() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "c"].map(|name| dir.path().join(name)).to_vec();
        let none = Source::Default(paths.clone()).load(&[]).unwrap();
        assert_eq!(none.path, None);
        std::fs::write(&paths[1], "use tcp client * *:*").unwrap();
        std::fs::write(&paths[2], "nonsense").unwrap();
        let loaded = Source::Default(paths.clone()).load(&[]).unwrap();
        assert_eq!(loaded.path.as_ref(), Some(&paths[1]));
        assert_eq!(loaded.rules.rules().len(), 1);
    }

    #[test]
    fn the_error_of_a_missing_file_has_the_origin_of_its_name() {
        for by in ["--rules", "OPS_RULES"] {
            let path = "/nonexistent/rules".into();
            let error = Source::Named { path, by }.load(&[]).unwrap_err();
            let text = error.to_string();
            assert!(
                text.starts_with("/nonexistent/rules: No such file"),
                "{text}"
            );
            assert!(
                text.contains(&format!("{by} names this rule file")),
                "{text}"
            );
        }
    }

    #[test]
    fn a_default_file_that_cannot_be_read_is_not_skipped() {
        // Reading a directory fails, for root as well, though opening it works.
        let dir = tempfile::tempdir().unwrap();
        let paths = vec![dir.path().to_owned(), dir.path().join("b")];
        std::fs::write(&paths[1], "").unwrap();
        assert!(Source::Default(paths).load(&[]).is_err());
    }

    #[test]
    fn faults_have_the_form_that_editors_parse() {
        let error = load_text(b"use\n\nlog x\n").unwrap_err().to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("/rules:1:4: "), "{error}");
        assert!(lines[1].contains("/rules:3:5: "), "{error}");
    }

    #[test]
    fn long_files_are_read_whole_and_endless_ones_refused() {
        let text = "use tcp client * *:*\n".repeat(1000);
        assert_eq!(
            load_text(text.as_bytes()).unwrap().rules.rules().len(),
            1000
        );
        let (path, by) = ("/dev/zero".into(), "--rules");
        let endless = Source::Named { path, by }.load(&[]).unwrap_err();
        assert!(matches!(endless, Unusable::TooLong { .. }), "{endless}");
    }
}
