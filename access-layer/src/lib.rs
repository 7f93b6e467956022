//! DAT object semantics.
pub mod rnic;
