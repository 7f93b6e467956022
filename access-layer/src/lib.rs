//! DAT object semantics, once, for every provider.
//!
//! A provider crate implements [`rnic::Rnic`] and says [`export_provider!`]; everything a consumer
//! sees of DAT between the registry library and the RNIC is in this crate: handles, objects,
//! states, events, return codes.
//!
//! | Module | Holds |
//! |---|---|
//! | `macros` | exporting a provider |
//! | [`provider`] | the table of entry points for an `R: Rnic`, init and fini |
//! | `extension` `iw_extension` `ib_extension` | extension operations of iWARP and InfiniBand |
//! | `thunk` | C arguments to Rust and results to `DAT_RETURN`, one file per object |
//! | [`lifecycle`] | opening an interface adapter, and closing it with its children |
//! | [`dispatch`] | what becomes of an RNIC's news |
//! | [`sp`] | service points |
//! | `delivery` | taking events and triggers, and what that does to endpoints and requests |
//! | [`cr`] | connection request |
//! | [`rmr`] [`ep`] | memory window, endpoint |
//! | [`evd`] [`cno`] | event dispatcher and its notification object |
//! | [`srq`] [`lmr`] [`pz`] | shared receive queue, memory region, protection zone |
//! | [`ia`] `attr` `counters` | interface adapter, its attributes, and its counters |
//! | `announced` `registry` | the names that were announced, and the registry that did |
//! | `consumer_socket` `addr` | who owns a socket that a consumer has connected; socket addresses |
//! | [`users`] | counting who uses an object, so that it is not freed under them |
//! | [`handle`] | the table of handles |
//! | [`error`] `open_error` | `DatError` and what becomes of an RNIC's refusal; why an IA was not opened |
//! | [`net_device`] [`logging`] | for providers: network devices and addresses, and the log |
//! | [`rnic`] | the interface to the RNIC |
//! | `conformance` `fake_rnic` | the suite for every RNIC, and one in memory (feature `testing`) |
//! | `scripted_rnic` `harness` | an RNIC that does what a test says, and what the tests here share |
//!
//! A module uses those below it. `cargo xtask tidy` checks that.
//!
//! # Ownership
//!
//! A handle's slot owns its object by an `Arc`; objects own by `Arc` what they cannot do without
//! (an EP its EVDs, everything its IA). Freeing retires the handle at once; the object goes when
//! the last call that pinned it returns. An IA's drop is what shuts the RNIC down, so it comes last
//! by construction.
//!
//! # Lock order
//!
//! IA children, EP, EVD, CNO, then the RNIC's own. A lock is held for a few moves of memory, never
//! over a call of the RNIC that may call up and never over a call of the consumer's code. The data
//! path takes one EVD lock on the way up and none on the way down.

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
pub mod net_device;
mod open_error;
pub mod provider;
pub mod pz;
mod registry;
pub mod rmr;
pub mod rnic;
pub mod sp;
pub mod srq;
mod thunk;
pub mod users;

#[cfg(any(test, feature = "testing"))]
pub mod conformance;
#[cfg(any(test, feature = "testing"))]
pub mod fake_rnic;

#[cfg(test)]
mod harness;
#[cfg(test)]
mod scripted_rnic;
