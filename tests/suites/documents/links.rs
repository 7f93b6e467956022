//! Links between the documents.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::{files, read, workspace};

fn targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target)
}

/// The name under which a heading can be linked.
fn anchor(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() -> Result<()> {
    let mut documents = files(&workspace("docs"), "md")?;
    let others = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ];
    documents.extend(others.map(workspace));
    documents.push(workspace("tests/vm/README.md"));
    documents.push(workspace("packaging/README.md"));
    let mut links = 0;
    for document in &documents {
        for target in targets(&read(document)?) {
            if target.starts_with("http") {
                continue;
            }
            links += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = match file {
                "" => document.clone(),
                file => document.parent().unwrap_or(Path::new("")).join(file),
            };
            let shown = document.display();
            ensure!(file.exists(), "{shown}: {target} does not exist");
            let found = heading.is_empty()
                || read(&file)?
                    .lines()
                    .any(|line| line.starts_with('#') && anchor(line) == heading);
            ensure!(found, "{shown}: {target}: no such heading");
        }
    }
    ensure!(links > 0, "not one link was found");
    Ok(())
}
