//! The one provider registry of a process. `dat_conf` chooses the file and defines its grammar.
//!
//! | Module | Owns |
//! |---|---|
//! | [`builtin`] | entries for local interfaces when there is no file at all |
//! | [`static_`] | entries of the file, the libraries loaded for them, references to these libraries |
//! | [`load`] | `dlopen`, the entry points of a provider library |
//! | [`forks`] | the loads and the locks of provider libraries during a fork |
//! | [`dynamic`] | providers that registered themselves |
//! | [`open`] | `dat_ia_openv` and `dat_ia_close` over both registries and the IA table |
//! | [`queries`] | references held by extension queries |
//!
//! The static registry, the dynamic registry and the IA table have one lock each, which a thread
//! that forks holds during the fork. No lock is held while another lock is taken, or while code of
//! a provider or of the dynamic loader runs, except that a thread that forks asks the libraries of
//! providers for their locks. OFA's library holds its static lock during
//! `dat_provider_init`. Here init may call every entry, except an open of the name for which the
//! provider is being initialised, which is refused.

pub mod builtin;
pub mod dynamic;
pub(crate) mod forks;
pub mod load;
pub mod open;
pub mod queries;
pub mod static_;

use dat_abi::*;

/// No provider is registered under the requested name, version and thread safety.
pub const NOT_REGISTERED: DatReturn =
    DatReturn::error(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
