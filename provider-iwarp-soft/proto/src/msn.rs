//! The message sequence number of the untagged model.

/// A message sequence number (RFC 5041 section 4.3), one sequence per queue number and direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Msn(pub u32);

impl Msn {
    /// RFC 5041 section 4.3: the first message of a queue carries 1.
    pub const FIRST: Self = Self(1);

    /// The number of the message after this one; 0 follows 0xFFFF_FFFF.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_wraps_to_zero() {
        assert_eq!(Msn::FIRST.next(), Msn(2));
        assert_eq!(Msn(u32::MAX).next(), Msn(0));
    }
}
