//! A case: its name, the rule that it checks, and the code of each end.

use std::fmt;
use std::rc::Rc;

use anyhow::Result;

use crate::side::Side;

/// The code of one end of a case. It fails with an error that names the deviation from DAT.
pub(crate) type Part = Rc<dyn Fn(&mut Side<'_>) -> Result<()>>;

/// The objects from which the code of an end starts.
pub(crate) trait Start: Sized {
    fn start(side: &mut Side<'_>) -> Result<Self>;
}

/// The code of an end in each of its forms: with or without objects to start from, and with or
/// without a use of the [`Side`] after them.
pub(crate) trait IntoPart<Arguments> {
    fn into_part(self) -> Part;
}

impl<F: Fn(&mut Side<'_>) -> Result<()> + 'static> IntoPart<()> for F {
    fn into_part(self) -> Part {
        Rc::new(self)
    }
}

impl<S: Start, F: Fn(S) -> Result<()> + 'static> IntoPart<(S,)> for F {
    fn into_part(self) -> Part {
        Rc::new(move |side| self(S::start(side)?))
    }
}

impl<S: Start, F: Fn(S, &mut Side<'_>) -> Result<()> + 'static> IntoPart<(S, Side<'_>)> for F {
    fn into_part(self) -> Part {
        Rc::new(move |side| self(S::start(side)?, side))
    }
}

/// A check of one rule of DAT.
#[derive(Clone)]
pub(crate) struct Case {
    /// Object and behaviour, as `evd/timeout`.
    pub(crate) name: String,
    /// The rule, in words.
    pub(crate) about: &'static str,
    pub(crate) client: Part,
    /// The code of the other end of a connection; `None` if the case needs no peer.
    pub(crate) server: Option<Part>,
    /// The parameter that distinguishes this case from others with the same parts, mostly a length.
    pub(crate) size: usize,
    /// True if the case takes long; such cases run only on request.
    pub(crate) long: bool,
}

impl Case {
    /// Makes a case that needs no peer.
    pub(crate) fn alone<C>(name: &str, about: &'static str, part: impl IntoPart<C>) -> Self {
        Self {
            name: name.to_owned(),
            about,
            client: part.into_part(),
            server: None,
            size: 0,
            long: false,
        }
    }

    /// Makes a case that needs both ends.
    pub(crate) fn both<C, S>(
        name: &str,
        about: &'static str,
        client: impl IntoPart<C>,
        server: impl IntoPart<S>,
    ) -> Self {
        Self {
            server: Some(server.into_part()),
            ..Self::alone(name, about, client)
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
        if let Some(server) = &mut mirrored.server {
            std::mem::swap(server, &mut mirrored.client);
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
            $client:expr $(, $server:expr $(, each $way:ident)?)?;
    )+) => {
        $vis fn $cases() -> Vec<$crate::case::Case> {
            let mut cases = Vec::new();
            $(cases.extend(
                $crate::case::cases!(@ $name, $about, $client $(, $server $(, $way)?)?)
            );)+
            cases
        }
    };
    (@ $name:literal, $about:literal, $client:expr) => {
        [$crate::case::Case::alone($name, $about, $client)]
    };
    (@ $name:literal, $about:literal, $client:expr, $server:expr) => {
        [$crate::case::Case::both($name, $about, $client, $server)]
    };
    (@ $name:literal, $about:literal, $client:expr, $server:expr, way) => {
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
