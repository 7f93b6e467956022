//! libibverbs and librdmacm, loaded at run time.
//!
//! | File | Contents |
//! |---|---|
//! | `generated` | structures and constants of both ([`types`]), and their functions ([`verbs`], [`cm`]) |
//! | `functions` | the structures that hold the functions of a library |
//! | `zero` | zero as the default value of structures |
//! | `load` | loading of the libraries, and the error when one is missing |
//! | `inline` | the verbs that the C header defines inline, through the device's operations |
//!
//! Nothing is linked: a program with this crate starts on a machine without the libraries, and
//! [`Libraries::load`] reports what is missing. The build needs nothing but rustc: the bindings are
//! checked in, and `cargo xtask bindings` generates them again.

#[macro_use]
mod functions;
#[allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    clippy::all,
    reason = "generated; the C headers are the documentation"
)]
mod generated;
mod inline;
mod load;
mod zero;

pub use generated::{cm, types, verbs};
pub use inline::{
    alloc_mw, bind_mw, dealloc_mw, poll_cq, post_recv, post_send, post_srq_recv, req_notify_cq,
};
pub use load::{Libraries, LoadError};
