//! Every sentence of the iWARP Transport Specific Extensions for DAT 2.0, sections 3.1.1 to 3.1.4,
//! that states a behaviour is held by a test that exists, or has a reason why not.
//!
//! The list is `tests/compliance/iwarp-extensions.txt`; `docs/socket-service-points.md` shows it.
//! With `DAT_RENDER=1` the page is written anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// The list, relative to the workspace.
const LIST: &str = "tests/compliance/iwarp-extensions.txt";

/// The page, relative to the workspace.
const PAGE: &str = "docs/socket-service-points.md";

/// What stands before and after the tables of the page.
const MARKS: [&str; 2] = ["<!-- sentences: begin -->\n", "<!-- sentences: end -->\n"];

/// The sections that must have sentences.
const SECTIONS: [&str; 4] = ["3.1.1", "3.1.2", "3.1.3", "3.1.4"];

/// One sentence of the document.
#[derive(Debug)]
struct Sentence {
    /// Such as `3.1.1-07`.
    id: String,
    /// Which part of the section it stands in, such as `Description` or `USAGE`.
    part: String,
    text: String,
    holder: Holder,
}

/// What becomes of a sentence.
#[derive(Debug)]
enum Holder {
    /// Tests, as `crate::path::test` or `suite::path::test`.
    Tests(Vec<String>),
    /// Why it has none.
    Reason(String),
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(relative: impl AsRef<Path>) -> Result<String> {
    let path = workspace().join(relative);
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

/// Lines `id | part | text | tests or "not applicable: reason"`; an indented line goes on with the
/// line before it; `#` begins a comment.
fn sentences() -> Result<Vec<Sentence>> {
    let mut lines: Vec<String> = Vec::new();
    for line in read(LIST)?.lines() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        match lines.last_mut() {
            Some(last) if line.starts_with(' ') => {
                last.push(' ');
                last.push_str(line.trim());
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.iter().map(|line| parse(line)).collect()
}

fn parse(line: &str) -> Result<Sentence> {
    let fields: Vec<&str> = line.split('|').map(str::trim).collect();
    let [id, part, text, holder] = fields[..] else {
        bail!("not four fields: {line}");
    };
    ensure!(
        !text.is_empty() && !holder.is_empty(),
        "{id} has no text or nothing to hold it"
    );
    let holder = match holder.strip_prefix("not applicable:") {
        Some(reason) => Holder::Reason(reason.trim().to_owned()),
        None => Holder::Tests(holder.split_whitespace().map(str::to_owned).collect()),
    };
    Ok(Sentence {
        id: id.to_owned(),
        part: part.to_owned(),
        text: text.to_owned(),
        holder,
    })
}

/// The files in which the modules of a test may be.
fn files_of(modules: &[&str]) -> Vec<PathBuf> {
    let (roots, modules): (&[&str], _) = match modules.split_first() {
        Some((&"access_layer", rest)) => (&["access-layer/src"], rest),
        Some((&"provider_iwarp_soft", rest)) => (
            &["provider-iwarp-soft/tests", "provider-iwarp-soft/src"],
            rest,
        ),
        _ => (&["tests/suites"], modules),
    };
    // The last module may be one within its file.
    let inline = modules.strip_suffix(&["tests"]).unwrap_or(modules);
    let mut files = Vec::new();
    for root in roots {
        for modules in [modules, inline] {
            let path = modules.join("/");
            files.push(PathBuf::from(format!("{root}/{path}.rs")));
            files.push(PathBuf::from(format!("{root}/{path}/mod.rs")));
        }
    }
    files
}

/// Whether `text` has the test function `name`.
fn has_test(text: &str, name: &str) -> bool {
    let head = format!("fn {name}(");
    let mut is_test = false;
    for line in text.lines().map(str::trim_start) {
        if line.starts_with(&head) && is_test {
            return true;
        }
        is_test = line == "#[test]" || is_test && line.starts_with("#[");
    }
    false
}

fn exists(test: &str) -> bool {
    let path: Vec<&str> = test.split("::").collect();
    let Some((name, modules)) = path.split_last() else {
        return false;
    };
    files_of(modules)
        .iter()
        .filter_map(|file| read(file).ok())
        .any(|text| has_test(&text, name))
}

/// The tables of the page.
fn render(sentences: &[Sentence]) -> String {
    let mut page = String::new();
    let mut section = "";
    for sentence in sentences {
        let own = sentence.id.split('-').next().unwrap_or_default();
        if own != section {
            section = own;
            page.push_str(&format!(
                "\n### {own}\n\n| Id | Part | Behaviour | Held by |\n|---|---|---|---|\n"
            ));
        }
        let holder = match &sentence.holder {
            Holder::Tests(tests) => tests
                .iter()
                .map(|test| format!("`{test}`"))
                .collect::<Vec<_>>()
                .join("<br>"),
            Holder::Reason(reason) => format!("not applicable: {reason}"),
        };
        page.push_str(&format!(
            "| {} | {} | {} | {holder} |\n",
            sentence.id, sentence.part, sentence.text
        ));
    }
    page.push('\n');
    page
}

#[test]
fn every_sentence_is_held_by_tests_that_exist_or_has_a_reason() -> Result<()> {
    let mut faults = Vec::new();
    for sentence in sentences()? {
        match &sentence.holder {
            Holder::Reason(reason) if reason.is_empty() => {
                faults.push(format!("{}: neither tests nor a reason", sentence.id));
            }
            Holder::Reason(_) => {}
            Holder::Tests(tests) => faults.extend(
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
fn every_section_has_its_sentences_under_ids_of_their_own() -> Result<()> {
    let sentences = sentences()?;
    let ids: BTreeSet<&str> = sentences.iter().map(|s| s.id.as_str()).collect();
    ensure!(ids.len() == sentences.len(), "an id is used twice");
    for section in SECTIONS {
        let own = format!("{section}-");
        ensure!(
            ids.iter().any(|id| id.starts_with(&own)),
            "nothing of {section}"
        );
    }
    for id in ids {
        ensure!(
            SECTIONS.iter().any(|s| id.starts_with(s)),
            "{id} is of no section"
        );
    }
    Ok(())
}

#[test]
fn every_behaviour_suite_is_named_by_a_sentence() -> Result<()> {
    let sentences = sentences()?;
    let named: BTreeSet<&str> = sentences
        .iter()
        .filter_map(|sentence| match &sentence.holder {
            Holder::Tests(tests) => Some(tests),
            Holder::Reason(_) => None,
        })
        .flatten()
        .map(String::as_str)
        .collect();
    for suite in [
        "ssp_create",
        "ssp_free",
        "ssp_query",
        "socket_connect",
        "socket_life",
    ] {
        let text = read(format!("tests/suites/ssp_behaviour/{suite}.rs"))?;
        for line in text.lines() {
            let name = line
                .strip_prefix("fn ")
                .and_then(|rest| rest.split_once("() -> Result<()>"));
            if let Some((name, _)) = name {
                let test = format!("ssp_behaviour::{suite}::{name}");
                ensure!(named.contains(test.as_str()), "{test} holds no sentence");
            }
        }
    }
    Ok(())
}

#[test]
fn the_page_shows_the_list_as_it_is() -> Result<()> {
    let page = read(PAGE)?;
    let between = |page: &str| -> Result<(usize, usize)> {
        let begin = page.find(MARKS[0]).context("no begin mark")? + MARKS[0].len();
        let end = page.find(MARKS[1]).context("no end mark")?;
        ensure!(begin <= end, "the marks are in the wrong order");
        Ok((begin, end))
    };
    let (begin, end) = between(&page)?;
    let tables = render(&sentences()?);
    if std::env::var_os("DAT_RENDER").is_some() {
        let page = format!("{}{tables}{}", &page[..begin], &page[end..]);
        return fs::write(workspace().join(PAGE), page).context("writing the page");
    }
    ensure!(
        page[begin..end] == tables,
        "{PAGE} is out of step with {LIST}; run this test with DAT_RENDER=1"
    );
    Ok(())
}
