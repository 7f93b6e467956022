//! Manual pages and shell completions.
//!
//! The options of a page come from the declaration with which the tool itself parses its command
//! line. The rest of the page is written manually in `docs/man`, and so are the other pages, except
//! for those of the calls, which `calls.rs` makes.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use tool_args::{bench, conformance, datinfo, opsrun, sdp_checker, verbsrun};

use crate::calls::{self, Page};

/// The tools that declare their options with clap.
fn tools() -> [Command; 6] {
    [
        datinfo::Args::command(),
        bench::Args::command(),
        conformance::Args::command(),
        opsrun::Args::command(),
        sdp_checker::Args::command(),
        verbsrun::Args::command(),
    ]
}

/// Every page and completion of the stage.
pub(crate) fn all(docs: &Path, headers: &Path) -> Result<Vec<Page>> {
    let written = |name: &str| {
        let file = docs.join("man").join(name);
        fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))
    };
    let mut pages = Vec::new();
    for mut tool in tools() {
        let name = tool.get_name().to_owned();
        let page = manual(&tool, &written(&format!("{name}.1"))?)?;
        pages.push((format!("man/man1/{name}.1"), page));
        for (shell, path) in [
            (Shell::Bash, format!("bash-completion/completions/{name}")),
            (Shell::Zsh, format!("zsh/site-functions/_{name}")),
            (
                Shell::Fish,
                format!("fish/vendor_completions.d/{name}.fish"),
            ),
        ] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut tool, &name, &mut script);
            pages.push((path, String::from_utf8(script)?));
        }
    }
    let written_pages = [
        ("itapi", 3),
        ("sdp_dat", 3),
        ("dat.conf", 5),
        ("dat-limits.conf", 5),
        ("ops.conf", 5),
        ("dat-rs", 7),
    ];
    for (name, section) in written_pages {
        let file = format!("{name}.{section}");
        let page = written(&file)?;
        pages.push((format!("man/man{section}/{file}"), page));
    }
    pages.extend(calls::all(docs, headers)?);
    Ok(pages)
}

/// The line of a written page that the generated options replace.
const OPTIONS: &str = ".\\\" options\n";

/// The first line of a page that has a synopsis of its own.
const SYNOPSIS: &str = ".SH SYNOPSIS\n";

/// A tool's page: generated title and synopsis, then the written text with the generated options.
fn manual(tool: &Command, written: &str) -> Result<String> {
    let (before, after) = written
        .split_once(OPTIONS)
        .with_context(|| format!("{}.1 has no line that the options replace", tool.get_name()))?;
    let page = Man::new(tool.clone());
    let mut roff = Vec::new();
    page.render_title(&mut roff)?;
    page.render_name_section(&mut roff)?;
    // A written synopsis is kept, because it shows more if a tool has several forms.
    if !written.starts_with(SYNOPSIS) {
        page.render_synopsis_section(&mut roff)?;
    }
    roff.extend(before.bytes());
    page.render_options_section(&mut roff)?;
    roff.extend(after.bytes());
    Ok(String::from_utf8(roff)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_options_and_the_written_text() {
        for tool in tools() {
            let page = manual(&tool, &format!("first\n{OPTIONS}written\n")).unwrap();
            assert!(page.starts_with(".ie"), "{page}");
            assert!(page.contains("fB\\-\\-help"), "{page}");
            assert!(page.find("first") < page.find(".SH OPTIONS"), "{page}");
            assert!(page.ends_with("written\n"), "{page}");
            assert!(manual(&tool, "no such line").is_err());
            let own = manual(&tool, &format!("{SYNOPSIS}written\n{OPTIONS}")).unwrap();
            assert_eq!(own.matches(".SH SYNOPSIS").count(), 1, "{own}");
            assert!(
                !page.contains("fB\\-\\-serve\\fR"),
                "hidden options stay hidden: {page}"
            );
        }
    }
}
