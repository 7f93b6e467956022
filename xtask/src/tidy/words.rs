//! The words of comments and documents.
//!
//! A doc comment begins with a noun phrase or with a verb in the third person. A comment that
//! begins with one of [`REFUSED_FIRST`] makes its reader guess the noun. A comment or a document
//! with one of [`REFUSED`] has a word of everyday speech where the field has a term.

/// Words with which no doc comment may begin.
const REFUSED_FIRST: [&str; 4] = ["What ", "Whether ", "Who ", "The same "];

/// Words that no comment and no document may contain, each with the words to write instead.
const REFUSED: [(&str, &str); 17] = [
    ("tell", "notify, report"),
    ("tells", "notifies, reports"),
    ("told", "notified, reported"),
    ("hear", "is notified, receives an event"),
    ("hears", "is notified, receives an event"),
    ("heard", "was notified, received an event"),
    ("news", "event, notification"),
    ("looks after", "polls, makes progress on"),
    ("gives up", "aborts"),
    ("goes on", "continues"),
    ("comes about", "happens"),
    ("in vain", "without a result"),
    ("by hand", "manually"),
    ("of another make", "of another implementation"),
    ("stranger", "a peer that runs another implementation"),
    ("beside", "next to, in addition to"),
    ("lent", "borrowed"),
];

pub(super) fn check(source: &str, report: &mut impl FnMut(usize, String)) {
    let mut is_inside = false;
    for (index, line) in source.lines().enumerate() {
        if let Some((word, better)) = comment(line).and_then(refused) {
            let message = format!("a comment has `{word}`; write `{better}`");
            report(index + 1, message);
        }
        let text = doc_comment(line);
        let is_first = text.is_some() && !is_inside;
        is_inside = text.is_some();
        let Some(text) = text.filter(|_| is_first) else {
            continue;
        };
        if let Some(word) = REFUSED_FIRST.iter().find(|word| text.starts_with(**word)) {
            let word = word.trim_end();
            let message = format!(
                "a doc comment begins with `{word}`; begin with a noun, or with a verb such as \
                 `Returns`"
            );
            report(index + 1, message);
        }
    }
}

pub(super) fn check_document(source: &str, report: &mut impl FnMut(usize, String)) {
    for (index, line) in source.lines().enumerate() {
        if let Some((word, better)) = refused(line) {
            let message = format!("a document has `{word}`; write `{better}`");
            report(index + 1, message);
        }
    }
}

/// Returns the first refused word of a text, and words to write instead. What is between
/// backquotes is code, and has any name.
fn refused(text: &str) -> Option<&'static (&'static str, &'static str)> {
    let prose: Vec<&str> = text.split('`').step_by(2).collect();
    let has = |word: &str| {
        prose.iter().any(|part| {
            part.match_indices(word).any(|(at, _)| {
                let is_letter = |found: Option<char>| found.is_some_and(char::is_alphanumeric);
                let before = part[..at].chars().next_back();
                let after = part[at + word.len()..].chars().next();
                !is_letter(before) && !is_letter(after)
            })
        })
    };
    REFUSED.iter().find(|(word, _)| has(word))
}

/// Returns the text of a line that contains only a comment.
fn comment(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("//")
}

/// Returns the text of a line of a doc comment.
fn doc_comment(line: &str) -> Option<&str> {
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
    fn a_refused_word_is_found_as_a_word_of_prose() {
        let word = |text| refused(text).map(|(word, _)| *word);
        assert_eq!(word("The peer is told, and goes on."), Some("told"));
        assert_eq!(word("The peer goes on."), Some("goes on"));
        for fine in [
            "The storyteller is untold.",
            "Calls `news`.",
            "Besides the peer.",
        ] {
            assert_eq!(word(fine), None, "{fine}");
        }
    }

    #[test]
    fn comments_and_documents_are_checked_and_code_is_not() {
        let mut lines = Vec::new();
        let source = "//! It is told.\n    // It is told.\nlet told = 1;\nlet it = 1;";
        check(source, &mut |line, _| lines.push(line));
        assert_eq!(lines, [1, 2]);
        lines.clear();
        check_document("The peer\nis told.\n`told`", &mut |line, _| {
            lines.push(line)
        });
        assert_eq!(lines, [2]);
    }

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
