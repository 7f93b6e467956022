//! The C headers against `dat-abi`, and against OFA's headers where those are installed.
//!
//! `dat-abi` declares every layout in `assert_layout!` and every value in `constants!` and
//! `codes!`, and the compiler checks the Rust types against these declarations. So this test reads
//! the source of that crate as a list of facts, and compares each fact with the value that a C
//! program prints from the headers.

use crate::support::{source_dir, succeed};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stack_tests::not_run;

/// The headers that a program includes without `udat.h`.
const STANDS_ALONE: [&str; 5] = [
    "udat_config.h",
    "udat.h",
    "dat_iw_extensions.h",
    "dat_ib_extensions.h",
    "dat_rs_counters.h",
];

/// Value of each fact by its C expression.
type Facts = BTreeMap<String, i128>;

#[test]
fn our_headers_have_the_layouts_and_values_of_dat_abi() {
    let expected = facts_of_abi();
    let compiled = evaluate(&expected, &source_dir().join("include"));
    assert_eq!(differences(&expected, &compiled), Vec::<String>::new());
}

#[test]
fn ofa_headers_agree_wherever_they_have_the_same_names() {
    if !Path::new("/usr/include/dat2/udat.h").exists() {
        not_run("OFA's headers are not installed; Debian has them in libdapl-dev");
        return;
    }
    // Names of dat-rs only: Debian does not install the iWARP extension, whose numbers here are of
    // dat-rs, and names with RS exist in dat-rs only.
    const OURS: [&str; 4] = ["_IW_", "SOCKET_DOWN", "DCNT_RS_", "DAT_RS_"];
    let mut expected = facts_of_abi();
    expected.retain(|name, _| !OURS.iter().any(|ours| name.contains(ours)));
    let compiled = evaluate(&expected, Path::new("/usr/include"));
    assert_eq!(differences(&expected, &compiled), Vec::<String>::new());
}

#[test]
fn every_header_compiles_in_c_and_cpp() {
    let scratch = tempfile::tempdir().expect("scratch directory");
    let output = scratch.path().join("header.o");
    for header in headers() {
        let name = header.file_name().expect("a file has a name");
        let name = name.to_string_lossy().into_owned();
        // Like OFA's, the other headers are parts of udat.h, which must be included first.
        let first = if STANDS_ALONE.contains(&name.as_str()) {
            ""
        } else {
            "#include <dat2/udat.h>\n"
        };
        let source = format!("{first}#include <dat2/{name}>\n#include <dat2/{name}>\n");
        let standards = [
            ("c", "c99"),
            ("c", "gnu17"),
            ("c++", "c++11"),
            ("c++", "c++20"),
        ];
        for (language, standard) in standards {
            let input = scratch.path().join("header.input");
            fs::write(&input, &source).expect("scratch directory is writable");
            let mut cc = Command::new("cc");
            cc.args(["-x", language, &format!("-std={standard}")]);
            cc.args(["-Wall", "-Wextra", "-Werror", "-I"]);
            cc.arg(source_dir().join("include")).arg("-c").arg(&input);
            succeed(cc.arg("-o").arg(&output));
        }
    }
}

#[test]
fn every_exported_function_is_declared() {
    let text: String = headers()
        .iter()
        .map(|header| fs::read_to_string(header).expect("part of the source tree"))
        .collect();
    let exports = fs::read_to_string(source_dir().join("exports.txt")).expect("exports.txt");
    for name in exports.lines() {
        let is_declared = text.contains(&format!("DAT_RETURN {name}("));
        assert!(is_declared, "{name} is not declared");
    }
}

fn headers() -> Vec<PathBuf> {
    let directory = source_dir().join("include/dat2");
    let mut headers: Vec<PathBuf> = fs::read_dir(directory)
        .expect("part of the source tree")
        .map(|entry| entry.expect("readable directory").path())
        .collect();
    headers.sort();
    headers
}

fn differences(expected: &Facts, compiled: &Facts) -> Vec<String> {
    expected
        .iter()
        .filter(|(fact, value)| compiled.get(*fact) != Some(value))
        .map(|(fact, value)| format!("{fact}: {value:#x} in Rust, {:x?} in C", compiled.get(fact)))
        .collect()
}

