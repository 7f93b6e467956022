//! Every sentence that states a behaviour is covered by an existing test, or has a reason why not.
//! The sentences come from the iWARP Transport Specific Extensions for DAT 2.0, sections 1.2 and
//! 3.1.1 to 3.1.4, from DAT 2.0 itself, from the requirements on the offload switch, and from the
//! OpenRDMA software architecture.
//!
//! The sentences are rows of tables in pages of `docs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// A page with tables of sentences, and the sections that it must have.
struct List {
    /// Relative to the workspace.
    page: &'static str,
    sections: &'static [&'static str],
}

const EXTENSIONS: List = List {
    page: "docs/socket-service-points.md",
    sections: &["1.2", "3.1.1", "3.1.2", "3.1.3", "3.1.4"],
};

const CALLS: List = List {
    page: "docs/dat-calls.md",
    sections: &[
        "object", "registry", "ia", "evd", "cno", "pz", "lmr", "rmr", "srq", "ep", "dto", "psp",
        "rsp", "csp", "cr", "ib",
    ],
};

const OFFLOAD: List = List {
    page: "docs/ops-requirements.md",
    sections: &["requirement", "need"],
};

const ARCHITECTURE: List = List {
    page: "docs/openrdma.md",
    sections: &["1", "2", "3", "4", "5"],
};

const LISTS: [List; 4] = [EXTENSIONS, CALLS, OFFLOAD, ARCHITECTURE];

/// The functions that `libdat2.so.2` exports.
const EXPORTS: &str = "dat-api/libdat2/exports.txt";

/// The header of every table of sentences.
const HEADER: &str = "| Id | Part | Behaviour | Tests |";

#[derive(Debug, Clone)]
struct Sentence {
    /// An identifier such as `3.1.1-07` or `evd-03`.
    id: String,
    /// The part of the section that contains the sentence, such as `Description` or `USAGE`, or the
    /// call that it describes.
    part: String,
    coverage: Coverage,
}

