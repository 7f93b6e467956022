//! Connections of the software RNIC, called through the trait. These tests share one binary,
//! because each of them uses RNICs of its own and nothing that belongs to the process.
//!
//! | File | Contents |
//! |---|---|
//! | `data` | posted requests: their order, their notifications, and limits |
//! | `driving` | which thread makes progress |
//! | `endings` | the ends of connections, and the completion of posted work |
//! | `frames` | frames on the wire, byte by byte |
//! | `many` | more connections than the provider polls one by one |
//! | `mappings` | registered memory that is mapped for reading only, and memory of files |
//! | `markers` | MPA markers |
//! | `order` | the order of events of different connections |
//! | `placing` | long frames without CRC |
//! | `siw` | the rules for Linux siw |
//! | `sockets` | consumers' sockets: conversions, and their return |
//! | `startup` | the start-up of connections, and each way in which it fails |

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod data;
mod driving;
mod endings;
mod frames;
mod many;
mod mappings;
mod markers;
mod order;
mod placing;
mod siw;
mod sockets;
mod startup;
#[path = "../support/mod.rs"]
mod support;
