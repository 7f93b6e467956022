//! The words of a line, each with its position.

use crate::rules::fault::{Fault, Reason};

#[derive(Debug, Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    line: u32,
    column: u32,
}

impl<'a> Word<'a> {
    /// True if the word is the keyword; case does not matter.
    pub(super) fn is(self, keyword: &str) -> bool {
        self.text.eq_ignore_ascii_case(keyword)
    }

    /// Returns the part of this word that begins at byte `at`.
    pub(super) fn from(self, at: usize) -> Self {
        let (before, text) = self.text.split_at(at);
        Self {
            text,
            column: self.column.saturating_add(length(before)),
            ..self
        }
    }

    /// Returns this word up to byte `at`.
    pub(super) fn until(self, at: usize) -> Self {
        Self {
            text: &self.text[..at],
            ..self
        }
    }

    /// Splits at the last `separator`, which is in neither part.
    pub(super) fn split_last(self, separator: char) -> Option<(Self, Self)> {
        let at = self.text.rfind(separator)?;
        Some((self.until(at), self.from(at + separator.len_utf8())))
    }

    /// Splits at the first `separator`, which is in neither part.
    pub(super) fn split_first(self, separator: char) -> Option<(Self, Self)> {
        let at = self.text.find(separator)?;
        Some((self.until(at), self.from(at + separator.len_utf8())))
    }

    pub(super) fn fault(self, reason: Reason) -> Fault {
        Fault {
            line: self.line,
            column: self.column,
            reason,
        }
    }

    /// Returns a fault that quotes this word.
    pub(super) fn refuse(self, reason: fn(String) -> Reason) -> Fault {
        self.fault(reason(self.text.to_owned()))
    }
}

/// The words of a line that are not read yet.
#[derive(Debug)]
pub(super) struct Words<'a> {
    line: &'a str,
    number: u32,
    at: usize,
}

impl<'a> Words<'a> {
    /// Splits a line without a comment into words.
    pub(super) fn new(line: &'a str, number: u32) -> Self {
        Self {
            line,
            number,
            at: 0,
        }
    }

    /// Returns the next word, or a fault that says `what` is missing.
    pub(super) fn need(&mut self, what: &'static str) -> Result<Word<'a>, Fault> {
        let end = self.line.trim_end();
        let column = length(end).saturating_add(1);
        self.next().ok_or(Fault {
            line: self.number,
            column,
            reason: Reason::Missing(what),
        })
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        let rest = &self.line[self.at..];
        let start = self.at + rest.find(|c: char| !c.is_whitespace())?;
        let word = &self.line[start..];
        let len = word.find(char::is_whitespace).unwrap_or(word.len());
        self.at = start + len;
        Some(Word {
            text: &word[..len],
            line: self.number,
            column: length(&self.line[..start]).saturating_add(1),
        })
    }
}

fn length(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_words_are_counted_in_characters() {
        let words: Vec<_> = Words::new("  üse\ta:b  ", 3)
            .map(|word| (word.text.to_owned(), word.column))
            .collect();
        assert_eq!(words, [("üse".to_owned(), 3), ("a:b".to_owned(), 7)]);
        let word = Words::new("üü:b", 1).next().unwrap();
        let (_, port) = word.split_last(':').unwrap();
        assert_eq!((port.text, port.column), ("b", 4));
    }

    #[test]
    fn a_missing_word_is_reported_after_the_last_one() {
        let mut words = Words::new("use   ", 9);
        words.next();
        let fault = words.need("target").unwrap_err();
        assert_eq!((fault.line, fault.column), (9, 4));
    }
}
