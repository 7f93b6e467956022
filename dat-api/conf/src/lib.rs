//! The registry file of DAT, `dat.conf`: the choice of the file ([`Source`]), and its grammar
//! ([`parse`]). `libdat2.so.2` reads the file to load providers; the offload protocol switch reads
//! it to choose adapters. [`limits`] reads the administrator's limits of shared resources.
//!
//! Each line is one entry of eight fields, separated by blanks or tabs:
//!
//! ```text
//! ia_name api_version thread_safety default lib_path provider_version ia_params platform_params
//! iwarp-lo u2.0 nonthreadsafe default libdapl-iwarp.so.2 dat-rs.1.0 "lo 0" ""
//! ```
//!
//! A bad line does not affect other lines and is reported with line, column, field and reason. This
//! parser accepts exactly what OFA's library accepts, including its odd cases (`threadsafe` and
//! `default` match by prefix), so that a file has the same meaning for both.

#![cfg_attr(not(test), forbid(unsafe_code))]

mod diagnostic;
mod lexer;
pub mod limits;
mod source;

pub use diagnostic::{Diagnostic, Field, Reason};
pub use source::Source;

use lexer::{Lexer, Text, Token};
use std::ffi::CString;

/// Longest name of an IA in bytes; the 256th byte of a `DAT_NAME` is its NUL.
const NAME_LEN_MAX: usize = 255;

/// Kinds of consumers of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// User-space consumers (`u`).
    User,
    /// Kernel consumers (`k`): parsed, never registered.
    Kernel,
}

/// A good line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the IA.
    pub ia_name: CString,
    /// Kind of consumers of the entry.
    pub api: Api,
    /// Major version of the interface.
    pub major: u32,
    /// Minor version of the interface; 0 if it is omitted.
    pub minor: u32,
    /// `threadsafe` or `nonthreadsafe`.
    pub thread_safe: bool,
    /// `default` or `nondefault`; only default entries are registered.
    pub default: bool,
    /// Library, as passed to the dynamic loader.
    pub lib_path: CString,
    /// Instance data for the provider; may be empty.
    pub ia_params: CString,
    /// Line of the file, counted from 1; 0 for an entry that is not from a file.
    pub line: u32,
}

impl Entry {
    /// Returns true if the entry goes into the registry.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.api == Api::User && self.default
    }
}

/// Content of a parsed file.
#[derive(Debug, Default)]
pub struct Parsed {
    /// Good lines in file order.
    pub entries: Vec<Entry>,
    /// Bad lines in file order.
    pub diagnostics: Vec<Diagnostic>,
}

/// Parses a whole file. Never fails; errors are in the diagnostics.
#[must_use]
pub fn parse(input: &[u8]) -> Parsed {
    let mut lexer = Lexer::new(input);
    let mut parsed = Parsed::default();
    while !lexer.is_at_end() {
        match parse_line(&mut lexer) {
            Ok(Some(entry)) => parsed.entries.push(entry),
            Ok(None) => {}
            Err(diagnostic) => {
                parsed.diagnostics.push(diagnostic);
                lexer.skip_line();
            }
        }
    }
    parsed
}

/// Parses one line including its end; `None` if it is empty or a comment. After an error the
/// position of the lexer is within the bad line, and the end of the line has not been taken.
fn parse_line(lexer: &mut Lexer<'_>) -> Result<Option<Entry>, Diagnostic> {
    let name = match lexer.next(Field::IaName)? {
        Token::LineEnd => {
            lexer.take_line_end();
            return Ok(None);
        }
        Token::Text(name) => name,
    };
    let line = name.line;
    let ia_name = parse_name(name)?;
    let (api, major, minor) = lexer.text(Field::ApiVersion).and_then(parse_api_version)?;
    let thread_safe = lexer
        .text(Field::ThreadSafety)
        .and_then(|text| parse_word(text, "threadsafe", Field::ThreadSafety))?;
    let default = lexer
        .text(Field::Default)
        .and_then(|text| parse_word(text, "default", Field::Default))?;
    let lib_path = lexer
        .text(Field::LibPath)
        .and_then(|text| c_string(text, Field::LibPath))?;
    lexer
        .text(Field::ProviderVersion)
        .and_then(|text| check_provider_version(&text))?;
    let ia_params = lexer
        .text(Field::IaParams)
        .and_then(|text| c_string(text, Field::IaParams))?;
    lexer.text(Field::PlatformParams)?;
    match lexer.next(Field::LineEnd)? {
        Token::LineEnd => lexer.take_line_end(),
        Token::Text(extra) => return Err(extra.error(Field::LineEnd, Reason::ExtraText)),
    }
    Ok(Some(Entry {
        ia_name,
        api,
        major,
        minor,
        thread_safe,
        default,
        lib_path,
        ia_params,
        line,
    }))
}

fn parse_name(text: Text) -> Result<CString, Diagnostic> {
    if text.bytes.len() > NAME_LEN_MAX {
        return Err(text.error(
            Field::IaName,
            Reason::NameTooLong {
                len: text.bytes.len(),
            },
        ));
    }
    c_string(text, Field::IaName)
}

/// Parses an API version. `u2.0`, `u2.` and `u2` are equal; `k` selects kernel consumers.
fn parse_api_version(text: Text) -> Result<(Api, u32, u32), Diagnostic> {
    let bad = |text: &Text| text.error(Field::ApiVersion, Reason::ApiVersion);
    let (api, version) = match text.bytes.split_first() {
        Some((b'u', version)) => (Api::User, version),
        Some((b'k', version)) => (Api::Kernel, version),
        _ => return Err(bad(&text)),
    };
    let mut parts = version.splitn(2, |&byte| byte == b'.');
    let major = parts.next().and_then(decimal).ok_or_else(|| bad(&text))?;
    let minor = match parts.next() {
        None | Some([]) => 0,
        Some(minor) => decimal(minor).ok_or_else(|| bad(&text))?,
    };
    Ok((api, major, minor))
}

/// Parses a word and its opposite: `word...` is true and `nonword...` is false; any suffix is
/// allowed.
fn parse_word(text: Text, word: &'static str, field: Field) -> Result<bool, Diagnostic> {
    if text.bytes.starts_with(word.as_bytes()) {
        return Ok(true);
    }
    match text.bytes.strip_prefix(b"non") {
        Some(rest) if rest.starts_with(word.as_bytes()) => Ok(false),
        _ => Err(text.error(field, Reason::Word { expected: word })),
    }
}

/// Checks for the form `id.major.minor`. The value is not used, but OFA's library rejects lines
/// without it.
fn check_provider_version(text: &Text) -> Result<(), Diagnostic> {
    let mut parts = text.bytes.splitn(3, |&byte| byte == b'.');
    let (id, major, minor) = (parts.next(), parts.next(), parts.next());
    match (id, major.and_then(decimal), minor.and_then(decimal)) {
        (Some(id), Some(_), Some(_)) if !id.is_empty() => Ok(()),
        _ => Err(text.error(Field::ProviderVersion, Reason::ProviderVersion)),
    }
}

fn decimal(digits: &[u8]) -> Option<u32> {
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    all_digits.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

fn c_string(text: Text, field: Field) -> Result<CString, Diagnostic> {
    let (line, column) = (text.line, text.column);
    CString::new(text.bytes).map_err(|_| Diagnostic {
        line,
        column,
        field,
        reason: Reason::NulByte,
    })
}

#[cfg(test)]
mod tests;
