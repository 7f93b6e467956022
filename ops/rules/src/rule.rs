//! One rule.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::glob::Glob;
use crate::place::Place;
use crate::query::{Query, Role};

/// Which stacks a socket may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The kernel's only.
    Tcp,
    /// An offload protocol first, the kernel's where that fails.
    Both,
    /// An offload protocol only; the program sees its failures.
    Offload,
}

impl Target {
    /// Its keyword.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Both => "both",
            Self::Offload => "offload",
        }
    }
}

/// One setting for an offload protocol, which alone knows what it means; see [`crate::Known`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Name of the protocol.
    pub protocol: String,
    /// What is set.
    pub key: String,
    /// To what.
    pub value: String,
}

/// A line that begins with `use`.
#[derive(Debug)]
pub struct Rule {
    /// Line of the file, counted from 1.
    pub line: u32,
    /// Which stacks.
    pub target: Target,
    /// What a socket must be about to do.
    pub role: Role,
    /// Which programs.
    pub program: Glob,
    /// Which addresses.
    pub place: Place,
    /// Only these offload protocols; all where it is empty.
    pub protocols: Vec<String>,
    /// Only programs of this user.
    pub user: Option<u32>,
    /// Only on this device.
    pub interface: Option<String>,
    /// How long an offload protocol may delay TCP.
    pub within: Option<Duration>,
    /// What is handed to offload protocols.
    pub settings: Vec<Setting>,
    pub(crate) hits: AtomicU64,
}

impl Rule {
    /// Whether this rule is for that socket.
    #[must_use]
    pub fn matches(&self, query: &Query<'_>) -> bool {
        self.role == query.role
            && self.is_for(query)
            && self.place.holds(&query.address)
            && self
                .interface
                .as_deref()
                .is_none_or(|own| query.interface == Some(own))
    }

    /// Whether this rule is for that program and user.
    pub(crate) fn is_for(&self, query: &Query<'_>) -> bool {
        let is_program = if self.program.is_path() {
            self.program.matches(query.program)
        } else {
            let names = query.base_names();
            names.iter().any(|name| self.program.matches(name))
        };
        is_program && self.user.is_none_or(|own| own == query.user)
    }

    /// Whether nothing but role, program and user matters.
    pub(crate) fn is_unconditional(&self) -> bool {
        self.place.is_any() && self.interface.is_none()
    }

    /// How many sockets this rule has decided.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }
}

/// Two rules are equal when they say the same, wherever they stand and however often they were
/// used.
impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        let told = |rule: &Self| {
            (
                (rule.target, rule.role, rule.user, rule.within),
                (rule.protocols.clone(), rule.interface.clone()),
            )
        };
        told(self) == told(other)
            && self.program == other.program
            && self.place == other.place
            && self.settings == other.settings
    }
}

/// The rule as a line of a file.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (target, role) = (self.target.word(), self.role.word());
        write!(f, "use {target} {role} {} {}", self.program, self.place)?;
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
