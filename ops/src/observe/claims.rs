//! The records of a page that are in use.
//!
//! Claiming and freeing a record take no lock and no memory. So a signal handler may interrupt them
//! and never return, and the child of a fork always has a usable copy.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::observe::layout::RECORDS_MAX;

/// The number of records for which memory is allocated at a time: the bits of a word.
pub(super) const CHUNK: usize = 64;

const CHUNKS: usize = RECORDS_MAX / CHUNK;
const _: () = assert!(RECORDS_MAX.is_multiple_of(CHUNK));

/// The records in use, as bits.
#[derive(Debug)]
pub(super) struct Claims {
    chunks: [AtomicU64; CHUNKS],
    /// The number of chunks that have memory.
    ready: AtomicUsize,
    /// A chunk that had a free record a moment ago, at which the search begins.
    first: AtomicUsize,
}

impl Claims {
    /// Makes the state of a page in which `ready` chunks have memory.
    pub(super) fn new(ready: usize) -> Self {
        Self {
            chunks: [const { AtomicU64::new(0) }; CHUNKS],
            ready: AtomicUsize::new(ready),
            first: AtomicUsize::new(0),
        }
    }

    /// Claims a free record, the first of its chunk. If there is none, `extend` allocates memory
    /// for the chunk with the given index. Returns `None` if that fails, or all records are in use.
    pub(super) fn claim(&self, extend: impl Fn(usize) -> Option<()>) -> Option<usize> {
        loop {
            let ready = self.ready.load(Ordering::Acquire);
            let first = self.first.load(Ordering::Relaxed).min(ready);
            if let Some(index) = (first..ready).chain(0..first).find_map(|at| self.take(at)) {
                self.first.store(index / CHUNK, Ordering::Relaxed);
                return Some(index);
            }
            if ready == CHUNKS {
                return None;
            }
            extend(ready)?;
            // If the exchange fails, another thread has allocated the same chunk.
            let _ =
                self.ready
                    .compare_exchange(ready, ready + 1, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    fn take(&self, chunk: usize) -> Option<usize> {
        let word = &self.chunks[chunk];
        let mut before = word.load(Ordering::Relaxed);
        while before != u64::MAX {
            let bit = before.trailing_ones();
            let after = before | 1 << bit;
            match word.compare_exchange_weak(before, after, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(chunk * CHUNK + bit as usize),
                Err(now) => before = now,
            }
        }
        None
    }

    /// Frees a claimed record.
    pub(super) fn free(&self, index: usize) {
        if let Some(word) = self.chunks.get(index / CHUNK) {
            word.fetch_and(!(1 << (index % CHUNK)), Ordering::Release);
            self.first.store(index / CHUNK, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_record_is_claimed_once_until_it_is_freed() {
        let claims = Claims::new(1);
        let all: Vec<_> = std::iter::from_fn(|| claims.claim(|_| Some(()))).collect();
        assert!(all.iter().copied().eq(0..RECORDS_MAX));
        for index in [RECORDS_MAX - 1, 0, 200] {
            claims.free(index);
            assert_eq!(claims.claim(|_| Some(())), Some(index));
        }
        assert_eq!(claims.claim(|_| Some(())), None);
    }

    #[test]
    fn without_memory_only_records_that_have_some_are_claimed() {
        let none = Claims::new(0);
        assert_eq!(none.claim(|_| None), None);
        let one = Claims::new(1);
        let all = std::iter::from_fn(|| one.claim(|_| None));
        assert!(all.eq(0..CHUNK));
    }

    #[test]
    fn threads_share_the_records() {
        let claims = Claims::new(1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let own: Vec<_> =
                            (0..40).filter_map(|_| claims.claim(|_| Some(()))).collect();
                        own.into_iter().for_each(|index| claims.free(index));
                    }
                });
            }
        });
        let all: Vec<_> = std::iter::from_fn(|| claims.claim(|_| Some(()))).collect();
        assert_eq!(all.len(), RECORDS_MAX);
    }
}
