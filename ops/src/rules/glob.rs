//! Patterns for program names, in the syntax of the shell.

use std::fmt;

/// A pattern with `*`, `?`, `[a-z]`, `[!a-z]`, and `\` before a character that matches itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    One(char),
    AnyOne,
    AnyRun,
    Set {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Glob {
    /// Reads a pattern. Returns `None` if a `[` is not closed or the last `\` has nothing after
    /// it.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let mut rest = text.chars();
        let mut parts = Vec::new();
        while let Some(first) = rest.next() {
            let part = match first {
                '*' => Part::AnyRun,
                '?' => Part::AnyOne,
                '\\' => Part::One(rest.next()?),
                '[' => read_set(&mut rest)?,
                other => Part::One(other),
            };
            // A `*` after another matches nothing more and only costs time.
            if part != Part::AnyRun || parts.last() != Some(&Part::AnyRun) {
                parts.push(part);
            }
        }
        Some(Self {
            text: text.to_owned(),
            parts,
        })
    }

    /// True if every name matches.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.parts == [Part::AnyRun]
    }

    /// True if the pattern has a `/`, so it is matched against a path.
    pub(super) fn is_path(&self) -> bool {
        self.text.contains('/')
    }

    /// True if the whole of `name` matches. Takes at most as many steps as the product of both
    /// lengths, whatever the pattern: only the last `*` is tried again.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let (mut part, mut at) = (0, 0);
        let mut last_run: Option<(usize, usize)> = None;
        while at < name.len() {
            match self.parts.get(part) {
                Some(Part::AnyRun) => {
                    last_run = Some((part, at));
                    part += 1;
                }
                Some(one) if one.takes(name[at]) => {
                    part += 1;
                    at += 1;
                }
                _ => {
                    let Some((run, from)) = &mut last_run else {
                        return false;
                    };
                    *from += 1;
                    (part, at) = (*run + 1, *from);
                }
            }
        }
        self.parts[part..].iter().all(|rest| *rest == Part::AnyRun)
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Part {
    fn takes(&self, one: char) -> bool {
        match self {
            Self::One(own) => *own == one,
            Self::AnyOne | Self::AnyRun => true,
            Self::Set { negated, ranges } => {
                let inside = ranges
                    .iter()
                    .any(|(low, high)| (*low..=*high).contains(&one));
                inside != *negated
            }
        }
    }
}

/// Reads the members of a set up to its `]`. A `]` right after the opening bracket, or after its
/// `!`, is a member.
fn read_set(rest: &mut std::str::Chars<'_>) -> Option<Part> {
    let mut members = Vec::new();
    let mut one = rest.next()?;
    let negated = matches!(one, '!' | '^');
    if negated {
        one = rest.next()?;
    }
    loop {
        members.push(if one == '\\' {
            (rest.next()?, true)
        } else {
            (one, false)
        });
        one = rest.next()?;
        if one == ']' {
            break;
        }
    }
    Some(Part::Set {
        negated,
        ranges: ranges_of(&members),
    })
}

/// Turns members joined by a `-` into ranges. The flag of a member is true if it was quoted by `\`;
/// a quoted `-` joins nothing.
fn ranges_of(members: &[(char, bool)]) -> Vec<(char, char)> {
    let mut ranges = Vec::new();
    let mut rest = members;
    while let Some((&(first, _), after)) = rest.split_first() {
        rest = match after {
            [('-', false), (last, _), more @ ..] => {
                ranges.push((first, *last));
                more
            }
            more => {
                ranges.push((first, first));
                more
            }
        };
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "redis-server", true),
            ("", "", true),
            ("", "x", false),
            ("redis*", "redis-server", true),
            ("redis*", "my-redis", false),
            ("*redis*", "my-redis-1", true),
            ("r?dis", "redis", true),
            ("r?dis", "rdis", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]]", "]", true),
            ("[a-]", "-", true),
            ("[a\\-c]", "b", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-d", false),
            ("ü?", "üß", true),
        ] {
            let glob = Glob::new(pattern).unwrap();
            assert_eq!(glob.matches(name), expected, "{pattern} against {name}");
        }
    }

    #[test]
    fn what_is_not_closed_is_no_pattern() {
        for pattern in ["[", "[a", "[]", "[!]", "a\\", "[\\"] {
            assert_eq!(Glob::new(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn many_runs_take_no_longer_than_the_product_of_lengths() {
        // A search that tries every `*` again would not end within a lifetime.
        let glob = Glob::new(&"a*".repeat(60)).unwrap();
        assert!(!glob.matches(&format!("{}b", "x".repeat(5000))));
        let glob = Glob::new(&format!("{}b", "*a".repeat(60))).unwrap();
        assert!(!glob.matches(&"a".repeat(5000)));
    }
}
