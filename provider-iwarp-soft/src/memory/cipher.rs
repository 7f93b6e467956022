//! From table index to STag and back, so that a peer can compute neither.
//!
//! An STag is the table's index (20 bits) and a salt (12 bits), encrypted with a key of this RNIC.
//! The cipher is Speck32/64 (Beaulieu and others, "The SIMON and SPECK Families of Lightweight
//! Block Ciphers", 2013): a keyed permutation of 32 bits, so that no two pairs of index and salt
//! share an STag, and so that who was told some STags knows nothing of another but that it is none
//! of them. The key has 64 bits: to search for it costs more than to try all STags.
//!
//! This holds for the next STag of the same index, too: the salt counts, and what it comes to is as
//! far away as anything else. The first salt comes again after 4095 others.

/// Bits of the table index that fit.
pub(crate) const INDEX_BITS: u32 = 20;

const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
const ROUNDS: usize = 22;

/// The keyed permutation of 32 bits.
#[derive(Clone)]
pub(crate) struct Cipher {
    round_keys: [u16; ROUNDS],
}

impl Cipher {
    /// A permutation that `key` decides, its words in the order of the paper: the last is used
    /// first.
    pub(crate) fn new(key: [u16; 4]) -> Self {
        let [third, second, first, mut round_key] = key;
        let mut others = [first, second, third];
        let round_keys = std::array::from_fn(|round| {
            let current = round_key;
            let mixed = current.wrapping_add(others[0].rotate_right(7)) ^ round as u16;
            others = [others[1], others[2], mixed];
            round_key = current.rotate_left(2) ^ mixed;
            current
        });
        Self { round_keys }
    }

    /// An STag for an index and the low bits of a salt. Never 0, which peers take for "no STag":
    /// the one salt that would give it is left out.
    pub(crate) fn stag(&self, index: u32, salt: u32) -> u32 {
        let of = |salt: u32| self.encrypt(index & INDEX_MASK | salt << INDEX_BITS);
        match of(salt) {
            0 => of(salt.wrapping_add(1)),
            stag => stag,
        }
    }

    /// The STag that follows: of the same index, with the next salt.
    pub(crate) fn next(&self, stag: u32) -> u32 {
        self.stag(self.index(stag), self.salt(stag).wrapping_add(1))
    }

    /// The index of an STag, made up or not; it may be out of the table.
    pub(crate) fn index(&self, stag: u32) -> u32 {
        self.decrypt(stag) & INDEX_MASK
    }

    fn salt(&self, stag: u32) -> u32 {
        self.decrypt(stag) >> INDEX_BITS
    }

    fn encrypt(&self, value: u32) -> u32 {
        let (mut left, mut right) = ((value >> 16) as u16, value as u16);
        for key in self.round_keys {
            left = left.rotate_right(7).wrapping_add(right) ^ key;
            right = right.rotate_left(2) ^ left;
        }
        u32::from(left) << 16 | u32::from(right)
    }

    fn decrypt(&self, value: u32) -> u32 {
        let (mut left, mut right) = ((value >> 16) as u16, value as u16);
        for key in self.round_keys.into_iter().rev() {
            right = (right ^ left).rotate_right(2);
            left = (left ^ key).wrapping_sub(right).rotate_left(7);
        }
        u32::from(left) << 16 | u32::from(right)
    }
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

    fn cipher(seed: u16) -> Cipher {
        Cipher::new([seed, 0x1110, 0x0908, 0x0100])
    }

    #[test]
    fn it_is_the_published_cipher() {
        // Appendix C of the paper.
        let cipher = cipher(0x1918);
        assert_eq!(cipher.encrypt(0x6574_694C), 0xA868_42F2);
        assert_eq!(cipher.decrypt(0xA868_42F2), 0x6574_694C);
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
        let stags: HashSet<u32> = (0..10_000).map(|i| cipher.stag(i, 7)).collect();
        assert_eq!(stags.len(), 10_000);
    }

    #[test]
    fn an_index_has_thousands_of_stags_before_one_comes_again() {
        let cipher = cipher(3);
        let first = cipher.stag(77, 0xFFE);
        let mut seen = HashSet::new();
        let mut stag = first;
        while seen.insert(stag) {
            stag = cipher.next(stag);
            assert_eq!(cipher.index(stag), 77);
        }
        assert_eq!((stag, seen.len()), (first, 4096));
    }

    #[test]
    fn no_stag_is_0() {
        let cipher = cipher(5);
        let nothing = cipher.decrypt(0);
        let (index, salt) = (nothing & INDEX_MASK, nothing >> INDEX_BITS);
        let before = cipher.stag(index, salt.wrapping_sub(1));
        let after = cipher.stag(index, salt.wrapping_add(1));
        assert_eq!(cipher.stag(index, salt), after);
        assert_eq!(cipher.next(before), after);
    }

    #[test]
    fn other_keys_give_other_stags() {
        let same = (0..1000)
            .filter(|i| cipher(1).stag(*i, 0) == cipher(2).stag(*i, 0))
            .count();
        assert!(same < 5, "{same}");
    }
}
