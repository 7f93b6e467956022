//! The one provider registry of a process. Which file is read, and its grammar, are `dat_conf`'s.
//!
//! | Module | Owns |
//! |---|---|
//! | [`builtin`] | entries for local interfaces when there is no file at all |
//! | [`static_`] | entries of the file, the libraries loaded for them, references to those |
//! | [`load`] | `dlopen`, the entry points of a provider library |
//! | `key` | what a provider is found by: name, version, thread safety |
//! | [`dynamic`] | providers that registered themselves |
//! | [`ia_table`] | the small integers consumers know IAs by |
//! | [`open`] | `dat_ia_openv` and `dat_ia_close` over all of the above |
//! | [`queries`] | references held by extension queries |
//!
//! Locks: the static registry, the dynamic registry and the IA table have one each; none is held
//! while another is taken, and none while code of a provider or of the dynamic loader runs. OFA's
//! library holds its static lock during `dat_provider_init`; here init may call back into every
//! entry. The one thing it cannot do is to open the very name it is being initialised for, which is
//! refused.

pub mod builtin;
pub mod dynamic;
pub mod ia_table;
mod key;
pub mod load;
pub mod open;
pub mod queries;
pub mod static_;

pub use key::Key;

use dat_abi::*;

/// No provider is registered under the name, version and thread safety asked for.
pub const NOT_REGISTERED: DatReturn =
    DatReturn::error(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
