//! Lexer of `dat.conf`: converts bytes to tokens.
//!
//! - Tokens are separated by blanks and tabs. A carriage return is not white space.
//! - `#` starts a comment only where a token could start.
//! - A token that starts with `"` runs to the closing quote; a backslash inside makes the next byte
//!   an ordinary one. Text right after the closing quote is a new token.
//! - A quote in the middle of an unquoted word ends that word and starts a new token.

use super::diagnostic::{Diagnostic, Field, Reason};

/// The text of a token and its position.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) bytes: Vec<u8>,
    pub(super) line: u32,
    pub(super) column: u32,
}

impl Text {
    pub(super) fn error(&self, field: Field, reason: Reason) -> Diagnostic {
        Diagnostic {
            line: self.line,
            column: self.column,
            field,
            reason,
        }
    }
}

#[derive(Debug)]
pub(super) enum Token {
    Text(Text),
    /// End of the line or of the file; the lexer returns it again until it is taken.
    LineEnd,
}

#[derive(Debug)]
pub(super) struct Lexer<'a> {
    input: &'a [u8],
    position: usize,
    line_start: usize,
    line: u32,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self {
            input,
            position: 0,
            line_start: 0,
            line: 1,
        }
    }

    /// Returns the next token; `field` is the expected field, for the error.
    pub(super) fn next(&mut self, field: Field) -> Result<Token, Diagnostic> {
        self.skip_while(|byte| byte == b' ' || byte == b'\t');
        match self.peek() {
            Some(b'#') => {
                self.skip_while(|byte| byte != b'\n');
                Ok(Token::LineEnd)
            }
            None | Some(b'\n') => Ok(Token::LineEnd),
            Some(b'"') => self.quoted(field).map(Token::Text),
            Some(_) => Ok(Token::Text(self.word())),
        }
    }

    /// Returns the next token, which must be text.
    pub(super) fn text(&mut self, field: Field) -> Result<Text, Diagnostic> {
        match self.next(field)? {
            Token::Text(text) => Ok(text),
            Token::LineEnd => Err(self.start_text().error(field, Reason::Missing)),
        }
    }

    pub(super) fn take_line_end(&mut self) {
        if self.peek() == Some(b'\n') {
            self.advance();
        }
    }

    /// Skips the rest of the line and its end.
    pub(super) fn skip_line(&mut self) {
        self.skip_while(|byte| byte != b'\n');
        self.take_line_end();
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.position == self.input.len()
    }

    fn word(&mut self) -> Text {
        let mut text = self.start_text();
        let start = self.position;
        self.skip_while(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'"'));
        text.bytes = self.input[start..self.position].to_vec();
        text
    }

    fn quoted(&mut self, field: Field) -> Result<Text, Diagnostic> {
        let mut text = self.start_text();
        self.advance();
        loop {
            match self.peek() {
                None | Some(b'\n') => return Err(text.error(field, Reason::OpenQuote)),
                Some(b'"') => {
                    self.advance();
                    return Ok(text);
                }
                Some(b'\\') => {
                    self.advance();
                    let escaped = self
                        .peek()
                        .ok_or_else(|| text.error(field, Reason::OpenQuote))?;
                    text.bytes.push(escaped);
                    self.advance();
                }
                Some(byte) => {
                    text.bytes.push(byte);
                    self.advance();
                }
            }
        }
    }

    fn start_text(&self) -> Text {
        let column = self.position - self.line_start + 1;
        let column = u32::try_from(column).unwrap_or(u32::MAX);
        Text {
            bytes: Vec::new(),
            line: self.line,
            column,
        }
    }

    fn skip_while(&mut self, wanted: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&wanted) {
            self.advance();
        }
    }

    fn advance(&mut self) {
        if self.peek() == Some(b'\n') {
            self.line = self.line.saturating_add(1);
            self.line_start = self.position + 1;
        }
        self.position += 1;
    }

    fn peek(&self) -> Option<u8> {
        self.input.get(self.position).copied()
    }
}
