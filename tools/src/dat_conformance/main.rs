//! Tests whether a provider does what DAT requires. The program consists of small cases. Each
//! runs on one interface adapter, or on two that communicate with each other, through the public
//! API alone.
//!
//! A case has an end for the process that connects and one for the process that listens. The ends
//! coordinate over a plain TCP connection, so they may run on one machine or on two, on the same
//! adapter or on different ones. A process runs many cases and is stopped at the first that fails,
//! hangs or crashes; the remaining cases run in another process.
//!
//! | File | Contents |
//! |---|---|
//! | `case`, `cases` | the definition of a case; all cases, by DAT object |
//! | `side` | one end of a case |
//! | `kit`, `link`, `expect`, `pattern`, `raw` | building blocks of cases |
//! | `control` | the control protocol between the ends |
//! | `lead`, `server`, `worker`, `process` | the processes: the one that reports, and those that run cases |
//! | `watchdog`, `leaks` | checks that no case hangs or leaks |
//! | `verdict`, `differences`, `report` | the result of a case, the known differences, and the output |

mod case;
mod cases;
mod control;
mod differences;
mod expect;
mod kit;
mod lead;
mod leaks;
mod link;
mod pattern;
mod process;
mod raw;
mod report;
mod server;
mod side;
mod verdict;
mod watchdog;
mod worker;

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use tool_args::conformance::{Args, Role};
use tool_args::say;

use crate::case::Case;
use crate::differences::Differences;
use crate::report::Report;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("dat-conformance: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<ExitCode> {
    let chosen = chosen(args)?;
    if args.list {
        for case in chosen {
            say!("{}: {}", case.name, case.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let ia_name = args.ia.as_deref().context("--ia names the adapter")?;
    if args.worker.is_none() {
        ensure_registered(args.ia.iter().chain(&args.peer_ia))?;
    }
    let limit = Duration::from_secs(args.limit.into());
    match (args.worker.as_deref(), args.role) {
        (Some("-"), _) => worker::serve(ia_name, limit)?,
        (Some(peer), _) => worker::lead(ia_name, limit, peer)?,
        (None, Role::Server) => server::serve(ia_name, args.listen, args.limit)?,
        (None, Role::Both | Role::Client) => return lead(args, ia_name, &chosen),
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails for a name that the registry lacks. Otherwise each process that opens it would report the
/// error.
fn ensure_registered<'a>(mut names: impl Iterator<Item = &'a String>) -> Result<()> {
    let known = dat_api::list_providers()?;
    let unknown = names.find(|name| known.iter().all(|info| info.ia_name != **name));
    ensure!(
        unknown.is_none(),
        "no interface adapter {:?} in the registry: `datinfo --list` prints the registered names",
        unknown.map_or("", String::as_str)
    );
    Ok(())
}

fn lead(args: &Args, ia_name: &str, cases: &[Case]) -> Result<ExitCode> {
    let mut report = Report::new(differences(args)?);
    let mut cases = cases.to_vec();
    cases.retain(|case| report.allows(case));
    lead::run(args, ia_name, &cases, |case, ran| {
        report.case(case, ran);
        Ok(())
    })?;
    Ok(report.finish())
}

/// The cases that the command line selects.
fn chosen(args: &Args) -> Result<Vec<Case>> {
    let any = |globs: &[String], name: &str| globs.iter().any(|glob| case::matches(glob, name));
    let mut cases = cases::all();
    for glob in args.only.iter().chain(&args.skip) {
        ensure!(
            cases.iter().any(|case| case::matches(glob, &case.name)),
            "no case has the name {glob}; --list prints all names"
        );
    }
    cases.retain(|case| {
        (args.long || args.list || !case.long)
            && (args.only.is_empty() || any(&args.only, &case.name))
            && !any(&args.skip, &case.name)
    });
    ensure!(
        !cases.is_empty(),
        "no case is selected; --long also selects the long cases"
    );
    Ok(cases)
}

fn differences(args: &Args) -> Result<Option<Differences>> {
    let (Some(file), Some(configuration)) = (&args.differences, &args.configuration) else {
        return Ok(None);
    };
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    Differences::parse(&text, configuration).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn case_names_are_unique_and_begin_with_an_object() {
        let cases = cases::all();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
        assert!(names.iter().all(|name| name.contains('/')), "{names:?}");
    }

    #[test]
    fn the_command_line_chooses_cases() {
        let of = |line: &str| {
            let words = line.split_whitespace();
            chosen(&Args::try_parse_from(words).unwrap())
        };
        let evd = of("dat-conformance --ia x --only evd/*").unwrap();
        assert!(evd.iter().all(|case| case.name.starts_with("evd/")));
        let rest = of("dat-conformance --ia x --skip evd/*").unwrap();
        assert!(!rest.iter().any(|case| case.name.starts_with("evd/")));
        assert!(rest.iter().all(|case| !case.long));
        for nothing in ["--only nothing", "--only evd/*,nothing", "--skip nothing"] {
            let error = of(&format!("dat-conformance --ia x {nothing}")).unwrap_err();
            assert!(error.to_string().contains("the name nothing"), "{error:#}");
        }
        let left = of("dat-conformance --ia x --only evd/* --skip evd/*").unwrap_err();
        assert!(left.to_string().contains("no case is selected"), "{left:#}");
        assert!(Args::try_parse_from(["dat-conformance"]).is_err());
        assert!(Args::try_parse_from(["dat-conformance", "--list"]).is_ok());
    }
}
