//! Shared receive queues.

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {}
