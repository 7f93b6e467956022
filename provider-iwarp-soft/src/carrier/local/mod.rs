//! Moves the DDP segments of a connection between two processes of one host without the kernel.
//!
//! | File | Contents |
//! |---|---|
//! | [`segment`] | the memory that the two processes share |
//! | [`record`] | the layout of one record of a ring |
//! | [`ring`] | the producer and the consumer of a ring of records |
//! | `attention` | the choice between the ring and a direct copy for a short Write |
//! | [`watch`] | a check of a ring by threads that do not hold the connection |
//! | [`bell`] | the doorbell for a process that sleeps |
//! | [`rendezvous`] | where the two processes connect and agree |
//! | [`pull`] | reading and writing the memory of the peer's process |
//! | [`direct`] | RDMA Writes and Reads that the initiator carries out |
//! | [`references`] | references to registered memory that the peer may still read |
//! | [`link`] | the carrier of one connection |
//!
//! # Trust
//!
//! The peer can write any byte of the shared memory at any time. So this process reads each word of
//! it once, checks the copy, and uses only the copy. A word that no correct peer writes is
//! [`record::Corrupt`], which ends this connection and has no other effect.

mod attention;
pub(crate) mod bell;
pub(crate) mod direct;
pub(crate) mod link;
pub(crate) mod pull;
pub(crate) mod record;
mod references;
pub(crate) mod rendezvous;
pub(crate) mod ring;
pub(crate) mod segment;
pub(crate) mod watch;

/// The version of the layout of shared memory.
pub(crate) const VERSION: u32 = 1;

// Declared here and not by the tested modules, because the fuzz targets include those modules
// without tests.
#[cfg(test)]
#[path = "ring/tests.rs"]
mod ring_tests;
#[cfg(test)]
#[path = "segment/tests.rs"]
mod segment_tests;
