//! The bindings that `cargo xtask bindings` generates.

/// The functions of librdmacm.
pub mod cm;
/// Structures and constants of both libraries.
pub mod types;
/// The functions of libibverbs.
pub mod verbs;
