//! What is wrong with a line.

use std::fmt;

/// One place of a rule file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Line, counted from 1.
    pub line: u32,
    /// Column in characters, counted from 1.
    pub column: u32,
    /// What is wrong there.
    pub reason: Reason,
}

impl fmt::Display for Fault {
    /// `line:column: reason`, so that a file name and a colon before it make what editors jump to.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.reason)
    }
}

impl std::error::Error for Fault {}

/// Why a line cannot be used, and what would stand there instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Bytes that are no text.
    #[error("not UTF-8; save the file in that encoding")]
    NotText,
    /// A first word that begins no line.
    #[error("unknown directive `{0}`; a line begins with `use`, `log` or `#`")]
    Directive(String),
    /// The line ends too early.
    #[error("the {0} is missing; write `use TARGET ROLE PROGRAM ADDRESS:PORT [KEY=VALUE ...]`")]
    Missing(&'static str),
    /// A target that does not exist.
    #[error("unknown target `{0}`; one of tcp, both, offload, sdp")]
    Target(String),
    /// A role that does not exist.
    #[error("unknown role `{0}`; one of listen, server, connect, client")]
    Role(String),
    /// A program pattern that matches nothing as it stands.
    #[error("`{0}` is no program pattern: a `[` needs a `]`, and a `\\` something behind it")]
    Glob(String),
    /// Address and port cannot be told apart.
    #[error("`{0}` has no port; write ADDRESS:PORT, `*:*` for every one")]
    NoPort(String),
    /// Not an address.
    #[error("`{0}` is no address; write `*`, 192.0.2.0/24 or [2001:db8::]/32")]
    Address(String),
    /// A prefix longer than its address.
    #[error("`{given}` is no prefix length; it is a number from 0 to {max}")]
    Prefix {
        /// What stands there.
        given: String,
        /// Bits of an address of this family.
        max: u8,
    },
    /// Not a port.
    #[error("`{0}` is no port; write `*`, a number up to 65535, or FIRST-LAST")]
    Port(String),
    /// A range that ends before it begins.
    #[error("the range {0}-{1} is empty; write the smaller port first")]
    EmptyRange(u16, u16),
    /// Something behind the address that is no setting.
    #[error("`{0}` is no KEY=VALUE; a rule ends with its address and settings")]
    NoSetting(String),
    /// A key that nobody knows.
    #[error("unknown setting `{0}`; one of protocol, user, interface, within, PROTOCOL.KEY")]
    Key(String),
    /// A key that no offload protocol has.
    #[error("unknown setting `{key}`; offload protocols have {known}")]
    Setting {
        /// What stands there.
        key: String,
        /// Those that there are.
        known: String,
    },
    /// A key that stands twice.
    #[error("`{0}` stands twice in this rule; leave one out")]
    Twice(String),
    /// A value of the wrong form.
    #[error("`{value}` cannot be the value of `{key}`; it is {wanted}")]
    Value {
        /// Which setting.
        key: String,
        /// What stands there.
        value: String,
        /// What should.
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
    #[error("`{0}` is no level; 1 tells everything, 9 only errors")]
    Level(String),
}
