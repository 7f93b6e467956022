//! The limits of shared resources that an administrator sets, and the grammar of their file.
//!
//! `dat-limits.conf` has the form of `limits.conf(5)`. Each line has four words:
//!
//! ```text
//! # user  scope    resource     number
//! *       process  connections  4096
//! *       user     half_open    1024
//! alice   user     services     16
//! ```
//!
//! A line for a user, by name or number, replaces a line for all users (`*`). Of two such lines the
//! last is in force. A bad line does not affect other lines and is reported.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::source::{default_paths, is_absent, read_limited};

/// The name of the file, in the directories of `dat.conf`.
const FILE: &str = "dat-limits.conf";

/// The largest number of a line.
pub const NUMBER_MAX: u32 = 1 << 20;

/// A resource of the software provider that processes of a host share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Services that listen at a port.
    Services,
    /// Connections, established or being established by this end.
    Connections,
    /// Inbound connections whose request the consumer has not answered.
    HalfOpen,
}

impl Resource {
    /// All resources, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Services, Self::Connections, Self::HalfOpen];

    /// The word of the file.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::Connections => "connections",
            Self::HalfOpen => "half_open",
        }
    }
}

/// The processes whose use a limit counts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each process by itself.
    Process,
    /// All processes of the user on this host.
    User,
}

impl Scope {
    const ALL: [Self; 2] = [Self::Process, Self::User];

    /// The word of the file.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::User => "user",
        }
    }
}

/// A limit in force, and the line that sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// The largest number that may be in use at a time.
    pub max: u32,
    /// Line of the file, counted from 1.
    pub line: u32,
}

/// A line, or the whole file, that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Line of the file, counted from 1; 0 for the file as a whole.
    pub line: u32,
    reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.reason),
            line => write!(f, "line {line}: {}", self.reason),
        }
    }
}

/// The limits of one user.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// The file; `None` if there is none, and nothing is limited.
    pub path: Option<PathBuf>,
    /// The limits in force, by scope and resource.
    table: [[Option<Limit>; Resource::ALL.len()]; Scope::ALL.len()],
    /// The lines without effect, in the order of the file.
    pub faults: Vec<Fault>,
}

/// A good line, for the user or for all users.
struct Line {
    is_users_own: bool,
    scope: Scope,
    resource: Resource,
    max: Option<u32>,
}

impl Limits {
    /// Reads the first file that exists. No environment variable replaces it. `name` returns the
    /// name of the user with this number, and is called only if a line has a name.
    #[must_use]
    pub fn of_user(number: u32, name: impl Fn() -> Option<String>) -> Self {
        for path in default_paths(FILE) {
            match read_limited(&path) {
                Err(error) if is_absent(&error) => {}
                found => return Self::from_file(path, found, number, name),
            }
        }
        Self::default()
    }

    fn from_file(
        path: PathBuf,
        content: std::io::Result<Vec<u8>>,
        number: u32,
        name: impl Fn() -> Option<String>,
    ) -> Self {
        let limits = match content {
            Ok(content) => Self::parse(&String::from_utf8_lossy(&content), number, name),
            Err(error) => Self {
                faults: vec![Fault {
                    line: 0,
                    reason: format!("the file cannot be read: {error}"),
                }],
                ..Self::default()
            },
        };
        Self {
            path: Some(path),
            ..limits
        }
    }

    /// Parses the text of a file, as [`of_user`](Self::of_user) does.
    #[must_use]
    pub fn parse(text: &str, number: u32, name: impl Fn() -> Option<String>) -> Self {
        let mut limits = Self::default();
        // Lines for the user follow those for all users, so that they replace them.
        let mut users_own = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            match parse_line(text, number, &name) {
                Ok(Some(parsed)) if parsed.is_users_own => users_own.push((line, parsed)),
                Ok(Some(parsed)) => limits.set(line, &parsed),
                Ok(None) => {}
                Err(reason) => limits.faults.push(Fault { line, reason }),
            }
        }
        for (line, parsed) in &users_own {
            limits.set(*line, parsed);
        }
        limits
    }

    fn set(&mut self, line: u32, parsed: &Line) {
        let limit = parsed.max.map(|max| Limit { max, line });
        self.table[parsed.scope as usize][parsed.resource as usize] = limit;
    }

    /// Returns the limit in force, or `None` if the resource is not limited in this scope.
    #[must_use]
    pub fn limit(&self, scope: Scope, resource: Resource) -> Option<Limit> {
        self.table[scope as usize][resource as usize]
    }

    /// The path of the file, for messages.
    #[must_use]
    pub fn file(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new(FILE))
    }
}

