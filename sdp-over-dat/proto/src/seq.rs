//! The sequence number of a message.

/// MSeq or MSeqAck: one sequence per direction, modulo 2^32. Hello and HelloAck carry 0; the first
/// message after them carries 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// The number of the next message.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// The number of messages after `earlier`, up to and including this one.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// True if this message is `other` or a later one. The comparison is valid within half of the
    /// number space.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.since(other) <= u32::MAX / 2
    }
}

#[cfg(test)]
mod tests {
    use super::Seq;

    #[test]
    fn numbers_wrap_and_still_have_an_order() {
        assert_eq!(Seq(u32::MAX).next(), Seq(0));
        assert_eq!(Seq(2).since(Seq(u32::MAX)), 3);
        assert!(Seq(0).covers(Seq(u32::MAX)));
        assert!(!Seq(u32::MAX).covers(Seq(0)));
        assert!(Seq(7).covers(Seq(7)));
    }
}
