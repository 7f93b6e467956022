//! The page of this process: its mapping, and the writes to it.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use host::clock::Clock;
use rustix::fs::{FallocateFlags, fallocate, ftruncate};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};

use crate::observe::claims::{CHUNK, Claims};
use crate::observe::counter::Counter;
use crate::observe::description::words;
use crate::observe::directory::{Name, PageRoot};
use crate::observe::layout::{
    HEADER_LEN, Header, MAGIC, PAGE_LEN, REASON_WORDS, RECORD_LEN, RECORDS_MAX, ReasonSlot, Slot,
    VERSION, WORDS,
};
use crate::observe::process;
use crate::observe::state::State;

/// The text of the last slot, which counts all further reasons.
const OTHERS: &str = "other reasons";

/// The page of this process, without memory if none can be made.
#[derive(Debug)]
pub(super) struct Page {
    memory: Option<Memory>,
    claims: Claims,
    /// The number of slots that were taken for reasons, and of those that would have been taken if
    /// there were more.
    reasons: AtomicUsize,
}

/// A mapping that is never removed, because the owner of a record may write to it at any time.
#[derive(Debug)]
struct Memory {
    base: NonNull<u8>,
    root: PageRoot,
    owner: u32,
    name: Name,
}

// SAFETY: the mapping is valid in all threads of the process and is never removed, and all of it is
// atomic words.
unsafe impl Send for Memory {}
// SAFETY: the mapping is shared through atomic words only, as stated for `Send`.
unsafe impl Sync for Memory {}

impl Page {
    /// Makes a page. If that fails, the result is a page without records.
    pub(super) fn make(root: &PageRoot) -> Self {
        Self::of(Memory::make(root).ok())
    }

    /// Returns a page without records.
    pub(super) fn none() -> Self {
        Self::of(None)
    }

    fn of(memory: Option<Memory>) -> Self {
        Self {
            claims: Claims::new(usize::from(memory.is_some())),
            memory,
            reasons: AtomicUsize::new(0),
        }
    }

    pub(super) fn header(&self) -> Option<&Header> {
        self.memory.as_ref().map(Memory::header)
    }

    pub(super) fn slot(&self, index: u32) -> Option<&Slot> {
        self.memory.as_ref()?.slot(index as usize)
    }

