//! The sockets of all processes, in shared pages that a tool reads without stopping a process.
//!
//! Each process with sockets of the offload protocol switch keeps a file of records in memory, one
//! record per socket. It writes by plain stores into its own mapping, so counting bytes costs no
//! system call, no lock and no allocation. A reader copies the file and validates everything in it.
//!
//! | File | Contents |
//! |---|---|
//! | [`layout`] | the bytes of a page, versioned |
//! | [`description`], [`state`], `counter` | the contents of a record |
//! | [`writer`], [`record`] | the page of this process, and its records |
//! | [`native`] | the records of sockets that stay on TCP |
//! | `page`, `claims` | the mapping, and its records in use |
//! | [`directory`] | the directories of pages, and the names of the files |
//! | [`process`] | checks whether the process of a page still runs |
//! | [`snapshot`] | the parser from untrusted bytes to sockets, or to a fault |
//! | [`listing`] | all pages that the caller may read; those of dead processes are removed |
//!
//! A directory belongs to one user, and only that user and the superuser may read it. If pages
//! cannot be made, nothing is observed, and nothing else changes.

mod claims;
mod counter;
pub mod description;
pub mod directory;
pub mod layout;
pub mod listing;
pub mod native;
mod page;
pub mod process;
pub mod record;
pub mod snapshot;
pub mod state;
pub mod writer;

pub use counter::{Counter, Meter};
pub use description::{Carrier, Description, Kind};
pub use directory::PageRoot;
pub use listing::{Listing, Process};
pub use native::{Native, NativeRecord, ReasonText};
pub use record::{Record, Tally};
pub use snapshot::{Fault, Row, Snapshot, Totals};
pub use state::State;
pub use writer::Writer;
