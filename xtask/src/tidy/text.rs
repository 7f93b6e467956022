//! Checks of text that parse no language.

/// Columns of a source line.
const WIDTH_MAX: usize = 100;

/// Words of unfinished work, split so that this file passes the check.
const MARKS: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
];

/// Beginnings of paths that exist on one machine only.
const PRIVATE_PATHS: [&str; 3] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/tmp/tar", "get-"),
];

/// Reports faults of a file of kind `kind` (its extension).
pub(super) fn check(kind: &str, source: &str, report: &mut impl FnMut(usize, String)) {
    let is_code = ["rs", "c", "h"].contains(&kind);
    for (index, line) in source.lines().enumerate() {
        let width = line.chars().count();
        if is_code && width > WIDTH_MAX && !is_table_row(line) {
            report(index + 1, format!("{width} columns, at most {WIDTH_MAX}"));
        }
        if let Some(mark) = MARKS.iter().find(|mark| is_code && holds_word(line, mark)) {
            report(index + 1, format!("unfinished: {mark}"));
        }
        if let Some(path) = PRIVATE_PATHS.iter().find(|path| line.contains(**path)) {
            report(index + 1, format!("a path of one machine: {path}"));
        }
    }
}

/// Returns true for a row of a table in a doc comment, which cannot be wrapped.
fn is_table_row(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//! |") || line.starts_with("/// |")
}

/// Returns true if `line` contains `word` with no letter, digit or underscore on either side.
pub(super) fn holds_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let open_end = word.ends_with('(') || !after.is_some_and(part_of_word);
        open_end && !before.is_some_and(part_of_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(source: &str) -> Vec<usize> {
        let mut lines = Vec::new();
        check("rs", source, &mut |line, _| lines.push(line));
        lines
    }

    #[test]
    fn width_is_counted_in_characters() {
        assert_eq!(faults(&"ü".repeat(100)), Vec::<usize>::new());
        assert_eq!(faults(&"x".repeat(101)), [1]);
        assert_eq!(
            faults(&format!("//! | {} |", "x".repeat(101))),
            Vec::<usize>::new()
        );
    }

    #[test]
    fn marks_are_whole_words() {
        let mark = MARKS[2];
        assert_eq!(faults(&format!("fine\n// {mark}: later")), [2]);
        assert_eq!(
            faults(&format!("template \"{mark}{mark}\"")),
            Vec::<usize>::new()
        );
        assert_eq!(faults(&format!("    {})", MARKS[3])), [1]);
    }

    #[test]
    fn private_paths_are_found() {
        assert_eq!(faults(&format!("see {}x", PRIVATE_PATHS[0])), [1]);
    }
}
