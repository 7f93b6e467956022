//! The start, `fork`, `exec` and exit of the process.
//!
//! | File | Contents |
//! |---|---|
//! | [`loading`] | the initialization, which the loader runs before `main` |
//! | [`forking`] | the state that the parent of a `fork` prepares and the child adopts |
//! | [`executing`] | `exec` by a process that owns offloaded connections |
//! | [`exiting`] | exit, which waits until all written bytes are delivered |

pub(crate) mod executing;
pub(crate) mod exiting;
pub(crate) mod forking;
mod loading;
