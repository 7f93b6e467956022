//! `ops.conf(5)` against the code that reads rule files.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use crate::{agree, read, workspace};

fn page() -> Result<String> {
    Ok(read(&workspace("docs/man/ops.conf.5"))?.replace("\\-", "-"))
}

/// The bold words at the head of the items of a section, without the character that ends a key.
fn heads(page: &str, heading: &str) -> Result<BTreeSet<String>> {
    let section = page.split(&format!(".SH {heading}\n")).nth(1);
    let section = section.with_context(|| format!("no section {heading}"))?;
    let section = section.split("\n.SH ").next().unwrap_or(section);
    let lines: Vec<&str> = section.lines().collect();
    let heads = lines.windows(2).filter(|pair| pair[0] == ".TP");
    Ok(heads.flat_map(|pair| bold(pair[1])).collect())
}

/// The bold words of a line. The line's macro gives the font of each argument, in turn.
fn bold(line: &str) -> Vec<String> {
    let Some((fonts, rest)) = line.strip_prefix('.').and_then(|it| it.split_once(' ')) else {
        return Vec::new();
    };
    // The pieces alternate between text outside of quotes and one argument in quotes.
    let pieces = rest.split('"').enumerate();
    let arguments = pieces.flat_map(|(at, piece)| match at % 2 {
        0 if fonts == "B" => vec![piece],
        0 => piece.split_whitespace().collect(),
        _ => vec![piece],
    });
    let in_font = arguments.zip(fonts.chars().cycle());
    let words = in_font.filter(|(_, font)| *font == 'B');
    let words = words.map(|(word, _)| word.trim().trim_end_matches('=').to_owned());
    words
        .filter(|word| word.starts_with(char::is_alphabetic))
        .collect()
}

/// The words that a function of the reader compares with its input.
fn compared(source: &str, function: &str) -> Result<BTreeSet<String>> {
    let body = source.split(&format!("fn {function}(")).nth(1);
    let body = body.with_context(|| format!("no function {function}"))?;
    let body = body.split("\n}\n").next().unwrap_or(body);
    let arms = body
        .lines()
        .filter(|line| line.contains("=>") || line.contains(".is(\""));
    let arms = arms.map(|line| line.split_once("=> ").map_or(line, |(arm, _)| arm));
    let quoted = arms.flat_map(|arm| arm.split('"').skip(1).step_by(2));
    Ok(quoted.map(str::to_owned).collect())
}

#[test]
fn every_word_of_a_rule_is_in_ops_conf_5_and_the_reverse() -> Result<()> {
    let source = read(&workspace("ops/src/rules/parse.rs"))?;
    let mut words = BTreeSet::new();
    for function in ["parse_target", "parse_role", "parse_setting"] {
        words.extend(compared(&source, function)?);
    }
    agree("words of a rule", &heads(&page()?, "RULES")?, &words)
}

#[test]
fn every_word_of_a_log_line_is_in_ops_conf_5_and_the_reverse() -> Result<()> {
    let source = read(&workspace("ops/src/rules/parse.rs"))?;
    let mut words = compared(&source, "parse_log")?;
    words.extend(compared(&source, "parse_destination")?);
    let heads = heads(&page()?, "LOG")?;
    let heads = heads.iter().flat_map(|head| head.split_whitespace());
    agree(
        "words of a log line",
        &heads.map(str::to_owned).collect(),
        &words,
    )
}

#[test]
fn every_setting_of_sdp_is_in_ops_conf_5_and_the_reverse() -> Result<()> {
    let source = read(&workspace("ops/sdp-protocol/src/settings.rs"))?;
    let keys = source.lines().filter_map(|line| {
        let (_, value) = line.split_once(": &str = \"")?;
        Some(format!("sdp.{}", value.trim_end_matches("\";")))
    });
    agree(
        "settings",
        &heads(&page()?, "SETTINGS OF SDP")?,
        &keys.collect(),
    )
}

#[test]
fn the_bound_that_ops_conf_5_names_is_the_one_in_force() -> Result<()> {
    let source = read(&workspace("ops/src/switch.rs"))?;
    let (_, bound) = source
        .split_once("WITHIN: Duration = Duration::from_millis(")
        .context("no bound")?;
    let bound = bound.split(')').next().unwrap_or(bound);
    ensure!(
        page()?.contains(&format!("{bound} ms by default")),
        "it is {bound} ms"
    );
    Ok(())
}
