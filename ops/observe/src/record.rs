//! The record of one socket.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::layout::WORDS;
use crate::page::Page;
use crate::state::State;
use crate::writer::Writer;

/// Stands for no record.
const NOWHERE: u32 = u32::MAX;

/// What is counted of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Bytes that the program gave to a connection.
    Sent = 0,
    /// Bytes that the program took.
    Received = 1,
    /// Offloaded connections that a listener's program accepted.
    AcceptedOffloaded = 2,
    /// Connections over TCP that it accepted.
    AcceptedTcp = 3,
}

/// The record of one socket; its drop takes the socket out of the list.
///
/// Counting is two loads and an addition. In a forked child the first count, or the first change of
/// state, lists the socket in the page of the child as well.
#[derive(Debug)]
pub struct Record {
    writer: &'static Writer,
    description: [u64; WORDS],
    /// The page in which it is listed, null while that changes, and where; that is written first.
    page: AtomicPtr<Page>,
    index: AtomicU32,
    state: AtomicU32,
}

/// Where a process that shares a socket with this one, as a child of a fork, counts what it does
/// with it.
///
/// It counts in the page of the process that lists the socket, which the child has mapped as well,
/// whatever becomes of that process. Once the socket has left the list there, such counts are of no
/// account; who shares a socket must not let it come to that.
#[derive(Debug, Clone, Copy)]
pub struct Tally {
    page: &'static Page,
    index: u32,
}

impl Tally {
    /// Counts.
    pub fn count(&self, counter: Counter, more: usize) {
        if let Some(slot) = self.page.slot(self.index) {
            slot.counters[counter as usize].fetch_add(more as u64, Ordering::Relaxed);
        }
    }
}

impl Record {
    pub(crate) fn new(
        writer: &'static Writer,
        page: &'static Page,
        description: [u64; WORDS],
        state: State,
    ) -> Self {
        let index = page.claim(&description, state).unwrap_or(NOWHERE);
        Self {
            writer,
            description,
            page: AtomicPtr::new(ptr::from_ref(page).cast_mut()),
            index: AtomicU32::new(index),
            state: AtomicU32::new(state as u32),
        }
    }

    /// Counts.
    #[inline]
    pub fn count(&self, counter: Counter, more: usize) {
        if let Some((page, index)) = self.here()
            && let Some(slot) = page.slot(index)
        {
            slot.counters[counter as usize].fetch_add(more as u64, Ordering::Relaxed);
        }
    }

    /// Where others count for this one; `None`: it is not listed.
    pub fn tally(&self) -> Option<Tally> {
        self.here().map(|(page, index)| Tally { page, index })
    }

    /// It has come to another state.
    pub fn set_state(&self, state: State) {
        self.state.store(state as u32, Ordering::Relaxed);
        if let Some((page, index)) = self.here()
            && let Some(slot) = page.slot(index)
        {
            slot.state.store(state as u32, Ordering::Release);
        }
    }

    /// Where it is listed in the page of this process.
    #[inline]
    fn here(&self) -> Option<(&'static Page, u32)> {
        let page = self.writer.page();
        let ours = self.page.load(Ordering::Acquire);
        match page {
            Some(page) if ptr::eq(page, ours) => {
                let index = self.index.load(Ordering::Relaxed);
                (index != NOWHERE).then_some((page, index))
            }
            _ => self.list_again(ours),
        }
    }

    /// The socket came over a fork: it is listed here too, by the first thread that comes by.
    #[cold]
    fn list_again(&self, before: *mut Page) -> Option<(&'static Page, u32)> {
        let state = State::of(self.state.load(Ordering::Relaxed))?;
        let busy = ptr::null_mut();
        if before == busy {
            return None;
        }
        let turn = self
            .page
            .compare_exchange(before, busy, Ordering::AcqRel, Ordering::Acquire);
        turn.ok()?;
        let page = self.writer.make();
        let index = page.claim(&self.description, state).unwrap_or(NOWHERE);
        self.index.store(index, Ordering::Relaxed);
        let here = ptr::from_ref(page).cast_mut();
        self.page.store(here, Ordering::Release);
        (index != NOWHERE).then_some((page, index))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let index = *self.index.get_mut();
        if let Some(page) = self.writer.page()
            && ptr::eq(page, *self.page.get_mut())
            && let (Some(slot), Some(header)) = (page.slot(index), page.header())
        {
            for (counter, total) in [
                (Counter::Sent, &header.sent),
                (Counter::Received, &header.received),
            ] {
                let count = slot.counters[counter as usize].load(Ordering::Relaxed);
                total.fetch_add(count, Ordering::Relaxed);
            }
            page.release(index);
        }
    }
}
