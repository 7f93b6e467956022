//! A case: its name, the rule that it checks, and the code of each end.

use std::fmt;

use crate::side::Side;

/// The code of one end of a case. It fails with an error that names the deviation from DAT.
pub(crate) type Part = fn(&mut Side) -> anyhow::Result<()>;

/// A check of one rule of DAT.
#[derive(Clone)]
pub(crate) struct Case {
    /// Object and behaviour, as `evd/timeout`.
    pub(crate) name: String,
    /// The rule, in words.
    pub(crate) about: &'static str,
    pub(crate) parts: Parts,
    /// The parameter that distinguishes this case from others with the same parts, mostly a length.
    pub(crate) size: usize,
    /// True if the case takes long; such cases run only on request.
    pub(crate) long: bool,
}

/// The code of each end.
#[derive(Clone, Copy)]
pub(crate) enum Parts {
    /// Code for the client's process alone.
    Alone(Part),
    /// Code for both ends of a connection.
    Both { client: Part, server: Part },
}

impl Case {
    /// Makes a case that needs no peer.
    pub(crate) fn alone(name: &str, about: &'static str, part: Part) -> Self {
        Self::new(name, about, Parts::Alone(part))
    }

    /// Makes a case that needs both ends.
    pub(crate) fn both(name: &str, about: &'static str, client: Part, server: Part) -> Self {
        Self::new(name, about, Parts::Both { client, server })
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

    /// Sets the size of the case.
    pub(crate) fn sized(mut self, size: usize) -> Self {
        self.size = size;
        self
    }

    /// Marks the case as long.
    pub(crate) fn long(mut self) -> Self {
        self.long = true;
        self
    }

    /// Returns this case and its mirror image, in which the accepting end runs the part of the
    /// connecting end and vice versa.
    pub(crate) fn each_way(self) -> [Self; 2] {
        let mut mirrored = self.clone();
        mirrored.name.push_str("/from-server");
        if let Parts::Both { client, server } = self.parts {
            mirrored.parts = Parts::Both {
                client: server,
                server: client,
            };
        }
        [self, mirrored]
    }
}

/// Declares a function that returns the cases of a table. A row has the name, the rule, and the
/// code of the client, or of both ends. `each way` makes a second case, in which the ends are
/// exchanged.
macro_rules! cases {
    ($vis:vis fn $cases:ident: $(
        $name:literal: $about:literal =>
            $client:ident $(, $server:ident $(, each $way:ident)?)?;
    )+) => {
        $vis fn $cases() -> Vec<$crate::case::Case> {
            let mut cases = Vec::new();
            $(cases.extend(
                $crate::case::cases!(@ $name, $about, $client $(, $server $(, $way)?)?)
            );)+
            cases
        }
    };
    (@ $name:literal, $about:literal, $client:ident) => {
        [$crate::case::Case::alone($name, $about, $client)]
    };
    (@ $name:literal, $about:literal, $client:ident, $server:ident) => {
        [$crate::case::Case::both($name, $about, $client, $server)]
    };
    (@ $name:literal, $about:literal, $client:ident, $server:ident, way) => {
        $crate::case::Case::both($name, $about, $client, $server).each_way()
    };
}
pub(crate) use cases;

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Returns true if `name` matches `glob`, where `*` stands for any text.
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
