//! Manual pages of the calls, section 3, made from `docs/calls` and the headers.
//!
//! Each heading `### name` becomes a page, or several pages of one text for several names. The text
//! before the first heading of a file is repeated at the end of each of its pages.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// A page: its path below `share`, and its text.
pub(crate) type Page = (String, String);

/// The headers that declare calls.
const HEADERS: [&str; 5] = [
    "udat.h",
    "dat.h",
    "dat_registry.h",
    "dat_ib_extensions.h",
    "dat_iw_extensions.h",
];

/// The page with the rules for every call, below `docs/calls`.
const RULES: &str = "README.md";

/// Every page of the calls, and dat-calls(7) with the rules for all of them.
pub(crate) fn all(docs: &Path, headers: &Path) -> Result<Vec<Page>> {
    let read = |file: &Path| {
        fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
    };
    let mut declarations = Vec::new();
    for header in HEADERS {
        declarations.push((header, read(&headers.join(header))?));
    }
    let directory = docs.join("calls");
    let mut pages = vec![rules(&read(&directory.join(RULES))?)];
    let files =
        fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()));
    let mut files = files?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.sort();
    for file in files.iter().filter(|file| !file.ends_with(RULES)) {
        pages.extend(of_file(&read(file)?, &declarations)?);
    }
    Ok(pages)
}

/// The pages of a file.
fn of_file(text: &str, declarations: &[(&str, String)]) -> Result<Vec<Page>> {
    let mut sections = text.split("\n### ");
    let common = sections.next().unwrap_or_default();
    let (_, common) = common.split_once('\n').unwrap_or_default();
    let mut pages = Vec::new();
    for section in sections {
        let (heading, body) = section.split_once('\n').unwrap_or((section, ""));
        let names: Vec<&str> = heading.split(", ").collect();
        let page = page(&names, body, common, declarations)?;
        let [first, others @ ..] = names.as_slice() else {
            continue;
        };
        let place = |name: &str| format!("man/man3/{name}.3");
        pages.push((place(first), page));
        let links = others
            .iter()
            .map(|name| (place(name), format!(".so man3/{first}.3\n")));
        pages.extend(links);
    }
    Ok(pages)
}

fn page(
    names: &[&str],
    body: &str,
    common: &str,
    declarations: &[(&str, String)],
) -> Result<String> {
    // The first clause, because `man -k` shows it in one line.
    let first = body.trim().split("\n\n").next().unwrap_or_default();
    let first = format!("{} ", first.replace('\n', " "));
    let ends = [". ", "; ", ": "].iter().filter_map(|end| first.find(end));
    let summary = &first[..ends.min().unwrap_or(first.len())];
    let mut page = format!(
        ".TH {} 3 \"\" \"dat-rs\" \"Calls of DAT 2.0\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.nf\n",
        names[0],
        names.join(", "),
        inline(summary.trim())
    );
    for name in names {
        let declared = declarations
            .iter()
            .find_map(|(header, text)| Some((header, prototype(text, name)?)));
        let (header, prototype) = declared.with_context(|| format!("no header declares {name}"))?;
        let include = format!("#include <dat2/{header}>\n");
        if !page.contains(&include) {
            page.push_str(&include);
        }
        page.push_str(&format!(".PP\n{}\n", escaped(&prototype)));
    }
    page.push_str(".fi\n.SH DESCRIPTION\n");
    page.push_str(&blocks(body));
    if !common.trim().is_empty() {
        page.push_str(".SH NOTES\n");
        page.push_str(&blocks(common));
    }
    page.push_str(".SH SEE ALSO\n.BR dat\\-calls (7),\n.BR dat\\-rs (7)\n");
    Ok(page)
}

/// The page with the rules: each heading `## text` is a section.
fn rules(text: &str) -> Page {
    let mut sections = text.split("\n## ");
    let (title, first) = sections
        .next()
        .and_then(|it| it.split_once('\n'))
        .unwrap_or_default();
    let mut page = format!(
        ".TH dat\\-calls 7 \"\" \"dat-rs\" \"Calls of DAT 2.0\"\n.SH NAME\ndat\\-calls \\- {}\n\
         .SH DESCRIPTION\n{}",
        inline(title.trim_start_matches("# ")),
        blocks(first)
    );
    for section in sections {
        let (heading, body) = section.split_once('\n').unwrap_or((section, ""));
        page.push_str(&format!(
            ".SH {}\n{}",
            inline(&heading.to_uppercase()),
            blocks(body)
        ));
    }
    ("man/man7/dat-calls.7".to_owned(), page)
}

