//! A rule of the rule file.

use std::fmt;
use std::time::Duration;

use crate::observe::ReasonText;
use crate::rules::endpoints::Endpoints;
use crate::rules::glob::Glob;
use crate::rules::query::{Query, Role};

/// The stacks that a socket may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The kernel's TCP only.
    Tcp,
    /// An offload protocol first, and the kernel's TCP if that fails.
    Both,
    /// An offload protocol only; its failures are reported to the program.
    Offload,
}

impl Target {
    /// Returns the keyword in a rule.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Both => "both",
            Self::Offload => "offload",
        }
    }
}

/// A setting for an offload protocol. The protocol alone interprets it; see
/// [`Known`](super::Known).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Name of the protocol.
    pub protocol: String,
    /// The key, without the protocol's name.
    pub key: String,
    /// The value in the file.
    pub value: String,
}

/// A line that begins with `use`.
#[derive(Debug)]
pub struct Rule {
    /// Line of the file, counted from 1.
    pub line: u32,
    /// The stacks that a matching socket may use.
    pub target: Target,
    /// The call that a matching socket is about to make.
    pub role: Role,
    /// The pattern of program names.
    pub program: Glob,
    /// The addresses and ports that match.
    pub endpoints: Endpoints,
    /// The permitted offload protocols; empty permits all.
    pub protocols: Vec<String>,
    /// The numeric user id that matches; `None` matches every user.
    pub user: Option<u32>,
    /// The name of the device that matches; `None` matches every device.
    pub interface: Option<String>,
    /// The time that an offload protocol may delay TCP.
    pub within: Option<Duration>,
    /// The settings that are passed to offload protocols.
    pub settings: Vec<Setting>,
    /// The text in the list of sockets for a socket that the rule keeps on TCP.
    pub reason: ReasonText,
}

impl Rule {
    /// True if the rule matches the socket.
    #[must_use]
    pub fn matches(&self, query: &Query<'_>) -> bool {
        self.role == query.role
            && self.is_for(query)
            && self.endpoints.holds(&query.address)
            && self
                .interface
                .as_deref()
                .is_none_or(|own| query.interface == Some(own))
    }

    /// True if the rule matches the program and the user.
    fn is_for(&self, query: &Query<'_>) -> bool {
        let is_program = if self.program.is_any() {
            true
        } else if self.program.is_path() {
            self.program.matches(query.program)
        } else {
            let names = query.base_names();
            names.iter().any(|name| self.program.matches(name))
        };
        is_program && self.user.is_none_or(|own| own == query.user)
    }
}

/// Compares the contents of two rules. Line numbers do not matter.
impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        let key = |rule: &Self| {
            (
                (rule.target, rule.role, rule.user, rule.within),
                (rule.protocols.clone(), rule.interface.clone()),
            )
        };
        key(self) == key(other)
            && self.program == other.program
            && self.endpoints == other.endpoints
            && self.settings == other.settings
    }
}

/// Writes the rule as a line of a file.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (target, role) = (self.target.word(), self.role.word());
        write!(f, "use {target} {role} {} {}", self.program, self.endpoints)?;
        if !self.protocols.is_empty() {
            write!(f, " protocol={}", self.protocols.join(","))?;
        }
        if let Some(user) = self.user {
            write!(f, " user={user}")?;
        }
        if let Some(interface) = &self.interface {
            write!(f, " interface={interface}")?;
        }
        if let Some(within) = self.within {
            write!(f, " within={}ms", within.as_millis())?;
        }
        self.settings.iter().try_for_each(|setting| {
            write!(f, " {}.{}={}", setting.protocol, setting.key, setting.value)
        })
    }
}
