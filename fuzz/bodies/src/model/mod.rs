//! A small engine around one connection, which believes nothing.
//!
//! | Module | Holds |
//! |---|---|
//! | [`memory`] | registrations and receives; remembers what was granted |
//! | [`engine`] | framing, placing, transmitting; compares each act with what was granted |

pub mod engine;
pub mod memory;
