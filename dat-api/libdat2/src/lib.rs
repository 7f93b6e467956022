//! `libdat2.so.2`: the C entries of DAT 2.0 and the one provider registry of a process.
//!
//! | Module | Holds |
//! |---|---|
//! | [`entry`] | the exported C functions, most of which resolve a handle and call a slot of its provider |
//! | [`handle`] | resolution of a handle, which may be any value, to its provider, without ever faulting |
//! | [`registry`] | `dat.conf`, loading and unloading of providers, opening and closing of IAs |
//! | [`ia_table`] | the small integers that consumers use as handles of IAs |
//! | [`key`] | the search key of a provider: name, version, thread safety |
//! | [`strerror`] | return codes as text |
//! | [`log`] | output of diagnostics |
//!
//! Invariants:
//!
//! - An entry has no semantics. The provider implements the rules of DAT about arguments and
//!   states. An entry resolves a handle, calls a slot and returns its result.
//! - No lock is held while code of a provider or of the dynamic loader runs.
//! - No handle value makes an entry fault; see [`handle`] for the checks.
//! - The library does nothing before the first call. OFA's library reads `dat.conf` before `main`.
//!   Reading the file on first use has the same results, costs idle programs nothing, and cannot
//!   run before the program's own initialisers. The library does nothing at exit either: providers
//!   of open IAs are not notified, and calls from late destructors still work.
//!
//! The crate is a static library. The shared library is linked from it by the C compiler driver,
//! following `link.txt`, because `rustc` cannot place symbols under the version node `DAT_2.0`,
//! which every existing DAT 2.0 program requires.

pub mod entry;
pub mod handle;
pub mod ia_table;
pub mod key;
pub mod log;
pub mod registry;
pub mod strerror;

// Calls that need memory report an error when the process runs out of it.
host::allocate_with_reserve!();

// No lock is taken while another of these is held.
host::hold_during_forks! {
    registry::forks::Providers,
    log::BEGINNING,
    registry::static_::Locks,
    registry::dynamic::global().registrations,
    registry::queries::OPEN,
    registry::load::HALF_LOADED,
    ia_table::WRITING,
}
