//! Requests to the kernel over netlink, on descriptors of the library.
//!
//! The functions of the C library for this purpose, such as `getifaddrs`, use a descriptor among
//! those of the program, and end the process if the program takes the number of that descriptor.
//!
//! - [`channel`] sends requests and receives the answers
//! - [`interfaces`] lists the addresses of this host

pub mod channel;
mod error;
pub mod interfaces;

pub use error::Error;
