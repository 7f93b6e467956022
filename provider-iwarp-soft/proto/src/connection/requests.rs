//! Reads and atomics in flight: ours at the peer (the ORQ), the peer's at us (the IRQ).

use std::collections::VecDeque;

use crate::{Stag, wire::rdmap::ReadRequest};

use super::send_queue::Sequence;

/// A request to the peer. Answers are in the order of the requests (RFC 5040 section 5.5).
#[derive(Clone, Copy, Debug)]
pub(super) enum Outstanding {
    Read {
        /// `None`: the zero-length read of the start-up, which belongs to no work request.
        work: Option<(Sequence, u64)>,
        sink_stag: Stag,
        sink_to: u64,
        len: u32,
        /// Bytes that were received.
        received: u32,
    },
    Atomic {
        sequence: Sequence,
        token: u64,
        request_id: u32,
    },
}

/// A request of the peer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    Read {
        request: ReadRequest,
        /// Bytes that were transmitted.
        done: u32,
    },
    Atomic {
        request_id: u32,
        /// The value before the operation; `None` until the engine has executed the operation.
        original: Option<u64>,
    },
}

/// Requests of ours that wait for an answer, oldest first; bounded by ORD.
#[derive(Debug, Default)]
pub(super) struct OutstandingQueue {
    pub(super) entries: VecDeque<Outstanding>,
    /// True from the end of the answer to the oldest request until the engine has stored it.
    is_answered: bool,
}

impl OutstandingQueue {
    /// Records that the answer to the oldest request was received completely.
    pub(super) const fn on_answer(&mut self) {
        self.is_answered = true;
    }

    /// Returns the oldest request if a part of its answer may be received.
    pub(super) fn awaiting(&self) -> Option<&Outstanding> {
        self.entries.front().filter(|_| !self.is_answered)
    }

    /// Removes the oldest request, whose answer is stored. Returns `None` if its answer was not
    /// received.
    pub(super) fn take_answered(&mut self) -> Option<Outstanding> {
        if std::mem::take(&mut self.is_answered) {
            self.entries.pop_front()
        } else {
            None
        }
    }

    /// Returns true if the response to the oldest request was received in part.
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
    /// True if the oldest request can be answered now.
    pub(super) fn is_ready(&self) -> bool {
        match self.entries.front() {
            Some(Pending::Read { .. }) => true,
            Some(Pending::Atomic { original, .. }) => original.is_some(),
            None => false,
        }
    }

    /// Returns true if the response to the oldest request was transmitted in part.
    pub(super) fn is_partly_answered(&self) -> bool {
        matches!(self.entries.front(), Some(Pending::Read { done, .. }) if *done > 0)
    }

    /// Stores the result of the newest request, an atomic that was executed. Returns false if that
    /// request does not wait for a result.
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
