//! `docs/calls` against the library: every call is described once, and every constant exists.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};

use stack_tests::Stage;

use crate::{agree, files, read, words, workspace};

const PAGES: &str = "docs/calls";
const HEADERS: &str = "dat-api/libdat2/include/dat2";

/// The calls that the headings `### name` of each page name, by page.
fn described() -> Result<BTreeMap<String, Vec<String>>> {
    let mut pages = BTreeMap::new();
    for file in files(&workspace(PAGES), "md")? {
        let text = read(&file)?;
        let calls = text
            .lines()
            .filter_map(|line| line.strip_prefix("### "))
            .flat_map(|heading| heading.split(", "))
            .map(str::to_owned)
            .collect();
        let name = file.file_name().context("a page has a name")?;
        pages.insert(name.to_string_lossy().into_owned(), calls);
    }
    Ok(pages)
}

/// The text of all C headers.
fn headers() -> Result<String> {
    let mut all = String::new();
    for file in files(&workspace(HEADERS), "h")? {
        all.push_str(&read(&file)?);
    }
    Ok(all)
}

fn is_constant(c: char) -> bool {
    c == '_' || c.is_ascii_uppercase() || c.is_ascii_digit()
}

fn is_name(c: char) -> bool {
    c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit()
}

/// The extension calls, which are macros of the headers, without the collectives, which share one
/// description.
fn extension_calls() -> Result<BTreeSet<String>> {
    let calls = headers()?
        .lines()
        .filter_map(|line| line.strip_prefix("#define "))
        .map(|rest| rest.chars().take_while(|&c| is_name(c)).collect::<String>())
        .filter(|name| ["dat_ib_", "dat_iw_"].iter().any(|of| name.starts_with(of)))
        .filter(|name| !name.starts_with("dat_ib_collective_"))
        .collect();
    Ok(calls)
}

#[test]
fn every_exported_call_is_described_in_exactly_one_page() -> Result<()> {
    let list = read(&workspace("dat-api/libdat2/exports.txt"))?;
    let mut real: BTreeSet<String> = list
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    real.extend(extension_calls()?);
    let mut seen = BTreeSet::new();
    for (page, calls) in described()? {
        for call in calls {
            ensure!(
                seen.insert(call.clone()),
                "{call} is described twice, again in {page}"
            );
        }
    }
    agree(PAGES, &seen, &real)
}

#[test]
fn every_page_is_in_the_table_of_contents() -> Result<()> {
    let contents = read(&workspace(PAGES).join("README.md"))?;
    for page in described()?.keys().filter(|page| *page != "README.md") {
        ensure!(
            contents.contains(&format!("]({page})")),
            "{page} is not in the contents"
        );
    }
    Ok(())
}

#[test]
fn every_call_has_a_manual_page() -> Result<()> {
    let pages = Stage::find()?.root().join("share/man/man3");
    for call in described()?.into_values().flatten() {
        let page = read(&pages.join(format!("{call}.3")))?;
        let is_page = page.contains(".SH SYNOPSIS") || page.starts_with(".so man3/");
        ensure!(is_page, "{call}: {page}");
    }
    Ok(())
}

/// The source files that define the names of named attributes, which are in no header.
const NAMED_ATTRIBUTES: [&str; 3] = [
    "access-layer/src/attr/named.rs",
    "provider-ib/src/cm/mod.rs",
    "provider-iwarp-soft/src/rnic.rs",
];

#[test]
fn every_constant_named_in_the_pages_is_in_the_headers() -> Result<()> {
    let mut known = words(&headers()?, "DAT_", is_constant);
    for file in NAMED_ATTRIBUTES {
        let quoted = words(&read(&workspace(file))?, "\"DAT_", is_constant);
        known.extend(quoted.iter().map(|name| name[1..].to_owned()));
    }
    for page in files(&workspace(PAGES), "md")? {
        let named = words(&read(&page)?, "DAT_", is_constant);
        let unknown: Vec<_> = named.difference(&known).collect();
        ensure!(
            unknown.is_empty(),
            "{}: unknown {unknown:?}",
            page.display()
        );
    }
    Ok(())
}
