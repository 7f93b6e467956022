//! The C types of DAT 2.0 (uDAPL), exactly as a C compiler lays them out on 64-bit Linux.
//!
//! This crate is the one place that defines the binary interface. It has no dependencies and no
//! exported symbols. So every other crate, including those that become shared libraries, may depend
//! on it without containing a second registry. Every size and offset is asserted at compile time.
//!
//! | Module | Holds |
//! |---|---|
//! | [`scalar`] | counts, lengths, addresses, the 8-byte context union |
//! | [`socket_addr`] | socket addresses between Rust and C |
//! | [`handle`] | handle aliases and handle kinds |
//! | [`return_code`] | `DAT_RETURN` taken apart into class, type and subtype |
//! | [`flags`] | the other C enums: memory types, states, completion flags |
//! | [`mask`] | parameter masks of the query and modify calls |
//! | [`memory`] | triplets and region descriptions |
//! | [`attr`] | attributes of IA, provider, EP and SRQ |
//! | [`param`] | results of the query calls |
//! | [`event`] | `DAT_EVENT`, its union, event numbers |
//! | [`event_name`](mod@event_name) | the names of events in C |
//! | [`function`] | one function type for every slot of the provider table |
//! | [`provider`] | `struct dat_provider` and `DAT_PROVIDER_INFO` |
//! | `layout` | macros that state values, sizes and offsets |
//! | [`extension`] | IB extension 209, iWARP Socket Service Points, operations of dat-rs itself |
//!
//! Types are spelt in CamelCase with the prefix `Dat`; constants keep their C spelling. A C enum is
//! an integer alias here, never a Rust enum: C may pass any value, and a Rust enum with an
//! undeclared value would be undefined behaviour.

#![no_std]

#[cfg(not(all(target_pointer_width = "64", target_os = "linux")))]
compile_error!("the DAT 2.0 layouts in this crate are those of 64-bit Linux");

#[macro_use]
mod layout;

pub mod attr;
pub mod event;
pub mod event_name;
pub mod extension;
pub mod flags;
pub mod function;
pub mod handle;
pub mod mask;
pub mod memory;
pub mod param;
pub mod provider;
pub mod return_code;
pub mod scalar;
pub mod socket_addr;

pub use attr::*;
pub use event::*;
pub use event_name::*;
pub use extension::ib::*;
pub use extension::iw::*;
pub use extension::{DAT_CLOSE_EXTENSION_BASE, DAT_OPEN_EXTENSION_BASE};
pub use flags::*;
pub use function::*;
pub use handle::*;
pub use mask::*;
pub use memory::*;
pub use param::*;
pub use provider::*;
pub use return_code::*;
pub use scalar::*;
pub use socket_addr::*;
