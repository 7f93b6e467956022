//! `dat.conf`: a bad line affects only itself, and registered entries obey the grammar.
//!
//! Input: the file.

use ::dat_conf::{self as conf, Entry, Parsed};

/// A line that is valid at any position.
const GOOD: &[u8] = b"probe u2.0 nonthreadsafe default lib.so id.1.0 \"\" \"\"\n";

/// Runs one input.
pub fn run(data: &[u8]) {
    let parsed = conf::parse(data);
    check_order(&parsed, data);
    parsed.entries.iter().for_each(check_entry);
    for diagnostic in &parsed.diagnostics {
        assert!(!diagnostic.to_string().is_empty());
    }
    // A backslash inside quotes may join two lines into one.
    if !data.windows(2).any(|pair| pair == b"\\\n") {
        check_lines(data, &parsed);
        check_without_bad_lines(data, &parsed);
    }
    let mut framed = GOOD.to_vec();
    framed.extend_from_slice(data);
    let framed = conf::parse(&framed);
    assert_eq!(framed.entries.len(), parsed.entries.len() + 1);
    assert!(same(&framed.entries[1..], &parsed.entries));
    assert_eq!(framed.diagnostics.len(), parsed.diagnostics.len());
}

/// Checks that lines are counted from 1, in file order, and that each gives at most one entry or
/// diagnostic.
fn check_order(parsed: &Parsed, data: &[u8]) {
    let lines = data.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let entries = parsed.entries.iter().map(|entry| entry.line);
    let faults = parsed.diagnostics.iter().map(|diagnostic| diagnostic.line);
    for mut numbers in [entries.collect::<Vec<_>>(), faults.collect()] {
        let count = numbers.len();
        assert!(numbers.is_sorted());
        numbers.dedup();
        assert_eq!(numbers.len(), count, "a line was reported twice");
        assert!(
            numbers
                .iter()
                .all(|&line| line >= 1 && line as usize <= lines)
        );
    }
}

/// Checks that an entry, written out again in the plainest form, parses to the same entry.
fn check_entry(entry: &Entry) {
    assert!(entry.ia_name.as_bytes().len() <= 255);
    let mut line = quoted(entry.ia_name.as_bytes());
    let (api, word) = match entry.api {
        conf::Api::User => ('u', "user"),
        conf::Api::Kernel => ('k', "kernel"),
    };
    assert_eq!(
        entry.is_registered(),
        entry.default && word == "user",
        "only default entries for user space are registered"
    );
    let threads = if entry.thread_safe { "" } else { "non" };
    let default = if entry.default { "" } else { "non" };
    let fields = format!(
        " {api}{}.{} {threads}threadsafe {default}default ",
        entry.major, entry.minor
    );
    line.extend_from_slice(fields.as_bytes());
    line.extend(quoted(entry.lib_path.as_bytes()));
    line.extend_from_slice(b" id.1.0 ");
    line.extend(quoted(entry.ia_params.as_bytes()));
    line.extend_from_slice(b" \"\"");
    let again = conf::parse(&line);
    assert!(again.diagnostics.is_empty(), "{:?}", again.diagnostics);
    assert!(same(&again.entries, std::slice::from_ref(entry)));
}

/// Checks that each line on its own has the same result as in the file.
fn check_lines(data: &[u8], whole: &Parsed) {
    let (mut entries, mut faults) = (Vec::new(), Vec::new());
    for (number, line) in (0..).zip(data.split(|&byte| byte == b'\n')) {
        let alone = conf::parse(line);
        entries.extend(alone.entries.into_iter().map(|entry| Entry {
            line: entry.line + number,
            ..entry
        }));
        faults.extend(alone.diagnostics.into_iter().map(|mut fault| {
            fault.line += number;
            fault
        }));
    }
    assert_eq!(entries, whole.entries);
    assert_eq!(faults, whole.diagnostics);
}

/// Checks that without its bad lines the file has the same entries and no diagnostics.
fn check_without_bad_lines(data: &[u8], whole: &Parsed) {
    let is_bad = |number| whole.diagnostics.iter().any(|bad| bad.line == number);
    let good: Vec<&[u8]> = (1..)
        .zip(data.split(|&byte| byte == b'\n'))
        .filter_map(|(number, line)| (!is_bad(number)).then_some(line))
        .collect();
    let mended = conf::parse(&good.join(&b'\n'));
    assert!(mended.diagnostics.is_empty());
    assert!(same(&mended.entries, &whole.entries));
}

fn quoted(text: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for &byte in text {
        quoted.extend([b'\\', byte]);
    }
    quoted.push(b'"');
    quoted
}

/// True if the entries are equal except for their line numbers.
fn same(left: &[Entry], right: &[Entry]) -> bool {
    let unplaced = |entry: &Entry| Entry {
        line: 0,
        ..entry.clone()
    };
    left.iter().map(unplaced).eq(right.iter().map(unplaced))
}
