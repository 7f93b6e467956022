//! Reads and atomics on their way: ours at the peer (the ORQ), the peer's at us (the IRQ).

use std::collections::VecDeque;

use crate::{Stag, wire::rdmap::ReadRequest};

use super::send_queue::Sequence;

/// What was asked of the peer; answers come in the order of the requests (RFC 5040 section 5.5).
#[derive(Clone, Copy, Debug)]
pub(super) enum Outstanding {
    Read {
        /// `None`: the zero-length read that said "ready to receive", nobody's work request.
        work: Option<(Sequence, u64)>,
        sink_stag: Stag,
        sink_to: u64,
        len: u32,
        /// Bytes that arrived.
        received: u32,
    },
    Atomic {
        sequence: Sequence,
        token: u64,
        request_id: u32,
    },
}

/// What the peer asked of us.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    Read {
        request: ReadRequest,
        /// Bytes that were transmitted.
        done: u32,
    },
    Atomic {
        request_id: u32,
        /// `None` until the engine has executed it.
        original: Option<u64>,
    },
}

/// Requests of ours that wait for an answer, oldest first; bounded by ORD.
#[derive(Debug, Default)]
pub(super) struct OutstandingQueue {
    pub(super) entries: VecDeque<Outstanding>,
}

impl OutstandingQueue {
    /// Returns true if the response to the oldest request has begun to arrive and is incomplete.
    pub(super) fn is_partly_answered(&self) -> bool {
        matches!(self.entries.front(), Some(Outstanding::Read { received, .. }) if *received > 0)
    }
}

/// Requests of the peer that wait for an answer, oldest first; bounded by IRD.
#[derive(Debug, Default)]
pub(super) struct PendingQueue {
    pub(super) entries: VecDeque<Pending>,
}

impl PendingQueue {
    /// Whether the oldest request can be answered now.
    pub(super) fn is_ready(&self) -> bool {
        match self.entries.front() {
            Some(Pending::Read { .. }) => true,
            Some(Pending::Atomic { original, .. }) => original.is_some(),
            None => false,
        }
    }

    /// Returns true if transmission of the response to the oldest request has begun and not ended.
    pub(super) fn is_partly_answered(&self) -> bool {
        matches!(self.entries.front(), Some(Pending::Read { done, .. }) if *done > 0)
    }

    /// The newest atomic has been executed; false if none waits for that.
    pub(super) fn answer_atomic(&mut self, value: u64) -> bool {
        match self.entries.back_mut() {
            Some(Pending::Atomic {
                original: original @ None,
                ..
            }) => {
                *original = Some(value);
                true
            }
            _ => false,
        }
    }
}
