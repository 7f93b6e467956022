//! `libdat2.so.2`: the C entries of DAT 2.0 and the one provider registry of a process.
//!
//! | Module | Holds |
//! |---|---|
//! | [`entry`] | the exported C functions, one file per object: handle, provider, slot, nothing else |
//! | [`handle`] | turning any word a consumer passes into a provider, without ever faulting |
//! | [`registry`] | `dat.conf`, loading and unloading of providers, IA handles |
//! | [`strerror`] | return codes as text |
//! | [`log`] | where diagnostics go |
//!
//! Invariants:
//!
//! - An entry holds no semantics. Whatever DAT says about arguments and states is the provider's
//!   business; here a handle is resolved, a slot is called and its result is returned.
//! - No lock is held while code of a provider or of the dynamic loader runs.
//! - No handle value makes an entry fault; see [`handle`] for what is checked and how.
//! - Nothing happens before the first call. OFA's library reads `dat.conf` before `main`; reading
//!   it on first use gives the same results, costs idle programs nothing, and cannot run before the
//!   program's own initialisers have. Nothing happens at exit either: providers of IAs that are
//!   still open are not told, and calls from late destructors still work.
//!
//! The crate is a static library. The shared library is linked from it by the C compiler driver,
//! following `link.txt`, because `rustc` cannot place symbols under the version node `DAT_2.0`,
//! which every existing DAT 2.0 program asks for.

pub mod entry;
pub mod handle;
pub mod log;
pub mod registry;
pub mod strerror;

/// A process that runs out of memory is told so by the calls that need some.
#[global_allocator]
static ALLOCATOR: reserve::Reserve = reserve::Reserve;
