//! Programs that start with libraries which were installed with this one.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};

/// The exit codes of a shell for a program that does not exist, and for one that cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// Debian's directory of libraries for this architecture, below the prefix.
pub(crate) const MULTIARCH: &str = if cfg!(target_arch = "x86_64") {
    "lib/x86_64-linux-gnu"
} else if cfg!(target_arch = "aarch64") {
    "lib/aarch64-linux-gnu"
} else if cfg!(target_arch = "powerpc64") {
    "lib/powerpc64le-linux-gnu"
} else if cfg!(target_arch = "s390x") {
    "lib/s390x-linux-gnu"
} else if cfg!(target_arch = "riscv64") {
    "lib/riscv64-linux-gnu"
} else {
    "lib/linux-gnu"
};

/// Returns the directories of the libraries, the likeliest first: the one that the packager named
/// in `OPS_LIBDIR` at compile time, then those below the prefix whose `bin` contains the program.
pub(crate) fn directories(program: &Path) -> Vec<PathBuf> {
    let packagers = option_env!("OPS_LIBDIR").map(PathBuf::from);
    let prefix = program.parent().and_then(Path::parent);
    let below = prefix
        .into_iter()
        .flat_map(|prefix| ["lib", MULTIARCH, "lib64"].map(|directory| prefix.join(directory)));
    packagers.into_iter().chain(below).collect()
}

/// Returns the first of the directories of libraries, or of these places below each of them, that
/// has the library.
pub(crate) fn directory_of(library: &str, program: &Path, places: &[&str]) -> Result<PathBuf> {
    let directories = directories(program);
    let mut all = directories
        .iter()
        .flat_map(|directory| places.iter().map(|place| directory.join(place)));
    all.find(|directory| directory.join(library).exists())
        .with_context(|| {
            let listed = directories.iter().map(|directory| directory.display());
            let listed: Vec<String> = listed.map(|directory| directory.to_string()).collect();
            let own = program.file_name().unwrap_or_default().to_string_lossy();
            format!(
                "{library} is not below {}; install {own} with it, or run the one that \
                 `cargo xtask stage` made",
                listed.join(", ")
            )
        })
}

/// Returns a list for the loader: this path, followed by those that are listed already.
pub(crate) fn listed_first(
    own: &Path,
    present: Option<OsString>,
    separators: &[u8],
) -> Result<OsString> {
    let bytes = own.as_os_str().as_bytes();
    ensure!(
        !bytes.iter().any(|byte| separators.contains(byte)),
        "the loader separates a list at a character of {}; install the program somewhere else",
        own.display()
    );
    let mut list = own.as_os_str().to_owned();
    if let Some(present) = present.filter(|present| !present.is_empty()) {
        list.push(OsStr::new(":"));
        list.push(present);
    }
    Ok(list)
}

/// Executes the program. Returns only if that fails, with the exit code that a shell would have.
pub(crate) fn execute(command: &mut Command, own: &str) -> ExitCode {
    let error = command.exec();
    let program = Path::new(command.get_program());
    eprintln!("{own}: {}: {error}", program.display());
    ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUN,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_precedes_those_that_are_listed() {
        let library = Path::new("/opt/lib/libops-preload.so");
        let list = |present: Option<&str>| {
            listed_first(library, present.map(OsString::from), b": ").unwrap()
        };
        assert_eq!(list(None), *library);
        assert_eq!(list(Some("")), *library);
        assert_eq!(list(Some("a:b")), "/opt/lib/libops-preload.so:a:b");
        for path in ["/a b/library.so", "/a:b/library.so"] {
            assert!(
                listed_first(Path::new(path), None, b": ").is_err(),
                "{path}"
            );
        }
    }

    #[test]
    fn the_library_is_found_in_the_directories_of_distributions_and_in_places_below() {
        let prefix = tempfile::tempdir().unwrap();
        let program = prefix.path().join("bin/runner");
        let find = || directory_of("library.so", &program, &["", "own"]);
        let error = find().unwrap_err().to_string();
        assert!(error.starts_with("library.so is not below "), "{error}");
        assert!(
            error.contains("/lib, ") && error.contains("install runner with it"),
            "{error}"
        );
        // A directory that is earlier in the list has priority.
        for directory in ["lib64", MULTIARCH, "lib/own", "lib"] {
            let directory = prefix.path().join(directory);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("library.so"), "").unwrap();
            assert_eq!(find().unwrap().join("x"), directory.join("x"));
        }
    }
}
