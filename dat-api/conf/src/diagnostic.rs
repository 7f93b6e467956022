//! Diagnostics of bad lines, for the person who corrects them.

use std::fmt;

/// A field of an entry, with its name in OFA's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// First field.
    IaName,
    /// Second field.
    ApiVersion,
    /// Third field.
    ThreadSafety,
    /// Fourth field.
    Default,
    /// Fifth field.
    LibPath,
    /// Sixth field.
    ProviderVersion,
    /// Seventh field.
    IaParams,
    /// Eighth field.
    PlatformParams,
    /// End of the line, after which nothing may follow.
    LineEnd,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IaName => "ia_name",
            Self::ApiVersion => "api_version",
            Self::ThreadSafety => "thread_safety",
            Self::Default => "default",
            Self::LibPath => "lib_path",
            Self::ProviderVersion => "provider_version",
            Self::IaParams => "ia_params",
            Self::PlatformParams => "platform_params",
            Self::LineEnd => "end of line",
        })
    }
}

/// Reasons for which a field is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The line ends before the field.
    #[error("missing; an entry has eight fields, and an empty one is written \"\"")]
    Missing,
    /// Text after the eighth field.
    #[error("unexpected text after the eighth field (an unquoted blank, or a carriage return?)")]
    ExtraText,
    /// No closing quote on the line.
    #[error("quote is not closed on this line")]
    OpenQuote,
    /// The name is too long.
    #[error("name has {len} characters, at most 255 are allowed")]
    NameTooLong {
        /// Length of the name in bytes.
        len: usize,
    },
    /// The field is not `u` or `k` followed by a version.
    #[error("expected u<major>.<minor> or k<major>.<minor> in decimal, such as u2.0")]
    ApiVersion,
    /// The field is neither the word nor its opposite.
    #[error("expected {expected} or non{expected}")]
    Word {
        /// The word.
        expected: &'static str,
    },
    /// The version does not have three parts.
    #[error("expected <id>.<major>.<minor>, such as dapl.2.0")]
    ProviderVersion,
    /// The field contains a NUL, which would end the C string.
    #[error("holds a NUL byte")]
    NulByte,
}

/// A bad line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Line, counted from 1.
    pub line: u32,
    /// Column of the first byte of the field, counted from 1.
    pub column: u32,
    /// The field.
    pub field: Field,
    /// The reason.
    pub reason: Reason,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            self.line, self.column, self.field, self.reason
        )
    }
}
