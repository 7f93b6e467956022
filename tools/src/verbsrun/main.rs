//! Runs a program written to verbs with the libraries of this project in place of rdma-core's.
//!
//! - `tool_args::verbsrun` the command line
//! - `devices.rs` the devices that the library shows
//! - `libraries.rs` the directories of installed libraries, shared with `opsrun`
//! - `reach.rs` programs into which the library cannot be loaded, shared with `opsrun`

mod devices;
#[path = "../opsrun/libraries.rs"]
mod libraries;
#[path = "../opsrun/reach.rs"]
mod reach;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use tool_args::verbsrun::Args;

const LIBRARY: &str = "libibverbs.so.1";

/// The variable that the loader reads.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// The places of the libraries below a directory of libraries: those of a package, and those of the
/// stage.
const PLACES: [&str; 2] = ["dat-rs/verbs", "verbs"];

/// The exit codes of a shell for a program that does not exist, and for one that cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

fn main() -> ExitCode {
    run(&Args::parse()).unwrap_or_else(|error| {
        eprintln!("verbsrun: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(args: &Args) -> Result<ExitCode> {
    let own = std::env::current_exe().context("finding verbsrun itself")?;
    let directory = find_libraries(&own)?;
    if args.devices {
        print!("{}", devices::list(&directory.join(LIBRARY))?);
        return Ok(ExitCode::SUCCESS);
    }
    let (program, rest) = args.words.split_first().context("no program was given")?;
    let why_not = reach::reason_against(program);
    if args.explain {
        println!("libraries: {}", directory.display());
        match why_not {
            Some(why) => println!("{}: not reached, because {why}", program.display()),
            None => println!("{}: finds the libraries", program.display()),
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(why) = why_not {
        let program = program.display();
        eprintln!("verbsrun: warning: {program} runs without the libraries, because {why}");
    }
    let path = library_path(&directory, host::environment::variable(LIBRARY_PATH))?;
    let error = Command::new(program)
        .args(rest)
        .env(LIBRARY_PATH, path)
        .exec();
    eprintln!("verbsrun: {}: {error}", program.display());
    Ok(ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUN,
    }))
}

/// Returns the directory of the libraries that were installed with this program.
fn find_libraries(program: &Path) -> Result<PathBuf> {
    let directories = libraries::directories(program);
    let all = directories
        .iter()
        .flat_map(|directory| PLACES.map(|place| directory.join(place)));
    all.into_iter()
        .find(|directory| directory.join(LIBRARY).exists())
        .with_context(|| {
            let listed = directories.iter().map(|directory| directory.display());
            let listed: Vec<String> = listed.map(|directory| directory.to_string()).collect();
            format!(
                "{LIBRARY} is not below {}; install verbsrun with it, or run the one that \
                 `cargo xtask stage` made",
                listed.join(", ")
            )
        })
}

/// Returns the list for the loader: this directory, followed by those that are listed already.
fn library_path(directory: &Path, present: Option<OsString>) -> Result<OsString> {
    let own = directory.as_os_str();
    ensure!(
        !own.as_bytes()
            .iter()
            .any(|byte| matches!(byte, b':' | b';')),
        "the loader accepts no path with a colon: {}; install verbsrun somewhere else",
        directory.display()
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
    fn the_libraries_precede_those_that_are_listed() {
        let list = |present: Option<&str>| {
            library_path(Path::new("/opt/verbs"), present.map(OsString::from)).unwrap()
        };
        assert_eq!(list(None), "/opt/verbs");
        assert_eq!(list(Some("")), "/opt/verbs");
        assert_eq!(list(Some("/a:/b")), "/opt/verbs:/a:/b");
        assert!(library_path(Path::new("/a:b"), None).is_err());
    }

    #[test]
    fn the_libraries_of_a_package_and_of_the_stage_are_found() {
        let prefix = tempfile::tempdir().unwrap();
        let program = prefix.path().join("bin/verbsrun");
        let error = find_libraries(&program).unwrap_err().to_string();
        assert!(
            error.starts_with("libibverbs.so.1 is not below "),
            "{error}"
        );
        for place in ["lib/verbs", "lib/dat-rs/verbs"] {
            let directory = prefix.path().join(place);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join(LIBRARY), "").unwrap();
            assert_eq!(find_libraries(&program).unwrap(), directory);
        }
    }
}