/// The coverage of a sentence.
#[derive(Debug, Clone)]
enum Coverage {
    /// Tests, as `crate::path::test` or `suite::path::test`.
    Tests(Vec<String>),
    /// The reason why there is no test.
    Reason(String),
    /// The feature that must be built first.
    Later(String),
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(relative: impl AsRef<Path>) -> Result<String> {
    let path = workspace().join(relative);
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

/// Parses the tables of a page.
fn sentences(list: &List) -> Result<Vec<Sentence>> {
    let page = read(list.page)?;
    let tables = page.split(HEADER).skip(1);
    let rows = tables.flat_map(|table| {
        // A line of dashes follows the header.
        let rows = table.trim_start().lines().skip(1);
        rows.take_while(|line| line.starts_with('|'))
    });
    rows.map(|row| parse(row).with_context(|| format!("{}: {row}", list.page)))
        .collect()
}

/// Parses a row `| id | part | text | coverage |`, where the coverage is tests, `not applicable:
/// REASON` or `later: FEATURE`.
fn parse(row: &str) -> Result<Sentence> {
    let fields: Vec<&str> = row.split('|').map(str::trim).collect();
    let ["", id, part, text, coverage, ""] = fields[..] else {
        bail!("not four fields");
    };
    ensure!(
        !text.is_empty() && !coverage.is_empty(),
        "{id} has no text, or neither tests nor a reason"
    );
    let reason = |kind| Some(coverage.strip_prefix(kind)?.trim().to_owned());
    let coverage = match (reason("not applicable:"), reason("later:")) {
        (Some(reason), _) => Coverage::Reason(reason),
        (None, Some(reason)) => Coverage::Later(reason),
        (None, None) => Coverage::Tests(coverage.split("<br>").map(test).collect::<Result<_>>()?),
    };
    Ok(Sentence {
        id: id.to_owned(),
        part: part.to_owned(),
        coverage,
    })
}

/// Returns the name of a test, which is between backticks.
fn test(name: &str) -> Result<String> {
    let name = name
        .strip_prefix('`')
        .and_then(|name| name.strip_suffix('`'));
    name.map(str::to_owned)
        .context("neither a test nor a reason")
}

/// The directories of the tests of each crate; all other tests are suites.
const CRATES: [(&str, &[&str]); 10] = [
    ("access_layer", &["access-layer/src"]),
    (
        "provider_iwarp_soft",
        &[
            "provider-iwarp-soft/tests",
            "provider-iwarp-soft/tests/connections",
            "provider-iwarp-soft/src",
        ],
    ),
    ("rnic", &["rnic/src"]),
    ("libdat2", &["dat-api/libdat2/tests", "dat-api/libdat2/src"]),
    ("dat_api", &["dat-api/tests", "dat-api/src"]),
    ("ofa_tools", &["tests/harness/ofa_tools"]),
    ("ops", &["ops/tests", "ops/src"]),
    ("ops_switch", &["ops/tests/switch"]),
    ("ops_preload", &["ops/preload/src"]),
    ("dat_tools", &["tools/tests"]),
];

/// The files in which the modules of a test may be.
fn files_of(modules: &[&str]) -> Vec<PathBuf> {
    let known = modules.split_first().and_then(|(first, rest)| {
        let (_, roots) = CRATES.iter().find(|(name, _)| name == first)?;
        Some((*roots, rest))
    });
    let (roots, modules) = known.unwrap_or((&["tests/suites"], modules));
    // The last module may be inline in the file of its parent.
    let inline = modules.split_last().map_or(modules, |(_, file)| file);
    let mut files = Vec::new();
    for root in roots {
        for modules in [modules, inline] {
            let path = modules.join("/");
            files.push(PathBuf::from(format!("{root}/{path}.rs")));
            files.push(PathBuf::from(format!("{root}/{path}/mod.rs")));
            files.push(PathBuf::from(format!("{root}/{path}/main.rs")));
        }
    }
    files
}

/// Returns true if `text` has a test `name`: a test function, a trial of module `module`, a script,
/// a function for each offload protocol, a function that makes trials, a table whose rows are
/// tests, or a row of such a table.
fn has_test(text: &str, module: &str, name: &str) -> bool {
    let row = format!("const {name}: (&str, &str) = (");
    if text.lines().any(|line| line.starts_with(&row)) {
        // A row is a test only if the table lists it.
        return text.lines().any(|line| line == format!("    {name},"));
    }
    let table = format!("const {name}: &[");
    if text.lines().any(|line| line.starts_with(&table)) {
        // A table that no code iterates over holds no tests.
        return text.matches(&format!("{name}\n        .iter()")).count()
            + text.matches(&format!("{name}.iter()")).count()
            > 0;
    }
    let (head, trial) = (format!("fn {name}("), format!("{name} = \""));
    let of_protocol = format!("{head}protocol: &'static OffloadProtocol)");
    let makes = [") -> Trial {", ") -> Vec<Trial> {"].map(|returns| format!("{head}{returns}"));
    let module = format!(" {module}:");
    let (mut is_test, mut in_module) = (false, false);
    for line in text.lines() {
        if line.starts_with("trials! {") {
            in_module = line.ends_with(&module);
        }
        in_module |= line.ends_with("= scripts! {");
        let line = line.trim_start();
        if line.starts_with(&head) && is_test
            || line.starts_with(&trial) && in_module
            || line.contains(&of_protocol)
            || makes.iter().any(|makes| line.ends_with(makes))
        {
            return true;
        }
        is_test = line == "#[test]" || is_test && line.starts_with("#[");
    }
    false
}

/// The cases of `dat-conformance`, each of which is a test of the suite `conformance`.
const CASES: &str = "tools/src/dat_conformance/cases";

/// Returns true if a table of the tool has a case of this name.
fn has_case(name: &str) -> Result<bool> {
    let row = format!("    \"{name}\":");
    for entry in fs::read_dir(workspace().join(CASES))? {
        if fs::read_to_string(entry?.path())?.contains(&row) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn exists(test: &str) -> bool {
    if let Some(case) = test.strip_prefix("conformance::") {
        return has_case(case).is_ok_and(|has| has);
    }
    let path: Vec<&str> = test.split("::").collect();
    let Some((name, modules)) = path.split_last() else {
        return false;
    };
    files_of(modules)
        .iter()
        .filter_map(|file| read(file).ok())
        .any(|text| has_test(&text, modules.last().unwrap_or(&""), name))
}

#[test]
fn every_sentence_has_tests_that_exist_or_a_reason() -> Result<()> {
    let mut faults = Vec::new();
    for sentence in LISTS
        .iter()
        .map(sentences)
        .collect::<Result<Vec<_>>>()?
        .concat()
    {
        match &sentence.coverage {
            Coverage::Reason(reason) | Coverage::Later(reason) if reason.is_empty() => {
                faults.push(format!("{}: neither tests nor a reason", sentence.id));
            }
            Coverage::Reason(_) | Coverage::Later(_) => {}
            Coverage::Tests(tests) => faults.extend(
                tests
                    .iter()
                    .filter(|test| !exists(test))
                    .map(|test| format!("{}: there is no test {test}", sentence.id)),
            ),
        }
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

#[test]
fn a_missing_test_is_detected() {
    for test in [
        "nothing",
        "calls::calls_memory::there_is_no_such_trial",
        "ofa_tools::dapltest::NO_SUCH_TABLE",
        // A table whose rows are not tests.
        "ofa_tools::family::COUNTER_NAMES",
        // The trial belongs to another program.
        "calls::calls_srq::zero_based_memory_counts_from_zero",
        "conformance::evd/no-such-case",
        "access_layer::evd::state::tests::there_is_no_such_test",
        "access_layer::nowhere::tests::every_event_in_every_state",
    ] {
        assert!(!exists(test), "{test}");
    }
}

#[test]
fn every_sentence_of_a_section_has_its_own_id() -> Result<()> {
    for list in &LISTS {
        let sentences = sentences(list)?;
        let ids: BTreeSet<&str> = sentences.iter().map(|s| s.id.as_str()).collect();
        ensure!(ids.len() == sentences.len(), "an id is used twice");
        for section in list.sections {
            let own = format!("{section}-");
            ensure!(
                ids.iter().any(|id| id.starts_with(&own)),
                "no sentence of {section}"
            );
        }
        for id in ids {
            let section = id.rsplit_once('-').map(|(section, _)| section);
            ensure!(
                section.is_some_and(|section| list.sections.contains(&section)),
                "the section of {id} is unknown"
            );
        }
    }
    Ok(())
}

#[test]
fn every_call_has_sentences_and_every_sentence_a_call_that_exists() -> Result<()> {
    let exports = read(EXPORTS)?;
    let calls: BTreeSet<&str> = exports
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("dat"))
        .collect();
    ensure!(calls.len() > 80, "{EXPORTS} lists {} calls", calls.len());
    let sentences = sentences(&CALLS)?;
    let described: BTreeSet<&str> = sentences
        .iter()
        .map(|sentence| sentence.part.as_str())
        .filter(|part| *part != "*")
        .collect();
    let missing: Vec<_> = calls.difference(&described).collect();
    let unknown: Vec<_> = described.difference(&calls).collect();
    ensure!(missing.is_empty(), "no sentence describes {missing:?}");
    ensure!(unknown.is_empty(), "there are no calls {unknown:?}");
    Ok(())
}

#[test]
fn every_test_of_the_behaviour_suites_is_named_by_a_sentence() -> Result<()> {
    let sentences = sentences(&EXTENSIONS)?;
    let named: BTreeSet<&str> = sentences
        .iter()
        .filter_map(|sentence| match &sentence.coverage {
            Coverage::Tests(tests) => Some(tests),
            Coverage::Reason(_) | Coverage::Later(_) => None,
        })
        .flatten()
        .map(String::as_str)
        .collect();
    for suite in ["ssp_create", "ssp_free", "socket_connect", "socket_life"] {
        let text = read(format!("tests/suites/ssp_behaviour/{suite}.rs"))?;
        for line in text.lines() {
            let name = line
                .strip_prefix("fn ")
                .and_then(|rest| rest.split_once("() -> Result<()>"));
            if let Some((name, _)) = name {
                let test = format!("ssp_behaviour::{suite}::{name}");
                ensure!(named.contains(test.as_str()), "no sentence names {test}");
            }
        }
    }
    Ok(())
}
