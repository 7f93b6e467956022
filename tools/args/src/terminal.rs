//! Colours on standard output.

use std::fmt;
use std::io::{IsTerminal as _, stdout};

use host::environment;

/// The colour of a word (ECMA-48).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// A problem.
    Red = 31,
    /// The desired state.
    Green = 32,
    /// A state that may be intended.
    Yellow = 33,
}

/// True if words may be coloured: standard output is a terminal, and neither
/// [`NO_COLOR`](https://no-color.org) nor the terminal's type forbids it.
#[must_use]
pub fn has_colours() -> bool {
    let forbidden = environment::variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    let kind = environment::variable("TERM").unwrap_or_default();
    stdout().is_terminal() && !forbidden && !kind.is_empty() && kind != "dumb"
}

/// Returns the word, in the colour if there is one.
#[must_use]
pub fn painted(word: impl fmt::Display, colour: Option<Colour>) -> String {
    match colour {
        Some(colour) => format!("\x1b[{}m{word}\x1b[0m", colour as u8),
        None => word.to_string(),
    }
}