/// Compiles and runs a program that prints each fact.
fn evaluate(facts: &Facts, include: &Path) -> Facts {
    let scratch = tempfile::tempdir().expect("scratch directory");
    let (source, program) = (scratch.path().join("facts.c"), scratch.path().join("facts"));
    fs::write(&source, program_for(facts, include)).expect("scratch directory is writable");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu99", "-w", "-I"])
        .arg(include)
        .arg(&source);
    succeed(cc.arg("-o").arg(&program));
    succeed(&mut Command::new(&program))
        .lines()
        .map(|line| {
            let (value, fact) = line.split_once(' ').expect("value and fact");
            (fact.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

fn program_for(facts: &Facts, include: &Path) -> String {
    let mut program =
        String::from("#include <stddef.h>\n#include <stdio.h>\n#include <netinet/in.h>\n");
    for header in [
        "udat",
        "dat_registry",
        "dat_ib_extensions",
        "dat_iw_extensions",
        "dat_rs_counters",
    ] {
        if include.join(format!("dat2/{header}.h")).exists() {
            writeln!(program, "#include <dat2/{header}.h>").expect("writing to a string");
        }
    }
    program.push_str("int main(void)\n{\n");
    for (fact, value) in facts {
        let (kind, format) = match *value < 0 {
            true => ("long long", "%lld"),
            false => ("unsigned long long", "%llu"),
        };
        let print = format!("\tprintf(\"{format} {fact}\\n\", ({kind})({fact}));\n");
        program.push_str(&print);
    }
    program.push_str("\treturn 0;\n}\n");
    program
}

fn facts_of_abi() -> Facts {
    let mut facts = Facts::new();
    let source = source_dir().join("../abi/src");
    for directory in [source.clone(), source.join("extension")] {
        for entry in fs::read_dir(directory).expect("part of the source tree") {
            let path = entry.expect("readable directory").path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("part of the source tree");
                collect_values(&text, &mut facts);
                collect_layouts(&text, &mut facts);
                collect_structures(&text, &mut facts);
            }
        }
    }
    // Used between the Rust API and the providers of dat-rs; no header declares them.
    facts.retain(|name, _| !name.starts_with("DAT_RS_CNO_"));
    let sizes = facts.keys().filter(|fact| fact.starts_with("sizeof"));
    let (sizes, values) = (sizes.count(), facts.len());
    assert!(sizes >= 35, "only {sizes} layouts were found");
    assert!(values >= 950, "only {values} facts were found");
    facts
}

/// Collects lines of the form `DAT_NAME = 0x1,` and `pub const DAT_NAME: Type = 0x1;`.
fn collect_values(text: &str, facts: &mut Facts) {
    for line in text.lines().map(str::trim) {
        let line = match line.strip_prefix("pub const ") {
            Some(constant) => constant.trim_end_matches(';'),
            None => line.trim_end_matches(','),
        };
        let Some((name, value)) = line.split_once(" = ") else {
            continue;
        };
        let name = name.split(':').next().unwrap_or(name);
        let is_ours = name.starts_with("DAT_") || name.starts_with("DCNT_");
        if let (true, Some(value)) = (is_ours && !name.ends_with("_STREAM_COUNT"), number(value)) {
            facts.insert(name.to_owned(), value);
        }
    }
}

fn number(text: &str) -> Option<i128> {
    let digits = text.replace('_', "");
    match digits.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    }
}

/// Collects `assert_layout!(Type, size N, member @ N, ...)`.
fn collect_layouts(text: &str, facts: &mut Facts) {
    for layout in text.split("assert_layout!(").skip(1) {
        let Some((layout, _)) = layout.split_once(");") else {
            continue;
        };
        let mut parts = layout
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty());
        let rust = parts.next().expect("a type");
        let Some(c) = c_type(rust) else { continue };
        let size = parts
            .next()
            .and_then(|part| part.strip_prefix("size "))
            .and_then(number);
        facts.insert(format!("sizeof({c})"), size.expect("a size"));
        for part in parts {
            let (member, offset) = part.split_once(" @ ").expect("a member and its offset");
            let member = c_member(rust, member);
            facts.insert(
                format!("offsetof({c}, {member})"),
                number(offset).expect("an offset"),
            );
        }
    }
}

/// Collects lines of the form `pub struct Type, size N {` and `member @ N: Type,`.
fn collect_structures(text: &str, facts: &mut Facts) {
    let mut structure = String::new();
    for line in text.lines().map(str::trim) {
        let head = line.strip_prefix("pub struct ");
        if let Some((rust, size)) = head.and_then(|head| head.split_once(", size ")) {
            let Some(size) = size.strip_suffix(" {").and_then(number) else {
                continue;
            };
            rust.clone_into(&mut structure);
            let c = c_type(rust).expect("a structure");
            facts.insert(format!("sizeof({c})"), size);
        } else if let Some((member, rest)) = line.split_once(" @ ")
            && let Some(offset) = rest.split_once(':').and_then(|(offset, _)| number(offset))
        {
            let (c, member) = (c_type(&structure), c_member(&structure, member));
            let c = c.expect("a structure");
            facts.insert(format!("offsetof({c}, {member})"), offset);
        }
    }
}

/// Returns the C name of a type, such as `DAT_EP_ATTR` for `DatEpAttr`; `None` for unions that have
/// no name in C.
fn c_type(rust: &str) -> Option<String> {
    match rust {
        "DatCnoProxy" | "DatIbExtensionPeer" | "$ty:ty" | "$name" => return None,
        _ => {}
    }
    let mut name = String::new();
    for (index, letter) in rust.chars().enumerate() {
        if index > 0 && letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    Some(name)
}

fn c_member(rust_type: &str, member: &str) -> String {
    match (rust_type, member) {
        ("DatProvider", "device_name" | "extension") => member.to_owned(),
        ("DatProvider", slot) => format!("{slot}_func"),
        ("DatIbExtensionEventData", "immed") => "val.immed".to_owned(),
        ("DatIbExtensionEventData", "peer") => "remote_ah".to_owned(),
        _ => member.trim_start_matches("r#").to_owned(),
    }
}
