//! The graph of modules that use their siblings.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::iter;
use std::path::PathBuf;

/// A name in a line of code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) file: PathBuf,
    pub(super) line: usize,
    pub(super) name: String,
}

/// The uses among siblings; modules are named by their paths in the crate (`ep::state`).
#[derive(Debug, Clone, Default)]
pub(super) struct Graph {
    uses: BTreeMap<(String, String), BTreeSet<Place>>,
}

/// A shortest cycle: each module uses the next one, and the last module uses the first.
#[derive(Debug)]
pub(super) struct Cycle {
    /// User, used module and places, in the order of the cycle.
    pub(super) uses: Vec<(String, String, Vec<Place>)>,
}

impl Graph {
    /// Adds a use of `used` by `user`.
    pub(super) fn add(&mut self, user: String, used: String, place: Place) {
        self.uses.entry((user, used)).or_default().insert(place);
    }

    /// Returns cycles until none is left, the shortest first. After each one its weakest use
    /// counts as cut, so the weakest uses of all returned cycles are one way to make the graph
    /// free of cycles.
    pub(super) fn cycles(&self) -> Vec<Cycle> {
        let mut rest = self.clone();
        let mut cycles = Vec::new();
        while let Some(cycle) = rest.shortest_cycle() {
            let (user, used, _) = cycle.weakest();
            rest.uses.remove(&(user.clone(), used.clone()));
            cycles.push(cycle);
        }
        cycles
    }

    fn shortest_cycle(&self) -> Option<Cycle> {
        let closed = self.uses.keys().filter_map(|(user, used)| {
            let mut path = self.path(used, user)?;
            path.insert(0, user);
            Some(path)
        });
        let shortest = closed.min_by_key(Vec::len)?;
        let uses = shortest.windows(2).map(|pair| {
            let (user, used) = (pair[0].to_owned(), pair[1].to_owned());
            let key = (user, used);
            let places = self.uses[&key].iter().cloned().collect();
            (key.0, key.1, places)
        });
        Some(Cycle {
            uses: uses.collect(),
        })
    }

    /// Returns a shortest path of uses, both ends included. `to` is another module than `from`.
    fn path<'a>(&'a self, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
        let mut users: BTreeMap<&str, &str> = BTreeMap::new();
        let mut next = VecDeque::from([from]);
        while let Some(user) = next.pop_front() {
            if user == to {
                let back = iter::successors(Some(user), |one| users.get(one).copied());
                let mut path: Vec<&str> = back.collect();
                path.reverse();
                return Some(path);
            }
            for (_, used) in self.uses.keys().filter(|(one, _)| one == user) {
                if used != from && !users.contains_key(used.as_str()) {
                    users.insert(used, user);
                    next.push_back(used);
                }
            }
        }
        None
    }
}

impl Cycle {
    /// The use of the fewest names, which is often the easiest one to cut.
    pub(super) fn weakest(&self) -> &(String, String, Vec<Place>) {
        let weakest = self.uses.iter().min_by_key(|(_, _, places)| places.len());
        weakest.expect("a cycle has at least two uses")
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (user, _, _) in &self.uses {
            write!(f, "{user} -> ")?;
        }
        write!(f, "{}", self.uses[0].0)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} (`{}`)", self.file.display(), self.line, self.name)
    }
}
