//! DAT object semantics, once, for every provider.
//!
//! A provider crate implements [`Rnic`](rnic::Rnic) and calls [`export_provider!`]. This crate
//! contains everything of DAT between the registry library and the RNIC that a consumer uses:
//! handles, objects, states, events, return codes.
//!
//! | Module | Holds |
//! |---|---|
//! | `macros` | exporting a provider |
//! | [`provider`] | the table of entry points for an `R: Rnic`, init and fini |
//! | `extension` `iw_extension` `ib_extension` | extension operations of iWARP and InfiniBand |
//! | `thunk` | C arguments to Rust and results to `DAT_RETURN`, one file per object |
//! | [`lifecycle`] | opening an interface adapter, and closing it with its children |
//! | [`dispatch`] | dispatch of an RNIC's events to objects |
//! | [`sp`] | service points |
//! | `delivery` | taking events and triggers, and the effects on endpoints and requests |
//! | [`cr`] | connection request |
//! | [`rmr`] [`ep`] | memory window, endpoint |
//! | [`evd`] [`cno`] | event dispatcher and its notification object |
//! | [`srq`] [`lmr`] [`pz`] | shared receive queue, memory region, protection zone |
//! | [`ia`] `attr` `counters` | interface adapter, its attributes, and its counters |
//! | `announced` `registry` | the names that were announced, and the registry that announced them |
//! | `consumer_socket` `addr` | ownership of a socket that a consumer has connected; socket addresses |
//! | [`users`] | use counts, which keep an object from being freed while it is used |
//! | [`handle`] | the table of handles |
//! | [`error`] `open_error` | `DatError` and the mapping of an RNIC's errors; the reason why an IA was not opened |
//! | [`logging`] | the log of a provider library |
//! | `fake_rnic` | an RNIC in memory (feature `testing`) |
//! | `scripted_rnic` `harness` | an RNIC that does what a test specifies, and common code of the tests here |
//!
//! A module uses only modules below it in this table. `cargo xtask tidy` checks that.
//!
//! # Ownership
//!
//! A handle's slot owns its object by an `Arc`. Objects own by `Arc` the objects that they need (an
//! EP its EVDs, every object its IA). Freeing retires the handle at once; the object is dropped
//! when the last call that pinned it returns. The drop of an IA shuts the RNIC down, so it happens
//! after the drops of all other objects.
//!
//! # Lock order
//!
//! IA children, EP, EVD, CNO, then the locks of the RNIC. A lock is held for a few memory accesses.
//! No lock is held during a call of the RNIC that may make an upcall, or during a call of the
//! consumer's code. The data path takes one EVD lock for a completion and none for a post.

#[macro_use]
extern crate rnic;

#[macro_use]
mod macros;

pub use dat_abi as abi;

mod addr;
mod announced;
mod attr;
pub mod cno;
mod consumer_socket;
mod counters;
pub mod cr;
mod delivery;
pub mod dispatch;
pub mod ep;
pub mod error;
pub mod evd;
mod extension;
pub mod handle;
pub mod ia;
mod ib_extension;
mod iw_extension;
pub mod lifecycle;
pub mod lmr;
pub mod logging;
mod open_error;
pub mod provider;
pub mod pz;
mod registry;
pub mod rmr;
pub mod sp;
pub mod srq;
mod thunk;
pub mod users;

// In the order in which they are taken.
#[cfg(not(miri))]
host::hold_during_forks! {
    logging::BEGINNING,
    cno::POOL,
    cno::WAITING,
    announced::ANNOUNCED,
    handle::Locks,
}

#[cfg(any(test, feature = "testing"))]
pub mod fake_rnic;

#[cfg(test)]
mod harness;
#[cfg(test)]
mod scripted_rnic;
