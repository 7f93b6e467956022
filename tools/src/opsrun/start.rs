//! Starts a program with the library loaded before its C library.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use tool_args::opsrun::Args;

use crate::{libraries, load_rules, reach};

const LIBRARY: &str = "libops-preload.so";

/// The variable that the loader reads.
const LD_PRELOAD: &str = "LD_PRELOAD";

/// The variable that makes the library offer SDP over the software provider for every socket.
pub(crate) const SOFTWARE: &str = "OPS_SOFTWARE";

/// The variable that makes threads of the program poll before they sleep, and the time in
/// microseconds: about as long as it takes to wake a thread on an idle processor.
const SPIN: (&str, &str) = ("OPS_SPIN", "50");

/// The exit codes of a shell for a program that does not exist, and for one that cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// Executes the program. Returns only if that fails.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // The rule file is checked here: with an unusable file the program would stay on TCP unnoticed.
    load_rules(args)?;
    let library = find_library(&std::env::current_exe().context("finding opsrun itself")?)?;
    let list = preload_list(&library, host::environment::variable(LD_PRELOAD))?;
    let (program, rest) = args.words.split_first().context("no program was given")?;
    if let Some(why) = reach::reason_against(program) {
        let program = program.display();
        eprintln!("opsrun: warning: {program} runs without the library, because {why}");
    }
    let mut command = Command::new(program);
    command.args(rest).env(LD_PRELOAD, list);
    if let Some(rules) = &args.rules {
        // The path is made absolute, because the program may change its working directory.
        let rules = std::path::absolute(rules).context("finding the rule file")?;
        command.env(ops::rules::VARIABLES[0], rules);
    }
    if args.software {
        command.env(SOFTWARE, "1");
    }
    if args.spin {
        command.env(SPIN.0, SPIN.1);
    }
    let error = command.exec();
    eprintln!("opsrun: {}: {error}", program.display());
    Ok(ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUN,
    }))
}

/// Returns the path of the library that was installed with this program.
fn find_library(program: &Path) -> Result<PathBuf> {
    let directories = libraries::directories(program);
    let found = directories.iter().map(|directory| directory.join(LIBRARY));
    found
        .into_iter()
        .find(|library| library.exists())
        .with_context(|| {
            let listed = directories.iter().map(|directory| directory.display());
            let listed: Vec<String> = listed.map(|directory| directory.to_string()).collect();
            format!(
                "{LIBRARY} is not in {}; install opsrun with it, or run the one that \
             `cargo xtask stage` made",
                listed.join(", ")
            )
        })
}

/// Returns the list for the loader: this library, followed by the libraries listed already.
fn preload_list(library: &Path, present: Option<OsString>) -> Result<OsString> {
    let own = library.as_os_str();
    ensure!(
        !own.as_bytes()
            .iter()
            .any(|byte| matches!(byte, b':' | b' ')),
        "the loader accepts no path with a colon or a blank: {}; install opsrun somewhere else",
        library.display()
    );
    let mut list = own.to_owned();
    if let Some(present) = present.filter(|present| !present.is_empty()) {
        list.push(OsStr::new(":"));
        list.push(present);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_precedes_those_that_are_listed() {
        let library = Path::new("/opt/lib/libops-preload.so");
        let list = |present: Option<&str>| preload_list(library, present.map(OsString::from));
        assert_eq!(list(None).unwrap(), *library);
        assert_eq!(list(Some("")).unwrap(), *library);
        assert_eq!(
            list(Some("a.so b.so")).unwrap(),
            "/opt/lib/libops-preload.so:a.so b.so"
        );
    }

    #[test]
    fn paths_that_the_loader_would_cut_are_refused() {
        for path in ["/a b/libops-preload.so", "/a:b/libops-preload.so"] {
            assert!(preload_list(Path::new(path), None).is_err(), "{path}");
        }
    }

    #[test]
    fn a_missing_library_is_reported() {
        let error = find_library(Path::new("/nonexistent/bin/opsrun")).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("libops-preload.so is not in "), "{text}");
        assert!(text.contains("/nonexistent/lib, "), "{text}");
    }

    #[test]
    fn the_library_is_found_in_the_directories_of_distributions() {
        let prefix = tempfile::tempdir().unwrap();
        let program = prefix.path().join("bin/opsrun");
        for directory in ["lib64", libraries::MULTIARCH, "lib"] {
            let directory = prefix.path().join(directory);
            std::fs::create_dir_all(&directory).unwrap();
            let library = directory.join(LIBRARY);
            std::fs::write(&library, "").unwrap();
            // A directory that is earlier in the list has priority.
            assert_eq!(find_library(&program).unwrap(), library);
        }
    }
}
