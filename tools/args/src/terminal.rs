//! Standard output: its colours, and its ends.

use std::fmt;
use std::io::{ErrorKind, IsTerminal as _, Write as _, stdout};
use std::path::Path;
use std::process::exit;

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

/// Prints a line on standard output, as [`print()`] does.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {
        $crate::terminal::print(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// Prints on standard output. Ends the program if that fails: with success if a reader such as
/// `head` has closed the pipe before the end, otherwise with a message and exit code 1.
pub fn print(text: impl fmt::Display) {
    let mut out = stdout().lock();
    let Err(error) = write!(out, "{text}").and_then(|()| out.flush()) else {
        return;
    };
    if error.kind() == ErrorKind::BrokenPipe {
        exit(0);
    }
    let program = std::env::args_os().next().unwrap_or_default();
    let program = Path::new(&program).file_name().unwrap_or_default();
    eprintln!("{}: writing to standard output: {error}", program.display());
    exit(1);
}
