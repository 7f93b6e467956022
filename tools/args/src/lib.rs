//! The command lines of the tools.
//!
//! A tool parses its command line with these declarations, and `cargo xtask` generates manual pages
//! and shell completions from them.
//!
//! | Module | Tool |
//! |---|---|
//! | `bench` | `dat-bench`, with the cases that its options name |
//! | `conformance` | `dat-conformance` |
//! | `datinfo` | `datinfo` |
//! | `opsrun` | `opsrun` |
//! | `sdp_checker` | `sdp-checker` |

pub mod bench;
pub mod conformance;
pub mod datinfo;
pub mod opsrun;
pub mod sdp_checker;
