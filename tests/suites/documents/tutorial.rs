//! The tutorial and the program that it explains, and the index of documents and examples.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::{files, read, workspace};

/// Parts of examples, in their directories.
const NO_EXAMPLES: [&str; 2] = ["conversation.c", "mod.rs"];

#[test]
fn the_code_of_the_tutorial_is_that_of_its_program() -> Result<()> {
    let page = read(&workspace("docs/tutorial.md"))?;
    let program = read(&workspace("dat-api/examples/tutorial.rs"))?;
    let blocks = page.split("```rust\n").skip(1);
    let blocks: Vec<&str> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    ensure!(!blocks.is_empty(), "the tutorial has no code");
    for block in blocks {
        ensure!(
            program.contains(block),
            "not in the program, line by line:\n{block}"
        );
    }
    Ok(())
}

#[test]
fn each_document_is_in_one_index() -> Result<()> {
    let users = read(&workspace("docs/README.md"))?;
    let developers = read(&workspace("CONTRIBUTING.md"))?;
    for entry in std::fs::read_dir(workspace("docs"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let links = [format!("]({name})"), format!("](docs/{name})")];
        let is_listed = [users.contains(&links[0]), developers.contains(&links[1])];
        // The fragments of manual pages, whose pages the stage has, and examples of changes.
        let is_part = ["README.md", "man", "calls", "changing"].contains(&&*name);
        ensure!(
            is_part || is_listed[0] != is_listed[1],
            "docs/README.md and CONTRIBUTING.md have {is_listed:?} links to {name}"
        );
    }
    Ok(())
}

/// The headings and the names of the parts are those of the demo, whose figures change from run to
/// run.
#[test]
fn the_readme_shows_the_output_of_the_demo() -> Result<()> {
    let readme = read(&workspace("README.md"))?;
    let source = read(&workspace("xtask/src/demo.rs"))?;
    // Long texts are continued on the next line.
    let source: String = source.split("\\\n").map(str::trim_start).collect();
    let shown = readme.split("output of the demo: begin").nth(1);
    let shown = shown.and_then(|rest| rest.split("output of the demo: end").next());
    let lines: Vec<&str> = shown.unwrap_or_default().lines().collect();
    let mut checked = 0;
    for line in &lines {
        let part = match line.strip_prefix("  ok   ") {
            Some(step) => step.split("  ").next(),
            None => Some(*line).filter(|line| line.ends_with("):") || line.ends_with("ends:")),
        };
        if let Some(part) = part {
            ensure!(source.contains(part), "the demo has no {part:?}");
            checked += 1;
        }
    }
    ensure!(checked >= 6, "{checked} lines of:\n{}", lines.join("\n"));
    Ok(())
}

/// Users read figures and what they mean; the bench has the targets of those who work on it.
#[test]
fn no_page_for_users_has_a_target_or_a_fragment() -> Result<()> {
    let pages = files(&workspace("docs"), "md")?.into_iter();
    for page in pages.chain([workspace("README.md")]) {
        let text = read(&page)?;
        for word in [" missed |", " met |", "| target |", "](man/", "](docs/man/"] {
            ensure!(!text.contains(word), "{}: {word}", page.display());
        }
    }
    Ok(())
}

#[test]
fn each_example_is_in_the_index() -> Result<()> {
    let index = read(&workspace("docs/README.md"))?;
    for (directory, extension) in [
        ("examples/c", "c"),
        ("dat-api/examples", "rs"),
        ("sdp-over-dat/examples", "rs"),
    ] {
        let mut listed = 0;
        for file in files(&workspace(directory), extension)? {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            if NO_EXAMPLES.contains(&&*name) {
                continue;
            }
            let link = format!(
                "]({})",
                Path::new("..").join(directory).join(&*name).display()
            );
            ensure!(
                index.contains(&link),
                "docs/README.md has no link to {directory}/{name}"
            );
            listed += 1;
        }
        ensure!(listed > 0, "{directory} has no example");
    }
    Ok(())
}
