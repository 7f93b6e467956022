//! libibverbs and librdmacm, loaded at run time.
//!
//! | File | Contents |
//! |---|---|
//! | [`types`] | structures and constants of both (generated) |
//! | [`verbs`] [`cm`] | their functions (generated) |
//! | `load` | loading of the libraries, and the error when one is missing |
//! | `inline` | the verbs that the C header defines inline, through the device's operations |
//!
//! Nothing is linked: a program with this crate starts on a machine without the libraries, and
//! [`Libraries::load`] reports what is missing. The build needs nothing but rustc: the bindings are
//! checked in, and `cargo xtask bindings` generates them again.

/// The functions of librdmacm.
#[allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    unreachable_pub,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    unsafe_op_in_unsafe_fn,
    reason = "generated; the C headers are the documentation"
)]
pub mod cm;
mod inline;
mod load;
/// Structures and constants of both libraries.
#[allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    unreachable_pub,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    unsafe_op_in_unsafe_fn,
    reason = "generated; the C headers are the documentation"
)]
pub mod types;
/// The functions of libibverbs.
#[allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    unreachable_pub,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    unsafe_op_in_unsafe_fn,
    reason = "generated; the C headers are the documentation"
)]
pub mod verbs;

pub use inline::{
    alloc_mw, bind_mw, dealloc_mw, poll_cq, post_recv, post_send, post_srq_recv, req_notify_cq,
};
pub use load::{Libraries, LoadError};
