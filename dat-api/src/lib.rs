//! Safe Rust API over DAT 2.0.
