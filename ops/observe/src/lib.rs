//! The sockets of all processes, in shared pages that a tool reads without stopping anybody.
//!
//! Each process that has sockets in the care of the offload protocol switch keeps a file of records
//! in memory, one record a socket. It writes by plain stores into its own mapping: counting bytes
//! costs no system call, no lock and no allocation. A reader copies the file and believes nothing
//! that it finds there.
//!
//! | File | What |
//! |---|---|
//! | [`layout`] | the bytes of a page, versioned |
//! | [`description`], [`state`] | what a record says of a socket |
//! | [`writer`], [`record`] | the page of this process, and its records |
//! | `page` | the mapping, and which of its records are free |
//! | [`place`] | where pages lie, and under which names |
//! | [`process`] | whether the process of a page still runs |
//! | [`snapshot`] | from bytes of anybody to sockets, or to a fault |
//! | [`listing`] | all pages that the caller may read; those of dead processes are removed |
//!
//! A directory belongs to one user and only he may look into it; the superuser may look into all.
//! Where pages cannot be made, nothing is observed and nothing else changes.

pub mod description;
pub mod layout;
pub mod listing;
mod page;
pub mod place;
pub mod process;
pub mod record;
pub mod snapshot;
pub mod state;
pub mod writer;

pub use description::{Carrier, Description, Kind};
pub use listing::{Listing, Process};
pub use place::Place;
pub use record::{Counter, Record, Tally};
pub use snapshot::{Fault, Row, Snapshot, Totals};
pub use state::State;
pub use writer::Writer;
