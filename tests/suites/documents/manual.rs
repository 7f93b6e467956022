//! Manual pages and completions.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use stack_tests::{DEADLINE, Program, Stage};

use crate::{agree, files, read, words, workspace};

const TOOLS: [&str; 6] = [
    "datinfo",
    "dat-bench",
    "dat-conformance",
    "opsrun",
    "sdp-checker",
    "verbsrun",
];

/// The text of a page that is maintained manually.
fn written(file: &str) -> Result<String> {
    read(&workspace("docs/man").join(file))
}

/// The part of a page below one heading.
fn section<'a>(page: &'a str, heading: &str) -> Result<&'a str> {
    let head = format!(".SH {heading}\n");
    let at = page
        .find(&head)
        .with_context(|| format!("no section {heading}"))?;
    let rest = &page[at + head.len()..];
    Ok(rest.split("\n.SH ").next().unwrap_or(rest))
}

/// The first word of each item of a `.TP` list, without its macro.
fn items(section: &str) -> BTreeSet<String> {
    let lines: Vec<&str> = section.lines().collect();
    lines
        .windows(2)
        .filter(|pair| pair[0] == ".TP")
        .filter_map(|pair| pair[1].split_whitespace().nth(1))
        .map(|word| word.trim_end_matches('=').to_owned())
        .collect()
}

fn options(text: &str) -> BTreeSet<String> {
    let mut options = words(text, "--", |c| c == '-' || c.is_ascii_lowercase());
    // `opsrun -- ss` ends the options; `--` itself is not an option.
    options.remove("--");
    options
}

/// The help text of a tool and of each of its subcommands.
fn whole_help(stage: &Stage, tool: &str) -> Result<String> {
    let help = |line: &str| -> Result<String> {
        let program = Program::new(stage.bin(tool)).args_line(line).spawn()?;
        Ok(program.finish(DEADLINE)?.success()?.text)
    };
    let mut whole = help("--help")?;
    for subcommand in subcommands(&whole) {
        whole.push_str(&help(&format!("{subcommand} --help"))?);
    }
    Ok(whole)
}

/// The first word of each line below `Commands:`.
fn subcommands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_tools_page_has_the_options_of_its_help_and_no_others() -> Result<()> {
    let stage = Stage::find()?;
    for tool in TOOLS {
        let help = whole_help(&stage, tool)?;
        let page = read(&stage.root().join(format!("share/man/man1/{tool}.1")))?;
        let page = page.replace("\\-", "-");
        agree(tool, &options(&page), &options(&help))?;
    }
    Ok(())
}

#[test]
fn every_completion_has_the_options_of_the_help() -> Result<()> {
    let stage = Stage::find()?;
    for tool in TOOLS {
        let help = whole_help(&stage, tool)?;
        let share = stage.root().join("share");
        for file in [
            format!("bash-completion/completions/{tool}"),
            format!("zsh/site-functions/_{tool}"),
            format!("fish/vendor_completions.d/{tool}.fish"),
        ] {
            let script = read(&share.join(&file))?;
            for option in options(&help) {
                let name = option.trim_start_matches('-');
                let known = script.contains(&option) || script.contains(&format!("-l {name}"));
                ensure!(known, "{file} does not know {option}");
            }
        }
    }
    Ok(())
}

#[test]
fn every_setting_of_a_provider_is_in_dat_conf_5_and_the_reverse() -> Result<()> {
    for (package, heading) in [
        ("provider-iwarp-soft", "SOFTWARE PROVIDER"),
        ("provider-ib", "VERBS PROVIDER"),
    ] {
        let source = read(&workspace(format!("{package}/src/config.rs")))?;
        let set = source.split("fn set(").nth(1).context("no fn set")?;
        let arms = set.split("unknown key").next().unwrap_or(set);
        let keys = arms.lines().filter_map(|line| {
            let (key, _) = line.trim().strip_prefix('"')?.split_once("\" =>")?;
            Some(key.to_owned())
        });
        let page = written("dat.conf.5")?;
        let documented = items(section(&page, heading)?);
        agree("settings", &documented, &keys.collect())?;
    }
    Ok(())
}

#[test]
fn every_page_is_formatted_without_a_warning() -> Result<()> {
    if Program::new("groff")
        .args_line("--version")
        .spawn()
        .is_err()
    {
        stack_tests::not_run("groff is missing; the package groff-base has it");
        return Ok(());
    }
    let man = Stage::find()?.root().join("share/man");
    let pages =
        ["1", "3", "5", "7"].map(|section| files(&man.join(format!("man{section}")), section));
    let mut count = 0;
    for pages in pages {
        for page in pages? {
            let groff = Program::new("groff")
                .args_line("-man -ww -z -Tutf8")
                .arg(&page);
            // Links are relative to the directory of all pages.
            let finished = groff.current_dir(&man).run(DEADLINE)?;
            ensure!(
                finished.text.is_empty(),
                "{}: {}",
                page.display(),
                finished.text
            );
            count += 1;
        }
    }
    ensure!(count > 100, "only {count} pages");
    Ok(())
}
