//! Which rule file is read.
//!
//! The reading is done by system calls of its own, because a library that is loaded before all
//! others does it, and `open` of the C library may be its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::fault::Fault;
use crate::known::Known;
use crate::parse_for;
use crate::rules::Rules;

/// Environment variables that name the file; the first that is set wins.
pub const VARIABLES: [&str; 2] = ["OPS_RULES", "LIBSDP_CONFIG_FILE"];

/// Files that are looked for where no variable is set; the first that exists wins.
pub const CONFIG_FILES: [&str; 2] = ["/etc/ops.conf", "/etc/libsdp.conf"];

/// Largest file in bytes. Real ones have a few hundred.
const FILE_LEN_MAX: usize = 1 << 20;

/// Where rules come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// This file, because somebody named it: it has to be there.
    Named {
        /// Which.
        path: PathBuf,
        /// The option or the variable that does.
        by: &'static str,
    },
    /// The first of these that exists.
    Default(Vec<PathBuf>),
}

/// Rules and where they stand.
#[derive(Debug)]
pub struct Loaded {
    /// The file; `None` if there is none anywhere.
    pub path: Option<PathBuf>,
    /// What it says.
    pub rules: Rules,
}

/// Why a file cannot be used. Sockets then stay on TCP: what was meant is not known.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The system will not have it read.
    #[error("{}: {error}; {}", path.display(), advice(*by))]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Who names it, if it is not one of the usual ones.
        by: Option<&'static str>,
        /// What the system says.
        error: Errno,
    },
    /// It has no reasonable size.
    #[error("{}: more than {FILE_LEN_MAX} bytes; is this a rule file?", path.display())]
    TooLong {
        /// Which file.
        path: PathBuf,
    },
    /// Lines of it say nothing.
    #[error("{}", lines(path, faults))]
    Faulty {
        /// Which file.
        path: PathBuf,
        /// All that is wrong, in file order.
        faults: Vec<Fault>,
    },
}

impl Source {
    /// The source that the environment chooses, as `variable` tells it.
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

    /// Reads and understands the file, for offload protocols that have these settings.
    ///
    /// # Errors
    /// When it cannot be read or a line of it cannot be used.
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

/// All of the file; `None` if it is too long. A FIFO without a writer is empty and does not wait.
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
            "let it be read, or name another rule file in {}",
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
    fn a_file_that_is_not_there_is_told_with_who_names_it() {
        for by in ["--rules", "OPS_RULES"] {
            let path = "/nonexistent/rules".into();
            let error = Source::Named { path, by }.load(&[]).unwrap_err();
            let told = error.to_string();
            assert!(
                told.starts_with("/nonexistent/rules: No such file"),
                "{told}"
            );
            assert!(
                told.contains(&format!("{by} names this rule file")),
                "{told}"
            );
        }
    }

    #[test]
    fn a_default_file_that_cannot_be_read_is_not_passed_over() {
        // A directory can be opened and not read, by root as well.
        let dir = tempfile::tempdir().unwrap();
        let paths = vec![dir.path().to_owned(), dir.path().join("b")];
        std::fs::write(&paths[1], "").unwrap();
        assert!(Source::Default(paths).load(&[]).is_err());
    }

    #[test]
    fn faults_are_told_as_editors_read_them() {
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
