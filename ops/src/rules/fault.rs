//! The faults of a rule file.

/// A fault of a rule file, with its position. With a file name and a colon before the text, editors
/// can jump to the position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {reason}")]
pub struct Fault {
    /// Line, counted from 1.
    pub line: u32,
    /// Column in characters, counted from 1.
    pub column: u32,
    /// The kind of the fault.
    pub reason: Reason,
}

/// The kind of a fault. Its text names the words that would be valid instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The line is not UTF-8 text.
    #[error("not UTF-8; save the file in that encoding")]
    NotText,
    /// The first word is no directive.
    #[error("unknown directive `{0}`; a line begins with `use`, `log`, `protocol` or `#`")]
    Directive(String),
    /// The line ends too early.
    #[error("the {0} is missing; write `use TARGET ROLE PROGRAM ADDRESS:PORT [KEY=VALUE ...]`")]
    Missing(&'static str),
    /// A target that does not exist.
    #[error("unknown target `{0}`; write one of tcp, both, offload, sdp, local")]
    Target(String),
    /// A role that does not exist.
    #[error("unknown role `{0}`; write one of listen, server, connect, client")]
    Role(String),
    /// A program pattern with an unclosed `[` or a trailing `\`.
    #[error("`{0}` is not a program pattern: a `[` needs a `]`, and a `\\` something after it")]
    Glob(String),
    /// The text has no colon between address and port.
    #[error("`{0}` has no port; write ADDRESS:PORT, or `*:*` for every address and port")]
    NoPort(String),
    /// Not an address.
    #[error("`{0}` is not an address; write `*`, 192.0.2.0/24 or [2001:db8::]/32")]
    Address(String),
    /// A prefix longer than its address.
    #[error("`{given}` is not a prefix length; it is a number from 0 to {max}")]
    Prefix {
        /// The text after the `/`.
        given: String,
        /// The number of bits in an address of this family.
        max: u8,
    },
    /// Not a port.
    #[error("`{0}` is not a port; write `*`, a number up to 65535, or FIRST-LAST")]
    Port(String),
    /// A range that ends before it begins.
    #[error("the range {0}-{1} is empty; write the smaller port first")]
    EmptyRange(u16, u16),
    /// A word after the address that is no setting.
    #[error("`{0}` is not KEY=VALUE; a rule ends with its address and settings")]
    NoSetting(String),
    /// A key that is not a setting of rules.
    #[error("unknown setting `{0}`; write one of protocol, user, interface, within, PROTOCOL.KEY")]
    Key(String),
    /// A key that no offload protocol has.
    #[error("unknown setting `{key}`; offload protocols have {known}")]
    Setting {
        /// The key in the file.
        key: String,
        /// The keys of all protocols, with commas between them.
        known: String,
    },
    /// A key that is set twice in one rule.
    #[error("`{0}` is given twice in this rule; leave one out")]
    Twice(String),
    /// A value of the wrong form.
    #[error("`{value}` cannot be the value of `{key}`; it is {wanted}")]
    Value {
        /// The key of the setting.
        key: String,
        /// The value in the file.
        value: String,
        /// A description of valid values.
        wanted: &'static str,
    },
    /// `protocol=` contradicts the target.
    #[error("`protocol=` has no meaning for target `{0}`; use it with both or offload")]
    ProtocolOf(&'static str),
    /// A word of `log` that does not exist.
    #[error(
        "unknown word `{0}` after `log`; write destination stderr|syslog|file PATH, min-level 1-9"
    )]
    Log(String),
    /// A level outside its range.
    #[error("`{0}` is not a level; 1 logs everything, 9 only errors")]
    Level(String),
}
