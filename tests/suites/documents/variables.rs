//! Environment variables: the code that reads them, and the pages that describe them.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use crate::{agree, files, read, words, workspace};

/// The crates that read the environment: that of the libraries, which all other crates call, and
/// `dat-api`, which is published without the workspace's internal crates.
const READERS: [&str; 2] = ["dat-api/host", "dat-api"];

/// The pages with a section about the environment.
const PAGES: [&str; 2] = ["dat-rs.7", "opsrun.1"];

/// Directories that are not installed.
const OURS_ALONE: [&str; 3] = ["tests", "xtask", "fuzz/bodies"];

/// Directories whose tests and tasks read variables of their own.
const WORK: [&str; 4] = [
    "fuzz/bodies",
    "sdp-over-dat/proto/src/tests",
    "tests",
    "xtask",
];

/// Every source file of the installed directories, by directory.
fn sources() -> Result<Vec<(String, String)>> {
    let manifest = read(&workspace("Cargo.toml"))?;
    let members = manifest.split("members = [").nth(1).context("no members")?;
    let members = members.split(']').next().unwrap_or(members);
    let crates = members.split('"').skip(1).step_by(2);
    let mut found = Vec::new();
    for member in crates.filter(|member| !OURS_ALONE.contains(member)) {
        let root = workspace(member).join("src");
        for file in files(&root, "rs")? {
            let is_test = file
                .strip_prefix(&root)?
                .iter()
                .any(|part| part == "tests" || part == "tests.rs");
            if !is_test {
                found.push((member.to_owned(), read(&file)?));
            }
        }
    }
    Ok(found)
}

fn of_name(c: char) -> bool {
    c == '_' || c.is_ascii_uppercase()
}

/// The text between quotes in `line` that looks like a variable.
fn quoted(line: &str) -> BTreeSet<String> {
    let names = words(line, "\"", of_name).into_iter();
    let names = names.map(|name| name[1..].to_owned());
    names.filter(|name| name.contains('_')).collect()
}

/// The names that are passed to a call, and the constants that stand for names.
fn asked(text: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut names, mut constants) = (BTreeSet::new(), BTreeSet::new());
    for call in ["environment::variable", "environment::text"] {
        for rest in text.split(call).skip(1) {
            let argument = rest.split([')', ';']).next().unwrap_or(rest);
            let argument = argument.trim_start_matches('(').trim();
            names.extend(quoted(argument));
            if argument.starts_with(of_name) {
                constants.insert(argument.to_owned());
            }
        }
    }
    (names, constants)
}

/// The values of these constants, and of exported constants.
fn values(sources: &[(String, String)], constants: &BTreeSet<String>) -> BTreeSet<String> {
    let lines = sources.iter().flat_map(|(_, text)| text.lines());
    let declared = lines.filter_map(|line| {
        let (_, declaration) = line.split_once("const ")?;
        let (name, _) = declaration.split_once(':')?;
        let is_asked = constants.contains(name) || ["VARIABLE", "VARIABLES"].contains(&name);
        is_asked.then(|| quoted(line))
    });
    declared.flatten().collect()
}

/// The variables at the head of the items of a page's section.
fn described(page: &str) -> Result<BTreeSet<String>> {
    let page = read(&workspace("docs/man").join(page))?;
    let section = page
        .split(".SH ENVIRONMENT\n")
        .nth(1)
        .context("no section")?;
    let section = section.split("\n.SH ").next().unwrap_or(section);
    let lines: Vec<&str> = section.lines().collect();
    let heads = lines.windows(2).filter(|pair| pair[0] == ".TP");
    let words = heads.flat_map(|pair| pair[1].split(|c| !of_name(c)));
    let names = words.filter(|word| word.contains('_'));
    Ok(names.map(str::to_owned).collect())
}

/// The variables that tests and tasks of this repository read: those on lines that read variables,
/// and all texts that look like a name.
fn of_work_on_dat_rs() -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let (mut read_there, mut quoted_there) = (BTreeSet::new(), BTreeSet::new());
    for member in WORK {
        for file in files(&workspace(member), "rs")? {
            for line in read(&file)?.lines() {
                let names = quoted(line);
                if line.contains("env::var") {
                    read_there.extend(names.iter().filter(|name| is_ours(name)).cloned());
                }
                quoted_there.extend(names);
            }
        }
    }
    Ok((read_there, quoted_there))
}

/// Cargo's and the C compiler's variables are not described here.
fn is_ours(name: &str) -> bool {
    ["DAT_", "FUZZ_", "OPS_", "SDP_", "STACK_TESTS_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

#[test]
fn every_variable_is_in_a_page_and_the_reverse() -> Result<()> {
    let sources = sources()?;
    let (mut names, mut constants) = (BTreeSet::new(), BTreeSet::new());
    for (_, text) in sources.iter().filter(|(member, _)| member != READERS[0]) {
        let (of_text, by_constant) = asked(text);
        names.extend(of_text);
        constants.extend(by_constant);
    }
    names.extend(values(&sources, &constants));
    let mut documented = BTreeSet::new();
    for page in PAGES {
        documented.extend(described(page)?);
    }
    let (read_there, quoted_there) = of_work_on_dat_rs()?;
    names.extend(read_there);
    names.extend(documented.intersection(&quoted_there).cloned());
    agree("variables", &documented, &names)
}

/// A variable that is read in another way would have an effect in programs with raised privileges.
#[test]
fn the_environment_is_read_where_privileges_are_checked() -> Result<()> {
    for (member, text) in sources()? {
        let shipped = text.split("#[cfg(test)]").next().unwrap_or(&text);
        let reads = shipped.contains("env::var");
        let may_read = READERS.contains(&&*member);
        ensure!(!reads || may_read, "{member} reads the environment too");
    }
    Ok(())
}
