//! A small engine around one connection, which checks every claim of the connection.
//!
//! | Module | Contents |
//! |---|---|
//! | [`memory`] | registrations and receives; records what was granted |
//! | [`engine`] | framing, placing, transmitting; compares each operation with what was granted |

pub mod engine;
pub mod memory;
