//! The registrations of this process in a form that a peer's process reads.
//!
//! A peer of this host that the kernel lets read this process finds out here where an STag leads,
//! without this process ([`crate::carrier::local::direct`]). The table is memory of this process
//! alone: no peer can write it by other means than those by which it can write every byte.
//!
//! ```text
//! bucket    8 entries; an STag's bucket is its value modulo the number of buckets
//! entry     STag | 6 words of the entry (Entry::emit) | sum
//! ```
//!
//! An entry for which its bucket has no room is not published, and the peer sends its requests. A
//! copy that a peer makes while this process writes has another sum, and is no entry.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::entry::Entry;

const BUCKETS: usize = 1024;
const WAYS: usize = 8;
const WORDS: usize = 8;
const LEN: usize = BUCKETS * BUCKET_LEN;
/// Bytes of a bucket.
pub(crate) const BUCKET_LEN: usize = WAYS * WORDS * size_of::<u64>();

/// A copy of a bucket.
pub(crate) type Bucket = [[u64; WORDS]; WAYS];

/// Returns the address of the bucket of an STag in the table at `table`.
pub(crate) fn bucket_at(table: u64, stag: u32) -> u64 {
    table.wrapping_add((stag as usize % BUCKETS * BUCKET_LEN) as u64)
}

/// Returns the entry of an STag in a copy of its bucket.
pub(crate) fn find(bucket: &Bucket, stag: u32) -> Option<Entry> {
    let is_found =
        |words: &&[u64; WORDS]| words[0] == u64::from(stag) && words[WORDS - 1] == sum_of(words);
    let [_, entry @ .., _] = bucket.iter().find(is_found)?;
    Some(Entry::parse(*entry))
}

/// The table. Pages are allocated by their first use.
#[derive(Debug)]
pub(super) struct PublishedTable {
    base: NonNull<AtomicU64>,
}

// SAFETY: only this value owns the mapping, which is accessed through atomics.
unsafe impl Send for PublishedTable {}
// SAFETY: as for `Send`.
unsafe impl Sync for PublishedTable {}

impl PublishedTable {
    pub(super) fn new() -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), LEN, access, flags) }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base })
    }

    pub(super) fn addr(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    pub(super) fn put(&mut self, stag: u32, entry: &Entry) {
        let Some(way) = self.way_of(stag, 0) else {
            return;
        };
        let mut words = [0; WORDS];
        words[0] = stag.into();
        words[1..WORDS - 1].copy_from_slice(&entry.emit());
        words[WORDS - 1] = sum_of(&words);
        for (to, word) in self.entry(stag, way).iter().zip(words).rev() {
            to.store(word, Ordering::Release);
        }
    }

    pub(super) fn remove(&mut self, stag: u32) {
        if let Some(way) = self.way_of(stag, stag) {
            self.entry(stag, way)[0].store(0, Ordering::Release);
        }
    }

    /// Returns the place in the bucket of `stag` at which `found` is stored; 0 is an empty place.
    fn way_of(&self, stag: u32, found: u32) -> Option<usize> {
        let is_found =
            |way: &usize| self.entry(stag, *way)[0].load(Ordering::Relaxed) == u64::from(found);
        (0..WAYS).find(is_found)
    }

    fn entry(&self, stag: u32, way: usize) -> &[AtomicU64] {
        let first = (stag as usize % BUCKETS * WAYS + way) * WORDS;
        // SAFETY: within the mapping, because `way` is less than WAYS; this process accesses the
        // mapping through atomics only, and `self` keeps it.
        unsafe { std::slice::from_raw_parts(self.base.add(first).as_ptr(), WORDS) }
    }
}

impl Drop for PublishedTable {
    fn drop(&mut self) {
        // SAFETY: the complete mapping of `new`, to which no reference exists. A failure would only
        // keep the mapping, which is harmless.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), LEN) };
    }
}

/// The sum of all words but the last.
fn sum_of(words: &[u64; WORDS]) -> u64 {
    let [words @ .., _] = words;
    let mix = |sum: u64, word: &u64| {
        (sum ^ word)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(31)
    };
    words.iter().fold(1, mix)
}

/// Writes an entry of arbitrary words, as a hostile peer does.
#[cfg(test)]
pub(crate) fn forge_published(place: &mut [u64], stag: u32, entry: [u64; 6]) {
    let mut words = [0; WORDS];
    words[0] = stag.into();
    words[1..WORDS - 1].copy_from_slice(&entry);
    words[WORDS - 1] = sum_of(&words);
    place.copy_from_slice(&words);
}
