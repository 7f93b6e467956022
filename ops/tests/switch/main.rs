//! The switch over TCP and a protocol that is made for these tests.
//!
//! - `unix_protocol` the protocol, over `AF_UNIX` sockets
//! - `lab.rs` a network for one test, with switches and both ends of a connection in it
//! - `registry.rs` registration, removal and priority of protocols
//! - `connect.rs` policy, route and the protocol that carries a connection
//! - `fall_back.rs` every way in which an offload protocol fails
//! - `peer.rs` questions to the peer's port mapper, and answers
//! - `kernel.rs` protocols whose connections are kernel sockets
//! - `explain.rs` the explanations of decisions

mod connect;
mod explain;
mod fall_back;
mod kernel;
mod lab;
mod peer;
mod registry;
mod unix_protocol;
