//! The `log` lines of a rule file.

/// The settings of the `log` lines. If a word is set more than once, the last one wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The destination of reports.
    pub destination: Destination,
    /// The lowest level that is reported: 1 reports everything, 9 only errors.
    pub level_min: u8,
}

/// The destination of reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Standard error of the program.
    Stderr,
    /// The system's log.
    Syslog,
    /// A file; a relative path starts at the program's working directory.
    File(String),
}

impl Default for Log {
    fn default() -> Self {
        Self {
            destination: Destination::Stderr,
            level_min: 9,
        }
    }
}
