//! The two queues of an EVD's events: its own queue and the completions pulled from its CQ.

use std::collections::VecDeque;

use dat_abi::DatEvent;

use crate::rnic::{Completion, Rnic};

/// The number of completions requested from a CQ at once.
const BATCH: usize = 32;

/// Error: the EVD's own queue is full.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// Connection, request, software and asynchronous events, oldest first.
#[derive(Debug)]
pub(super) struct OwnQueue {
    events: VecDeque<DatEvent>,
    capacity: usize,
}

// SAFETY: the queue moves the pointers in an event and dereferences none. They are values for the
// consumer, which may take the event on any thread.
unsafe impl Send for OwnQueue {}

impl OwnQueue {
    pub(super) fn new(capacity: usize) -> Self {
        // Most EVDs never hold more than a few events; the queue grows when necessary.
        Self {
            events: VecDeque::with_capacity(capacity.min(16)),
            capacity,
        }
    }

    pub(super) fn push(&mut self, event: DatEvent) -> Result<(), Full> {
        if self.events.len() >= self.capacity {
            return Err(Full);
        }
        self.events.push_back(event);
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Option<DatEvent> {
        self.events.pop_front()
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
    }

    pub(super) fn for_each_mut(&mut self, change: impl FnMut(&mut DatEvent)) {
        self.events.iter_mut().for_each(change);
    }

    /// Takes all events.
    pub(super) fn take_all(&mut self) -> VecDeque<DatEvent> {
        std::mem::take(&mut self.events)
    }
}

/// Completions pulled from the CQ and not yet taken, oldest first: `entries[head..tail]`.
///
/// The CQ writes directly into `entries`, and the indices restart at 0 whenever the queue is empty.
/// So in the steady state nothing is moved or allocated.
#[derive(Debug)]
pub(super) struct Pulled {
    entries: Vec<Completion>,
    head: usize,
    tail: usize,
}

impl Pulled {
    pub(super) fn new() -> Self {
        Self {
            entries: vec![Completion::EMPTY; BATCH],
            head: 0,
            tail: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.tail - self.head
    }

    pub(super) fn pop(&mut self) -> Option<Completion> {
        if self.head == self.tail {
            return None;
        }
        let completion = self.entries[self.head];
        self.head += 1;
        if self.head == self.tail {
            (self.head, self.tail) = (0, 0);
        }
        Some(completion)
    }

    /// Takes one batch of completions from the CQ and returns the batch. If the batch is shorter
    /// than [`BATCH`], the CQ is empty.
    pub(super) fn pull<R: Rnic>(&mut self, rnic: &R, cq: &R::Cq) -> &[Completion] {
        if self.tail + BATCH > self.entries.len() {
            self.make_room();
        }
        let start = self.tail;
        let room = &mut self.entries[start..start + BATCH];
        let count = rnic.poll_cq(cq, room).min(BATCH);
        self.tail += count;
        &self.entries[start..self.tail]
    }

    /// Takes all completions from the CQ; returns true if any of them satisfies `wanted`.
    pub(super) fn pull_all<R: Rnic>(
        &mut self,
        rnic: &R,
        cq: &R::Cq,
        wanted: impl Fn(&Completion) -> bool,
    ) -> bool {
        let mut found = false;
        loop {
            let batch = self.pull(rnic, cq);
            found |= batch.iter().any(&wanted);
            if batch.len() < BATCH {
                return found;
            }
        }
    }

    /// Keeps the completions that satisfy `keep`, in order.
    pub(super) fn retain(&mut self, keep: impl Fn(&Completion) -> bool) {
        let mut kept = 0;
        for index in self.head..self.tail {
            if keep(&self.entries[index]) {
                self.entries[kept] = self.entries[index];
                kept += 1;
            }
        }
        (self.head, self.tail) = (0, kept);
    }

    pub(super) fn clear(&mut self) {
        (self.head, self.tail) = (0, 0);
    }

    fn make_room(&mut self) {
        self.entries.copy_within(self.head..self.tail, 0);
        (self.head, self.tail) = (0, self.len());
        if self.tail + BATCH > self.entries.len() {
            let len = (self.entries.len() * 2).max(self.tail + BATCH);
            self.entries.resize(len, Completion::EMPTY);
        }
    }
}
