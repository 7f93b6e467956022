//! Attacks of a peer around the move to shared memory. Each test runs alone, because it counts the
//! descriptors and mappings of the process.
//!
//! | File | Contents |
//! |---|---|
//! | `meeting` | a peer that violates the protocol during the move |
//! | `rfc5042` | the attacks of RFC 5042, over TCP and through shared memory |

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod meeting;
mod rfc5042;
#[path = "../support/mod.rs"]
mod support;
