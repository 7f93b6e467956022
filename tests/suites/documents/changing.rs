//! `changing.md` and its examples, which are applied to a copy of the tree and compiled.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use stack_tests::is_full;

use crate::{agree, files, read, workspace};

/// Entries of the workspace that are not copied.
const NOT_COPIED: [&str; 2] = ["target", ".git"];

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        if NOT_COPIED.iter().any(|not| name == **not) {
            continue;
        }
        let (from, to) = (entry.path(), to.join(&name));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&from, &to)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&from)?, to)?;
        } else {
            fs::copy(&from, to)?;
        }
    }
    Ok(())
}

/// Runs a program, and fails with its output if it fails.
fn run(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    ensure!(output.status.success(), "{command:?}:\n{text}");
    Ok(())
}

/// The files that a patch changes.
fn changed(patch: &str) -> BTreeSet<String> {
    let new = patch.lines().filter_map(|line| line.strip_prefix("+++ b/"));
    new.map(str::to_owned).collect()
}

/// The files in the table of the section that has a link to the patch.
fn listed(page: &str, name: &str) -> Result<BTreeSet<String>> {
    let link = format!("](changing/{name})");
    let sections = page.split("\n## ");
    let section = sections
        .into_iter()
        .find(|section| section.contains(&link))
        .with_context(|| format!("docs/changing.md has no section with a link to {name}"))?;
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    Ok(names.map(str::to_owned).collect())
}

#[test]
fn the_examples_of_changing_apply_and_compile() -> Result<()> {
    let page = read(&workspace("docs/changing.md"))?;
    let patches = files(&workspace("docs/changing"), "patch")?;
    ensure!(!patches.is_empty(), "docs/changing has no example");
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("changing");
    let tree = scratch.join("tree");
    match fs::remove_dir_all(&tree) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => copy(&workspace(""), &tree)?,
    }
    for patch in &patches {
        let name = patch.file_name().context("a patch has a name")?;
        let name = name.to_string_lossy();
        agree(&name, &listed(&page, &name)?, &changed(&read(patch)?))?;
        let mut apply = Command::new("patch");
        apply.args([
            "--strip=1",
            "--batch",
            "--fuzz=0",
            "--no-backup-if-mismatch",
        ]);
        run(apply
            .arg("--input")
            .arg(patch)
            .arg("--directory")
            .arg(&tree))?;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut check = Command::new(cargo);
    check
        .args(["check", "--locked", "--quiet"])
        .current_dir(&tree);
    check.env("CARGO_TARGET_DIR", scratch.join("target"));
    // Everything takes minutes, because the dependencies are compiled again.
    let packages = [
        "--package",
        "provider-iwarp-soft",
        "--package",
        "dat-api",
        "--package",
        "ops",
    ];
    match is_full() {
        true => check.args(["--workspace", "--all-targets"]),
        false => check.args(packages),
    };
    run(&mut check)
}
