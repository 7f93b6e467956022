//! From table index to STag and back, so that a peer can guess neither.
//!
//! An STag is 24 bits of index and 8 bits of key. The table's index (20 bits) and four random bits
//! go through a Feistel network with keys of this RNIC; the key byte is random. A valid STag is
//! therefore one of 2^32 to somebody who has not been told it, and looking one up costs four
//! multiplications.

/// Bits of the table index that fit.
pub(crate) const INDEX_BITS: u32 = 20;

const HALF_BITS: u32 = 12;
const HALF_MASK: u32 = (1 << HALF_BITS) - 1;
const ROUNDS: usize = 4;

/// The keyed permutation of 24 bits.
#[derive(Clone)]
pub(crate) struct Cipher {
    rounds: [(u64, u64); ROUNDS],
}

impl Cipher {
    /// A permutation that `keys` decide.
    pub(crate) fn new(keys: [u8; 64]) -> Self {
        let mut rounds = [(0, 0); ROUNDS];
        for (round, bytes) in rounds.iter_mut().zip(keys.chunks_exact(16)) {
            let (multiplier, offset) = bytes.split_at(8);
            let word = |b: &[u8]| {
                b.iter()
                    .fold(0_u64, |word, byte| word << 8 | u64::from(*byte))
            };
            *round = (word(multiplier) | 1, word(offset));
        }
        Self { rounds }
    }

    /// The STag for an index; `salt` fills the bits that carry no index. Never 0, which peers take
    /// for "no STag".
    pub(crate) fn stag(&self, index: u32, salt: u32) -> u32 {
        let stag = self.permute(index | (salt << INDEX_BITS) & 0x00FF_FFFF) << 8 | salt >> 24;
        if stag == 0 { 1 } else { stag }
    }

    /// The same index and salt with another key byte.
    pub(crate) fn rekey(&self, stag: u32) -> u32 {
        let next = stag & !0xFF | (stag.wrapping_add(1)) & 0xFF;
        if next == 0 { 1 } else { next }
    }

    /// The index of an STag, made up or not; it may be out of the table.
    pub(crate) fn index(&self, stag: u32) -> u32 {
        self.invert(stag >> 8) & ((1 << INDEX_BITS) - 1)
    }

    fn permute(&self, value: u32) -> u32 {
        let (mut left, mut right) = (value >> HALF_BITS, value & HALF_MASK);
        for round in &self.rounds {
            (left, right) = (right, left ^ mix(*round, right));
        }
        left << HALF_BITS | right
    }

    fn invert(&self, value: u32) -> u32 {
        let (mut left, mut right) = (value >> HALF_BITS, value & HALF_MASK);
        for round in self.rounds.iter().rev() {
            (left, right) = (right ^ mix(*round, left), left);
        }
        left << HALF_BITS | right
    }
}

/// Multiply, add, keep the top bits: universal hashing of one half.
fn mix((multiplier, offset): (u64, u64), half: u32) -> u32 {
    let product = (u64::from(half) + 1)
        .wrapping_mul(multiplier)
        .wrapping_add(offset);
    (product >> (64 - HALF_BITS)) as u32
}

impl std::fmt::Debug for Cipher {
    /// Without the keys: they must not reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn cipher(seed: u8) -> Cipher {
        Cipher::new(std::array::from_fn(|i| (i as u8).wrapping_mul(37) ^ seed))
    }

    #[test]
    fn every_index_comes_back_whatever_the_salt() {
        let cipher = cipher(9);
        for index in (0..1 << INDEX_BITS).step_by(997) {
            for salt in [0, 1, 0xF, 0xFFFF_FFFF, 0xA5A5_5A5A] {
                assert_eq!(cipher.index(cipher.stag(index, salt)), index);
            }
        }
    }

    #[test]
    fn indices_do_not_collide() {
        let cipher = cipher(1);
        let stags: HashSet<u32> = (0..10_000).map(|i| cipher.stag(i, 7 << 24)).collect();
        assert_eq!(stags.len(), 10_000);
    }

    #[test]
    fn another_key_names_the_same_index() {
        let cipher = cipher(3);
        let stag = cipher.stag(77, 0xFF00_0000);
        let next = cipher.rekey(stag);
        assert_ne!(next, stag);
        assert_eq!(cipher.index(next), 77);
    }

    #[test]
    fn other_keys_give_other_stags() {
        let same = (0..1000)
            .filter(|i| cipher(1).stag(*i, 0) == cipher(2).stag(*i, 0))
            .count();
        assert!(same < 5, "{same}");
    }
}
