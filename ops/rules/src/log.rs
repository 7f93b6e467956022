//! What the file says about reporting.

/// The last `log` line wins, word by word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Where to.
    pub destination: Destination,
    /// 1 tells everything, 9 only errors.
    pub level_min: u8,
}

/// Where reports go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Standard error of the program.
    Stderr,
    /// The system's log.
    Syslog,
    /// A file; without a directory it is that of the program's working directory.
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
