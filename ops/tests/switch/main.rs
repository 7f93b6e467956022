//! The switch over TCP and a protocol that is made for these tests.
//!
//! - `lab.rs` a network of the test's own, switches and both ends of a connection in it
//! - `families.rs` which sockets come to the switch
//! - `registry.rs` protocols that come, go and are preferred
//! - `connect.rs` policy, route and what carries a connection
//! - `fall_back.rs` every way in which an offload protocol fails
//! - `peer.rs` asking the peer, and answering
//! - `kernel.rs` protocols whose connections are sockets of the kernel
//! - `listen.rs` one port and one accept queue
//! - `explain.rs` what is said about a decision

mod connect;
mod explain;
mod fall_back;
mod families;
mod kernel;
mod lab;
mod listen;
mod peer;
mod registry;
