//! The memory of one end of a connection whose test checks every byte.

use super::{Memory, Node};

/// The memory of one end.
pub struct Area {
    /// The source of reads, Writes and Sends, with a pattern.
    pub source: Memory,
    /// The target of the peer's Writes.
    pub target: Memory,
    /// The target of messages and of reads.
    pub inbox: Memory,
    /// The results of atomic operations.
    pub results: Memory,
    /// The word that the peer's atomic operations change, and words for the peer.
    pub words: Memory,
}

impl Area {
    /// Registers a source of `len` bytes with the pattern of `seed`. The target and the inbox are
    /// this many times as long.
    pub fn new(node: &Node, seed: usize, len: usize, [targets, inboxes]: [usize; 2]) -> Self {
        let source = node.memory(len);
        source.fill(seed);
        Self {
            source,
            target: node.memory(targets * len),
            inbox: node.memory(inboxes * len),
            results: node.memory(64),
            words: node.memory(128),
        }
    }

    pub fn set_word(&self, at: usize, value: u64) {
        for (index, byte) in value.to_ne_bytes().into_iter().enumerate() {
            self.words.set(8 * at + index, byte);
        }
    }

    pub fn word(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.words.copy(8 * at, 8).try_into().unwrap())
    }
}