    /// Takes a free record and writes it. Returns `None` if none is left.
    pub(super) fn claim(&self, description: &[u64; WORDS], state: State) -> Option<u32> {
        let memory = self.memory.as_ref()?;
        let header = memory.header();
        let claimed = self.claims.claim(|chunk| memory.take_memory(chunk * CHUNK));
        let Some((index, slot)) = claimed.and_then(|at| Some((at, memory.slot(at)?))) else {
            header.unlisted.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        write(slot, description, state);
        if header.records.load(Ordering::Relaxed) <= index as u64 {
            header
                .records
                .fetch_max(index as u64 + 1, Ordering::Release);
        }
        u32::try_from(index).ok()
    }

    /// Frees a record whose counters were not used.
    pub(super) fn release(&self, index: u32) {
        if let Some(slot) = self.slot(index) {
            slot.state.store(0, Ordering::Release);
            self.claims.free(index as usize);
        }
    }

    /// Frees a record whose counters were used, and adds them to the sums of the page.
    pub(super) fn release_counted(&self, index: u32) {
        let (Some(slot), Some(header)) = (self.slot(index), self.header()) else {
            return;
        };
        for (counter, (count, total)) in slot.counters.iter().zip(&header.closed).enumerate() {
            if counter != Counter::Credits as usize {
                total.fetch_add(count.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        slot.state.store(0, Ordering::Release);
        for count in &slot.counters {
            count.store(0, Ordering::Relaxed);
        }
        self.claims.free(index as usize);
    }

    /// Counts a fall-back under its reason.
    pub(super) fn count_reason(&self, reason: &[u64; REASON_WORDS]) {
        let Some(header) = self.header() else {
            return;
        };
        // A text is complete before its first count, and never changes.
        let known =
            |slot: &&ReasonSlot| slot.count.load(Ordering::Acquire) > 0 && is(&slot.text, reason);
        let slot = match header.reasons.iter().find(known) {
            Some(slot) => slot,
            None => return self.count_first(&header.reasons, reason),
        };
        slot.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a fall-back whose reason no slot has. Two threads may take a slot each for the same
    /// reason; readers add their counts.
    fn count_first(&self, slots: &[ReasonSlot], reason: &[u64; REASON_WORDS]) {
        let (others, named) = slots.split_last().expect("there are reasons");
        let slot = match named.get(self.reasons.fetch_add(1, Ordering::Relaxed)) {
            Some(own) => {
                put(&own.text, reason);
                own
            }
            None => {
                // All threads write the same text here.
                put(&others.text, &words::<REASON_WORDS>(OTHERS.as_bytes()));
                others
            }
        };
        slot.count.fetch_add(1, Ordering::Release);
    }

    /// Removes the file of the page; the mapping is kept. A child with a copy of its parent's page
    /// removes nothing.
    pub(super) fn withdraw(&self) {
        if let Some(memory) = &self.memory
            && process::own_pid() == Some(memory.name.pid)
        {
            let directories = memory.root.of(memory.owner);
            directories.iter().for_each(|it| it.remove(memory.name));
        }
    }
}

impl Memory {
    fn make(root: &PageRoot) -> Result<Self, Errno> {
        let (pid, started) = process::own().ok_or(Errno::NOSYS)?;
        let directory = root.own()?;
        let name = Name {
            pid,
            started,
            made: now(),
        };
        let file = directory.create(name)?;
        let made = Self::map(&file).map(|base| Self {
            base,
            root: root.clone(),
            owner: directory.owner,
            name,
        });
        match made {
            Ok(memory) => {
                memory.begin();
                Ok(memory)
            }
            Err(error) => {
                directory.remove(name);
                Err(error)
            }
        }
    }

    fn map(file: &rustix::fd::OwnedFd) -> Result<NonNull<u8>, Errno> {
        ftruncate(file, PAGE_LEN as u64)?;
        // The memory is allocated before it is written to: if the system had none left, a store
        // would end the program by SIGBUS.
        let first = HEADER_LEN + CHUNK * RECORD_LEN;
        fallocate(file, FallocateFlags::empty(), 0, first as u64)?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an unused address for the new mapping, so no other memory is
        // replaced.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                PAGE_LEN,
                rights,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        NonNull::new(base.cast()).ok_or(Errno::NOMEM)
    }

    fn begin(&self) {
        let header = self.header();
        header.version.store(VERSION, Ordering::Relaxed);
        header.pid.store(self.name.pid, Ordering::Relaxed);
        header.started.store(self.name.started, Ordering::Relaxed);
        header
            .pid_space
            .store(process::space("pid"), Ordering::Relaxed);
        header
            .net_space
            .store(process::space("net"), Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
    }

    /// Allocates memory for the records from `first` on. Returns `None` if the system has none, or
    /// the page has no more records.
    fn take_memory(&self, first: usize) -> Option<()> {
        let start = self.slot(first)?;
        // SAFETY: the range is within the mapping, because a page holds a whole number of chunks.
        // The advice changes no byte.
        let taken = unsafe {
            madvise(
                std::ptr::from_ref(start).cast_mut().cast(),
                CHUNK * RECORD_LEN,
                Advice::LinuxPopulateWrite,
            )
        };
        // A kernel before 5.14 refuses this advice, so the page has the records of the first chunk
        // only.
        taken.ok()
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping has the length of a page, is aligned to a page of the kernel and is
        // never removed. A header consists of atomic words, for which all bytes are valid values.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    fn slot(&self, index: usize) -> Option<&Slot> {
        // SAFETY: the mapping is valid as in `header`, and the index is within the page.
        (index < RECORDS_MAX).then(|| unsafe {
            let at = self.base.add(HEADER_LEN + index * RECORD_LEN);
            at.cast::<Slot>().as_ref()
        })
    }
}

fn write(slot: &Slot, description: &[u64; WORDS], state: State) {
    let before = slot.sequence.load(Ordering::Relaxed) & !1;
    slot.sequence.store(before | 1, Ordering::Relaxed);
    // A reader does not see the words below before the odd number above.
    fence(Ordering::Release);
    slot.since.store(now(), Ordering::Relaxed);
    put(&slot.words, description);
    // The number is never zero, because zero marks a record that was never written.
    let after = before.wrapping_add(2).max(2);
    slot.sequence.store(after, Ordering::Release);
    slot.state.store(state as u32, Ordering::Release);
}

fn put(to: &[AtomicU64], from: &[u64]) {
    for (to, from) in to.iter().zip(from) {
        to.store(*from, Ordering::Relaxed);
    }
}

fn is(text: &[AtomicU64], wanted: &[u64]) -> bool {
    text.iter()
        .zip(wanted)
        .all(|(word, wanted)| word.load(Ordering::Relaxed) == *wanted)
}

/// Returns the time since the machine started, in nanoseconds.
fn now() -> u64 {
    u64::try_from(Clock::Boot.now().as_nanos()).unwrap_or(u64::MAX)
}
