//! The declarations of the tools' command lines, and their output on a terminal.
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
//! | `verbsrun` | `verbsrun` |
//!
//! `terminal` has the colours, and prints.

pub mod bench;
pub mod conformance;
pub mod datinfo;
pub mod opsrun;
pub mod sdp_checker;
pub mod terminal;
pub mod verbsrun;
