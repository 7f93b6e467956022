//! The rules of a file.

use std::path::PathBuf;

use crate::rules::log::Log;
use crate::rules::query::Query;
use crate::rules::rule::{Rule, Target};

/// The rules and `log` settings of a file.
#[derive(Debug, Default)]
pub struct Rules {
    pub(super) rules: Vec<Rule>,
    pub(super) log: Option<Log>,
    pub(super) objects: Vec<Object>,
}

/// A shared object with an offload protocol (`ops_protocol.h`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The absolute path of the object.
    pub path: PathBuf,
    /// The priority of the protocol, if it is not that of the object.
    pub priority: Option<i32>,
}

/// The decision for a socket.
#[derive(Debug, Clone, Copy)]
pub struct Verdict<'a> {
    /// The stacks that the socket may use.
    pub target: Target,
    /// The matching rule; `None` if no rule matches.
    pub rule: Option<&'a Rule>,
}

impl Rules {
    /// Returns the rules in file order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the shared objects of the `protocol` lines, in file order.
    #[must_use]
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Returns the settings of the `log` lines, if the file has one.
    #[must_use]
    pub fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    /// True if a rule names a device, so a query needs the route to the peer.
    #[must_use]
    pub fn needs_interface(&self) -> bool {
        self.rules.iter().any(|rule| rule.interface.is_some())
    }

    /// Returns the decision for a socket: that of the first rule that matches.
    #[must_use]
    pub fn verdict(&self, query: &Query<'_>) -> Verdict<'_> {
        let rule = self.rules.iter().find(|rule| rule.matches(query));
        Verdict {
            target: rule.map_or(Target::Both, |rule| rule.target),
            rule,
        }
    }
}

#[cfg(test)]
mod tests {
    use stack_tests::rows;

    use super::*;
    use crate::rules::parse;
    use crate::rules::query::Role;

    fn query(role: Role, address: &str) -> Query<'_> {
        Query {
            role,
            program: "/usr/bin/redis-server",
            called: "redis-server",
            user: 1000,
            address: address.parse().unwrap(),
            interface: Some("eth1"),
        }
    }

    fn line_for(file: &str, query: &Query<'_>) -> Option<u32> {
        let rules = parse(file.as_bytes()).unwrap();
        rules.verdict(query).rule.map(|rule| rule.line)
    }

    #[test]
    fn the_first_rule_that_matches_wins() {
        let connect = query(Role::Connect, "10.0.0.1:80");
        for (file, line) in rows! {
            "", None;
            "use tcp client * *:*\nuse both client * *:*", Some(1);
            "use tcp server * *:*\nuse both client * *:*", Some(2);
            "use tcp client nginx *:*\nuse both client redis* *:*", Some(2);
            "use tcp client /bin/* *:*\nuse both client /usr/* *:*", Some(2);
            "use tcp client * *:81\nuse both client * *:80-90", Some(2);
            "use tcp client * 10.0.1.0/24:*\nuse tcp client * 10.0.0.0/24:*", Some(2);
            "use tcp client * *:* user=0\nuse tcp client * *:* user=1000", Some(2);
            "use tcp client * *:* interface=lo", None;
            "use tcp client * *:* interface=eth1", Some(1);
        } {
            assert_eq!(line_for(file, &connect), line, "{file}");
        }
    }

    #[test]
    fn a_program_is_known_by_its_file_and_by_what_it_was_started_as() {
        let names = |program, called| Query {
            program,
            called,
            ..query(Role::Listen, "10.0.0.1:6379")
        };
        let by_link = names("/usr/bin/redis-check-rdb", "/usr/bin/redis-server");
        for (pattern, is_for) in [
            ("redis-server", true),
            ("redis-check-rdb", true),
            ("redis-[!cs]*", false),
            // A pattern with `/` is matched against the path of the file only.
            ("/usr/bin/redis-check-rdb", true),
            ("/usr/bin/redis-server", false),
            ("*/redis-server", false),
        ] {
            let file = format!("use tcp server {pattern} *:6379");
            let line = line_for(&file, &by_link);
            assert_eq!(line.is_some(), is_for, "{pattern}");
        }
        let unnamed = names("/usr/bin/redis-server", "");
        assert!(line_for("use tcp server redis-server *:*", &unnamed).is_some());
    }

    #[test]
    fn where_no_rule_matches_both_stacks_are_tried() {
        let rules = parse(b"use tcp server * *:80").unwrap();
        let verdict = rules.verdict(&query(Role::Connect, "10.0.0.1:80"));
        assert_eq!(verdict.target, Target::Both);
        assert!(verdict.rule.is_none());
    }
}
