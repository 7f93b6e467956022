//! A ring of records from one producer to one consumer, in memory that both processes can write.
//!
//! # Publishing
//!
//! The producer writes a record, sets the word of the record that will follow to 0, and stores the
//! word of this record last. The consumer polls the word at its own position, so it needs no index
//! of the producer. Records that are written between two calls of [`Producer::publish`] become
//! visible together, because that call stores the word of the first of them.
//!
//! The index of the consumer is one word of the control page. The consumer stores it once for many
//! records, and the producer loads it when the ring seems full.
//!
//! # Cache lines
//!
//! The latency of a small message is the time to move its lines between two caches, one after the
//! other:
//!
//! * The producer writes the line that the consumer polls after all other lines, and with all
//!   stores together, in [`Producer::publish`], so that the line moves once. If the header is
//!   written earlier, with a locked instruction in between, a Send of 64 bytes takes 0.56 us
//!   instead of 0.47.
//! * The consumer does not check for a record after an answer: the producer has just written the
//!   word there, so a check would move the line, which takes 0.05 us.
//! * The consumer prefetches the second line while it polls the first.
//! * A producer whose record is awaited may push its second line ([`Producer::expedite`]).
//!
//! # Sleeping
//!
//! A side that wants to sleep sets its flag, executes a full fence, and checks once more for work.
//! The other side publishes work, executes a full fence, and checks the flag. At least one of the
//! two sees the store of the other (Dekker), so no wake-up is lost.
//!
//! | Sleeping side | Flag | Set by | Checked by |
//! |---|---|---|---|
//! | the consumer, until a record is published | `ASLEEP` | [`Consumer::announce_sleep`] | [`Producer::must_ring`] |
//! | the producer, until records are released or pulled | `WAITING` | [`Producer::announce_wait`] | [`Consumer::must_notify`] |
//!
//! # Supply
//!
//! A consumer that cannot read the memory of a reference declines the reference and stops at its
//! record. The producer then copies the payload, in pieces of up to [`SUPPLY_MAX`] bytes, to the
//! supply area in the control page, and the consumer takes each piece from there. The order of the
//! records does not change. Permission to read another process may end at any time (setuid,
//! seccomp, Landlock, `PR_SET_DUMPABLE`, the end of the main thread), and some memory can never be
//! read by another process (`memfd_secret`, mappings without read access).
//!
//! # Mapping
//!
//! Each process has its own [`Half`](super::segment::Half) of the segment. The data area is 0
//! before its first use, which is an empty ring.

#[path = "ring/consumer.rs"]
mod consumer;
#[path = "ring/line.rs"]
pub(super) mod line;
#[path = "ring/producer.rs"]
mod producer;

pub(crate) use super::segment::SUPPLY_LEN as SUPPLY_MAX;
pub(crate) use consumer::Consumer;
#[cfg(test)]
pub(crate) use producer::Finished;
pub(crate) use producer::{Outcome, Producer, Refused, Revoked, Revoker};

/// Offsets of control words; those from 1024 on belong to direct copies. Each word is written by
/// one side. Words that are written at different times are in different pairs of lines, because
/// some processors move such a pair together.
mod control {
    /// The position up to which the consumer has released records.
    pub(super) const RELEASED: usize = 0;
    /// Not 0 while the consumer sleeps.
    pub(super) const ASLEEP: usize = 128;
    /// Not 0 while the producer waits.
    pub(super) const WAITING: usize = 256;
    /// The producer's known word: its address and its value.
    pub(super) const KNOWN_ADDR: usize = 384;
    pub(super) const KNOWN_VALUE: usize = 392;
    /// Not 0 if the consumer reads references.
    pub(super) const CAN_PULL: usize = 512;
    /// The number of pieces that the producer has copied to the supply area.
    pub(super) const SUPPLIED: usize = 640;
    /// The number of pieces that the consumer has taken from the supply area.
    pub(super) const SUPPLY_TAKEN: usize = 768;
    /// Not 0 if the producer waits for the release of every record.
    pub(super) const RELEASE_ALL: usize = 896;
}

/// A word of a process, by which another process that reads its memory recognises the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownWord {
    pub(crate) addr: u64,
    pub(crate) value: u64,
}
