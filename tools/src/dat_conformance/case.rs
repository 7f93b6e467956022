//! A case: what it is called, what it holds, and the parts of its ends.

use std::fmt;

use crate::side::Side;

/// What one end of a case does. It fails by an error that says what was not as DAT says.
pub(crate) type Part = fn(&mut Side) -> anyhow::Result<()>;

/// One thing that DAT promises.
#[derive(Clone)]
pub(crate) struct Case {
    /// Object and behaviour, as `evd/timeout`.
    pub(crate) name: String,
    /// The promise.
    pub(crate) about: &'static str,
    pub(crate) parts: Parts,
    /// What distinguishes it from others with the same parts, a length mostly.
    pub(crate) size: usize,
    /// Takes more than a moment.
    pub(crate) long: bool,
}

/// Rows of a table of cases that need no peer: name, promise, part.
pub(crate) type Alone = (&'static str, &'static str, Part);

/// Rows of a table of cases with two ends: name, promise, client's part, server's part.
pub(crate) type Both = (&'static str, &'static str, Part, Part);

/// Who does what.
#[derive(Clone, Copy)]
pub(crate) enum Parts {
    /// The client's process alone.
    Alone(Part),
    /// Both ends of a connection.
    Both { client: Part, server: Part },
}

impl Case {
    /// One that needs no peer.
    pub(crate) fn alone(name: &str, about: &'static str, part: Part) -> Self {
        Self::new(name, about, Parts::Alone(part))
    }

    /// One that needs both ends.
    pub(crate) fn both(name: &str, about: &'static str, client: Part, server: Part) -> Self {
        Self::new(name, about, Parts::Both { client, server })
    }

    /// A table of the first kind.
    pub(crate) fn all_alone(rows: &[Alone]) -> Vec<Self> {
        let case = |(name, about, part): &Alone| Self::alone(name, about, *part);
        rows.iter().map(case).collect()
    }

    /// A table of the second kind.
    pub(crate) fn all_both(rows: &[Both]) -> Vec<Self> {
        let case = |(name, about, client, server): &Both| Self::both(name, about, *client, *server);
        rows.iter().map(case).collect()
    }

    /// A table of the second kind, each way.
    pub(crate) fn all_each_way(rows: &[Both]) -> Vec<Self> {
        let cases = Self::all_both(rows);
        cases.into_iter().flat_map(Self::each_way).collect()
    }

    fn new(name: &str, about: &'static str, parts: Parts) -> Self {
        Self {
            name: name.to_owned(),
            about,
            parts,
            size: 0,
            long: false,
        }
    }

    /// The same with a size of its own.
    pub(crate) fn sized(mut self, size: usize) -> Self {
        self.size = size;
        self
    }

    /// The same for those who have time.
    pub(crate) fn long(mut self) -> Self {
        self.long = true;
        self
    }

    /// The same, and once more with its parts exchanged: the accepting end does what the connecting
    /// one did.
    pub(crate) fn each_way(self) -> [Self; 2] {
        let mut turned = self.clone();
        turned.name.push_str("/from-server");
        if let Parts::Both { client, server } = self.parts {
            turned.parts = Parts::Both {
                client: server,
                server: client,
            };
        }
        [self, turned]
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Whether `name` is what `glob` describes, where `*` stands for any text.
pub(crate) fn matches(glob: &str, name: &str) -> bool {
    let Some((before, after)) = glob.split_once('*') else {
        return glob == name;
    };
    let Some(rest) = name.strip_prefix(before) else {
        return false;
    };
    let starts = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    starts.into_iter().any(|at| matches(after, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        assert!(matches("evd/*", "evd/timeout"));
        assert!(matches("*", ""));
        assert!(matches("*/from-server", "send/1/from-server"));
        assert!(matches("s*/1*", "send/16M"));
        assert!(!matches("evd/*", "cno/timeout"));
        assert!(!matches("evd", "evd/timeout"));
        assert!(!matches("*/x", "evd/xy"));
    }
}
