//! The first words of doc comments.
//!
//! A doc comment begins with a noun phrase or with a verb in the third person. A comment that
//! begins with one of [`REFUSED`] makes its reader guess the noun.

/// First words that no doc comment has.
const REFUSED: [&str; 4] = ["What ", "Whether ", "Who ", "The same "];

pub(super) fn check(source: &str, report: &mut impl FnMut(usize, String)) {
    let mut is_inside = false;
    for (index, line) in source.lines().enumerate() {
        let text = comment(line);
        let is_first = text.is_some() && !is_inside;
        is_inside = text.is_some();
        let Some(text) = text.filter(|_| is_first) else {
            continue;
        };
        if let Some(word) = REFUSED.iter().find(|word| text.starts_with(**word)) {
            let word = word.trim_end();
            let message = format!(
                "a doc comment begins with `{word}`; begin with a noun, or with a verb such as \
                 `Returns`"
            );
            report(index + 1, message);
        }
    }
}

/// Returns the text of a line of a doc comment.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line
        .strip_prefix("///")
        .or_else(|| line.strip_prefix("//!"))?;
    Some(text.strip_prefix(' ').unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_comment_is_checked_and_no_other() {
        let source = [
            "//! What this module does.",
            "",
            "/// The number of peers.",
            "/// What follows is another line.",
            "fn count() {}",
            "",
            "    /// Whether it is open.",
            "    is_open: bool,",
            "// Who reads this? Not a doc comment.",
            "/// Whoever waits.",
        ];
        let source = source.join("\n");
        let mut lines = Vec::new();
        check(&source, &mut |line, _| lines.push(line));
        assert_eq!(lines, [1, 7]);
    }
}
