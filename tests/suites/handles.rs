//! The return codes of every function of the C interface for handles that are null, stale, foreign
//! or of the wrong kind, and for invalid arguments and states.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use stack_tests::{CProgram, Finished, IA_NAME, StackEnv, rows};

const DEADLINE: Duration = Duration::from_secs(60);

/// The list of codes that no call of `bad_arguments.c` returns, with tests or reasons.
const CODES: &str = "tests/compliance/return-codes.txt";

/// Calls that take no handle; their arguments are tested by another suite or not at all.
const WITHOUT_HANDLE: [(&str, &str); 7] = rows! {
    "dat_ia_openv", "takes a name";
    "dat_strerror", "takes a code";
    "dat_registry_list_providers", "takes places only";
    "dat_registry_providers_related", "takes names";
    "dat_registry_add_provider", "for providers, takes a table";
    "dat_registry_remove_provider", "for providers, takes a table";
    "dats_get_ia_handle", "for providers, translates any integer";
};

fn read(relative: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(relative);
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

fn run(program: &str) -> Result<Finished> {
    let env = StackEnv::new()?;
    let program = CProgram::compile(&env.stage, program)?;
    env.program(program.file())
        .arg(IA_NAME)
        .spawn()?
        .finish(DEADLINE)
}

/// Architecture decision 7: a bad handle causes `DAT_INVALID_HANDLE` and is never dereferenced as
/// an object of another kind.
#[test]
fn bad_handles_are_refused_by_every_entry() -> Result<()> {
    run("bad_handles")?.success()?.prints(" 0 wrong answers")?;
    Ok(())
}

#[test]
fn arguments_and_states_that_make_no_sense_are_refused_by_every_entry() -> Result<()> {
    run("bad_arguments")?
        .success()?
        .prints(" 0 wrong answers")?;
    Ok(())
}

/// Each function of the library needs a row in the programs, or a reason in this file.
#[test]
fn every_export_has_its_rows() -> Result<()> {
    let handles = read("tests/c/bad_handles.c")?;
    let arguments = read("tests/c/bad_arguments.c")?;
    for export in read("dat-api/libdat2/exports.txt")?.lines() {
        let takes_no_handle = WITHOUT_HANDLE.iter().any(|(name, _)| *name == export);
        let row = format!("ROW({export}, ");
        ensure!(
            takes_no_handle || handles.contains(&row),
            "{export} has no row in bad_handles.c"
        );
        let rows = [row, format!("check(\"{export}\", ")];
        let is_row = |row: &String| arguments.contains(row.as_str());
        ensure!(
            rows.iter().any(is_row) || takes_nothing_else(export)?,
            "{export} has no row in bad_arguments.c"
        );
    }
    Ok(())
}

/// Returns true if a function takes one handle and no other argument, or no argument that could be
/// wrong.
fn takes_nothing_else(function: &str) -> Result<bool> {
    let headers = read("dat-api/libdat2/include/dat2/udat.h")?
        + &read("dat-api/libdat2/include/dat2/dat_registry.h")?;
    let start = headers
        .find(&format!(" {function}("))
        .with_context(|| format!("{function} is in no header"))?;
    let end = headers[start..].find(';').context("no end of it")?;
    Ok(!headers[start..start + end].contains(','))
}

/// The lines of the list: a code, and its test or reason.
fn elsewhere(list: &str) -> Result<Vec<(&str, &str)>> {
    let lines = list
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| match line.split_once('|') {
            Some((code, why)) => Ok((code.trim(), why.trim())),
            None => bail!("{CODES}: no test and no reason: {line}"),
        })
        .collect()
}

/// Every type and subtype of the header is provoked by the programs, covered by another test, or
/// has a reason why no consumer can receive the code.
#[test]
fn every_code_of_the_header_is_provoked_or_explained() -> Result<()> {
    let finished = run("bad_arguments")?;
    let provoked = finished
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("PROVOKED "));
    let mut known: BTreeSet<&str> = provoked
        .flat_map(|line| line.split_whitespace().skip(1))
        .collect();
    let list = read(CODES)?;
    for (code, why) in elsewhere(&list)? {
        ensure!(!known.contains(code), "{code} is provoked here");
        match why.strip_prefix("never:") {
            Some(reason) => ensure!(!reason.trim().is_empty(), "{code}: no reason"),
            None => ensure!(is_test(why)?, "{code}: there is no test {why}"),
        }
        known.insert(code);
    }
    let header = read("dat-api/libdat2/include/dat2/dat_error.h")?;
    let missing: Vec<&str> = header
        .lines()
        .filter_map(|line| line.trim().split_once(" = "))
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("DAT_") && !known.contains(name))
        .filter(|name| !matches!(*name, "DAT_SUCCESS" | "DAT_NO_SUBTYPE"))
        .collect();
    ensure!(
        missing.is_empty(),
        "neither provoked nor explained: {missing:#?}"
    );
    Ok(())
}

/// Returns true if a test with the last part of this path is in the file that the other parts name.
fn is_test(path: &str) -> Result<bool> {
    let (file, name) = path.rsplit_once(' ').context("no file and test")?;
    Ok(read(file)?.contains(&format!("fn {name}(")))
}
