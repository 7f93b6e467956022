//! Local work requests, from submission to completion.
//!
//! ```text
//!  front                sent               next            back
//!    | with the transport | being transmitted | not started  |
//! ```
//!
//! Three cursors over one queue separate the two rules of RFC 5040 section 5.5: work is
//! *transmitted* in the order of submission, and *completes* in that order, regardless of the
//! answers to reads in between.

use std::collections::VecDeque;

use crate::{Completion, CompletionStatus, WorkKind, WorkRequest};

/// The name of a work request while it is in the queue.
pub(super) type Sequence = u64;

#[derive(Clone, Copy, Debug)]
struct Entry {
    request: WorkRequest,
    /// True once the peer has answered, or if no answer is needed.
    answered: bool,
    /// True if the request sends nothing.
    silent: bool,
}

#[derive(Debug)]
pub(super) struct SendQueue {
    /// Grows to the highest number of requests ever queued, at most `capacity`.
    entries: VecDeque<Entry>,
    capacity: usize,
    /// Sequence of the front entry.
    front: Sequence,
    /// The number of entries, from the front, whose last byte the transport has taken.
    sent: usize,
    /// The number of entries, from the front, that were transmitted completely.
    next: usize,
    /// Payload bytes of entry `next` that were transmitted.
    offset: u32,
}

impl SendQueue {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            capacity,
            front: 0,
            sent: 0,
            next: 0,
            offset: 0,
        }
    }

    /// Adds a request. Returns false if the queue is full.
    pub(super) fn push(&mut self, request: WorkRequest) -> bool {
        if self.entries.len() >= self.capacity {
            return false;
        }
        self.entries.push_back(Entry {
            request,
            answered: !request.kind.is_answered(),
            silent: false,
        });
        true
    }

    /// The request to transmit from, the number of its bytes that were transmitted, and its
    /// sequence.
    pub(super) fn current(&self) -> Option<(&WorkRequest, u32, Sequence)> {
        let entry = self.entries.get(self.next)?;
        Some((&entry.request, self.offset, self.front + self.next as u64))
    }

    /// Records that `len` payload bytes of the current request were transmitted; `last` is true for
    /// the last ones.
    pub(super) fn advance(&mut self, len: u32, last: bool) {
        if last {
            self.next += 1;
            self.offset = 0;
        } else {
            self.offset += len;
        }
    }

    /// Finishes the current request without transmitting a byte of it. The request completes once
    /// the transport has taken the requests before it.
    pub(super) fn skip(&mut self) {
        if let Some(entry) = self.entries.get_mut(self.next) {
            entry.answered = true;
            entry.silent = true;
            self.next += 1;
            self.pass_silent();
        }
    }

    /// Records that the transport has taken the last byte of `count` more transmitted requests.
    pub(super) fn on_sent(&mut self, count: usize) {
        for _ in 0..count {
            debug_assert!(self.sent < self.next, "more requests sent than transmitted");
            self.sent = (self.sent + 1).min(self.next);
            self.pass_silent();
        }
    }

    fn pass_silent(&mut self) {
        while self.sent < self.next && self.entries.get(self.sent).is_some_and(|it| it.silent) {
            self.sent += 1;
        }
    }

    /// Records that the peer's answer to a request is complete.
    pub(super) fn on_answered(&mut self, sequence: Sequence) {
        let index = sequence
            .checked_sub(self.front)
            .and_then(|index| usize::try_from(index).ok());
        if let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) {
            entry.answered = true;
        }
    }

    /// Removes the oldest request, if it is finished.
    pub(super) fn pop_done(&mut self) -> Option<Completion> {
        if self.sent == 0 || !self.entries.front()?.answered {
            return None;
        }
        self.sent -= 1;
        self.next -= 1;
        self.pop(CompletionStatus::Done)
    }

    /// Removes the oldest request, finished or not; only after the stream has ended.
    pub(super) fn pop_flushed(&mut self) -> Option<Completion> {
        self.sent = self.sent.saturating_sub(1);
        self.next = self.next.saturating_sub(1);
        self.offset = 0;
        self.pop(CompletionStatus::Flushed)
    }

    fn pop(&mut self, status: CompletionStatus) -> Option<Completion> {
        let WorkRequest {
            token, kind, len, ..
        } = self.entries.pop_front()?.request;
        self.front += 1;
        let len = match kind {
            WorkKind::ImmediateData { .. } | WorkKind::Atomic { .. } => 8,
            WorkKind::Send { .. }
            | WorkKind::SendImmediate { .. }
            | WorkKind::Write { .. }
            | WorkKind::Read { .. } => len,
        };
        Some(Completion { token, len, status })
    }

    /// The number of requests that have not completed.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::engine;

    fn send(token: u64) -> WorkRequest {
        engine::request(token, engine::SEND, 10)
    }

    fn read(token: u64) -> WorkRequest {
        engine::request(token, engine::read((1, 0), (2, 0)), 10)
    }

    fn tokens(queue: &mut SendQueue) -> Vec<u64> {
        std::iter::from_fn(|| queue.pop_done())
            .map(|completion| completion.token)
            .collect()
    }

    #[test]
    fn send_posted_after_a_read_completes_after_it() {
        let mut queue = SendQueue::new(4);
        assert!(queue.push(send(1)) && queue.push(read(2)) && queue.push(send(3)));
        for _ in 0..3 {
            queue.advance(10, true);
        }
        assert_eq!(tokens(&mut queue), [], "nothing is with the transport yet");
        queue.on_sent(3);
        assert_eq!(tokens(&mut queue), [1]);
        queue.on_answered(1);
        assert_eq!(tokens(&mut queue), [2, 3]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn queue_refuses_beyond_its_capacity_until_something_completes() {
        let mut queue = SendQueue::new(1);
        assert!(queue.push(send(1)));
        assert!(!queue.push(send(2)));
        queue.advance(10, true);
        assert!(!queue.push(send(2)), "transmitted is not completed");
        queue.on_sent(1);
        assert_eq!(tokens(&mut queue), [1]);
        assert!(queue.push(send(2)));
        assert_eq!(
            queue
                .current()
                .map(|(request, offset, _)| (request.token, offset)),
            Some((2, 0))
        );
    }

    #[test]
    fn work_that_is_not_transmitted_completes_in_order() {
        let mut queue = SendQueue::new(8);
        queue.push(read(1));
        queue.skip();
        assert_eq!(tokens(&mut queue), [1], "nothing was before it");
        for token in 2..7 {
            assert!(queue.push(send(token)));
        }
        queue.advance(10, true);
        queue.skip();
        queue.skip();
        queue.advance(10, true);
        queue.skip();
        assert_eq!(tokens(&mut queue), [], "the transport has taken nothing");
        queue.on_sent(1);
        assert_eq!(tokens(&mut queue), [2, 3, 4]);
        queue.on_sent(1);
        assert_eq!(tokens(&mut queue), [5, 6]);
    }
}
