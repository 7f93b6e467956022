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
fn each_document_is_in_the_index() -> Result<()> {
    let index = read(&workspace("docs/README.md"))?;
    for entry in std::fs::read_dir(workspace("docs"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let is_listed = name == "README.md" || index.contains(&format!("]({name}"));
        ensure!(is_listed, "docs/README.md has no link to {name}");
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
