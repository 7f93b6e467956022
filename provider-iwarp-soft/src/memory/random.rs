//! Random STags.
//!
//! Every STag is 32 random bits from the kernel, so that a peer cannot derive other STags from
//! those that it has (RFC 5042 section 6.1.1). The kernel returns many words at a time, because a
//! system call for each would cost more than the rest of a registration.

use rnic::{Resource, RnicError};
use rustix::rand::{GetRandomFlags, getrandom};

/// The number of words of one system call. The kernel never returns fewer than 256 bytes, and is
/// not interrupted (getrandom(2)).
const BATCH: usize = 64;

/// A source of STags.
pub(super) struct RandomStags {
    words: [u32; BATCH],
    /// The number of words at the front of `words` that were not drawn.
    left: usize,
    /// The process that has fetched the words: a child must not draw the words of its parent.
    pid: u32,
}

impl RandomStags {
    pub(super) const fn new() -> Self {
        Self {
            words: [0; BATCH],
            left: 0,
            pid: 0,
        }
    }

    /// Draws an unused STag. It is never 0, which means "no STag" to peers.
    ///
    /// # Errors
    ///
    /// The kernel has no random bits.
    pub(super) fn draw(&mut self, is_in_use: impl Fn(u32) -> bool) -> Result<u32, RnicError> {
        loop {
            if self.left == 0 || self.pid != std::process::id() {
                self.fill()?;
            }
            self.left -= 1;
            let stag = std::mem::take(&mut self.words[self.left]);
            if stag != 0 && !is_in_use(stag) {
                return Ok(stag);
            }
        }
    }

    fn fill(&mut self) -> Result<(), RnicError> {
        let mut bytes = [0; BATCH * size_of::<u32>()];
        match getrandom(&mut bytes, GetRandomFlags::empty()) {
            Ok(len) if len == bytes.len() => {}
            _ => return Err(RnicError::NoResources(Resource::Memory)),
        }
        let (words, _) = bytes.as_chunks();
        self.words = std::array::from_fn(|index| u32::from_ne_bytes(words[index]));
        self.left = BATCH;
        self.pid = std::process::id();
        Ok(())
    }
}

impl std::fmt::Debug for RandomStags {
    /// Omits the words, because a log must not contain the STags of later registrations.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RandomStags")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Returns a source that begins with these STags.
    fn source(stags: &[u32]) -> RandomStags {
        let mut source = RandomStags::new();
        for (word, stag) in source.words.iter_mut().zip(stags.iter().rev()) {
            *word = *stag;
        }
        source.left = stags.len();
        source.pid = std::process::id();
        source
    }

    #[test]
    fn zero_and_stags_in_use_are_skipped() {
        let mut source = source(&[7, 0, 7, 9]);
        let first = source.draw(|_| false).unwrap();
        let second = source.draw(|stag| stag == first).unwrap();
        assert_eq!((first, second), (7, 9));
    }

    #[test]
    fn batches_differ() {
        let mut source = RandomStags::new();
        let stags: HashSet<u32> = (0..10 * BATCH)
            .map(|_| source.draw(|_| false).unwrap())
            .collect();
        // One pair among 640 numbers is equal once in 20000 tries, two pairs practically never.
        assert!(stags.len() > 10 * BATCH - 2);
    }

    #[test]
    fn a_child_does_not_draw_the_random_words_of_its_parent() {
        let mut source = source(&[5, 5]);
        assert_eq!(source.draw(|_| false).unwrap(), 5);
        source.pid = source.pid.wrapping_add(1);
        assert_ne!(source.draw(|_| false).unwrap(), 5);
    }
}