/// The declaration of a function, the head of a macro that is called like one, or the definition of
/// another name for a call.
fn prototype(header: &str, name: &str) -> Option<String> {
    let of = |begin: String, end: char| {
        let at = header.find(&begin)?;
        let text = &header[at..];
        Some(text[..=text.find(end)?].to_owned())
    };
    let function = of(format!("DAT_RETURN {name}("), ';');
    let head = || of(format!("#define {name}("), ')');
    let macro_call = || Some(format!("{};", head()?.trim_start_matches("#define ")));
    let text = function
        .or_else(macro_call)
        .or_else(|| of(format!("#define {name} "), '\n'))?;
    let words: Vec<&str> = text
        .split([' ', '\t', '\n', '\\'])
        .filter(|it| !it.is_empty())
        .collect();
    Some(words.join(" ").replace("( ", "("))
}

/// Paragraphs, tables and code as roff.
fn blocks(markdown: &str) -> String {
    let mut text = String::new();
    for block in markdown.split("\n\n").map(|it| it.trim_matches('\n')) {
        if block.starts_with('|') {
            text.push_str(&table(block));
        } else if let Some(code) = block.strip_prefix("```") {
            let code = code.split_once('\n').map_or("", |(_, code)| code);
            let code = escaped(code.trim_end_matches("```").trim_end());
            text.push_str(&format!(".PP\n.RS\n.EX\n{code}\n.EE\n.RE\n"));
        } else if !block.is_empty() {
            text.push_str(&format!(".PP\n{}\n", inline(block)));
        }
    }
    text
}

/// A table as a list: the first cell of a row is the head of an item, the names of the columns
/// precede the others.
fn table(block: &str) -> String {
    let cells = |line: &str| -> Vec<String> {
        let line = line.trim().trim_matches('|');
        line.split('|').map(|cell| inline(cell.trim())).collect()
    };
    let mut lines = block.lines();
    let titles = cells(lines.next().unwrap_or_default());
    let mut text = match titles.as_slice() {
        [returned, when] if returned == "Returned" && when == "When" => {
            ".PP\nThe return codes of errors:\n".to_owned()
        }
        _ => String::new(),
    };
    for row in lines.skip(1).map(cells) {
        let (head, rest) = row
            .split_first()
            .map_or(("", &[][..]), |(head, rest)| (head, rest));
        let rest: Vec<String> = rest
            .iter()
            .zip(titles.iter().skip(1))
            .filter(|(cell, _)| !cell.is_empty())
            .map(|(cell, title)| match titles.len() {
                2 => cell.clone(),
                _ => format!("{title}: {cell}."),
            })
            .collect();
        text.push_str(&format!(".TP\n{head}\n{}\n", rest.join("\n")));
    }
    text
}

/// Text with code in bold, and links as their text.
fn inline(markdown: &str) -> String {
    let mut text = String::new();
    for (number, part) in without_links(markdown).split('`').enumerate() {
        match number % 2 {
            0 => text.push_str(&part.replace('\\', "\\e")),
            _ => text.push_str(&format!("\\fB{}\\fP", escaped(part))),
        }
    }
    // A line that begins with one of these would be a request.
    let lines = text
        .lines()
        .map(|line| match line.starts_with(['.', '\'']) {
            true => format!("\\&{line}"),
            false => line.to_owned(),
        });
    lines.collect::<Vec<_>>().join("\n")
}

fn without_links(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once('[') {
        let link = after.split_once("](").and_then(|(label, after)| {
            Some((label, after.split_once(')')?.1)).filter(|_| !label.contains('['))
        });
        text.push_str(before);
        match link {
            Some((label, after)) => {
                text.push_str(label);
                rest = after;
            }
            None => {
                text.push('[');
                rest = after;
            }
        }
    }
    text + rest
}

fn escaped(code: &str) -> String {
    code.replace('\\', "\\e").replace('-', "\\-")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "\
DAT_RETURN dat_a(DAT_EP_HANDLE ep,\n\t\tDAT_COUNT n);\n#define dat_b(x, \\\n\t\ty) f(x, y)\n";

    #[test]
    fn each_heading_is_a_page_with_its_prototype() {
        let text = "# Title\n\nBad handles: `DAT_X`.\n\n### dat_a, dat_b\n\n\
                    Does it. See [c](d.md).\n\n\
                    | Returned | When |\n|---|---|\n| `DAT_Y` | .a dot |\n";
        let declarations = [("udat.h", HEADER.to_owned())];
        let pages = of_file(text, &declarations).unwrap();
        let (place, page) = &pages[0];
        assert_eq!(place, "man/man3/dat_a.3");
        assert_eq!(pages[1].1, ".so man3/dat_a.3\n");
        for part in [
            "dat_a, dat_b \\- Does it\n",
            "#include <dat2/udat.h>\n",
            "\nDAT_RETURN dat_a(DAT_EP_HANDLE ep, DAT_COUNT n);\n",
            "\ndat_b(x, y);\n",
            "Does it. See c.\n",
            ".TP\n\\fBDAT_Y\\fP\n\\&.a dot\n",
            ".SH NOTES\n.PP\nBad handles: \\fBDAT_X\\fP.\n",
        ] {
            assert!(page.contains(part), "{part:?} is not in\n{page}");
        }
        assert!(of_file("# T\n\n### dat_c\n\nText.\n", &declarations).is_err());
    }
}
