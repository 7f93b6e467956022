//! The registry file of DAT, `dat.conf`: which file is in force ([`Source`]), and its grammar
//! ([`parse`]). `libdat2.so.2` reads it to load providers, the offload protocol switch to choose
//! adapters.
//!
//! One entry a line, eight fields separated by blanks or tabs:
//!
//! ```text
//! ia_name api_version thread_safety default lib_path provider_version ia_params platform_params
//! iwarp-lo u2.0 nonthreadsafe default libdapl-iwarp.so.2 dat-rs.1.0 "lo 0" ""
//! ```
//!
//! A bad line costs only itself and is reported with line, column, field and reason. What is
//! accepted is what OFA's library accepts, odd corners included (`threadsafe` and `default` match
//! by prefix), so that a file means the same to both.

#![cfg_attr(not(test), forbid(unsafe_code))]

mod diagnostic;
mod lexer;
mod source;

pub use diagnostic::{Diagnostic, Field, Reason};
pub use source::Source;

use lexer::{Lexer, Text, Token};
use std::ffi::CString;

/// Longest name of an IA in bytes; the 256th byte of a `DAT_NAME` is its NUL.
const NAME_LEN_MAX: usize = 255;

/// Which consumers an entry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// User-space consumers (`u`).
    User,
    /// Kernel consumers (`k`): parsed, never registered.
    Kernel,
}

/// One good line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the IA.
    pub ia_name: CString,
    /// Whom it is for.
    pub api: Api,
    /// Version of the interface.
    pub major: u32,
    /// Version of the interface; 0 if left out.
    pub minor: u32,
    /// `threadsafe` or `nonthreadsafe`.
    pub thread_safe: bool,
    /// `default` or `nondefault`; only default entries are registered.
    pub default: bool,
    /// Library, given to the dynamic loader.
    pub lib_path: CString,
    /// Instance data for the provider; may be empty.
    pub ia_params: CString,
    /// Line of the file, counted from 1; 0 for an entry that comes from no file.
    pub line: u32,
}

impl Entry {
    /// Whether the entry goes into the registry.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.api == Api::User && self.default
    }
}

/// What a file says.
#[derive(Debug, Default)]
pub struct Parsed {
    /// Good lines in file order.
    pub entries: Vec<Entry>,
    /// Bad lines in file order.
    pub diagnostics: Vec<Diagnostic>,
}

/// Parses a whole file. Never fails; what is wrong is in the diagnostics.
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

/// Parses one line including its end; `None` if it is empty or a comment. After an error the lexer
/// stands somewhere in the bad line, its end not yet taken.
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

/// `u2.0`, `u2.` and `u2` alike; `k` for kernel consumers.
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

/// `word...` is true and `nonword...` is false; what follows the word does not matter.
fn parse_word(text: Text, word: &'static str, field: Field) -> Result<bool, Diagnostic> {
    if text.bytes.starts_with(word.as_bytes()) {
        return Ok(true);
    }
    match text.bytes.strip_prefix(b"non") {
        Some(rest) if rest.starts_with(word.as_bytes()) => Ok(false),
        _ => Err(text.error(field, Reason::Word { expected: word })),
    }
}

/// `id.major.minor`. The value is not used for anything, but OFA's library refuses lines without
/// it.
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