/// Parses a line. Returns `None` if it is empty, a comment or for another user.
fn parse_line(
    text: &str,
    number: u32,
    name: impl Fn() -> Option<String>,
) -> Result<Option<Line>, String> {
    let text = text.split('#').next().unwrap_or_default();
    let words: Vec<_> = text.split_whitespace().collect();
    let [user, scope, resource, max] = words[..] else {
        return match words.len() {
            0 => Ok(None),
            count => Err(format!("{count} words instead of 4")),
        };
    };
    let scope = Scope::ALL.into_iter().find(|it| it.word() == scope);
    let scope = scope.ok_or("the scope is not `process` or `user`")?;
    let resource = Resource::ALL.into_iter().find(|it| it.word() == resource);
    let resource =
        resource.ok_or("the resource is not `services`, `connections` or `half_open`")?;
    let max = parse_max(max)?;
    let is_for_all = user == "*";
    let is_users_own = !is_for_all
        && match user.parse::<u32>() {
            Ok(other) => other == number,
            Err(_) => name().is_some_and(|name| name == user),
        };
    Ok((is_for_all || is_users_own).then_some(Line {
        is_users_own,
        scope,
        resource,
        max,
    }))
}

fn parse_max(word: &str) -> Result<Option<u32>, String> {
    if word == "unlimited" {
        return Ok(None);
    }
    match word.parse::<u32>() {
        Ok(max) if max <= NUMBER_MAX => Ok(Some(max)),
        _ => Err(format!(
            "`{word}` is neither a number from 0 to {NUMBER_MAX} nor `unlimited`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Limits {
        Limits::parse(text, 1000, || Some("alice".to_owned()))
    }

    fn max(limits: &Limits, scope: Scope, resource: Resource) -> Option<u32> {
        limits.limit(scope, resource).map(|limit| limit.max)
    }

    #[test]
    fn each_scope_and_resource_has_its_limit() {
        for (s, scope) in (0..).zip(Scope::ALL) {
            for (r, resource) in (0..).zip(Resource::ALL) {
                let number = 10 * s + r;
                let line = format!("* {} {} {number}", scope.word(), resource.word());
                let limits = of(&format!("# comment\n\n{line} # comment"));
                assert!(limits.faults.is_empty(), "{:?}", limits.faults);
                let expected = Some(Limit {
                    max: number,
                    line: 3,
                });
                assert_eq!(limits.limit(scope, resource), expected);
                let all = Scope::ALL.map(|it| Resource::ALL.map(|r| max(&limits, it, r)));
                assert_eq!(all.as_flattened().iter().flatten().count(), 1);
            }
        }
    }

    #[test]
    fn a_line_for_the_user_replaces_one_for_all_users() {
        for text in [
            "alice user services 5\n* user services 9\n",
            "1000 user services 5\n* user services 9\n",
            "* user services 9\nalice user services 7\nalice user services 5\n",
            "* user services 9\nalice user services 5\nbob user services 1\n1001 user services 1\n",
        ] {
            let limits = of(text);
            assert_eq!(
                max(&limits, Scope::User, Resource::Services),
                Some(5),
                "{text}"
            );
        }
        let freed = of("* user services 9\nalice user services unlimited\n");
        assert_eq!(freed.limit(Scope::User, Resource::Services), None);
    }

    #[test]
    fn a_bad_line_is_reported_and_affects_no_other_line() {
        for bad in [
            "* user services",
            "* user services 1 2",
            "* group services 1",
            "* user sockets 1",
            "* user services -1",
            "* user services 1048577",
            "* user services many",
            "alice User services 1",
        ] {
            let limits = of(&format!("{bad}\n* user services 3\n"));
            assert_eq!(limits.faults.len(), 1, "{bad}");
            assert!(
                limits.faults[0].to_string().starts_with("line 1: "),
                "{bad}"
            );
            assert_eq!(
                max(&limits, Scope::User, Resource::Services),
                Some(3),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_user_without_a_name_has_a_number() {
        let limits = Limits::parse("alice user services 1\n7 user services 2\n", 7, || None);
        assert_eq!(max(&limits, Scope::User, Resource::Services), Some(2));
        assert!(limits.faults.is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_fault() {
        let error = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let limits = Limits::from_file("/etc/x".into(), Err(error), 1, || None);
        assert_eq!(limits.file(), Path::new("/etc/x"));
        assert!(
            limits.faults[0]
                .to_string()
                .starts_with("the file cannot be read: ")
        );
    }
}
