//! The life of a process: its start, its forks, the program that takes its place, its end.
//!
//! | File | What |
//! |---|---|
//! | [`loading`] | what the loader runs before `main` |
//! | [`forking`] | what the parent prepares for the child of a `fork`, and what the child begins with |
//! | [`executing`] | an `exec` by a process that carries connections itself |
//! | [`exiting`] | the end, which waits until what was written is delivered |

pub(crate) mod executing;
pub(crate) mod exiting;
pub(crate) mod forking;
mod loading;
