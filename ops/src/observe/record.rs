//! The record of a socket.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::observe::counter::{Counter, Meter};
use crate::observe::description::{Carrier, Description, Kind, cut, words};
use crate::observe::layout::{REASON_WORDS, WORDS};
use crate::observe::page::Page;
use crate::observe::state::State;
use crate::observe::writer::Writer;

/// The index of a socket that no page lists.
const NOWHERE: u32 = u32::MAX;

/// The record of a socket. Dropping it removes the socket from the list.
///
/// Counting costs three loads and an addition. In a forked child the first count, or the first
/// change of state, lists the socket in the page of the child as well.
#[derive(Debug)]
pub struct Record {
    writer: &'static Writer,
    description: [u64; WORDS],
    /// The page that lists the socket, null while that changes. `index` is written before it.
    page: AtomicPtr<Page>,
    index: AtomicU32,
    state: AtomicU32,
}

/// The counters of a socket in the page of another process, with which the calling process shares
/// the socket. A child of a `fork` uses them.
///
/// The child has inherited the mapping of the page, so the page stays valid even after the other
/// process has ended. After the other process has removed the socket from its page, the record may
/// belong to another socket. Processes that share a socket must therefore stop counting before
/// that.
#[derive(Debug, Clone, Copy)]
pub struct Tally {
    page: &'static Page,
    index: u32,
}

impl Tally {
    /// Adds to a counter.
    pub fn count(&self, counter: Counter, more: usize) {
        if let Some(slot) = self.page.slot(self.index) {
            slot.counters[counter as usize].fetch_add(more as u64, Ordering::Relaxed);
        }
    }
}

impl Writer {
    /// Lists a socket until its record is dropped.
    pub fn list(&'static self, description: &Description, state: State) -> Record {
        let page = self.make();
        if description.kind == Kind::Connection
            && let Some(header) = page.header()
        {
            match &description.carrier {
                Carrier::Offload { .. } => header.offloaded.fetch_add(1, Ordering::Relaxed),
                Carrier::Tcp { reason } => {
                    if !reason.is_empty() {
                        page.count_reason(&words(cut(reason, REASON_WORDS * 8)));
                    }
                    header.tcp.fetch_add(1, Ordering::Relaxed)
                }
            };
        }
        Record::new(self, page, description.encode(), state)
    }
}

impl Record {
    fn new(
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

    /// Adds to a counter.
    #[inline]
    pub fn count(&self, counter: Counter, more: usize) {
        if let Some((page, index)) = self.here()
            && let Some(slot) = page.slot(index)
        {
            slot.counters[counter as usize].fetch_add(more as u64, Ordering::Relaxed);
        }
    }

    /// Returns the record for other processes to count in, or `None` if the socket is not listed.
    pub fn tally(&self) -> Option<Tally> {
        self.here().map(|(page, index)| Tally { page, index })
    }

    /// Sets the state.
    pub fn set_state(&self, state: State) {
        self.state.store(state as u32, Ordering::Relaxed);
        if let Some((page, index)) = self.here()
            && let Some(slot) = page.slot(index)
        {
            slot.state.store(state as u32, Ordering::Release);
        }
    }

    /// Returns the page of this process and the index of the socket's record in it.
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

    /// Lists, in this process's page, a socket that was inherited through a fork. The first thread
    /// lists it, and other threads do not count until the socket is listed.
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

impl Meter for Record {
    fn set(&self, values: &[(Counter, u64)]) {
        if let Some((page, index)) = self.here()
            && let Some(slot) = page.slot(index)
        {
            for (counter, value) in values {
                slot.counters[*counter as usize].store(*value, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let index = *self.index.get_mut();
        if let Some(page) = self.writer.page()
            && ptr::eq(page, *self.page.get_mut())
        {
            page.release_counted(index);
        }
    }
}
